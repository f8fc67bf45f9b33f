"""Greedy baseline plans: conversions that are placed or moved locally, one node at a time.

In: a graph of fusion groups and its candidates.  Out: a candidate for each node; and pins for
`compile(layouts=…)` that fix the layout of every tensor that is not converted.  What always holds:
each node is decided once, from what was decided before it.  The copies between the decided
candidates are left to the solver, so plans are greedy in their layouts alone.

`forward` takes the candidate that is cheapest including the conversions of its inputs.  `sinking`
and `hoisting` give each node with multiply-adds its own cheapest variant and let conversions move
through all other nodes, down or up, until a node requires another layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeAlias

from graphflow import flow
from graphflow.cost import CostModel
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import memory_key
from graphflow.layout import Layout
from graphflow.plan import CopyKind

Chosen: TypeAlias = "dict[str, flow.Candidate]"


class _Decided:
    """The candidates taken so far, and the prices of the copies between them."""

    def __init__(self, graph: OperatorGraph, candidates: flow.Candidates, cost: CostModel) -> None:
        self._graph, self._cost = graph, cost
        self._options = candidates.of_node
        self._chosen: Chosen = {}
        self._productions = {
            value: flow.Production(candidates.edge_types[value][0]) for value in graph.inputs
        }
        self._possible: dict[str, list[flow.Production]] = {}
        for candidate in (c for options in candidates.of_node.values() for c in options):
            for value, production in candidate.productions():
                self._possible.setdefault(value, []).append(production)
        self._requirements: dict[str, list[flow.OperandRequirement]] = {
            value: [flow.output_requirement(graph.values[value])] for value in graph.outputs
        }

    def take(self, node: str, key: Callable[[flow.Candidate], tuple[float, ...]]) -> None:
        """Take the candidate with the least key among those that earlier decisions do not
        exclude.
        """
        free = [c for c in self._options[node] if self.above(c) < inf]
        taken = self._chosen[node] = min(free, key=key)
        self._productions |= dict(taken.productions())
        for requirement in taken.requirements:
            self._requirements.setdefault(requirement.value, []).append(requirement)

    def chosen(self) -> Chosen:
        """The candidates taken, in the order of the graph."""
        return {node: self._chosen[node] for node in self._options}

    def above(self, candidate: flow.Candidate) -> float:
        """By how many seconds the copies of its inputs grow if `candidate` reads them too.

        Infinite where its requirements exclude those of a reader that was decided.
        """
        total = 0.0
        for value in dict.fromkeys(requirement.value for requirement in candidate.requirements):
            known = self._requirements.get(value, [])
            more = [
                requirement for requirement in candidate.requirements if requirement.value == value
            ]
            production = self._productions.get(value)
            total += self._copying(value, production, [*known, *more])
            total -= self._copying(value, production, known)
        return total

    def below(self, candidate: flow.Candidate) -> float:
        """The seconds of the copies of its outputs that the decided readers need."""
        return sum(
            self._copying(value, production, self._requirements.get(value, []))
            for value, production in candidate.productions()
        )

    def _copying(
        self,
        value: str,
        production: flow.Production | None,
        requirements: Sequence[flow.OperandRequirement],
    ) -> float:
        """The seconds of the conversions for requirements that the production does not satisfy.

        0.0 while the production is not decided (None).  Infinite where the requirements clash, and
        where no production will satisfy those for which a copy will not do.
        """
        output = value in self._graph.outputs
        if flow.clashing(r.input_aliasing for r in requirements):
            return inf
        if production is None:
            held = [r for r in requirements if not r.input_aliasing.by_copy]
            possible = self._possible.get(value, ())
            served = any(all(flow.directly(p, r, output) for r in held) for p in possible)
            return 0.0 if served else inf
        tensor = self._graph.values[value]
        made: list[flow.Copy] = []
        for requirement in requirements:
            served = flow.directly(production, requirement, output)
            if served or any(copy.serves(requirement) for copy in made):
                continue
            wanted = [
                copy
                for copy in flow.copies_for(tensor, requirement)
                if copy.kind == CopyKind.CONVERT
            ]
            if not wanted:
                return inf  # the reader's output would be inside a value with another layout
            (prices,) = flow.copy_prices(tensor, wanted, [production.edge_type], self._cost)
            made += (copy.at(price) for copy, price in zip(wanted, prices, strict=True))
        return sum(copy.seconds for copy in made)


def forward(graph: OperatorGraph, candidates: flow.Candidates, cost: CostModel) -> Chosen:
    """From the inputs on, each node takes its cheapest candidate, conversions of its inputs
    included.
    """
    decided = _Decided(graph, candidates, cost)
    for node in candidates.of_node:
        decided.take(node, lambda c: (c.seconds + decided.above(c), c.seconds))
    return decided.chosen()


def sinking(graph: OperatorGraph, candidates: flow.Candidates, cost: CostModel) -> Chosen:
    """Conversions move down: nodes without multiply-adds keep the layouts that their inputs
    have.
    """
    decided = _Decided(graph, candidates, cost)
    anchors = _anchors(candidates)
    for node in candidates.of_node:
        if node in anchors:
            decided.take(node, lambda c: (c.seconds, decided.above(c)))
        else:
            decided.take(node, lambda c: (decided.above(c), c.seconds))
    return decided.chosen()


def hoisting(graph: OperatorGraph, candidates: flow.Candidates, cost: CostModel) -> Chosen:
    """Conversions move up: nodes without multiply-adds produce the layouts that their readers
    require.
    """
    decided = _Decided(graph, candidates, cost)
    anchors = _anchors(candidates)
    for node in anchors:
        decided.take(node, lambda c: (c.seconds, decided.above(c)))
    for node in reversed(list(candidates.of_node)):
        if node not in anchors:
            decided.take(node, lambda c: (decided.below(c), c.seconds))
    return decided.chosen()


Planner: TypeAlias = Callable[[OperatorGraph, flow.Candidates, CostModel], Chosen]

PLANNERS: dict[str, Planner] = {"forward": forward, "sinking": sinking, "hoisting": hoisting}


def _anchors(candidates: flow.Candidates) -> tuple[str, ...]:
    """The nodes with multiply-adds, in the order of the graph."""
    options = candidates.of_node.items()
    return tuple(n for n, found in options if any(c.variant.work.flops for c in found))


def plan_seconds(
    graph: OperatorGraph, candidates: flow.Candidates, chosen: Chosen, cost: CostModel
) -> float:
    """The price of the plan with these candidates and the cheapest copies between them, in
    seconds.
    """
    alone = flow.Candidates({node: (c,) for node, c in chosen.items()}, candidates.edge_types)
    return flow.Problem(graph, alone, cost).best.seconds


def greedy_pins(graph: OperatorGraph, chosen: Mapping[str, flow.Candidate]) -> dict[str, Layout]:
    """The layout of each inner value whose readers all take it without a conversion.

    A pin holds for a value and all its readers, so a converted value cannot be pinned: there the
    solver may find something better than the greedy plan had, and never anything worse.
    """
    requirements: dict[str, list[Layout]] = {}
    for candidate in chosen.values():
        for requirement in candidate.requirements:
            requirements.setdefault(requirement.value, []).append(requirement.layout)
    production = {value: edge_type.layout for c in chosen.values() for value, edge_type in c.gives}
    return {
        value: layout
        for value, layout in production.items()
        if value not in graph.outputs
        and all(memory_key(n) == memory_key(layout) for n in requirements.get(value, []))
    }
