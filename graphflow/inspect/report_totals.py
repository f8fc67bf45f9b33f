"""The totals of a report: the price of the plan beside others, and counts.

In: a `Compiled` model.  Out: entries of its report, and the sentence that sums them up.  What
always holds: counts are of the finished program, not of the plan.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from graphflow.inspect.moved_elements import movement
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import LayoutPlan
from graphflow.reports import summary_sentence


def summary_line(compiled: Compiled) -> str:
    """The counts of the report, and the price of the plan, in one sentence."""
    return summary_sentence(totals(compiled))


def totals(compiled: Compiled) -> dict[str, Any]:
    """The entries of the report about the whole plan."""
    plan = compiled.plan
    return {
        "seconds": plan.seconds,
        "unpinned_seconds": plan.unpinned,
        "gap": plan.gap,
        "whole": _end_to_end(plan),
        "next_best": _next_best(plan),
        "sharing": _sharing(plan),
        "summary": _summary(compiled),
    }


def _end_to_end(plan: LayoutPlan) -> dict[str, Any] | None:
    """The end-to-end times that chose this plan, if they did."""
    found = plan.end_to_end
    return None if found is None else {**asdict(found), "because": str(found)}


def _sharing(plan: LayoutPlan) -> dict[str, Any] | None:
    """Which kernels the threads share; None for a plan for one thread."""
    found = plan.sharing
    if found is None:
        return None
    return {
        "threads": found.threads,
        "saved": found.saved,
        "waking": found.waking,
        "kernels": found.kernels,
        "alone": len(found.alone) if found.pays else found.kernels,
        "pays": found.pays,
        "because": str(found),
    }


def _next_best(plan: LayoutPlan) -> dict[str, Any] | None:
    """The best plan that differs in some variant, and where it differs; None if it is not known."""
    if plan.next_best is None:
        return None
    return {
        "seconds": plan.next_best,
        "differs": [
            {"node": other.node, "variant": other.variant, "instead": other.instead}
            for other in plan.differences
        ],
    }


def _summary(compiled: Compiled) -> dict[str, Any]:
    """Counts over the finished program, and the share of multiply-adds that run in vector lanes."""
    moves = movement(compiled)
    return {
        "edges": len(set(compiled.tensors)),
        "conversions": moves.conversions,
        "boundary_conversions": moves.boundary,
        "inner_conversions": moves.inner,
        "fills": moves.fills,
        "cancelled_pairs": len(compiled.plan.cancelled),
        "refused_pairs": len(compiled.plan.refused),
        "folded_constants": moves.folded,
        "integer_products": sum(not why for why in compiled.graph.integer_products.values()),
        "unrounded": len(compiled.graph.unrounded),
        "sections": len(compiled.spec.sections),
        "foreign_nodes": sum(len(spec.section.nodes) for spec in compiled.spec.sections),
        "vectorized_share": vectorized_share(compiled),
        "replaced_kernels": sum(
            kernel.instead_of is not None for kernel in compiled.lowered.kernels.values()
        ),
        "poisoned_elements": compiled.physical.poisoned,
        "measured_prices": compiled.plan.measured_prices,
        "estimated_prices": compiled.plan.estimated_prices,
    }


def vectorized_share(compiled: Compiled) -> float:
    """The share of all multiply-adds that is in variants with channels in vector lanes.

    1.0 for a model without multiply-adds.
    """
    variants = [choice.variant for choice in compiled.plan.choices.values()]
    total = sum(variant.work.flops for variant in variants)
    vector = sum(variant.work.flops for variant in variants if variant.vectorized)
    return 1.0 if total == 0 else vector / total
