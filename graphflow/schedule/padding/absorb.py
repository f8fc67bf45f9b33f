"""Absorbing a padding stage into the nest that writes the rest of the buffer.

In: a kernel in which one nest writes a buffer's elements and a later stage a constant to its
padding.  Out: the kernel in which that nest writes both, so the buffer is written in one pass.
"""

from __future__ import annotations

from typing import cast

from graphflow import arith, layout, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.facts import padding
from graphflow.schedule.places import obligations, places
from graphflow.schedule.steps.frame import Rewrite


def absorb_padding(func: tir.PrimFunc, place: str, buffer: str) -> Rewrite:
    """`for p: if c(p): b[e(p)] = v` and later `for q: if q is padding: b[q] = k`
    → `for p: b[e(p)] = select(c(p), v, k)`; the padding stage goes.

    Where c fails, the loops of `place` must reach the padding, all of it and nothing else; each
    element must be written once, and by nothing but the two.
    """
    target = next((a.buffer for a in tir.accesses(func.body) if a.buffer.name == buffer), None)
    if target is None:
        raise ScheduleError(f"{func.name} does not touch a buffer {buffer}")
    stage, value = padding.constant_stage(func, target)
    site = _guarded_store(func, place, target)
    stmt = cast(tir.If, site.stmt)
    store = cast(tir.Store, stmt.then[0])
    condition = cast(arith.Predicate, stmt.condition)
    _only_these(func, place, stage, target)
    outside = site.domain.given(arith.negation(condition))
    names = layout.physical_vars(len(target.shape))
    where = f"where {condition} fails, {place}"
    proofs = (
        obligations.require(
            arith.prove(padding.is_padding((stage,), target, store.indices), outside),
            f"{where} reaches nothing but padding of {buffer}",
        ),
        obligations.require(
            arith.Image(outside, store.indices).covers(
                padding.is_padding((stage,), target, names), names, target.shape
            ),
            f"{where} reaches all the padding of {buffer}",
        ),
        obligations.require(
            arith.prove_injective(store.indices, site.domain),
            f"{place} writes each element of {buffer} once",
        ),
    )
    selected = tir.Store(target, store.indices, tir.Select(condition, store.value, value))

    def exchanged(body: tir.Body) -> tir.Body:
        return tir.map_body(body, lambda s: selected if s is stmt else s)

    new = places.rewrite_at(func, place, lambda s, _d: exchanged((s,)))
    new = places.exchange_at(new, stage.name, ())
    return Rewrite(new, proofs)


def _guarded_store(func: tir.PrimFunc, place: str, buffer: tir.Buffer) -> tir.Site:
    """The only index condition in `place` under which the buffer is stored to."""
    stmt, domain = places.find(func, place)
    if domain.axes or domain.where != arith.TRUE:
        raise ScheduleError(f"{place} stands inside another loop or condition")
    found = [
        site
        for site in tir.sites((stmt,))
        if isinstance(site.stmt, tir.If) and padding.writes_to(site.stmt.then, buffer)
    ]
    inner = found[0].stmt if len(found) == 1 else None
    if (
        not isinstance(inner, tir.If)
        or not tir.is_predicate(inner.condition)
        or inner.orelse
        or len(inner.then) != 1
        or not isinstance(inner.then[0], tir.Store)
        or found[0].guards
    ):
        raise ScheduleError(
            f"{place} does not write {buffer.name} by one store under one index condition"
        )
    return found[0]


def _only_these(func: tir.PrimFunc, place: str, stage: tir.Block, buffer: tir.Buffer) -> None:
    """ScheduleError unless `place` and then the stage write the buffer once each, and nothing else
    writes it or reads it before the stage has run."""
    first, last = padding.top_level(func, place), padding.top_level(func, stage.name)
    if first >= last:
        raise ScheduleError(f"{stage.name} does not come after {place}")
    writes = [a for a in tir.accesses(func.body) if a.buffer == buffer and a.writes]
    own = [a for a in tir.accesses((func.body[first], stage)) if a.buffer == buffer]
    if len(writes) != 2 or any(a.kind is tir.AccessKind.READ for a in own):
        raise ScheduleError(
            f"{buffer.name} is not written by {place} and {stage.name} alone, once each"
        )
    for stmt in func.body[first:last]:
        if any(load.buffer == buffer for load in tir.loads_in((stmt,))):
            raise ScheduleError(f"{buffer.name} is read before {stage.name} writes its padding")
