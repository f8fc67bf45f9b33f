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

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import islpy as isl

from graphflow.effects.relations import Relations, union_map
from graphflow.effects.statements import StatementAccess
from graphflow.tir import FLOATS, AccessKind, Assume, Buffer, Comparison, Literal, Load


class ReaderKind(StrEnum):
    """Who sees a value; the letter begins the name of its tuples."""

    READ = "R"
    """`R<n>[…]`: access n, a read or a reduction."""
    OVERWRITE = "P"
    """`P<n>[…]`: store n, which sees what it overwrites."""
    AFTER = "End"
    """`End[…]`: whoever reads an output after the kernel."""


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """The pairs of an instance of a write and an instance of a reader that sees its value."""

    source: StatementAccess
    kind: ReaderKind
    reader: StatementAccess | None
    """The read, or the store that overwrites; None after the kernel."""
    pairs: Any
    """An isl map."""


@dataclass(frozen=True, slots=True)
class BufferFlow:
    """The dataflow of one buffer."""

    may: tuple[FlowEdge, ...]
    must: tuple[FlowEdge, ...]
    may_initial: Any
    """A union map from readers to elements that may hold what they did before the kernel."""
    must_initial: Any


def flow_of(relations: Relations, context: Any, buffer: Buffer, facts: bool = False) -> BufferFlow:
    """The dataflow of a buffer, computed once.  TooLarge, or isl.Error past the budget.

    With `facts`, an assumption that an element holds a constant counts as the write of it.
    """
    facts = facts and any(map(states_constant, relations.limited(buffer)))
    key = (buffer, facts)
    return relations.once("flow", key, lambda: _computed(relations, context, buffer, facts))


def states_constant(access: StatementAccess) -> bool:
    """Whether an access is the load in an assumption `x[…] == c` that tells every bit of x[…].

    Both zeros are equal to a zero, so such a claim about a float does not.
    """
    stmt = access.statement.stmt
    if not isinstance(stmt, Assume) or not access.access.certain:
        return False
    match stmt.claim:
        case Comparison(op="eq", left=Load(), right=Literal() as literal):
            return literal.dtype not in FLOATS or literal.value != 0
        case _:
            return False


def _computed(relations: Relations, context: Any, buffer: Buffer, facts: bool) -> BufferFlow:
    found = relations.limited(buffer)
    sinks, times = [], []
    certain, possible = [], []
    for access in found:
        elements = relations.elements(context, access)
        if access.access.writes or (facts and states_constant(access)):
            times.append(relations.times(context, access))
            (certain if access.access.certain else possible).append(elements)
        kind = reader_kind(access)
        sinks.append(_renamed(elements, kind, access))
        times.append(_renamed(relations.times(context, access, reading=True), kind, access))
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


def reader_kind(access: StatementAccess) -> ReaderKind:
    """How an access sees values: a store sees what it overwrites, any other one reads."""
    return ReaderKind.OVERWRITE if access.access.kind is AccessKind.WRITE else ReaderKind.READ


def _renamed(relation: Any, kind: ReaderKind, access: StatementAccess) -> Any:
    return relation.set_tuple_name(isl.dim_type.in_, f"{kind.value}{access.number}")


def _edges(dependence: Any, accesses: Mapping[int, StatementAccess]) -> tuple[FlowEdge, ...]:
    """The maps of a union map, ordered by the numbers of their accesses."""
    found: list[tuple[int, str, FlowEdge]] = []
    maps = dependence.get_map_list()
    for position in range(maps.n_map()):
        pairs = maps.get_at(position)
        if pairs.is_empty():
            continue
        source = int(pairs.get_tuple_name(isl.dim_type.in_)[1:])
        name = pairs.get_tuple_name(isl.dim_type.out)
        after = name == ReaderKind.AFTER.value
        kind = ReaderKind.AFTER if after else ReaderKind(name[0])
        reader = None if after else accesses[int(name[1:])]
        found.append((source, name, FlowEdge(accesses[source], kind, reader, pairs)))
    return tuple(edge for *_, edge in sorted(found, key=lambda one: one[:2]))
