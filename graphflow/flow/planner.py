"""From a graph to its layout plan: enumerate, solve, and say why.

In: the grouped graph, the target, the number of threads, pins.  Out: a frozen `LayoutPlan`.
Nothing is edited here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphflow.base.assumed import Assumed, Assumption
from graphflow.base.target import Target
from graphflow.cost import NO_TIMINGS, CostModel, Timings
from graphflow.flow.candidates import Candidates, Unsatisfiable, enumerate_candidates
from graphflow.flow.collecting import collection_deferred
from graphflow.flow.conflict import conflict
from graphflow.flow.contents import assumptions_about, contents
from graphflow.flow.pins import price_pins, read_pins
from graphflow.flow.plan import EndToEndTime, LayoutPlan
from graphflow.flow.reliance import reliances
from graphflow.flow.solve import Problem
from graphflow.flow.writer import moved_values, write_plan
from graphflow.graph import OperatorGraph
from graphflow.layout import Fact, Layout


@dataclass(frozen=True)
class Planning:
    """The cheapest plan of a graph, before it is said why."""

    graph: OperatorGraph
    cost: CostModel
    pinned: Mapping[str, Layout]
    assumptions: Mapping[str, Assumption]
    assumed: tuple[Assumed, ...]
    facts: Mapping[str, Fact]
    candidates: Candidates
    problem: Problem
    whole: EndToEndTime | None = None

    @property
    def seconds(self) -> float:
        """What a run takes."""
        return self.problem.best.seconds

    def moved(self) -> set[str]:
        """The values that are copied or moved for some node."""
        return moved_values(self.graph, self.candidates, self.problem.best)

    def plan(self) -> LayoutPlan:
        """All decisions with their reasons, and with what other ones would cost."""
        best = self.problem.best
        other = self.problem.differing(best.candidates.values())
        plan = write_plan(self.graph, self.candidates, best, other, self.problem.extras())
        if self.assumed:
            relied = reliances(self.graph, best.candidates.values(), self.facts)
            plan = replace(plan, assumed=self.assumed, relied=relied)
        if self.whole is not None:
            plan = replace(plan, whole=self.whole)
        if not self.pinned:
            return plan
        prices, unpinned = price_pins(self.graph, self.cost, self.pinned, best, self.facts)
        return replace(plan, pinned=prices, unpinned=unpinned)


def find_plan(
    graph: OperatorGraph,
    cost: CostModel,
    pins: Mapping[str, Layout | str] | None = None,
    assume: Mapping[str, Assumption] | None = None,
) -> Planning:
    """The cheapest plan for `graph`; see `plan_layouts`."""
    pinned = read_pins(graph, pins or {}, cost.target)
    assumed = assumptions_about(graph, assume)
    facts = contents(graph, assumed)
    try:
        candidates = enumerate_candidates(graph, cost, pinned, facts=facts)
        problem = Problem(graph, candidates, cost)
    except Unsatisfiable:
        raise conflict(graph, cost, pinned, facts) from None
    return Planning(
        graph,
        cost,
        pinned,
        assume or {},
        assumed,
        facts,
        candidates,
        problem,
    )


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
    `graphflow.base.assumed`), InvalidModel where that cannot be.
    LayoutConflict where there is no plan; it names pins that clash, and the nodes between them.
    """
    with collection_deferred():
        cost = CostModel(target, threads, timings)
        return find_plan(graph, cost, pins, assume).plan()
