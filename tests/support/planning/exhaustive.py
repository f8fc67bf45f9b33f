"""Exhaustive search for the cheapest plan of a small graph, the reference for the solver.

In: a graph and its candidates.  Out: the price of every assignment of candidates to nodes.  The
search shares with the solver only the candidates, whether two layouts are the same memory, whether
a fact satisfies a demand, and the price of one copy: by the bytes moved, or as measured.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphflow.base.fields import replace
from graphflow.cost import CostModel
from graphflow.flow.candidates.candidates import Candidate, Candidates
from graphflow.flow.candidates.requirements import (
    InputAliasing,
    OperandRequirement,
    OutputAliasing,
    Production,
)
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import conversion_key, conversion_work, fill_key, memory_key
from graphflow.layout import Constant, Equal, Undefined, Unused, fact_of, row_major, serves
from graphflow.plan import EdgeType, edge_type_of
from graphflow.tir import DTYPES

Made: TypeAlias = tuple[EdgeType, str, bool]
"""A copy: what it gives, whether by filling in place, and whether inside another tensor."""


class Exhaustive:
    """The price of a plan: its variants, and for each value the cheapest copies for all its
    readers.

    A copy is paid once however many readers it serves.  A fill writes the padding of the value
    where it lies, so it needs the value in this layout and may change no padding that a reader
    relies on.  A value lies in at most one other tensor, and in one piece where a reader needs it
    in one piece; inputs and outputs of the graph lie by themselves.  Nothing copies a value that
    stays unmoved.
    """

    def __init__(self, graph: OperatorGraph, candidates: Candidates, cost: CostModel) -> None:
        self.graph, self.candidates = graph, candidates
        self.cost, self.timings = cost, cost.timings
        self.nodes = list(candidates.of_node)
        self._known: dict[object, float] = {}

    def prices(self) -> NDArray[np.float64]:
        """Seconds of every plan, infinite for what is none; an axis for each node's candidates.

        Each call returns an array of its own.
        """
        return self._prices.copy()

    @cached_property
    def _prices(self) -> NDArray[np.float64]:
        sizes = [len(self.candidates.of_node[n]) for n in self.nodes]
        total = np.zeros(sizes)
        for axis, node in enumerate(self.nodes):
            own = np.array([c.seconds for c in self.candidates.of_node[node]])
            total += own.reshape([-1 if k == axis else 1 for k in range(len(sizes))])
        for value in self.graph.values:
            if not self.graph.is_constant(value):
                axes = self._around(value)
                table = np.empty([sizes[k] for k in axes])
                for at, chosen in self._choices(axes):
                    table[at] = self.copies(value, chosen)
                total += table.reshape([n if k in axes else 1 for k, n in enumerate(sizes)])
        return total

    def price(self, chosen: Sequence[Candidate]) -> float:
        """Seconds of the plan that takes these candidates, one for each node."""
        values = (v for v in self.graph.values if not self.graph.is_constant(v))
        return sum(c.seconds for c in chosen) + sum(self.copies(v, chosen) for v in values)

    def copies(self, value: str, chosen: Sequence[Candidate]) -> float:
        """Seconds of the cheapest copies of a value that serve all who read it."""
        given = [production for c in chosen for v, production in c.productions() if v == value]
        production = given[0] if given else Production(self.candidates.edge_types[value][0])
        requirements = [
            requirement
            for c in chosen
            for requirement in c.requirements
            if requirement.value == value
        ]
        if value in self.graph.outputs:
            layout = row_major(self.graph.values[value].shape)
            requirements.append(
                OperandRequirement(
                    -1, value, layout, Unused(), input_aliasing=InputAliasing.OWN_STORAGE
                )
            )
        if _clash(requirements):
            return np.inf
        wanted = tuple(
            dict.fromkeys(replace(requirement, position=0) for requirement in requirements)
        )
        key = value, production, frozenset(wanted)
        if key not in self._known:
            self._known[key] = self._cheapest(value, production, wanted)
        return self._known[key]

    def _around(self, value: str) -> list[int]:
        """The nodes that make or read a value."""
        return [
            k
            for k, node in enumerate(self.nodes)
            if any(
                value in (*(n.value for n in c.requirements), *(v for v, _ in c.gives))
                for c in self.candidates.of_node[node]
            )
        ]

    def _choices(self, axes: list[int]) -> Iterator[tuple[tuple[int, ...], list[Candidate]]]:
        options = [self.candidates.of_node[self.nodes[k]] for k in axes]
        for at in itertools.product(*(range(len(found)) for found in options)):
            yield at, [found[k] for found, k in zip(options, at, strict=True)]

    def _cheapest(
        self, value: str, production: Production, requirements: Sequence[OperandRequirement]
    ) -> float:
        edge_type, output_aliasing = production.edge_type, production.output_aliasing
        unserved = [n for n in requirements if not self._direct(value, production, n)]
        if production.unmoved:
            return np.inf if unserved else 0.0
        if not unserved:
            return 0.0
        single = (
            _copy(edge_type, output_aliasing, n, kind)
            for n in requirements
            for kind in ("convert", "fill")
        )
        possible = list(dict.fromkeys(copy for copy in single if copy is not None))
        best = np.inf
        for size in range(1, min(len(possible), len(unserved)) + 1):
            for made in itertools.combinations(possible, size):
                seconds = sum(self._seconds(value, edge_type, *copy) for copy in made)
                taken = all(any(_may_take(copy, n) for copy in made) for n in unserved)
                if seconds < best and taken and not _disturbed(made, requirements):
                    best = seconds
        return best

    def _direct(self, value: str, production: Production, requirement: OperandRequirement) -> bool:
        """Whether a reader can take the value itself; of one that stays unmoved, its elements."""
        if production.unmoved or requirement.family is not None:
            return requirement.family is not None and production.family == requirement.family
        return _serves(production.edge_type, requirement) and self._output_aliasing(
            value, production.output_aliasing, requirement
        )

    def _output_aliasing(
        self, value: str, output_aliasing: OutputAliasing | None, requirement: OperandRequirement
    ) -> bool:
        """Whether the value itself can be where a reader needs it."""
        own = output_aliasing in (OutputAliasing.FREE, OutputAliasing.CONTIGUOUS)
        match requirement.input_aliasing:
            case InputAliasing.COPIED:
                return False
            case InputAliasing.OWN_STORAGE:
                return own
            case InputAliasing.INSIDE_OUTPUT:
                return output_aliasing is OutputAliasing.FREE and value not in self.graph.outputs
            case InputAliasing.INSIDE_OUTPUT_CONTIGUOUS:
                return own and value not in self.graph.outputs
            case InputAliasing.CONTIGUOUS | InputAliasing.HOLDS_OUTPUT_CONTIGUOUS:
                return output_aliasing is not OutputAliasing.INSIDE_INPUT
            case _:
                return True

    def _seconds(
        self, value: str, source: EdgeType, target: EdgeType, kind: str, window: bool
    ) -> float:
        tensor = self.graph.values[value]
        if self.timings.known:
            constants = [f.literal for _, f in target.facts if isinstance(f, Constant)]
            if kind == "fill":
                return self.timings.known[fill_key(target.layout, tensor.dtype, constants[0])]
            fill = constants[0] if constants else None
            key = conversion_key(source.layout, target.layout, tensor.dtype, fill)
            return self.timings.known[key]
        size = DTYPES[tensor.dtype].itemsize
        if kind == "fill":
            return self.cost.fill_seconds(target.layout.padding_elements * size)
        rewriting = conversion_work(source.layout, target.layout, tensor.dtype)
        return self.cost.conversion_seconds(rewriting)


def _clash(requirements: Sequence[OperandRequirement]) -> bool:
    """Two windows of one value, or one that is no piece of what something needs as a piece."""
    places = [requirement.input_aliasing for requirement in requirements]
    windows = places.count(InputAliasing.INSIDE_OUTPUT) + places.count(
        InputAliasing.INSIDE_OUTPUT_CONTIGUOUS
    )
    return windows > 1 or (
        InputAliasing.INSIDE_OUTPUT in places
        and not {InputAliasing.CONTIGUOUS, InputAliasing.HOLDS_OUTPUT_CONTIGUOUS}.isdisjoint(places)
    )


@cache
def _serves(edge_type: EdgeType, requirement: OperandRequirement) -> bool:
    """Whether an edge type is in the layout that a reader wants, with padding that it may rely
    on."""
    known = dict(edge_type.facts)
    return (
        memory_key(edge_type.layout) == memory_key(requirement.layout)
        and all(serves(fact, requirement.demand) for fact in known.values())
        and all(known.get(r) == f for r, f in requirement.facts if f != Undefined())
    )


@cache
def _copy(
    edge_type: EdgeType,
    output_aliasing: OutputAliasing | None,
    requirement: OperandRequirement,
    kind: str,
) -> Made | None:
    """The copy that one reader alone would want; a fill only where the rest is in place."""
    if not requirement.input_aliasing.by_copy:
        return None
    target = edge_type_of(requirement.layout)
    if any(f != Undefined() for _, f in requirement.facts):
        target = EdgeType(requirement.layout, requirement.facts)
    elif isinstance(requirement.demand, Equal):
        literal = requirement.demand.literal
        target = edge_type_of(requirement.layout, fact_of(literal.value, literal.dtype))
    in_place = memory_key(edge_type.layout) == memory_key(requirement.layout)
    own = output_aliasing in (OutputAliasing.FREE, OutputAliasing.CONTIGUOUS)
    if kind == "fill" and not (in_place and own and isinstance(requirement.demand, Equal)):
        return None
    return target, kind, requirement.input_aliasing.inside_output


def _may_take(made: Made, requirement: OperandRequirement) -> bool:
    """Whether a copy serves a reader: one in a window serves others too, but is no output, and in
    no piece."""
    target, _, window = made
    if not requirement.input_aliasing.by_copy or (
        requirement.input_aliasing.inside_output and not window
    ):
        return False
    whole = InputAliasing.OWN_STORAGE, InputAliasing.CONTIGUOUS, InputAliasing.COPIED
    return not (window and requirement.input_aliasing in whole) and _serves(target, requirement)


def _disturbed(copies: Sequence[Made], requirements: Sequence[OperandRequirement]) -> bool:
    """Whether a fill changes the padding that another reader of the value relies on."""
    picky = [n for n in requirements if not _serves(edge_type_of(n.layout), n)]
    fills = [target for target, kind, _ in copies if kind == "fill"]
    return any(not _serves(target, requirement) for target in fills for requirement in picky)
