"""The decisions as a table for people: a row an edge, and a line that sums up.

In: what the compiler's stages gave.  Out: a rich table and text.  Constants are left out unless
asked for; nobody decides much about them, and they are most of the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from graphflow.base.decisions import COLUMNS, Decisions, microseconds
from graphflow.flow import LayoutPlan
from graphflow.inspect.edges import CONSTANT, REMOVED, EdgeType, edge_types, readers_text
from graphflow.inspect.report import summary
from graphflow.pipeline.compiler import Compiled

MOST_NAMED = 3
"""Nodes of the next best plan that a summary names."""


def decision_table(compiled: Compiled, constants: bool = False) -> Table:
    """Name, logical shape, place, layout, padding, form of the producer, conversions."""
    return draw_table(decisions(compiled), constants)


def draw_table(known: Decisions, constants: bool = False) -> Table:
    """The rows as a rich table."""
    table = Table(title=known.title, header_style="bold")
    for column in COLUMNS[:-1]:
        table.add_column(column, overflow="fold")
    table.add_column(COLUMNS[-1], overflow="fold", ratio=1)
    where = COLUMNS.index("where")
    for row in known.rows:
        if constants or row[where] not in (CONSTANT, REMOVED):
            table.add_row(*map(escape, row))
    return table


def decisions(compiled: Compiled) -> Decisions:
    """The decisions as texts."""
    return Decisions(
        title=f"{compiled.name} for {compiled.target.name}",
        rows=tuple(_row(edge) for edge in edge_types(compiled).values()),
        summary=summary_line(compiled),
    )


def _row(edge: EdgeType) -> tuple[str, ...]:
    padding = "; ".join(f"{known.region} = {known.fact}" for known in edge.regions)
    moves = "; ".join(
        f"{made.kind} for {readers_text(made)}: {made.because}" for made in edge.conversions
    )
    return (
        edge.name,
        "×".join(map(str, edge.logical_shape)) or "scalar",
        edge.where,
        _layout(edge),
        padding or "-",
        edge.form or "-",
        moves or "-",
    )


def _layout(edge: EdgeType) -> str:
    """The layout, and of a pin what it costs."""
    if edge.layout is None:
        return "-"
    text = edge.layout.describe()
    if edge.pinned is None:
        return text
    if edge.layout != edge.pinned.layout:
        text += f", used as {edge.pinned.layout.describe()}"
    cost = edge.pinned.cost
    return f"{text}, pinned" + ("" if cost is None else f", costs {microseconds(cost)}")


def summary_line(compiled: Compiled) -> str:
    """The counts of the report in one sentence."""
    counts = summary(compiled, edge_types(compiled))
    return (
        f"{counts['edges']} tensors; {counts['conversions']} conversions are executed "
        f"({counts['boundary_conversions']} at the boundary, {counts['inner_conversions']} inside) "
        f"and {counts['fills']} fills; {counts['cancelled_pairs']} crop/pad pairs cancelled, "
        f"{len(compiled.plan.refused)} refused; {100 * counts['vector_form_share']:.0f} % of the "
        f"multiply-adds run in lanes; {_foreign(counts)}{_seconds(compiled.plan)}"
    )


def _foreign(counts: Mapping[str, Any]) -> str:
    nodes = counts["foreign_nodes"]
    return f"{nodes} nodes run in onnxruntime; " if nodes else ""


def _seconds(plan: LayoutPlan) -> str:
    """What a run should take, how many of the prices in that were measured, and what else would."""
    text = f"estimated {1e3 * plan.seconds:.3f} ms a run"
    measured = plan.measured_prices
    if measured:
        text += f" ({measured} of {measured + plan.estimated_prices} prices measured)"
    text += f", at most {100 * plan.gap:.2g} % more than the best plan" if plan.gap else ""
    if plan.whole is not None:
        text += f"; the plan has {plan.whole}"
    if plan.unpinned is not None:
        text += f"; the pins cost {microseconds(max(0.0, plan.seconds - plan.unpinned))} of that"
    if plan.next_best is not None:
        nodes = ", ".join(other.node for other in plan.differences[:MOST_NAMED])
        more = " …" if plan.differences[MOST_NAMED:] else ""
        extra = microseconds(plan.next_best - plan.seconds)
        text += f"; the next best plan has other forms of {nodes}{more} and takes {extra} more"
    return text
