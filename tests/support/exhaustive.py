"""All plans of a small graph, priced one by one from the rules for copies.

In: a graph and its candidates.  Out: the price of every assignment of a candidate to each node.
Nothing is shared with the solver but the candidates, whether two layouts are the same memory,
whether a fact serves a demand, and what one copy takes: by the bytes moved, or as it was measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphflow.cost import CostModel
from graphflow.flow import Label, label_of
from graphflow.flow.candidates import Candidate, Candidates, Lies, Need, Place
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import conversion_key, fill_key, memory_key, rewriting_of
from graphflow.layout import Constant, Equal, Undefined, Unused, fact_of, row_major, serves
from graphflow.tir import DTYPES

Made: TypeAlias = "tuple[Label, str, bool]"
"""A copy: what it gives, whether by filling in place, and whether inside another tensor."""


class Exhaustive:
    """The price of a plan: its forms, and for each value the cheapest copies for all its readers.

    A copy is paid once however many readers it serves.  A fill writes the padding of the value
    where it lies, so it needs the value in this layout and may change no padding that a reader
    relies on.  A value lies in at most one other tensor, and in one piece where a reader needs it
    in one piece; inputs and outputs of the graph lie by themselves.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        candidates: Candidates,
        cost: CostModel,
    ) -> None:
        self.graph, self.candidates = graph, candidates
        self.cost, self.timings = cost, cost.timings
        self.nodes = list(candidates.of_node)
        self._known: dict[object, float] = {}

    def prices(self) -> NDArray[np.float64]:
        """Seconds of every plan, infinite for what is none; an axis for each node's candidates."""
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
        given = [(label, c.lies) for c in chosen for v, label in c.gives if v == value]
        label, lies = given[0] if given else (self.candidates.labels[value][0], None)
        needs = [need for c in chosen for need in c.needs if need.value == value]
        if value in self.graph.outputs:
            layout = row_major(self.graph.values[value].shape)
            needs.append(Need(-1, value, layout, Unused(), place=Place.OWN))
        if _clash(needs):
            return np.inf
        wanted = tuple(dict.fromkeys(replace(need, position=0) for need in needs))
        key = value, label, lies, frozenset(wanted)
        if key not in self._known:
            self._known[key] = self._cheapest(value, label, lies, wanted)
        return self._known[key]

    def _around(self, value: str) -> list[int]:
        """The nodes that make or read a value."""
        return [
            k
            for k, node in enumerate(self.nodes)
            if any(
                value in (*(n.value for n in c.needs), *(v for v, _ in c.gives))
                for c in self.candidates.of_node[node]
            )
        ]

    def _choices(self, axes: list[int]) -> Iterator[tuple[tuple[int, ...], list[Candidate]]]:
        options = [self.candidates.of_node[self.nodes[k]] for k in axes]
        for at in itertools.product(*(range(len(found)) for found in options)):
            yield at, [found[k] for found, k in zip(options, at, strict=True)]

    def _cheapest(
        self, value: str, label: Label, lies: Lies | None, needs: Sequence[Need]
    ) -> float:
        unserved = [n for n in needs if not (_serves(label, n) and self._lies(value, lies, n))]
        if not unserved:
            return 0.0
        single = (_copy(label, lies, n, kind) for n in needs for kind in ("convert", "fill"))
        possible = list(dict.fromkeys(copy for copy in single if copy is not None))
        best = np.inf
        for size in range(1, min(len(possible), len(unserved)) + 1):
            for made in itertools.combinations(possible, size):
                seconds = sum(self._seconds(value, label, *copy) for copy in made)
                taken = all(any(_may_take(copy, n) for copy in made) for n in unserved)
                if seconds < best and taken and not _disturbed(made, needs):
                    best = seconds
        return best

    def _lies(self, value: str, lies: Lies | None, need: Need) -> bool:
        """Whether the value itself can be where a reader needs it."""
        own = lies in (Lies.FREE, Lies.PIECE)
        match need.place:
            case Place.OWN:
                return own
            case Place.WINDOW:
                return lies is Lies.FREE and value not in self.graph.outputs
            case Place.WINDOW_PIECE:
                return own and value not in self.graph.outputs
            case Place.HELD_PIECE:
                return lies is not Lies.INSIDE
            case _:
                return True

    def _seconds(self, value: str, source: Label, target: Label, kind: str, window: bool) -> float:
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
        rewriting = rewriting_of(source.layout, target.layout, tensor.dtype)
        return self.cost.conversion_seconds(rewriting)


def _clash(needs: Sequence[Need]) -> bool:
    """Two windows of one value, or one that is no piece of what something needs as a piece."""
    places = [need.place for need in needs]
    windows = places.count(Place.WINDOW) + places.count(Place.WINDOW_PIECE)
    return windows > 1 or (Place.WINDOW in places and Place.HELD_PIECE in places)


@cache
def _serves(label: Label, need: Need) -> bool:
    """Whether a label is in the layout that a reader wants, with padding that it may rely on."""
    known = dict(label.facts)
    return (
        memory_key(label.layout) == memory_key(need.layout)
        and all(serves(fact, need.demand) for fact in known.values())
        and all(known.get(r) == f for r, f in need.facts if f != Undefined())
    )


@cache
def _copy(label: Label, lies: Lies | None, need: Need, kind: str) -> Made | None:
    """The copy that one reader alone would want; a fill only where the rest is in place."""
    if need.place.held:
        return None
    target = label_of(need.layout)
    if any(f != Undefined() for _, f in need.facts):
        target = Label(need.layout, need.facts)
    elif isinstance(need.demand, Equal):
        literal = need.demand.literal
        target = label_of(need.layout, fact_of(literal.value, literal.dtype))
    in_place = memory_key(label.layout) == memory_key(need.layout)
    own = lies in (Lies.FREE, Lies.PIECE)
    if kind == "fill" and not (in_place and own and isinstance(need.demand, Equal)):
        return None
    return target, kind, need.place.window


def _may_take(made: Made, need: Need) -> bool:
    """Whether a copy serves a reader: one in a window serves others too, but is no output."""
    target, _, window = made
    if need.place.held or (need.place.window and not window):
        return False
    return not (window and need.place is Place.OWN) and _serves(target, need)


def _disturbed(copies: Sequence[Made], needs: Sequence[Need]) -> bool:
    """Whether a fill changes the padding that another reader of the value relies on."""
    picky = [n for n in needs if not _serves(label_of(n.layout), n)]
    fills = [target for target, kind, _ in copies if kind == "fill"]
    return any(not _serves(target, need) for target in fills for need in picky)
