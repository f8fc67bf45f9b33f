"""Whether to move elements, or to let their readers read them where they were.

In: the grouped graph.  Out: a graph of the same meaning and its plan.  Reading through movement
makes kernels longer, so it is considered where the plan moves something, and taken if the plan of
the graph so changed costs less.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphflow.base.assumed import Assumption
from graphflow.cost import CostModel, clearly_less
from graphflow.flow.planner import Planning, find_plan
from graphflow.graph import OperatorGraph, read_through


def cheapest(
    graph: OperatorGraph, cost: CostModel, assume: Mapping[str, Assumption] | None = None
) -> Planning:
    """The plan whose parts take least, of the graph or of what reads through its movement."""
    found = find_plan(graph, cost, None, assume)
    other = _without_movement(found)
    if other is None:
        return found
    through = find_plan(other, cost, None, assume)
    return through if clearly_less(through.seconds, found.seconds) else found


def regrouped(graph: OperatorGraph, cost: CostModel) -> OperatorGraph | None:
    """The other graph that `cheapest` makes a plan of; None where there is nothing to change."""
    return _without_movement(find_plan(graph, cost))


def _without_movement(found: Planning) -> OperatorGraph | None:
    """The graph of a plan with readers that read what it moves where it was."""
    moved = found.moved()
    return read_through(found.graph, moved) if moved else None
