"""Whose values the reads of a kernel see, buffer by buffer.

In: a kernel and a buffer.  Out: for each read the writes whose values it may see and those whose
values it must see, and where it may or must see what the buffer held before the kernel; the same
for what each store finds in its element, and for what outputs hold after the kernel.  What always
holds: `may` contains every pair of a write and a read that data can make true, `must` only pairs
that hold for all data, provided that both accesses happen.

A write under a condition on data may overwrite and need not.  Writes and reads under conditions on
indices are exact.  The dataflow is isl's (Feautrier 1991; Verdoolaege, barvinok).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import islpy as isl

from graphflow.effects.relations import END, Relations, union_map
from graphflow.effects.statements import StatementAccess
from graphflow.tir import Buffer, Store

BEFORE = "P"
"""The tuples `P<n>[…]` are the instances of store n, as readers of what it overwrites."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who sees a value: a read, a store that overwrites it, or whoever comes after the kernel."""

    kind: str
    """`A`, `P` or `End`."""
    access: StatementAccess | None
    """The read, or the overwriting store; None after the kernel."""


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """The pairs of a write's instance and a reader's instance that sees its value."""

    source: StatementAccess
    reader: Reader
    pairs: Any
    """An isl map."""


EdgeMaps: TypeAlias = "tuple[FlowEdge, ...]"


@dataclass(frozen=True, slots=True)
class BufferFlow:
    """The dataflow of one buffer."""

    may: EdgeMaps
    must: EdgeMaps
    may_initial: Any
    """A union map from readers to the elements that may hold what they did before the kernel."""
    must_initial: Any

    def sources(self, kind: str, access: StatementAccess | None) -> Iterator[FlowEdge]:
        """The writes whose values a reader must see."""
        return (e for e in self.must if e.reader.kind == kind and e.reader.access is access)

    def possible_sources(self, kind: str, access: StatementAccess | None) -> Iterator[FlowEdge]:
        """The writes whose values a reader may see, those that it must see included."""
        return (e for e in self.may if e.reader.kind == kind and e.reader.access is access)


def flow_of(relations: Relations, context: Any, buffer: Buffer) -> BufferFlow:
    """The dataflow of a buffer, computed once.  TooLarge, or isl.Error past the budget."""
    return relations.once("flow", buffer, lambda: _computed(relations, context, buffer))


def _computed(relations: Relations, context: Any, buffer: Buffer) -> BufferFlow:
    found = relations.limited(buffer)
    sinks, certain, possible, times = [], [], [], []
    for access in found:
        elements = relations.elements(context, access)
        time = relations.times(context, access)
        times.append(time)
        if not access.access.writes or access.access.op is not None:
            sinks.append(_as_reader(elements, access))
            times.append(_as_reader(_before(relations, context, access), access))
        if isinstance(access.statement.stmt, Store) and access.access.writes:
            sinks.append(elements.set_tuple_name(isl.dim_type.in_, f"{BEFORE}{access.number}"))
            before = _before(relations, context, access)
            times.append(before.set_tuple_name(isl.dim_type.in_, f"{BEFORE}{access.number}"))
        if access.access.writes:
            (certain if access.access.certain else possible).append(elements)
    if buffer in relations.model.func.outputs:
        elements, time = relations.end(context, buffer)
        sinks.append(elements)
        times.append(time)
    asked = isl.UnionAccessInfo.from_sink(union_map(context, sinks))
    asked = asked.set_must_source(union_map(context, certain))
    asked = asked.set_may_source(union_map(context, possible))
    asked = asked.set_schedule_map(union_map(context, times))
    flow = asked.compute_flow()
    by_number = {access.number: access for access in found}
    return BufferFlow(
        _edges(flow.get_may_dependence(), by_number),
        _edges(flow.get_must_dependence(), by_number),
        flow.get_may_no_source(),
        flow.get_must_no_source(),
    )


READING = "R"
"""The tuples `R<n>[…]` are the instances of access n as readers: a reduction reads and writes."""


def _as_reader(relation: Any, access: StatementAccess) -> Any:
    return relation.set_tuple_name(isl.dim_type.in_, f"{READING}{access.number}")


def _before(relations: Relations, context: Any, access: StatementAccess) -> Any:
    """The time stamps at which the statement of an access reads."""
    return relations.times(context, access, reading=True)


def _edges(dependence: Any, accesses: dict[int, StatementAccess]) -> EdgeMaps:
    """The maps of a union map, ordered by the numbers of their accesses."""
    found: list[tuple[tuple[int, int], FlowEdge]] = []
    maps = dependence.get_map_list()
    for position in range(maps.n_map()):
        pairs = maps.get_at(position)
        if pairs.is_empty():
            continue
        source = int(pairs.get_tuple_name(isl.dim_type.in_)[1:])
        name = pairs.get_tuple_name(isl.dim_type.out)
        if name == END:
            key, reader = (source, len(accesses) + source), Reader(END, None)
        else:
            key = (source, int(name[1:]))
            reader = Reader(name[0], accesses[int(name[1:])])
        found.append((key, FlowEdge(accesses[source], reader, pairs)))
    return tuple(edge for _, edge in sorted(found, key=lambda pair: (pair[0], pair[1].reader.kind)))
