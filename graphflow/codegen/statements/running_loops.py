"""Loops that run: serial ones, those of which data names the one iteration, and parallel ones.

In: a loop, and the mask of the lanes in which it is executed, None where it is in no lanes.  Out: a
loop of LLVM, or less where the loop has at most one iteration, of which the body is emitted in
turn.  Serial loops whose iterations before or behind a count do nothing leave these out
(`counted_loops`).

What always holds: the index of an iteration is within the interval that is stated for it.  Of a
matched loop only the iteration that data names is run, if it is within the bounds.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from graphflow import tir
from graphflow.arith import Interval, bounds
from graphflow.codegen.emit_mask import Mask
from graphflow.codegen.statements.counted_loops import begin_of_counted, end_of_counted
from graphflow.codegen.statements.part_writers import EmitBody, PartWriters
from graphflow.codegen.statements.shared_products import SharedProducts
from graphflow.llvm import IrValue, call_text


class RunningLoops:
    """Emits the loops of one part that run; `emit_body` emits what an iteration executes."""

    def __init__(self, writers: PartWriters, products: SharedProducts, emit_body: EmitBody) -> None:
        self._builder, self._indices = writers.builder, writers.indices
        self._expressions, self._matrices = writers.expressions, writers.matrices
        self._products, self._emit_body = products, emit_body
        self._in_phases = tir.in_phases(writers.func)

    def serial(self, loop: tir.For, mask: Mask | None) -> None:
        """Emit a loop whose iterations run one after the other."""
        start, stop = self._indices.resolved(loop.start), self._indices.resolved(loop.stop)
        low, high = bounds(start, self._indices.ranges)[0], bounds(stop, self._indices.ranges)[1]
        fewest, most = bounds(stop - start, self._indices.ranges)
        if most is not None and most <= 0:
            return
        if fewest == most == 1:
            with self._indices.bound(loop.var, start):
                self._emit_body(loop.body, mask)
            return
        interval = (low, None if high is None else high - 1)
        first, last = self._indices.value(start), self._indices.value(stop)
        may_be_empty = fewest is None or fewest < 1
        value, body = tir.matched_value(loop), loop.body
        if (limit := end_of_counted(loop, interval, self._expressions, mask)) is not None:
            last, may_be_empty = self._builder.intrinsic("smin", last, limit), True
            body = cast(tir.If, body[0]).then
            loop = loop.around(body)
        if (begin := begin_of_counted(loop, interval, self._expressions, mask)) is not None:
            first, may_be_empty = self._builder.intrinsic("smax", first, begin), True
            body = cast(tir.If, body[0]).then
        goes_on = None
        if mask is None and (lasting := tir.lasting_condition(loop.around(body))) is not None:
            goes_on, body = partial(self._frozen, lasting), cast(tir.If, body[0]).then
        if value is None:
            self._matrices.forget()
            with (
                self._builder.counted(first, last, may_be_empty, goes_on) as index,
                self._indices.running(loop.var, index, interval),
            ):
                self._iteration(loop, body, mask)
            self._matrices.forget()
        elif may_be_empty:
            with self._builder.when(self._builder.compare("icmp slt", first, last)):
                self._matched(loop, value, (first, last), interval, mask)
        else:
            self._matched(loop, value, (first, last), interval, mask)

    def parallel(self, loop: tir.For) -> None:
        """Emit the iterations of a parallel loop that a thread is given, and the meeting behind
        them where the kernel is in phases."""
        start = self._indices.resolved(loop.start)
        low, high = bounds(start, self._indices.ranges)[0], bounds(loop.stop, {})[1]
        interval = (low, None if high is None else high - 1)
        b = self._builder
        first = b.binary("add nsw", IrValue("%lo", "i64"), self._indices.value(start))
        last = b.binary("add nsw", IrValue("%hi", "i64"), self._indices.value(start))
        with (
            b.counted(first, last, may_be_empty=True) as index,
            self._indices.running(loop.var, index, interval),
        ):
            self._iteration(loop, loop.body, None)
        if self._in_phases:
            self._meet()

    def _iteration(self, loop: tir.For, body: tir.Body, mask: Mask | None) -> None:
        """Emit what an iteration of a loop executes, given its index."""
        if mask is None:
            self._products.emit_iteration(loop, body, self._emit_body)
        else:
            self._emit_body(body, mask)

    def _frozen(self, condition: tir.Expr) -> IrValue:
        """The value of a condition; a branch on memory that was never written would be
        undefined."""
        return self._builder.freeze(self._expressions.emit(condition, None))

    def _matched(
        self,
        loop: tir.For,
        value: tir.Expr,
        limits: tuple[IrValue, IrValue],
        interval: Interval,
        mask: Mask | None,
    ) -> None:
        """Emit the one iteration that a matched loop can have, if `value` is within the bounds."""
        b = self._builder
        index = self._expressions.emit(value, mask)
        assert index.lanes == 1, "where lanes match apart, the loop around is emitted as serial"
        # One number for the test and for the addresses, also where memory was never written.
        index = b.opaque(index)
        first, last = limits
        inside = b.binary(
            "and", b.compare("icmp sge", index, first), b.compare("icmp slt", index, last)
        )
        (test,) = loop.body
        assert isinstance(test, tir.If)
        with b.when(inside), self._indices.running(loop.var, index, interval):
            self._emit_body(test.then, mask)

    def _meet(self) -> None:
        """Emit the meeting of the threads that share the loops of a kernel in phases."""
        worker = IrValue("%worker", "ptr")
        with self._builder.when(self._builder.compare("icmp ne", worker, IrValue("null", "ptr"))):
            meeting = self._builder.emit("load ptr, ptr %worker, align 8", "ptr")
            self._builder.do(call_text(meeting.text, "void", [worker]))
