"""From a graph to its layout plan: enumerate, solve, and say why.

In: the grouped graph, the target, the number of threads, pins.  Out: a frozen `LayoutPlan`.
Nothing is edited here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphflow.assumed import Assumption
from graphflow.cost import NO_TIMINGS, Timings
from graphflow.flow.candidates import Unsatisfiable, enumerate_candidates
from graphflow.flow.conflict import conflict
from graphflow.flow.contents import assumptions_about, contents
from graphflow.flow.pins import price_pins, read_pins
from graphflow.flow.plan import LayoutPlan
from graphflow.flow.reliance import reliances
from graphflow.flow.solve import Problem
from graphflow.flow.writer import write_plan
from graphflow.graph import OperatorGraph
from graphflow.layout import Layout
from graphflow.target import Target


def plan_layouts(
    graph: OperatorGraph,
    target: Target,
    threads: int,
    pins: Mapping[str, Layout | str] | None = None,
    timings: Timings = NO_TIMINGS,
    assume: Mapping[str, Assumption] | None = None,
) -> LayoutPlan:
    """The cheapest plan for `graph`; `pins` names a layout, or its description, for some values.

    Prices are estimated where `timings` has none.  `assume` is what the user says of inputs (see
    `graphflow.assumed`), InvalidModel where that cannot be.
    LayoutConflict where there is no plan; it names pins that clash, and the nodes between them.
    """
    pinned = read_pins(graph, pins or {}, target)
    assumed = assumptions_about(graph, assume)
    facts = contents(graph, assumed)
    try:
        candidates = enumerate_candidates(graph, target, threads, pinned, timings, facts=facts)
        problem = Problem(graph, candidates, target, threads, timings=timings)
    except Unsatisfiable:
        raise conflict(graph, target, threads, pinned, facts) from None
    other = problem.differing(problem.best.candidates.values())
    plan = write_plan(graph, candidates, problem.best, other, problem.extras())
    if assumed:
        relied = reliances(graph, problem.best.candidates.values(), facts)
        plan = replace(plan, assumed=assumed, relied=relied)
    if not pinned:
        return plan
    prices, unpinned = price_pins(graph, target, threads, pinned, problem.best, timings, facts)
    return replace(plan, pinned=prices, unpinned=unpinned)
