"""Elements kept in other places: whether each read still sees the value of the same write.

In: two kernels with the same accesses in the same order, which differ in the buffers, the indices
and the allocations of some of them.  Out: a `Proof`; where it is refuted, its witness is a write
and a read, the variables of the read primed.

A read that sees no write must see none after either: what it finds is undefined, but the same as
at every other read until the next write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from graphflow import arith, tir
from graphflow.effects.dataflow import flow_to_reads
from graphflow.effects.outer_loop_order import keeps_sources
from graphflow.effects.questions import METHOD, point_of, point_text
from graphflow.effects.relations import Relations, answered, relations_of
from graphflow.effects.statements import StatementAccess

OUTER_LOOPS = "dataflow of the outer loops"


def same_sources(
    before: tir.PrimFunc, after: tir.PrimFunc, old: Sequence[tir.Buffer], new: Sequence[tir.Buffer]
) -> arith.Proof:
    """Whether each read of the buffers `old` of `before` sees the same write in `after`.

    In `after` the same accesses are to the buffers `new`.  All of them are allocated in the
    kernels.  ValueError where the kernels do not make the same accesses.
    """
    one, other = relations_of(before), relations_of(after)
    here, there = ([_key(a) for a in r.model.accesses] for r in (one, other))
    if here != there:
        raise ValueError(f"{before.name} and {after.name} do not make the same accesses")
    claim = f"each read of {', '.join(b.name for b in old)} still sees the same write"

    def ask_outer_loops(context: Any) -> arith.Proof:
        kept = keeps_sources(one, other, context, old[0], new[0])
        return arith.Proof(
            arith.Verdict.PROVEN if kept else arith.Verdict.UNKNOWN, claim, OUTER_LOOPS
        )

    def ask(context: Any) -> arith.Proof:
        was, now = _Sources(one, context, old), _Sources(other, context, new)
        open_reason = ""
        for verdict, text, witness in (*_strange(was, now), *_lost(was, now)):
            if verdict is arith.Verdict.REFUTED:
                return arith.Proof(verdict, claim, METHOD, text, witness)
            open_reason = open_reason or f"where data decide, {text}"
        verdict = arith.Verdict.UNKNOWN if open_reason else arith.Verdict.PROVEN
        return arith.Proof(verdict, claim, METHOD, open_reason)

    if len(old) == len(new) == 1:
        coarse = answered(claim, ask_outer_loops)
        if coarse.proven:
            return coarse
    return answered(claim, ask)


def _key(access: StatementAccess) -> object:
    """What both kernels must agree on; the statement only by what is around it."""
    made = access.access
    return made.kind, made.op, made.certain, made.domain, access.is_claim


class _Sources:
    """The pairs of a write and a read that sees its value, of several buffers."""

    def __init__(self, relations: Relations, context: Any, buffers: Iterable[tir.Buffer]) -> None:
        self.accesses = relations.model.accesses
        self.may: dict[tuple[int, int], Any] = {}
        self.must: dict[tuple[int, int], Any] = {}
        for buffer in buffers:
            for reader, flow in flow_to_reads(relations, context, buffer):
                for found, edges in ((self.may, flow.may), (self.must, flow.must)):
                    found.update({(e.source.number, reader.number): e.pairs for e in edges})


_Found = tuple[arith.Verdict, str, arith.Witness]


def _strange(was: _Sources, now: _Sources) -> Iterator[_Found]:
    """Writes that a read sees after, and did not see before."""
    for ends, pairs in now.may.items():
        extra = pairs.subtract(was.may[ends]) if ends in was.may else pairs
        if not extra.is_empty():
            certain = extra.intersect(now.must[ends]) if ends in now.must else None
            yield _found(was, ends, extra, certain, "would see what")


def _lost(was: _Sources, now: _Sources) -> Iterator[_Found]:
    """Writes that a read sees before, and not after."""
    for ends, pairs in was.may.items():
        missing = pairs.subtract(now.may[ends]) if ends in now.may else pairs
        if not missing.is_empty():
            certain = missing.intersect(was.must[ends]) if ends in was.must else None
            yield _found(was, ends, missing, certain, "would not see what")


def _found(was: _Sources, ends: tuple[int, int], pairs: Any, certain: Any, how: str) -> _Found:
    source, reader = (was.accesses[number] for number in ends)
    happens = source.access.certain and reader.access.certain
    sure = happens and certain is not None and not certain.is_empty()
    values = point_of(certain if sure else pairs)
    written = (axis.var.name for axis in source.domain.axes)
    read = (f"{axis.var.name}'" for axis in reader.domain.axes)
    witness = tuple(zip((*written, *read), values, strict=True))
    count = len(source.domain.axes)
    text = (
        f"{reader} at {point_text(witness[count:])} {how} "
        f"{source} at {point_text(witness[:count])} stores"
    )
    return arith.Verdict.REFUTED if sure else arith.Verdict.UNKNOWN, text, witness
