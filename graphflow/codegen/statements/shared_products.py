"""Products of loops that share instructions: several in one dot product, two in one multiplication.

In: a loop that may consist of calls of products alone.  Out: their instructions, or word that the
loop has to be emitted as any other.  `lane_products` puts bytes together for one dot product,
`paired_products` 16-bit integers for one multiplication; `whole_products` finds the serial loops
whose products may be put in pairs, as they execute all their iterations.

What always holds: nothing is emitted where word is that the loop is as any other: it is so where a
condition is not decided, a window has no place that an instruction takes, or nothing is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import cast

from graphflow import tir
from graphflow.arith import Predicate
from graphflow.codegen.call_operands import CallOperands
from graphflow.codegen.instruction_set import (
    instruction_for,
    paired_products,
    product_in_lanes,
    shares_dot_products,
)
from graphflow.codegen.statements.lane_products import adds_products, emit_together
from graphflow.codegen.statements.paired_products import (
    emit_in_pairs,
    may_be_paired,
    product_to_pair,
)
from graphflow.codegen.statements.part_writers import EmitBody, PartWriters
from graphflow.codegen.statements.whole_products import WholeProducts
from graphflow.llvm import int_constant


class SharedProducts:
    """Emits the loops of one part whose products share instructions."""

    def __init__(self, writers: PartWriters) -> None:
        self._writers, target = writers, writers.target
        self._dotted = product_in_lanes(target) if shares_dot_products(target) else None
        self._paired = paired_products(target)
        self._wholes = WholeProducts(self._paired, writers.indices)

    def emit_unrolled(self, loop: tir.For) -> bool:
        """Whether the products of an unrolled nest were emitted: several in one dot product where
        the target shares these and the sums are kept in the order for it, else in pairs."""
        if self._dotted is None or not adds_products(loop, self._dotted):
            return self._in_pairs(loop)
        found = [*self._products_in((loop,))]
        calls = [call for call in found if call is not None and call.is_transposed("c")]
        if not calls or len(calls) < len(found):
            return False
        self._emit_each(emit_together(calls, self._writers.builder, self._writers.memory))
        return True

    def emit_serial(self, loop: tir.For) -> bool:
        """Whether the products of a serial loop were emitted, two in one multiplication: where it
        is known to execute all its iterations."""
        whole = self._wholes.unrolled(loop)
        return whole is not None and self._in_pairs(whole)

    def emit_iteration(self, loop: tir.For, body: tir.Body, emit_body: EmitBody) -> None:
        """Emit what an iteration of a loop executes, given its index.

        Loops of products inside of it, whose bounds follow from the index, may execute all the
        iterations they can have, as they do but for borders.  Code of its own has the products of
        all of these in pairs: it is the same for each tile, and so LLVM keeps pairs of weights.
        """
        limits = self._wholes.limits(loop, body)
        if not limits:
            emit_body(body, None)
            return
        b = self._writers.builder
        tests = [
            b.compare("icmp eq", self._writers.indices.value(end), int_constant(limit))
            for end, limit in limits.items()
        ]
        with b.either(reduce(partial(b.binary, "and"), tests)) as otherwise:
            with self._wholes.assuming(limits):
                emit_body(body, None)
            otherwise()
            emit_body(body, None)

    def _in_pairs(self, loop: tir.For) -> bool:
        """Whether products were emitted, two in one multiplication: where there are any."""
        calls = self._calls_to_pair(loop)
        if calls:
            self._emit_each(emit_in_pairs(calls, self._writers.builder, self._writers.memory))
        return bool(calls)

    def _calls_to_pair(self, loop: tir.For) -> list[CallOperands]:
        """The calls of a nest whose products are emitted two in one multiplication; none where it
        does anything else, a condition is not decided, or there is nothing to be paired."""
        if product_to_pair(loop.body, self._paired) is None:
            return []
        found = [*self._products_in((loop,))]
        calls = [call for call in found if call is not None]
        return calls if len(calls) == len(found) and may_be_paired(calls) else []

    def _emit_each(self, calls: Sequence[CallOperands]) -> None:
        """Emit calls of products that the target has."""
        for call in calls:
            instruction = instruction_for(call.call, self._writers.target)
            assert instruction is not None, "the target has the product"
            instruction.emit(call)

    def _products_in(self, body: tir.Body) -> Iterator[CallOperands | None]:
        """The calls of an unrolled nest that run, with their windows placed; None for each that has
        no place, and where a condition is not decided."""
        indices = self._writers.indices
        for stmt in body:
            match stmt:
                case tir.For():
                    start, extent = self._writers.constant_extent(stmt)
                    for _ in indices.bound_to_each(stmt.var, start, extent):
                        yield from self._products_in(stmt.body)
                case tir.If():
                    predicate = indices.resolved_predicate(cast(Predicate, stmt.condition))
                    truth = indices.decided(predicate)
                    if truth is None:
                        yield None
                    elif truth:
                        yield from self._products_in(stmt.then)
                case tir.Call():
                    call = self._writers.operands(stmt)
                    yield call if call.placed() else None
