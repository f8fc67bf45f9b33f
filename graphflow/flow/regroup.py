"""Decide whether data movement is executed, or its readers read the tensors that it moves.

In: a graph of fusion groups and a cost model.  Out: the cheapest plan, of this graph or of an
equivalent one in which reductions read their operands in segments (`read_through`).  Reading in
segments makes kernels longer, so it is considered only where the plan moves something, and taken
only if that plan is clearly cheaper.
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
    """The plan with the least price, of the graph itself or of the graph with movement
    forwarded.
    """
    found = find_plan(graph, cost, None, assume)
    other = _without_movement(found)
    if other is None:
        return found
    through = find_plan(other, cost, None, assume)
    return through if clearly_less(through.seconds, found.seconds) else found


def regrouped(graph: OperatorGraph, cost: CostModel) -> OperatorGraph | None:
    """The graph with movement forwarded that `cheapest` also plans; None if nothing would
    change.
    """
    return _without_movement(find_plan(graph, cost))


def _without_movement(found: Planning) -> OperatorGraph | None:
    """The graph of `found`, with the movement that its plan executes forwarded into the readers."""
    moved = found.moved()
    return read_through(found.graph, moved) if moved else None
