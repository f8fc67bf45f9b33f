"""Emits a part of a kernel, or all of it, as an LLVM function.

In: a lowered `PrimFunc` (no `Assume`, no `Undef`), a `Target`, the buffers that hold magnitudes
alone.  Out: the lines of the function.  What always holds: unrolled loops are unrolled here, so
that indices of register buffers are constants before LLVM sees them.  The order of instructions is
that of the statements, where iterations of unrolled loops take no turns (`unrolled_chains`).

Who emits what a body consists of:

    emit_part           the function: its parameters, and the whole body
     └ emit_statements  each statement by itself: stores, conditions, lets, calls of instructions
        ├ kept_sums         sums in matrix registers while a loop runs
        ├ emit_interleaved  stores by turns, and emit_reduction: reductions
        └ emit_loops        loops that are written out: unrolled, vectorized
           ├ running_loops    loops that run: serial, matched, parallel
           ├ shared_products  products of unrolled nests, several in one instruction
           ├ quotient_stores  narrow stores of quotients
           └ packed_stores    narrow stores at the end of chains

They share `part_writers`.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphflow import tir
from graphflow.base.target import Target
from graphflow.codegen.statements.emit_reduction import Reductions
from graphflow.codegen.statements.emit_statements import Statements
from graphflow.codegen.statements.part_writers import writers_of_part
from graphflow.llvm import IrValue

RANGE = ("i64 %lo", "i64 %hi", "ptr %worker")
"""The last parameters: the iterations to execute, and how threads meet behind a phase."""


class PartEmitter:
    """An LLVM function that executes a kernel, or some of its stages."""

    def __init__(
        self,
        func: tir.PrimFunc,
        target: Target,
        magnitudes: frozenset[tir.Buffer],
        heights: Mapping[tir.Buffer, tir.Buffer],
    ) -> None:
        self._func = func
        self._writers = writers_of_part(func, target)
        self.builder = self._writers.builder
        reductions = Reductions(self._writers.expressions, magnitudes, heights)
        self._statements = Statements(self._writers, reductions)

    def function(self, name: str) -> list[str]:
        """The definition of the function, called `name`."""
        for number, param in enumerate(self._func.params):
            read_only = param.role is tir.Role.INPUT
            self._writers.memory.add_parameter(
                param.buffer, IrValue(f"%p{number}", "ptr"), read_only
            )
        self._statements.emit(self._func.body, None)
        self._writers.matrices.close()
        parameters = ", ".join((*_parameters(self._func), *RANGE))
        return [
            f'define internal void @"{name}"({parameters}) #0 {{',
            "entry:",
            *self.builder.entry,
            "  br label %body",
            "body:",
            *self.builder.lines,
            "  ret void",
            "}",
        ]


def _parameters(func: tir.PrimFunc) -> list[str]:
    """The parameters of a part with what LLVM may rely on."""
    in_phases = tir.in_phases(func)
    texts: list[str] = []
    for number, param in enumerate(func.params):
        read_only = " readonly" if param.role is tir.Role.INPUT else ""
        size, aligned = param.buffer.bytes, tir.DTYPES[param.buffer.dtype].itemsize
        held = f" dereferenceable({size})" if size else ""
        # What other threads write between two phases, LLVM must not keep in registers.
        alone = "" if in_phases and not read_only else " noalias"
        texts.append(f"ptr{alone}{read_only} align {aligned}{held} %p{number}")
    return texts
