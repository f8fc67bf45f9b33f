"""Rows of the table of decisions in groups: filtered, by blocks of the program, or sorted.

In: `Decisions`.  Out: `RowGroup`s in the order in which they are printed.  What always holds: a
repetition of a block is left out only if its rows differ from those before it in nothing but names
and prices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from graphflow.base.decisions import microseconds
from graphflow.base.offered_names import CONVERSIONS, FOREIGN, PADDING
from graphflow.reports.decision_rows import DecisionRow, Decisions

ROW_FILTERS: Mapping[str, Callable[[DecisionRow], bool]] = {
    CONVERSIONS: lambda row: bool(row.conversions),
    PADDING: lambda row: bool(row.padding),
    FOREIGN: lambda row: row.is_foreign,
}
"""Which rows `inspect --only` leaves, by name."""


class RowGroup(Struct, frozen=True):
    """Rows with a heading, which is empty for rows outside of blocks; `alike` are the first and the
    last tensor of each following repetition that has equal rows and is left out."""

    heading: str
    rows: tuple[DecisionRow, ...]
    alike: tuple[tuple[str, str], ...] = ()


def row_groups(decisions: Decisions, rows: Sequence[DecisionRow]) -> tuple[RowGroup, ...]:
    """These rows of the table, a group for each run of rows in one repetition of a block."""
    found: list[RowGroup] = []
    block: int | None = None
    for key, members in _runs(decisions, rows):
        before, block = block, None if key is None else key[0]
        if block is not None and block == before and _are_alike(found[-1].rows, members):
            last, ends = found[-1], (members[0].tensor, members[-1].tensor)
            found[-1] = RowGroup(last.heading, last.rows, (*last.alike, ends))
        else:
            heading = "" if key is None else _heading(decisions, members, *key)
            found.append(RowGroup(heading, tuple(members)))
    return tuple(found)


def _runs(
    decisions: Decisions, rows: Sequence[DecisionRow]
) -> Iterator[tuple[tuple[int, int] | None, list[DecisionRow]]]:
    """The block and the repetition of neighbouring rows, with these; None outside of blocks.

    Rows without a node, such as constants, come last.
    """
    ordered = sorted(
        rows, key=lambda row: len(decisions.operators) if row.place is None else row.place
    )
    last: tuple[int, int] | None = None
    members: list[DecisionRow] = []
    for row in ordered:
        key = _repetition(decisions, row.place)
        if members and key != last:
            yield last, members
            members = []
        last = key
        members.append(row)
    if members:
        yield last, members


def _repetition(decisions: Decisions, place: int | None) -> tuple[int, int] | None:
    """The block that a node is in, and in which repetition of it, counted from 0."""
    for number, (starts, after) in enumerate(decisions.blocks):
        if place is not None and starts[0] <= place < after:
            return number, bisect_right(starts, place) - 1
    return None


def _heading(decisions: Decisions, rows: Sequence[DecisionRow], block: int, repetition: int) -> str:
    """The block and the repetition, with the price of the rows; with the operators if it is the
    first one."""
    starts, after = decisions.blocks[block]
    price = microseconds(sum(row.price or 0.0 for row in rows))
    text = f"block {block + 1}, {repetition + 1} of {len(starts)}, {price}"
    if repetition:
        return text
    operators = decisions.operators[starts[0] : (*starts, after)[1]]
    runs = [(len([*run]), op) for op, run in groupby(operators)]
    return f"{text}: " + ", ".join(op if n == 1 else f"{n} {op}" for n, op in runs)


def _are_alike(rows: Sequence[DecisionRow], others: Sequence[DecisionRow]) -> bool:
    """Whether rows differ in nothing but names and prices."""
    return [*map(_kind, rows)] == [*map(_kind, others)]


def _kind(row: DecisionRow) -> tuple[object, ...]:
    verbs = tuple(text.partition(" for ")[0] for text in row.conversions)
    return row.operator, row.shape, row.where, row.layout, row.padding, row.variant, verbs
