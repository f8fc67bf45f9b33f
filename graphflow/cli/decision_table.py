"""The table of `graphflow inspect`: which rows, in which order, with which numbers.

In: an executable or decisions, and what the arguments say about the table.  Out: the printed table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from graphflow.base.fields import replace
from graphflow.base.offered_names import BY_BYTES, BY_TIME, CONVERSIONS, FOREIGN, PADDING
from graphflow.cli.drawing import NumberColumn, decisions_console, show_decisions
from graphflow.cli.on_demand import on_demand
from graphflow.reports import ROW_FILTERS, DecisionRow, Decisions, RowGroup, row_groups

NOTHING_LEFT: Mapping[str, str] = {
    CONVERSIONS: "no tensor is converted, filled, copied or moved",
    PADDING: "no tensor has padding",
    FOREIGN: "onnxruntime writes and reads no tensor, as every node has a kernel",
}
"""What is printed if a filter leaves no row."""


def show_table(
    exe: Any,
    constants: bool = False,
    only: str | None = None,
    order: str | None = None,
    console: Console | None = None,
) -> None:
    """Print the table; constants and removed tensors are in it if `constants` is set."""
    known: Decisions = exe.decisions()
    rows = [row for row in known.rows if constants or row.is_computed]
    if only is not None:
        rows = [row for row in rows if ROW_FILTERS[only](row)]
        if not rows:
            print(f"{known.title}: {NOTHING_LEFT[only]}")
            return
    if order is None:
        groups, numbers = row_groups(known, rows), _micros("µs", _own_prices(rows))
    else:
        numbers = _ordered_by(exe, rows, order)
        groups = _sorted(known, rows, numbers)
    show_decisions(decisions_console() if console is None else console, known, groups, numbers)


def _own_prices(rows: Sequence[DecisionRow]) -> dict[str, float]:
    return {row.tensor: row.seconds for row in rows if row.seconds is not None}


def _ordered_by(exe: Any, rows: Sequence[DecisionRow], order: str) -> NumberColumn:
    """The numbers by which rows are sorted."""
    if order == BY_TIME:
        measured = on_demand("cli.profile_command").measured_seconds(exe)
        written = ((row.tensor, row.place) for row in rows if row.seconds is not None)
        times = {name: measured[place] for name, place in written if place in measured}
        return _micros("measured µs", times)
    if order == BY_BYTES:
        sizes = {row.tensor: row.bytes for row in rows if row.bytes is not None}
        return NumberColumn("bytes", sizes, {name: str(size) for name, size in sizes.items()})
    return _micros("µs", {row.tensor: row.price for row in rows if row.price is not None})


def _micros(heading: str, seconds: Mapping[str, float]) -> NumberColumn:
    texts = {name: f"{1e6 * value:.1f}" for name, value in seconds.items()}
    return NumberColumn(heading, seconds, texts)


def _sorted(
    known: Decisions, rows: Sequence[DecisionRow], numbers: NumberColumn
) -> tuple[RowGroup, ...]:
    """The rows that have a number in one group, the greatest first; equal ones in the order of the
    program.  Their operators are all that their node computes."""
    having = [
        row if row.place is None else replace(row, operator=known.operators[row.place])
        for row in rows
        if row.tensor in numbers.values
    ]
    having.sort(key=lambda row: -numbers.values[row.tensor])
    return (RowGroup("", tuple(having)),)
