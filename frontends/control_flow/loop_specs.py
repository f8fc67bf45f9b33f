"""Loops in one form: what a `Loop` or `Scan` iterates over, hands on and makes.

In: a node.  Out: a `LoopSpec`.  What always holds: states are numbered as the node lists them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from graphflow.base.sizes import BOUNDLESS
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.derived_sizes import Element, merged, total
from graphflow.graph import Value


class Growth(Struct, frozen=True):
    """How a state grows: along `axis`, by as many elements `by` in each iteration."""

    axis: int
    by: int = 1

    def extent(self, context: ImportContext, first: Element, iterations: Element) -> Element:
        """How many elements there are after some iterations."""
        return total(context, (first, merged(context, (self.by, iterations))))

    def room(self, before: Value, most: int) -> tuple[int, ...]:
        """The shape with room for what there is after the most iterations."""
        shape = list(before.shape)
        shape[self.axis] += self.by * most
        return tuple(shape)


class Scanned(Struct, frozen=True):
    """A tensor of which each iteration takes or makes one row along `axis`, `reverse` ones from the
    end; `name` is empty for a result that nothing reads."""

    name: str
    axis: int = 0
    reverse: bool = False


class LoopSpec(Struct, frozen=True):
    """A `Loop` or `Scan` in the same form.

    trips, condition: tensors, of one element each; empty if the node has none.
    most: the most iterations, None if nothing bounds them.
    all_trips: whether there are always as many as `trips` says.
    size: the size that `trips` holds, where a run decides it by the extents of its inputs; else
        empty.
    growth: how states grow, by their numbers; others keep their shapes.
    is_counting: whether the number of an iteration is a size in the body.
    given: whether the body has the number of the iteration and the condition as its first inputs,
        and gives the next condition as its first result.
    """

    trips: str
    condition: str
    most: int | None
    all_trips: bool
    given: bool
    states: tuple[str, ...]
    taken: tuple[Scanned, ...]
    made: tuple[Scanned, ...]
    size: str = ""
    growth: Mapping[int, Growth] = field(default_factory=dict)
    is_counting: bool = False

    @property
    def can_count(self) -> bool:
        """Whether the number of an iteration may be a size: the body gets it, and it is bounded."""
        return self.given and self.most is not None and 0 < self.most < BOUNDLESS

    def room(self, k: int, values: Mapping[str, Value]) -> tuple[int, ...]:
        """The shape of the memory of state number `k`."""
        value, growth = values[self.states[k]], self.growth.get(k)
        return value.shape if growth is None else growth.room(value, self.most or 0)
