"""Tables for the terminal: the decisions of a plan, and the differences between two reports.

In: results of `graphflow.inspect`.  Out: tables that a rich console prints.  The compiler does not
import this module, because rich takes as long to import as the planner.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from graphflow.base.decisions import COLUMNS, Decisions
from graphflow.inspect import CONSTANT, REMOVED, Change, decisions
from graphflow.pipeline.compiler import Compiled


def decision_table(compiled: Compiled, constants: bool = False) -> Table:
    """Name, logical shape, place, layout, padding, variant of the producer, and conversions of each
    tensor."""
    return draw_table(decisions(compiled), constants)


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


def change_table(found: Sequence[Change]) -> Table:
    """The differences between two reports, one row each; a dash stands for no value."""
    table = Table(header_style="bold")
    for column in ("what", "of", "before", "after"):
        table.add_column(column, overflow="fold")
    for change in found:
        texts = (change.kind, change.name, change.before, change.after)
        table.add_row(*(escape(text or "-") for text in texts))
    return table
