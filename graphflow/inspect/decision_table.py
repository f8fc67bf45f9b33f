"""The decisions as a table for people: a row for each tensor, and a line that sums up.

In: a `Compiled` model.  Out: texts; `graphflow.cli.drawing` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.base.decisions import Decisions, microseconds
from graphflow.inspect.report import summary
from graphflow.inspect.tensor_decisions import TensorDecision, readers_text, tensor_decisions
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import LayoutPlan

MOST_NAMED = 3
"""The most nodes of the next best plan that the summary names."""


def decisions(compiled: Compiled) -> Decisions:
    """The title, the rows and the summary as texts."""
    return Decisions(
        title=f"{compiled.name} for {compiled.target.name}",
        rows=tuple(_row(edge) for edge in tensor_decisions(compiled).values()),
        summary=summary_line(compiled),
    )


def _row(edge: TensorDecision) -> tuple[str, ...]:
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
        edge.variant or "-",
        moves or "-",
    )


def _layout(edge: TensorDecision) -> str:
    """The layout as text, with the cost of a pin."""
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
    """The counts of the report, and the price of the plan, in one sentence."""
    counts = summary(compiled, tensor_decisions(compiled))
    return (
        f"{counts['edges']} tensors; {counts['conversions']} conversions are executed "
        f"({counts['boundary_conversions']} at the boundary, {counts['inner_conversions']} inside) "
        f"and {counts['fills']} fills; {counts['cancelled_pairs']} crop/pad pairs cancelled, "
        f"{len(compiled.plan.refused)} refused; {100 * counts['vectorized_share']:.0f} % of the "
        f"multiply-adds run in lanes; {_foreign(counts)}{_seconds(compiled.plan)}"
    )


def _foreign(counts: Mapping[str, Any]) -> str:
    nodes = counts["foreign_nodes"]
    return f"{nodes} nodes run in onnxruntime; " if nodes else ""


def _seconds(plan: LayoutPlan) -> str:
    """The price of a run, how it is known, and what the next best plan would cost, in words."""
    text = f"estimated {1e3 * plan.seconds:.3f} ms a run"
    measured = plan.measured_prices
    if measured:
        text += f" ({measured} of {measured + plan.estimated_prices} prices measured)"
    text += f", at most {100 * plan.gap:.2g} % more than the best plan" if plan.gap else ""
    if plan.end_to_end is not None:
        text += f"; the plan has {plan.end_to_end}"
    if plan.sharing is not None and not plan.sharing.pays:
        text += f"; one thread runs it: {plan.sharing}"
    if plan.unpinned is not None:
        text += f"; the pins cost {microseconds(max(0.0, plan.seconds - plan.unpinned))} of that"
    if plan.next_best is not None:
        nodes = ", ".join(other.node for other in plan.differences[:MOST_NAMED])
        more = " …" if plan.differences[MOST_NAMED:] else ""
        extra = microseconds(plan.next_best - plan.seconds)
        text += f"; the next best plan has other variants of {nodes}{more} and takes {extra} more"
    return text
