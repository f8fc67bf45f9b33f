"""Whose values the reads of a kernel see, buffer by buffer.

In: a kernel, a buffer and a reader: an access, or whoever reads an output after the kernel.  Out:
the writes whose values the reader may see and those whose values it must see, and where it may or
must see what the buffer held before the kernel.  What always holds: `may` contains every pair of a
write and a read that data can make true, `must` only pairs that hold for all data, provided that
both accesses happen.

A write under a condition on data may overwrite and need not, unless the reader is under the same
one: then it does in the run of the branch that the reader is in.  Writes and reads under
conditions on indices are exact.  The last writer is the lexicographic maximum of the time stamps
of all writes before a read (Feautrier 1991).  isl's own `compute_flow` is not used: it found a
write of rows 0 and 2, `y[2*(-min(4, i) % 2), 1]`, to overwrite rows 1 and 3 (isl 0.27).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import islpy as isl
from msgspec import Struct

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.effects.relations import Relations, latest
from graphflow.effects.statements import StatementAccess


class FlowEdge(Struct, frozen=True):
    """The pairs of an instance of a write and an instance of a reader that sees its value."""

    source: StatementAccess
    reader: StatementAccess | None
    """None for whoever reads an output after the kernel."""
    pairs: Any
    """An isl map."""


class ReaderFlow(Struct, frozen=True):
    """The dataflow of one buffer to one reader.

    `may_initial` and `must_initial` are isl maps from the instances of the reader that see what the
    buffer held before the kernel to the elements, or None where there are no such instances.
    """

    may: tuple[FlowEdge, ...]
    must: tuple[FlowEdge, ...]
    may_initial: Any
    must_initial: Any


def flow_to_reads(
    relations: Relations, context: Any, buffer: tir.Buffer
) -> Iterator[tuple[StatementAccess, ReaderFlow]]:
    """Each access that sees values of a buffer, with the dataflow to it."""
    for access in relations.limited(buffer):
        if sees_values(access):
            yield access, reaching(relations, context, buffer, access)


def reaching(
    relations: Relations,
    context: Any,
    buffer: tir.Buffer,
    reader: StatementAccess | None,
    facts: bool = False,
    through: frozenset[StatementAccess] = frozenset(),
) -> ReaderFlow:
    """The dataflow of a buffer to one reader, computed once; None is the reader after the kernel.
    TooLarge, or isl.Error past the budget.

    With `facts`, an assumption that an element holds a constant counts as the write of it.  The
    reductions in `through` are neither readers nor writes: what they read passes on to whoever
    reads their results.
    """
    facts = facts and any(map(states_constant, relations.limited(buffer)))
    passing = frozenset(access.number for access in through)
    key = (buffer, None if reader is None else reader.number, facts, passing)

    def compute() -> ReaderFlow:
        sources = _sources(relations, context, buffer, facts, passing)
        return _reaching(_sink(relations, context, buffer, reader), sources)

    found: ReaderFlow = relations.once("flow", key, compute)
    return found


def states_constant(access: StatementAccess) -> bool:
    """Whether an access is the load in an assumption `x[…] == c` that tells every bit of x[…].

    Both zeros are equal to a zero, so such a claim about a float does not.
    """
    stmt = access.statement.stmt
    if not isinstance(stmt, tir.Assume) or not access.access.certain:
        return False
    match stmt.claim:
        case tir.Comparison(op="eq", left=tir.Load(), right=tir.Literal() as literal):
            return literal.dtype not in tir.FLOATS or literal.value != 0
        case _:
            return False


class _Source(Struct, frozen=True):
    """A write, with the maps from its instances to elements and to time stamps."""

    access: StatementAccess
    elements: Any
    times: Any


class _Sink(Struct, frozen=True):
    """A reader, with the same maps."""

    access: StatementAccess | None
    elements: Any
    times: Any


def _sources(
    relations: Relations, context: Any, buffer: tir.Buffer, facts: bool, passing: frozenset[int]
) -> list[_Source]:
    return [
        _Source(a, relations.elements(context, a), relations.times(context, a))
        for a in relations.limited(buffer)
        if a.number not in passing and (a.access.writes or (facts and states_constant(a)))
    ]


def _sink(
    relations: Relations, context: Any, buffer: tir.Buffer, reader: StatementAccess | None
) -> _Sink:
    if reader is None:
        return _Sink(None, *relations.end(context, buffer))
    elements = relations.elements(context, reader)
    times = relations.times(context, reader, reading=True)
    return _Sink(reader, elements, times)


def _reaching(sink: _Sink, sources: Sequence[_Source]) -> ReaderFlow:
    """The writes that reach one reader.

    The last of the writes before it that must happen ends all earlier ones.  Later ones, which may
    happen, reach the reader too, and leave open whether that last one does.
    """
    before: list[_Earlier] = []
    stamps = None
    for source in sources:
        pairs = source.elements.apply_range(sink.elements.reverse())
        if pairs.is_empty():
            continue
        if sink.access is not None:  # everything is before the end of the kernel
            pairs = pairs.intersect(source.times.lex_lt_map(sink.times))
            if pairs.is_empty():
                continue
        for part in _by_certainty(source, sink, pairs):
            before.append(part)
            if part.certain:
                found = part.pairs.reverse().apply_range(source.times)
                stamps = found if stamps is None else stamps.union(found)
    last = None if stamps is None else latest(stamps)
    reaching = [replace(one, pairs=_not_ended(one, last)) for one in before]
    reaching = [one for one in reaching if not one.pairs.is_empty()]
    unsure = [one.pairs.range() for one in reaching if not one.certain]
    may: dict[StatementAccess, Any] = {}
    must = []
    untouched = sink.elements
    for one in reaching:
        access, pairs = one.source.access, one.pairs
        may[access] = may[access].union(pairs) if access in may else pairs
        untouched = untouched.subtract_domain(pairs.range())
        if one.certain:
            for range_ in unsure:
                pairs = pairs.subtract_range(range_)
            if not pairs.is_empty():
                must.append(FlowEdge(access, sink.access, pairs))
    unwritten = sink.elements if last is None else sink.elements.subtract_domain(last.domain())
    return ReaderFlow(
        tuple(FlowEdge(access, sink.access, pairs) for access, pairs in may.items()),
        tuple(must),
        None if unwritten.is_empty() else unwritten,
        None if untouched.is_empty() else untouched,
    )


class _Earlier(Struct, frozen=True):
    """Pairs of a write and a later reader; `certain` if the write happens where the reader does."""

    source: _Source
    pairs: Any
    certain: bool


def _by_certainty(source: _Source, sink: _Sink, pairs: Any) -> Iterator[_Earlier]:
    """The pairs of which the write certainly happens, and the others."""
    if source.access.access.certain:
        yield _Earlier(source, pairs, True)
        return
    loops = None
    if sink.access is not None:
        loops = source.access.statement.loops_to_run_with(sink.access.statement)
    if loops is None:
        yield _Earlier(source, pairs, False)
        return
    together = pairs
    for axis in range(loops):
        together = together.equate(isl.dim_type.in_, axis, isl.dim_type.out, axis)
    for part, certain in ((together, True), (pairs.subtract(together), False)):
        if not part.is_empty():
            yield _Earlier(source, part, certain)


def _not_ended(one: _Earlier, last: Any) -> Any:
    """The pairs of a write and a reader between which no write must happen.

    A write that must happen is then the last of these itself, which is cheaper to ask than whether
    it is earlier.
    """
    if last is None:
        return one.pairs
    if one.certain:
        return one.pairs.intersect(one.source.times.apply_range(last.reverse()))
    stamps = isl.Map.lex_gt(last.range().get_space())
    ended = one.source.times.apply_range(last.apply_range(stamps).reverse())
    return one.pairs.subtract(ended)


def sees_values(access: StatementAccess) -> bool:
    """Whether an access is a read or a reduction: a store sees nothing of what it overwrites."""
    return access.access.kind is not tir.AccessKind.WRITE
