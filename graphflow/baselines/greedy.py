"""Greedy plans: what local motion of conversions makes of a graph, to compare whole plans with.

In: a grouped graph and its candidates.  Out: a candidate for each node, and pins for
`compile(layouts=…)` that hold every tensor where no conversion lies.  What always holds: a node is
decided once, by what was decided before it.  Which copies are made for the variants that were taken
is left to the solver, so that plans are greedy in their layouts alone.

`forward` takes what is cheapest given the inputs, their conversions included.  `sinking` and
`hoisting` give each node that multiplies and adds its own cheapest variant, and let the conversions
between these move through all other nodes: down, until something wants another layout, or up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeAlias

from graphflow.cost import CostModel
from graphflow.flow import (
    Candidate,
    Candidates,
    Copy,
    CopyKind,
    EdgeType,
    OperandRequirement,
    OutputAliasing,
    Problem,
    clashing,
    copies_for,
    copy_prices,
    directly,
    output_requirement,
)
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import memory_key
from graphflow.layout import Layout

Chosen: TypeAlias = "dict[str, Candidate]"


class _Decided:
    """The candidates that were taken, and what copies cost between them."""

    def __init__(self, graph: OperatorGraph, candidates: Candidates, cost: CostModel) -> None:
        self._graph, self._cost = graph, cost
        self._options = candidates.of_node
        self._chosen: Chosen = {}
        self._given: dict[str, tuple[EdgeType, OutputAliasing | None]] = {
            value: (candidates.edge_types[value][0], None) for value in graph.inputs
        }
        self._requirements: dict[str, list[OperandRequirement]] = {
            value: [output_requirement(graph.values[value])] for value in graph.outputs
        }

    def take(self, node: str, key: Callable[[Candidate], tuple[float, ...]]) -> None:
        """Take the candidate with the least key, of those that exclude nobody's decision."""
        free = [c for c in self._options[node] if self.above(c) < inf]
        taken = self._chosen[node] = min(free, key=key)
        self._given |= {
            value: (edge_type, taken.output_aliasing) for value, edge_type in taken.gives
        }
        for requirement in taken.requirements:
            self._requirements.setdefault(requirement.value, []).append(requirement)

    def chosen(self) -> Chosen:
        """What was taken, in the order of the graph."""
        return {node: self._chosen[node] for node in self._options}

    def above(self, candidate: Candidate) -> float:
        """How much more the copies of its inputs cost if it reads them too."""
        total = 0.0
        for value in dict.fromkeys(requirement.value for requirement in candidate.requirements):
            known = self._requirements.get(value, [])
            more = [
                requirement for requirement in candidate.requirements if requirement.value == value
            ]
            given = self._given.get(value)
            total += self._copying(value, given, [*known, *more])
            total -= self._copying(value, given, known)
        return total

    def below(self, candidate: Candidate) -> float:
        """What the copies of its outputs cost for the readers that are decided."""
        return sum(
            self._copying(
                value, (edge_type, candidate.output_aliasing), self._requirements.get(value, [])
            )
            for value, edge_type in candidate.gives
        )

    def _copying(
        self,
        value: str,
        given: tuple[EdgeType, OutputAliasing | None] | None,
        requirements: Sequence[OperandRequirement],
    ) -> float:
        """Seconds of a conversion for each need that is not served; nothing where none is known."""
        if clashing(requirements):
            return inf
        if given is None:
            return 0.0
        (edge_type, output_aliasing), tensor = given, self._graph.values[value]
        made: list[Copy] = []
        for requirement in requirements:
            served = directly(edge_type, output_aliasing, requirement, value in self._graph.outputs)
            if served or any(copy.serves(requirement) for copy in made):
                continue
            wanted = [
                copy for copy in copies_for(tensor, requirement) if copy.kind == CopyKind.CONVERT
            ]
            if not wanted:
                return inf  # it would lie inside a tensor that has another layout
            (prices,) = copy_prices(tensor, wanted, [edge_type], self._cost)
            made += (copy.at(price) for copy, price in zip(wanted, prices, strict=True))
        return sum(copy.seconds for copy in made)


def forward(graph: OperatorGraph, candidates: Candidates, cost: CostModel) -> Chosen:
    """From the inputs on, each node as it is cheapest together with the conversions it asks for."""
    decided = _Decided(graph, candidates, cost)
    for node in candidates.of_node:
        decided.take(node, lambda c: (c.seconds + decided.above(c), c.seconds))
    return decided.chosen()


def sinking(graph: OperatorGraph, candidates: Candidates, cost: CostModel) -> Chosen:
    """Conversions pushed down: other nodes keep the layouts in which their inputs come."""
    decided = _Decided(graph, candidates, cost)
    anchors = _anchors(candidates)
    for node in candidates.of_node:
        if node in anchors:
            decided.take(node, lambda c: (c.seconds, decided.above(c)))
        else:
            decided.take(node, lambda c: (decided.above(c), c.seconds))
    return decided.chosen()


def hoisting(graph: OperatorGraph, candidates: Candidates, cost: CostModel) -> Chosen:
    """Conversions pulled up: other nodes give the layouts that their readers want."""
    decided = _Decided(graph, candidates, cost)
    anchors = _anchors(candidates)
    for node in anchors:
        decided.take(node, lambda c: (c.seconds, decided.above(c)))
    for node in reversed(list(candidates.of_node)):
        if node not in anchors:
            decided.take(node, lambda c: (decided.below(c), c.seconds))
    return decided.chosen()


Planner: TypeAlias = Callable[[OperatorGraph, Candidates, CostModel], Chosen]

PLANNERS: dict[str, Planner] = {"forward": forward, "sinking": sinking, "hoisting": hoisting}


def _anchors(candidates: Candidates) -> tuple[str, ...]:
    """The nodes that multiply and add, in the order of the graph."""
    options = candidates.of_node.items()
    return tuple(n for n, found in options if any(c.variant.work.flops for c in found))


def plan_seconds(
    graph: OperatorGraph, candidates: Candidates, chosen: Chosen, cost: CostModel
) -> float:
    """The price of the plan that takes these candidates, with the cheapest copies between them."""
    alone = Candidates({node: (c,) for node, c in chosen.items()}, candidates.edge_types)
    return Problem(graph, alone, cost).best.seconds


def greedy_pins(graph: OperatorGraph, chosen: Mapping[str, Candidate]) -> dict[str, Layout]:
    """The layout of each inner value that all its readers take as it is given.

    A pin holds for a value and all its readers, so what is converted cannot be pinned: the solver
    may find something better there than the greedy plan had, and never anything worse.
    """
    requirements: dict[str, list[Layout]] = {}
    for candidate in chosen.values():
        for requirement in candidate.requirements:
            requirements.setdefault(requirement.value, []).append(requirement.layout)
    given = {value: edge_type.layout for c in chosen.values() for value, edge_type in c.gives}
    return {
        value: layout
        for value, layout in given.items()
        if value not in graph.outputs
        and all(memory_key(n) == memory_key(layout) for n in requirements.get(value, []))
    }
