"""The table of decisions for the terminal, and as plain text for pipes and files.

In: `Decisions`. Out: text on a rich console. What always holds: on a terminal nothing is wider than
its columns; elsewhere a row is one line, however wide, so that grep and less can be used on it. The
compiler does not import this module, because rich takes as long to import as the planner.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from graphflow.base.decisions import REGISTER, STORED
from graphflow.reports import DecisionRow, Decisions, RowGroup

COLUMNS = ("tensor", "operator", "shape", "layout and padding")
VARIANT = "variant of its producer"
LEAST_FOR_VARIANT = 120
"""The columns of a terminal from which on there is room for the variants."""

LEAST_WIDTHS = (16, 9, 11, 14)
"""To which widths the first columns may be narrowed; what does not fit is folded."""

GAP, INDENT = 2, 4
WIDEST = 10_000
"""The columns of a pipe: as many as a row needs."""


def stdout_console() -> Console:
    """A console as wide as the terminal; 160 columns, enough for a table, where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def decisions_console() -> Console:
    """A console for `show_decisions`."""
    return Console() if sys.stdout.isatty() else Console(width=WIDEST)


class NumberColumn(Struct, frozen=True):
    """The last column of the table: its heading, and by tensor the numbers and their texts."""

    heading: str
    values: Mapping[str, float]
    texts: Mapping[str, str]


def show_decisions(
    console: Console, decisions: Decisions, groups: Sequence[RowGroup], numbers: NumberColumn
) -> None:
    """Print the title, the groups of rows, and the summary."""
    rows = [row for group in groups for row in group.rows]
    with_variant = LEAST_FOR_VARIANT <= console.width < WIDEST
    texts = {row.tensor: _texts(row, with_variant) for row in rows}
    columns = (*COLUMNS, VARIANT) if with_variant else COLUMNS
    widths = _widths(console.width, columns, [*texts.values()], numbers)
    console.print(Text(decisions.title, style="bold"))
    console.print()
    _print_row(console, columns, numbers.heading, widths, style="bold underline")
    for group in groups:
        if group.heading:
            console.print(Text(group.heading, style="cyan"))
        for row in group.rows:
            number = numbers.texts.get(row.tensor, "")
            _print_row(console, texts[row.tensor], number, widths)
            for conversion in row.conversions:
                _print_indented(console, conversion, "red")
        if group.alike:
            _print_indented(console, _alike(group), "dim")
    console.print()
    console.print(Text(decisions.summary), soft_wrap=console.width == WIDEST)


def _alike(group: RowGroup) -> str:
    names = ", ".join(f"{first} to {last}" for first, last in group.alike)
    times = "once" if len(group.alike) == 1 else f"{len(group.alike)} times"
    return f"and {times} more, alike but for names and prices: {names}"


def _texts(row: DecisionRow, with_variant: bool) -> tuple[str, ...]:
    """The cells of a row.  A layout is named for a tensor in memory; otherwise where it is."""
    where = {STORED: row.layout, REGISTER: "in registers"}.get(row.where, row.where)
    if row.where not in (STORED, REGISTER) and row.layout:
        where += f", {row.layout}"
    layout = f"{where}: {row.padding}" if row.padding else where
    cells = (row.tensor, row.operator, row.shape, layout)
    return (*cells, row.variant) if with_variant else cells


def _widths(
    width: int, columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: NumberColumn
) -> tuple[int, ...]:
    """The width of each column, that of the numbers last.

    The widest column is narrowed until a row fits, or all have their least widths.
    """
    cells = [columns, *rows]
    found = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    last = max(map(len, (numbers.heading, *numbers.texts.values())))
    least = [min(w, m) for w, m in zip(found, (*LEAST_WIDTHS, LEAST_WIDTHS[-1]), strict=False)]
    room = width - last - GAP * len(columns)
    while sum(found) > room and found != least:
        narrowed = [w if w > m else 0 for w, m in zip(found, least, strict=True)]
        found[narrowed.index(max(narrowed))] -= 1
    return (*found, last)


def _print_row(
    console: Console, cells: Sequence[str], number: str, widths: Sequence[int], style: str = ""
) -> None:
    grid = Table.grid(padding=(0, GAP, 0, 0), collapse_padding=True)
    for width in widths[:-1]:
        grid.add_column(width=width, overflow="fold")
    grid.add_column(width=widths[-1], justify="right", overflow="fold")
    grid.add_row(*map(escape, cells), number, style=style or None)
    console.print(grid)


def _print_indented(console: Console, text: str, style: str) -> None:
    """A line below a row; of a terminal it has as many lines as it needs."""
    console.print(
        Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, INDENT), expand=False)
    )
