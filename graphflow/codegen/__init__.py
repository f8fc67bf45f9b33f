"""Code generation: a lowered kernel (`PrimFunc`) becomes LLVM IR, and that an ELF object file."""

from typing import TypeAlias

from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.codegen.emit import emit_ir
from graphflow.codegen.host import (
    avx2_target,
    chosen_target,
    executed_as,
    host_target,
    kept_rates,
    kind_of,
    named_target,
    uncalibrated_host,
)
from graphflow.codegen.instruction_set import (
    computes_halves,
    instruction,
    instructions_of,
    is_instruction,
    multiplies_matrices,
)
from graphflow.codegen.matrices import MATRIX_FACTORS, fits_matrices, matrix_product
from graphflow.codegen.symbols import ANONYMOUS, renamed
from graphflow.codegen.target_machine import assembly, object_code
from graphflow.tir import PrimFunc

ObjectTask: TypeAlias = tuple[PrimFunc, str, Target]
"""The arguments of `compile_object`."""


def compile_object(func: PrimFunc, symbol: str, target: Target) -> bytes:
    """`func` as an ELF object that defines `void symbol(ptr buffers, i64 lo, i64 hi)`."""
    return object_code(emit_ir(func, symbol, target), target)


def make_object(task: ObjectTask, trace: Trace) -> bytes:
    """The object code of one kernel; worker processes call this, and the trace gets its seconds.

    Objects of one kernel under different symbols differ in the bytes of the symbol alone, so an
    object can be `renamed`.
    """
    func, symbol, target = task
    with trace.timer("llvm", symbol):
        if len(symbol) > len(ANONYMOUS):
            return compile_object(func, symbol, target)
        return renamed(compile_object(func, ANONYMOUS, target), ANONYMOUS, symbol)


def emit_assembly(func: PrimFunc, symbol: str, target: Target) -> str:
    """`func` as optimized assembly, for dumps."""
    return assembly(emit_ir(func, symbol, target), target)


__all__ = [
    "MATRIX_FACTORS",
    "ObjectTask",
    "avx2_target",
    "chosen_target",
    "compile_object",
    "computes_halves",
    "emit_assembly",
    "emit_ir",
    "executed_as",
    "fits_matrices",
    "host_target",
    "instruction",
    "instructions_of",
    "is_instruction",
    "kept_rates",
    "kind_of",
    "make_object",
    "matrix_product",
    "multiplies_matrices",
    "named_target",
    "renamed",
    "uncalibrated_host",
]
