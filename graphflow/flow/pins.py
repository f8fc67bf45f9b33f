"""Pins: layouts that a user asks for, and what each of them costs.

In: for some values of a graph a layout, its name or its description.  Out: the layouts; and, once
the plan with them is known, by how many seconds the best plan without each pin is faster.  The cost
of a pin takes a solution of its own, so beyond `MOST_PRICED` pins only the cost of all together is
computed; and all of them are computed when they are asked for.  `PinTrials` plans the graph again
with one pin more, which gives the plan that a compilation with this pin would find.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from graphflow.base.assumed import Assumed
from graphflow.base.collecting import collection_deferred
from graphflow.base.decisions import unknown_tensor
from graphflow.base.errors import LayoutConflict
from graphflow.base.target import Target
from graphflow.cost import CostModel
from graphflow.flow.branch_and_bound.conditioning import TablesTooLarge
from graphflow.flow.candidates.candidates import (
    Candidate,
    Candidates,
    Unsatisfiable,
    enumerate_candidates,
)
from graphflow.flow.solve import Problem, Solution, with_taken_expansions
from graphflow.flow.writer import write_plan
from graphflow.graph import Expansions, OperatorGraph
from graphflow.layout import Fact, Layout, families
from graphflow.plan import LayoutPlan, Pinned

MOST_PRICED = 8
"""The most pins that are priced one by one; each takes another solution of the graph."""

NO_COST = 1e-9
"""The relative difference of two plans that counts as rounding of prices, and not as a cost."""

FREE = "no plan without it is faster"

UNFINISHED = "not computed: the best plan without it would take a search"

ALONE = "no plan meets the other pins without it"
"""Without a pin the others can become impossible: the pinned layouts of a user are offered to the
nodes around them, also to those of other pins.
"""

SEARCHED = "the best plan with it would take a search"

IMPOSSIBLE = "no plan has it"

NO_TENSOR = "the tensor is made by an expansion, which another plan need not take"


class PinTrials(Struct, frozen=True):
    """Plans of one graph of fusion groups with one pin more than those in `pinned`; the other
    fields are as in `Planning`."""

    graph: OperatorGraph
    expansions: Expansions
    cost: CostModel
    pinned: Mapping[str, Layout]
    assumed: tuple[Assumed, ...]
    facts: Mapping[str, Fact]

    def plan(self, value: str, layout: Layout) -> LayoutPlan | str:
        """The best plan with `value` pinned to `layout`, without prices of what it does not take;
        the reason where there is none, or where it would take a search."""
        if value not in self.graph.values:
            return NO_TENSOR
        try:
            candidates, problem = self.problem({**self.pinned, value: layout})
        except TablesTooLarge:
            return SEARCHED
        except Unsatisfiable:
            return IMPOSSIBLE
        made = with_taken_expansions(self.graph, self.expansions, candidates, problem.best)
        return write_plan(made.graph, made.candidates, made.solution, None, {})

    def problem(self, pinned: Mapping[str, Layout]) -> tuple[Candidates, Problem]:
        """The candidates with these pins alone, and the best of their plans.

        Raises TablesTooLarge where that takes a search, and Unsatisfiable where no plan has them.
        """
        candidates = enumerate_candidates(
            self.graph, self.cost, pinned, facts=self.facts, expansions=self.expansions
        )
        return candidates, Problem(self.graph, candidates, self.cost, eliminated_only=True)


def read_pins(
    graph: OperatorGraph, pins: Mapping[str, Layout | str], target: Target
) -> dict[str, Layout]:
    """The pinned layout of each value.

    Raises LayoutConflict for an unknown value, an unknown name of a layout, or a layout for another
    shape.
    """
    return {name: _read(graph, name, pin, target) for name, pin in pins.items()}


def _read(graph: OperatorGraph, name: str, pin: Layout | str, target: Target) -> Layout:
    value = graph.values.get(name)
    if value is None:
        raise LayoutConflict(f"cannot pin {name}: {_why_no_value(graph, name)}")
    if isinstance(pin, Layout):
        if pin.logical_shape != value.shape:
            raise LayoutConflict(
                f"the layout pinned to {name} is for shape {list(pin.logical_shape)}, and the "
                f"tensor has {list(value.shape)}"
            )
        return pin
    offered: dict[str, Layout] = {}
    for family in families(len(value.shape), target.computed_lanes(value.dtype), target):
        layout = family.instantiate(value.shape)
        if layout is not None:
            offered |= {family.name: layout, family.construction.name: layout}
            offered.setdefault(layout.describe(), layout)
    if pin not in offered:
        raise LayoutConflict(f"cannot pin {name} to {pin!r}; it can be one of {sorted(offered)}")
    return offered[pin]


def _why_no_value(graph: OperatorGraph, name: str) -> str:
    """Why the fused graph has no value of this name, and which tensor can be pinned instead."""
    for node in graph.nodes:
        if any(value == name for value, _ in node.inner):
            return (
                f"{node.op} {node.name} computes it in registers and it has no memory; pin what "
                f"that node writes, {', '.join(node.outputs)}"
            )
    gone = graph.removed.get(name)
    if gone is not None:
        same = None if gone.alias_of is None else graph.resolved(gone.alias_of)
        instead = "" if same is None else f"; pin {same}, which holds the same"
        return f"it was removed, because {gone.reason}{instead}"
    return str(unknown_tensor(name, graph.values))


class PinPrices(Struct, frozen=True):
    """Prices the pins of the plan `best` when it is called; `trials` solve the graph without them.

    A price is None where finding it would take a search, or where there is no plan without the pin.
    """

    trials: PinTrials
    best: Solution

    def __call__(self) -> tuple[tuple[Pinned, ...], float | None]:
        """What each pin costs beside the others, and the seconds of the best plan without any
        pin."""
        pins = self.trials.pinned
        with collection_deferred():
            everything = self._without(*pins)
            free = None if isinstance(everything, str) else everything
            found = tuple(self._priced(name, free, everything) for name in pins)
        return found, None if free is None else free.seconds

    def _without(self, *dropped: str) -> Solution | str:
        pins = self.trials.pinned
        left = {name: layout for name, layout in pins.items() if name not in dropped}
        try:
            return self.trials.problem(left)[1].best
        except TablesTooLarge:
            return UNFINISHED
        except Unsatisfiable:
            return ALONE

    def _priced(self, name: str, free: Solution | None, everything: Solution | str) -> Pinned:
        pins, best = self.trials.pinned, self.best
        if free is not None and not _costs(best, free):  # nor does any other plan without some pins
            return Pinned(name, pins[name], 0.0, FREE)
        if len(pins) > MOST_PRICED:
            because = f"one of {len(pins)} pins: only what all cost together was computed"
            return Pinned(name, pins[name], None, because)
        other = everything if len(pins) == 1 else self._without(name)
        return _compared(self.trials.graph, name, pins[name], best, other)


def _costs(best: Solution, other: Solution) -> bool:
    """Whether the plan with the pins is slower than another by more than rounding."""
    return best.seconds - other.seconds > NO_COST * best.seconds


def _compared(
    graph: OperatorGraph, name: str, layout: Layout, best: Solution, other: Solution | str
) -> Pinned:
    if isinstance(other, str):
        return Pinned(name, layout, None, other)
    if not _costs(best, other):
        return Pinned(name, layout, 0.0, FREE)
    cost = best.seconds - other.seconds
    changed = [
        n
        for n, taken in best.candidates.items()
        if _variant(taken) != _variant(other.candidates[n])
    ]
    because = f"without it {_edge_type_text(graph, name, other)}"
    copies = len(best.copies) - len(other.copies)
    if copies:
        because += f", with {abs(copies)} {'fewer' if copies > 0 else 'more'} copies in all"
    if changed:
        because += f"; other variants of {', '.join(changed[:4])}{' …' if changed[4:] else ''}"
    return Pinned(name, layout, cost, because)


def _edge_type_text(graph: OperatorGraph, name: str, plan: Solution) -> str:
    """The edge type that a value has in a plan, in words."""
    maker = graph.producer(name)
    if maker is None or maker.name not in plan.candidates:
        read = {
            requirement.layout.describe(): None
            for candidate in plan.candidates.values()
            for requirement in candidate.requirements
            if requirement.value == name
        }
        return f"{name} is read as {' and '.join(read) or 'its readers require'}"
    return f"{name} is {dict(plan.candidates[maker.name].gives)[name].describe()}"


def _variant(candidate: Candidate) -> tuple[str, float | None]:
    return candidate.variant.name, candidate.pad_value
