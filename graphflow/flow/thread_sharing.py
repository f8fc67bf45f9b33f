"""Whether the threads of a run share its kernels.

In: a plan and the cost model.  Out: `ThreadSharing`, by estimates.  The caller alone does a run
that is shorter than waking a thread.
"""

from __future__ import annotations

from dataclasses import replace

from graphflow.cost import WAKING, CostModel
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import Foreign, View, conversion_work
from graphflow.plan import LayoutPlan, ThreadSharing


def thread_sharing(graph: OperatorGraph, plan: LayoutPlan, cost: CostModel) -> ThreadSharing | None:
    """What sharing saves at most, and takes; None for one thread."""
    if cost.threads == 1:
        return None
    # Equal shares: how evenly threads really share a kernel is not known well enough to deny it.
    saved = _seconds(graph, plan, replace(cost, threads=1)) * (1 - 1 / cost.threads)
    return ThreadSharing(cost.threads, saved, WAKING)


def _seconds(graph: OperatorGraph, plan: LayoutPlan, cost: CostModel) -> float:
    """The estimated seconds of all that a run executes."""
    variants = (choice.variant for choice in plan.choices.values())
    kernels = (v.work for v in variants if not isinstance(v.recipe, View | Foreign))
    copies = (
        conversion_work(made.source.layout, made.target.layout, graph.values[made.value].dtype)
        for made in plan.conversions
    )
    return sum(map(cost.kernel_seconds, kernels)) + sum(map(cost.conversion_seconds, copies))
