"""The sentence that sums up a report.

In: the totals of a report as plain values.  Out: text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.base.decisions import microseconds

MOST_NAMED = 3
"""The most nodes of the next best plan that the sentence names."""


def summary_sentence(report: Mapping[str, Any]) -> str:
    """The counts of the report, and the price of the plan, in one sentence."""
    counts = report["summary"]
    return (
        f"{counts['edges']} tensors; {counts['conversions']} conversions are executed "
        f"({counts['boundary_conversions']} at the boundary, {counts['inner_conversions']} inside) "
        f"and {counts['fills']} fills; {counts['cancelled_pairs']} crop/pad pairs cancelled, "
        f"{counts['refused_pairs']} refused; {100 * counts['vectorized_share']:.0f} % of the "
        f"multiply-adds run in lanes; {_foreign(counts)}{_seconds(report)}"
    )


def _foreign(counts: Mapping[str, Any]) -> str:
    nodes = counts["foreign_nodes"]
    return f"{nodes} nodes run in onnxruntime; " if nodes else ""


def _seconds(report: Mapping[str, Any]) -> str:
    """The price of a run, how it is known, and what the next best plan would cost, in words."""
    seconds, counts = report["seconds"], report["summary"]
    text = f"estimated {1e3 * seconds:.3f} ms a run"
    measured = counts["measured_prices"]
    if measured:
        text += f" ({measured} of {measured + counts['estimated_prices']} prices measured)"
    if report["gap"]:
        text += f", at most {100 * report['gap']:.2g} % more than the best plan"
    if report["whole"] is not None:
        text += f"; the plan has {report['whole']['because']}"
    sharing = report["sharing"]
    if sharing is not None and not sharing["pays"]:
        text += f"; one thread runs it: {sharing['because']}"
    if report["unpinned_seconds"] is not None:
        pins = max(0.0, seconds - report["unpinned_seconds"])
        text += f"; the pins cost {microseconds(pins)} of that"
    if report["next_best"] is not None:
        text += _next_best(report["next_best"], seconds)
    return text


def _next_best(other: Mapping[str, Any], seconds: float) -> str:
    nodes = [differs["node"] for differs in other["differs"]]
    more = " …" if nodes[MOST_NAMED:] else ""
    return (
        f"; the next best plan has other variants of {', '.join(nodes[:MOST_NAMED])}{more} and "
        f"takes {microseconds(other['seconds'] - seconds)} more"
    )
