"""Primitives that set the kind of a loop: unrolled, vectorized, parallel.

In: a kernel and a loop.  Out: the kernel with the loop marked; the emitter acts on the mark.  What
always holds: loops whose iterations run at once are proven independent.
"""

from __future__ import annotations

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.facts.dependence import independent
from graphflow.schedule.loops.pieces import require_few_statements
from graphflow.schedule.places import obligations, places
from graphflow.schedule.steps.frame import Rewrite


def mark_unrolled(func: tir.PrimFunc, loop: str) -> Rewrite:
    """`for i: S` → the same loop marked to be unrolled by the emitter.

    The bounds must be constants, and *size*: the statements that the emitter makes of the loop are
    at most `pieces.MOST_STATEMENTS`.  The kernel is not expanded here, as `unroll_loop` does,
    because later proofs would have to go through each of the thousands of statements of an
    unrolled tile.
    """
    stmt, _ = places.find_loop(func, loop)
    extent = require_few_statements(stmt, loop)
    new = places.exchange_at(func, loop, (replace(stmt, kind=tir.LoopKind.UNROLLED),))
    return Rewrite(new, (obligations.structural(f"{loop} runs exactly {extent} times"),))


def vectorize_loop(func: tir.PrimFunc, loop: str) -> Rewrite:
    """`for i: S` → the same loop, whose iterations the emitter runs as lanes of a vector.

    The loop must be innermost with constant bounds, and its iterations must be independent.
    """
    stmt, domain = places.find_loop(func, loop)
    places.constant_extent(stmt)
    if any(isinstance(s, tir.For | tir.Allocate) for s in tir.walk(stmt.body)):
        raise ScheduleError(f"{loop} holds a loop or an allocation, so it cannot become lanes")
    _not_in_lanes(func, domain, loop)
    lanes = replace(stmt, kind=tir.LoopKind.VECTORIZED)
    proofs = independent(lanes, domain)
    new = places.exchange_at(func, loop, (lanes,))
    return Rewrite(new, proofs)


def parallelize_loop(func: tir.PrimFunc, loop: str) -> Rewrite:
    """`for i: S` → the same loop, whose iterations threads may run at once.

    1. No iteration writes an element that another one touches, also where the iterations were
       lanes before, which may reduce into one element.
    """
    stmt, domain = places.find_loop(func, loop)
    _not_in_lanes(func, domain, loop)
    threads = replace(stmt, kind=tir.LoopKind.PARALLEL)
    proofs = independent(threads, domain)
    new = places.exchange_at(func, loop, (threads,))
    return Rewrite(new, proofs)


def _not_in_lanes(func: tir.PrimFunc, domain: arith.Domain, loop: str) -> None:
    """ScheduleError where a loop around this one is vectorized."""
    lanes = places.first_in_lanes(func, loop, (axis.var for axis in domain.axes))
    if lanes is not None:
        raise ScheduleError(f"{loop} stands inside {lanes}, whose iterations are lanes already")
