"""Emits the statements of a body, each by itself: stores, lets, conditions, calls of instructions.

In: a body, and the mask of the lanes in which it is executed, None where it is in no lanes.  Out:
its instructions, in the builder.  Only two things are not statement by statement: stores by turns
(`emit_interleaved`), and a loop of matrix products with the one before it that fills its sums
(`kept_sums`).  Loops are those of `emit_loops`.

What always holds: the order of instructions is that of the statements; matrix registers forget
their operands behind what writes memory.
"""

from __future__ import annotations

from typing import assert_never, cast

from graphflow import tir
from graphflow.base.errors import CodegenError
from graphflow.codegen.emit_mask import Mask
from graphflow.codegen.instruction_set import instruction_for
from graphflow.codegen.statements.emit_interleaved import store_by_turns, stores_by_turns
from graphflow.codegen.statements.emit_loops import Loops
from graphflow.codegen.statements.emit_reduction import Reductions
from graphflow.codegen.statements.kept_sums import KeptSums
from graphflow.codegen.statements.part_writers import PartWriters
from graphflow.llvm import IrValue

MAX_LINES = 1_000_000
"""Most lines of LLVM IR for one kernel; LLVM takes a minute and several gigabytes for these."""


class Statements:
    """Emits the statements of one part of a kernel."""

    def __init__(self, writers: PartWriters, reductions: Reductions) -> None:
        self._writers, self._reductions = writers, reductions
        self._builder, self._memory = writers.builder, writers.memory
        self._expressions, self._matrices = writers.expressions, writers.matrices
        self._kept = KeptSums(writers)
        self._loops = Loops(writers, self._kept, self.emit)

    def emit(self, body: tir.Body, mask: Mask | None) -> None:
        """Emit a body; `CodegenError` where it has too many instructions."""
        rest = body
        while rest:
            rest = rest[self._emit_first(rest, mask) :]
            if len(self._builder.lines) > MAX_LINES:
                raise CodegenError(
                    f"kernel {self._writers.func.name} has more than {MAX_LINES} instructions; "
                    "unroll fewer of its loops"
                )

    def _emit_first(self, body: tir.Body, mask: Mask | None) -> int:
        """Emit the statements with which a body begins, and say how many these are."""
        if mask is None:
            if self._emit_products(body):
                return 2
        elif by_turns := stores_by_turns(body, mask, self._memory):
            values = [self._expressions.emit(store.value, lanes) for store, lanes in by_turns]
            store_by_turns(by_turns, values, self._memory)
            return len(by_turns)
        self._stmt(body[0], mask)
        return 1

    def _emit_products(self, body: tir.Body) -> bool:
        """Emit a loop that fills sums of matrix products and the loop of these, with which a body
        begins; False, with nothing emitted, where it begins with anything else."""
        kept = self._kept.begun_by(body)
        if kept is None:
            return False
        with kept:
            self._loops.emit(cast(tir.For, body[1]), None)
        return True

    def _stmt(self, stmt: tir.Stmt, mask: Mask | None) -> None:
        match stmt:
            case tir.Store():
                value = self._expressions.emit(stmt.value, mask)
                self._memory.store(stmt.buffer, stmt.indices, value, mask)
                self._matrices.forget()
            case tir.Reduce():
                self._reductions.emit(stmt, mask)
                self._matrices.forget()
            case tir.For():
                self._loops.emit(stmt, mask)
            case tir.If():
                self.emit_if(stmt, mask)
            case tir.Allocate():
                self._memory.allocate(stmt.buffer, cleared=self._kept.in_matrices)
            case tir.NamedWindow():
                self.emit(tir.performed(stmt), mask)
            case tir.Let():
                self._let(stmt, mask)
            case tir.Block():
                self.emit(stmt.body, mask)
            case tir.Call():
                self._call(stmt, mask)
            case tir.Assume():
                raise CodegenError(
                    f"kernel {self._writers.func.name} still holds an assume ({stmt.unless}); "
                    "remove assumptions before emitting"
                )
            case _:
                assert_never(stmt)

    def _call(self, call: tir.Call, mask: Mask | None) -> None:
        """Emit a call as an instruction of the target, or the statements of what it calls; in lanes
        there are no instructions."""
        instruction = instruction_for(call, self._writers.target) if mask is None else None
        if instruction is None or not self._writers.operands(call).emit(instruction):
            self.emit(tir.performed(call), mask)

    def _let(self, let: tir.Let, mask: Mask | None) -> None:
        """Emit the body of a let with its value as a virtual register.

        An instruction whose parameter is a window of it takes an address, so then the value is
        stored; in lanes there are no instructions.
        """
        if mask is None and any(
            w.buffer == let.buffer for call in tir.calls_in(let.body) for w in call.windows
        ):
            self.emit(tir.performed(let), mask)
            return
        value = self._expressions.emit(let.value, mask)
        with self._memory.named(let.buffer, value):
            self.emit(let.body, mask)

    def emit_if(self, stmt: tir.If, mask: Mask | None) -> None:
        """Emit the sides of a condition that may run: under a branch, or, where lanes decide apart,
        one after the other under masks."""
        truth = self._expressions.truth(stmt.condition, mask)
        if isinstance(truth, bool):
            self.emit(stmt.then if truth else stmt.orelse, mask)
        elif isinstance(truth, IrValue) and truth.lanes == 1:
            self._branch(stmt, truth, mask)
        else:
            assert mask is not None
            # Both masks first: `then` may overwrite what the condition reads.
            sides = ((stmt.then, True), (stmt.orelse, False))
            inner = [
                (body, self._expressions.given(stmt.condition, truth, mask, holds))
                for body, holds in sides
                if body
            ]
            for body, lanes in inner:
                if lanes.count:
                    self.emit(body, lanes)

    def _branch(self, stmt: tir.If, truth: IrValue, mask: Mask | None) -> None:
        """Emit the sides of a condition that has one value, each where it runs."""
        if not tir.is_predicate(stmt.condition):
            # A branch on memory that was never written would be undefined.
            truth = self._builder.freeze(truth)
        if not stmt.orelse:
            with self._builder.when(truth):
                self.emit(stmt.then, mask)
            self._matrices.forget()
            return
        with self._builder.either(truth) as otherwise:
            self.emit(stmt.then, mask)
            otherwise()
            self._matrices.forget()
            self.emit(stmt.orelse, mask)
        self._matrices.forget()
