"""Absorbing a padding stage into the nest that writes the rest of the buffer.

In: a kernel in which one nest writes a buffer's elements and a later stage a constant to its
padding.  Out: the kernel in which that nest writes both, so the buffer is written in one pass.
"""

from __future__ import annotations

from typing import cast

from graphflow.arith import TRUE, Image, Predicate, negation, prove, prove_injective
from graphflow.base.errors import ScheduleError
from graphflow.layout import physical_vars
from graphflow.schedule.frame import Rewrite
from graphflow.schedule.obligations import require
from graphflow.schedule.padding import (
    constant_stage,
    is_padding,
    top_level,
    writes_to,
)
from graphflow.schedule.places import find, rewrite_at
from graphflow.tir import (
    AccessKind,
    Block,
    Body,
    Buffer,
    If,
    PrimFunc,
    Select,
    Site,
    Store,
    accesses,
    is_predicate,
    loads_in,
    map_body,
    sites,
)


def absorb_padding(func: PrimFunc, place: str, buffer: str) -> Rewrite:
    """`for p: if c(p): b[e(p)] = v` and later `for q: if q is padding: b[q] = k`
    → `for p: b[e(p)] = select(c(p), v, k)`; the padding stage goes.

    Where c fails, the loops of `place` must reach the padding, all of it and nothing else; each
    element must be written once, and by nothing but the two.
    """
    target = next((a.buffer for a in accesses(func.body) if a.buffer.name == buffer), None)
    if target is None:
        raise ScheduleError(f"{func.name} does not touch a buffer {buffer}")
    stage, value = constant_stage(func, target)
    site = _guarded_store(func, place, target)
    stmt = cast(If, site.stmt)
    store = cast(Store, stmt.then[0])
    condition = cast(Predicate, stmt.condition)
    _only_these(func, place, stage, target)
    outside = site.domain.given(negation(condition))
    names = physical_vars(len(target.shape))
    where = f"where {condition} fails, {place}"
    proofs = (
        require(
            prove(is_padding((stage,), target, store.indices), outside),
            f"{where} reaches nothing but padding of {buffer}",
        ),
        require(
            Image(outside, store.indices).covers(
                is_padding((stage,), target, names), names, target.shape
            ),
            f"{where} reaches all the padding of {buffer}",
        ),
        require(
            prove_injective(store.indices, site.domain),
            f"{place} writes each element of {buffer} once",
        ),
    )
    selected = Store(target, store.indices, Select(condition, store.value, value))

    def exchanged(body: Body) -> Body:
        return map_body(body, lambda s: selected if s is stmt else s)

    new = rewrite_at(func, place, lambda s, _d: exchanged((s,)))
    new = rewrite_at(new, stage.name, lambda _s, _d: ())
    return Rewrite(new, proofs)


def _guarded_store(func: PrimFunc, place: str, buffer: Buffer) -> Site:
    """The only index condition in `place` under which the buffer is stored to."""
    stmt, domain = find(func, place)
    if domain.axes or domain.where != TRUE:
        raise ScheduleError(f"{place} stands inside another loop or condition")
    found = [
        site
        for site in sites((stmt,))
        if isinstance(site.stmt, If) and writes_to(site.stmt.then, buffer)
    ]
    inner = found[0].stmt if len(found) == 1 else None
    if (
        not isinstance(inner, If)
        or not is_predicate(inner.condition)
        or inner.orelse
        or len(inner.then) != 1
        or not isinstance(inner.then[0], Store)
        or found[0].guards
    ):
        raise ScheduleError(
            f"{place} does not write {buffer.name} by one store under one index condition"
        )
    return found[0]


def _only_these(func: PrimFunc, place: str, stage: Block, buffer: Buffer) -> None:
    """ScheduleError unless `place` and then the stage write the buffer once each, and nothing else
    writes it or reads it before the stage has run."""
    first, last = top_level(func, place), top_level(func, stage.name)
    if first >= last:
        raise ScheduleError(f"{stage.name} does not come after {place}")
    writes = [a for a in accesses(func.body) if a.buffer == buffer and a.writes]
    own = [a for a in accesses((func.body[first], stage)) if a.buffer == buffer]
    if len(writes) != 2 or any(a.kind is AccessKind.READ for a in own):
        raise ScheduleError(
            f"{buffer.name} is not written by {place} and {stage.name} alone, once each"
        )
    for stmt in func.body[first:last]:
        if any(load.buffer == buffer for load in loads_in((stmt,))):
            raise ScheduleError(f"{buffer.name} is read before {stage.name} writes its padding")
