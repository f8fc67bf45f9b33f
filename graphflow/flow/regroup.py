"""Whether to move elements, or to let their readers read them where they were.

In: the grouped graph.  Out: a graph of the same meaning and its plan.  Reading through movement
makes kernels longer, so it is considered where the plan moves something, and taken if the plan of
the graph so changed costs less.  What was timed as a whole has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphflow.assumed import Assumption
from graphflow.cost import NO_TIMINGS, CostModel, Timings
from graphflow.flow.collecting import collection_deferred
from graphflow.flow.plan import LayoutPlan
from graphflow.flow.planner import Planning, find_plan
from graphflow.flow.whole import fastest
from graphflow.graph import OperatorGraph, read_through
from graphflow.layout import Layout
from graphflow.target import Target


def plan_groups(
    graph: OperatorGraph,
    target: Target,
    threads: int,
    pins: Mapping[str, Layout | str] | None = None,
    timings: Timings = NO_TIMINGS,
    assume: Mapping[str, Assumption] | None = None,
) -> tuple[OperatorGraph, LayoutPlan]:
    """The cheapest plan found, and the graph it is a plan of; errors as of `plan_layouts`.

    A graph of which tensors are pinned stays as it is: a pin says that the tensor is wanted.
    """
    with collection_deferred():
        cost = CostModel(target, threads, timings)
        if pins:
            found = find_plan(graph, cost, pins, assume)
        else:
            found = fastest(cheapest(graph, cost, assume), graph)
        return found.graph, found.plan()


def cheapest(
    graph: OperatorGraph, cost: CostModel, assume: Mapping[str, Assumption] | None = None
) -> Planning:
    """The plan whose parts take least, of the graph or of what reads through its movement."""
    found = find_plan(graph, cost, None, assume)
    other = _without_movement(found)
    if other is None:
        return found
    through = find_plan(other, cost, None, assume)
    return through if through.seconds < found.seconds else found


def regrouped(graph: OperatorGraph, cost: CostModel) -> OperatorGraph | None:
    """The other graph that `plan_groups` makes a plan of; None where there is nothing to change."""
    return _without_movement(find_plan(graph, cost))


def _without_movement(found: Planning) -> OperatorGraph | None:
    """The graph of a plan with readers that read what it moves where it was."""
    moved = found.moved()
    return read_through(found.graph, moved) if moved else None
