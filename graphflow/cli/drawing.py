"""The table of decisions for the terminal.

In: texts, as `Executable.decisions` returns them.  Out: tables that a rich console prints.  The
compiler does not import this module, because rich takes as long to import as the planner.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graphflow.base.decisions import COLUMNS, CONSTANT, REMOVED, Decisions


def stdout_console() -> Console:
    """A console as wide as the terminal; 160 columns, enough for a table, where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def show_decisions(known: Decisions, constants: bool = False) -> None:
    """Print the table and its summary line."""
    console = stdout_console()
    console.print(draw_table(known, constants))
    console.print(known.summary)


def draw_table(known: Decisions, constants: bool = False) -> Table:
    """The decisions, one row for each tensor; constants and removed tensors only if `constants` is
    set."""
    table = Table(title=known.title, header_style="bold")
    for column in COLUMNS[:-1]:
        table.add_column(column, overflow="fold")
    table.add_column(COLUMNS[-1], overflow="fold", ratio=1)
    where = COLUMNS.index("where")
    for row in known.rows:
        if constants or row[where] not in (CONSTANT, REMOVED):
            table.add_row(*map(escape, row))
    return table
