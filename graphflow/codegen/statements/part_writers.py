"""What all emitters of one part of a kernel share: the part, its target, and what writes for it.

In: a lowered `PrimFunc` and a `Target`.  Out: `PartWriters`, made once for each LLVM function.
What always holds: all of them write into one builder, in the order in which they are called, and
know the same values of loop variables and the same places of buffers.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Const, IndexExpr
from graphflow.base.errors import CodegenError
from graphflow.base.target import Target
from graphflow.codegen.call_operands import CallOperands
from graphflow.codegen.emit_expr import Expressions
from graphflow.codegen.emit_index import Indices
from graphflow.codegen.emit_mask import Mask
from graphflow.codegen.instruction_set import product_in_lanes, writers_for
from graphflow.codegen.matrices import MatrixRegisters
from graphflow.codegen.memory import Memory
from graphflow.codegen.transposed_sums import transposed_sums
from graphflow.llvm import IrBuilder

EmitBody = Callable[[tir.Body, Mask | None], None]
"""Emits the statements of a body, in the lanes of a mask if there is one."""


class PartWriters(Struct, frozen=True):
    """The part `func` of a kernel, and what writes its instructions for `target`."""

    func: tir.PrimFunc
    target: Target
    builder: IrBuilder
    indices: Indices
    memory: Memory
    expressions: Expressions
    matrices: MatrixRegisters

    def operands(self, call: tir.Call) -> CallOperands:
        """The windows and scalars of a call, not placed yet."""
        return CallOperands(call, self.builder, self.indices, self.memory, self.matrices)

    def constant_extent(self, loop: tir.For) -> tuple[IndexExpr, int]:
        """Where a loop that is written out begins, and how many iterations it has; `CodegenError`
        where a run decides how many."""
        if isinstance(loop.start, Const) and isinstance(loop.stop, Const):
            return loop.start, max(loop.stop.value - loop.start.value, 0)
        start, stop = self.indices.resolved(loop.start), self.indices.resolved(loop.stop)
        extent = stop - start
        if not isinstance(extent, Const):
            raise CodegenError(
                f"kernel {self.func.name}: the {loop.kind.value} loop over {loop.var} runs from "
                f"{start} to {stop}; its extent must be a constant: make it serial or divide it"
            )
        return start, max(extent.value, 0)


def writers_of_part(func: tir.PrimFunc, target: Target) -> PartWriters:
    """What writes a part of a kernel, with nothing written yet."""
    builder, math = writers_for(target, "body")
    indices = Indices(builder)
    in_lanes = product_in_lanes(target)
    transposed = frozenset[str]() if in_lanes is None else transposed_sums(func, in_lanes)
    memory = Memory(builder, indices, target, transposed)
    expressions = Expressions(builder, indices, memory, math)
    matrices = MatrixRegisters(builder, memory)
    return PartWriters(func, target, builder, indices, memory, expressions, matrices)
