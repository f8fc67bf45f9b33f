"""The statements of a kernel as LLVM functions: loops, conditions, reductions."""

from graphflow.codegen.statements.emit_part import PartEmitter

__all__ = ["PartEmitter"]
