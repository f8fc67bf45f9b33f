"""Make the layout plan of a graph: enumerate the candidates, solve, and record the reasons.

In: a graph of fusion groups, a cost model (target, threads, timings), pins and assumptions.  Out: a
`Planning`, which holds the cheapest solution and writes the frozen `LayoutPlan`.  What always
holds: the graph is not edited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from graphflow.base.assumed import Assumed, Assumption
from graphflow.base.collecting import collection_deferred
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import NO_TIMINGS, CostModel, Timings
from graphflow.flow.candidates.candidates import (
    Candidate,
    Candidates,
    Unsatisfiable,
    enumerate_candidates,
)
from graphflow.flow.candidates.expansion_variants import expansions_of
from graphflow.flow.candidates.foreseen_kernels import Foresee, foreseen_kernels
from graphflow.flow.conflict import conflict
from graphflow.flow.pins import PinPrices, PinTrials, read_pins
from graphflow.flow.solve import PlannedGraph, Problem, with_taken_expansions
from graphflow.flow.thread_sharing import thread_sharing
from graphflow.flow.writer import write_plan
from graphflow.graph import Expansions, OperatorGraph, assumptions_about, contents
from graphflow.layout import Fact, Layout
from graphflow.plan import EndToEndTime, LayoutPlan, Relied


class Planning(Struct, frozen=True, dict=True):
    """The cheapest solution for a graph, with all that is needed to write it as a `LayoutPlan`.

    `searched` is the graph that was searched, with its `expansions`; `graph` the one that the
    solution is a plan of, in which the expansions that it takes are in place of their nodes.
    `pinned` are the user's layouts by value, `assumptions` the user's statements about inputs and
    `assumed` the same statements parsed, `facts` the facts about the contents of each value.
    `end_to_end` is set where timing whole programs chose this plan over the one with the least sum
    of prices.
    """

    searched: OperatorGraph
    expansions: Expansions
    cost: CostModel
    pinned: Mapping[str, Layout]
    assumptions: Mapping[str, Assumption]
    assumed: tuple[Assumed, ...]
    facts: Mapping[str, Fact]
    candidates: Candidates
    problem: Problem
    end_to_end: EndToEndTime | None = None

    @property
    def seconds(self) -> float:
        """The price of a run: the sum over the chosen candidates and copies, in seconds."""
        return self.problem.best.seconds

    @property
    def graph(self) -> OperatorGraph:
        """The graph that the plan is of."""
        return self.planned.graph

    @cached_property
    def planned(self) -> PlannedGraph:
        """The graph with the expansions that are taken, and the solution of it."""
        best = self.problem.best
        return with_taken_expansions(self.searched, self.expansions, self.candidates, best)

    @property
    def pin_trials(self) -> PinTrials:
        """Plans with one pin more, from what this one was found with."""
        return PinTrials(
            self.searched, self.expansions, self.cost, self.pinned, self.assumed, self.facts
        )

    def plan(self) -> LayoutPlan:
        """The plan: all decisions, their reasons, and what the alternatives would cost.

        The pins are priced when the plan is asked for their prices, as that solves the graph again
        without them; see `PinPrices`.
        """
        other = self.problem.differing(self.problem.best.candidates.values())
        made = self.planned
        best, extras = made.solution, self.problem.extras()
        plan = write_plan(made.graph, made.candidates, best, other, extras)
        plan = replace(plan, sharing=thread_sharing(made.graph, plan, self.cost))
        if self.assumed:
            relied = _reliances(made.graph, best.candidates.values(), self.facts)
            plan = replace(plan, assumed=self.assumed, relied=relied)
        if self.end_to_end is not None:
            plan = replace(plan, end_to_end=self.end_to_end)
        if self.pinned:
            plan = replace(plan, price_pins=PinPrices(self.pin_trials, self.problem.best))
        return plan


def find_plan(
    graph: OperatorGraph,
    cost: CostModel,
    pins: Mapping[str, Layout | str] | None = None,
    assume: Mapping[str, Assumption] | None = None,
    expand: bool = True,
    winograd: bool = True,
    foresee: Foresee | None = None,
) -> Planning:
    """The cheapest plan for `graph`, not yet written down; arguments and errors as of
    `plan_layouts`.

    With `expand`, nodes may be replaced by their expansions: the plan is one of an equivalent
    graph, `Planning.graph`.  Without `winograd`, none of these computes convolutions in transformed
    tiles.  `foresee` is told early of kernels that the plan will likely have.
    """
    cost = replace(cost, constants=sum(array.nbytes for array in graph.initializers.values()))
    pinned = read_pins(graph, pins or {}, cost.target)
    assumed = assumptions_about(graph, assume)
    expansions = Expansions(graph)
    if expand:
        expansions = expansions_of(graph, cost.target, assumed, winograd)
    if foresee is not None:
        for definition, recipe in foreseen_kernels(expansions, cost.target):
            foresee(definition, recipe)
    facts = contents(expansions.graph, assumed)
    try:
        candidates = enumerate_candidates(graph, cost, pinned, facts=facts, expansions=expansions)
        problem = Problem(graph, candidates, cost)
    except Unsatisfiable:
        raise conflict(graph, expansions, cost, pinned, facts) from None
    return Planning(
        graph,
        expansions,
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
    """The cheapest plan for `graph` itself, without expansions, as a frozen `LayoutPlan`.

    `pins` gives some values a layout, or the name or description of one.  Prices are estimated
    where `timings` has no measured one.  `assume` is what the user states about the contents of
    graph inputs (see `graphflow.base.assumed`).

    Raises InvalidModel where an assumption cannot hold, and LayoutConflict where no plan meets the
    pins; the message names the pins that clash and the nodes between them.
    """
    with collection_deferred():
        cost = CostModel(target, threads, timings)
        return find_plan(graph, cost, pins, assume, expand=False).plan()


def _reliances(
    graph: OperatorGraph, chosen: Iterable[Candidate], facts: Mapping[str, Fact]
) -> tuple[Relied, ...]:
    """Each use of a fact that does not hold without the user's assumptions about inputs, in the
    order of the nodes and of their inputs."""
    without = contents(graph)
    origins = _origins(graph, {name for name in graph.inputs if facts[name] != without[name]})
    return tuple(
        Relied(candidate.node, value, facts[value], origins[value])
        for candidate in chosen
        for value in dict.fromkeys(_relied_on(graph, candidate))
        if facts[value] != without[value]
    )


def _relied_on(graph: OperatorGraph, candidate: Candidate) -> Iterator[str]:
    """The values about whose contents a candidate relies on a fact."""
    node = graph.node(candidate.node)
    for buffer, value in zip(node.func.inputs, node.inputs, strict=True):
        if buffer.name in candidate.rests_on:
            yield value


def _origins(graph: OperatorGraph, assumed: set[str]) -> dict[str, tuple[str, ...]]:
    """For each value the assumed inputs that it is computed from, in the order of the inputs."""
    found: dict[str, set[str]] = {n: {n} & assumed for n in (*graph.inputs, *graph.initializers)}
    for node in graph.nodes:
        reached: set[str] = set().union(*(found[value] for value in node.inputs))
        found.update(dict.fromkeys(node.outputs, reached))
    return {v: tuple(n for n in graph.inputs if n in names) for v, names in found.items()}
