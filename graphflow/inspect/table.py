"""The decisions as a table for people: a row an edge, and a line that sums up.

In: what the compiler's stages gave.  Out: a rich table and text.  Constants are left out unless
asked for; nobody decides much about them, and they are most of the tensors.
"""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from graphflow.compiler import Compiled
from graphflow.inspect.edges import CONSTANT, REMOVED, EdgeType, edge_types, readers_text
from graphflow.inspect.report import summary


def decision_table(compiled: Compiled, constants: bool = False) -> Table:
    """Name, logical shape, place, layout, padding, form of the producer, conversions."""
    table = Table(title=f"{compiled.name} for {compiled.target.name}", header_style="bold")
    for column in ("tensor", "logical shape", "where", "layout", "padding", "form of its producer"):
        table.add_column(column, overflow="fold")
    table.add_column("conversions, and why", overflow="fold", ratio=1)
    for edge in edge_types(compiled).values():
        if constants or edge.where not in (CONSTANT, REMOVED):
            table.add_row(*map(escape, _row(edge)))
    return table


def _row(edge: EdgeType) -> tuple[str, ...]:
    padding = "; ".join(f"{known.region} = {known.fact}" for known in edge.regions)
    moves = "; ".join(
        f"{made.kind} for {readers_text(made)}: {made.because}" for made in edge.conversions
    )
    return (
        edge.name,
        "×".join(map(str, edge.logical_shape)) or "scalar",
        edge.where,
        "-" if edge.layout is None else edge.layout.describe(),
        padding or "-",
        edge.form or "-",
        moves or "-",
    )


def summary_line(compiled: Compiled) -> str:
    """The counts of the report in one sentence."""
    counts = summary(compiled, edge_types(compiled))
    return (
        f"{counts['edges']} tensors; {counts['conversions']} conversions are executed "
        f"({counts['boundary_conversions']} at the boundary, {counts['inner_conversions']} inside) "
        f"and {counts['fills']} fills; {counts['cancelled_pairs']} crop/pad pairs cancelled, "
        f"{len(compiled.plan.refused)} refused; {100 * counts['vector_form_share']:.0f} % of the "
        f"multiply-adds run in lanes; estimated {1e3 * compiled.plan.seconds:.3f} ms a run"
    )
