"""The layout plan: all that flow decided, with reasons and proofs.

Flow makes it, and later stages follow it.  What always holds: it is frozen, and everything in it is
in the order of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import TypeAlias

from msgspec import Struct

from graphflow.arith import Proof
from graphflow.base.assumed import Assumed
from graphflow.base.decisions import microseconds
from graphflow.base.notebook import folded, line, shown, table
from graphflow.kernels.recipes import KernelVariant, Recipe, RefusedVariant, View
from graphflow.layout import Demand, Fact, Layout
from graphflow.plan.edge_types import EdgeType


class Other(Struct, frozen=True):
    """A candidate that was not taken: its variant, its edge type, and its price in `seconds`.

    `extra` is by how many seconds the best plan with it exceeds the chosen plan: infinite where no
    plan has it, None where a search decided and it is not known.  `seconds` are
    `measured`, or else estimated.
    """

    variant: str
    edge_type: EdgeType
    seconds: float
    extra: float | None
    measured: bool = False

    def price(self) -> str:
        """`extra` in words."""
        if self.extra is None:
            return "what a plan with it costs is not computed, as a search decided"
        if self.extra == inf:
            return "no plan has it"
        return f"the best plan with it takes {microseconds(self.extra)} more"


class Choice(Struct, frozen=True):
    """The candidate that the plan takes for one node.

    `variant_name` is the name of the variant, with what its epilogue writes to padding; `pad_value`
    is that constant, or None.  `because` says why this candidate was taken.  `others` are those
    that were not, cheapest by themselves first, and `refused` the variants that a step of their
    recipe refused.  `seconds` are `measured`, or else estimated.
    """

    node: str
    variant: KernelVariant
    variant_name: str
    pad_value: float | None
    seconds: float
    because: str
    others: tuple[Other, ...]
    measured: bool = False
    refused: tuple[RefusedVariant, ...] = ()


class CopyKind(StrEnum):
    """What a copy of a tensor writes."""

    CONVERT = "convert"
    """All elements, in another layout."""
    FILL = "fill"
    """The padding only, in the same layout."""
    COPY = "copy"
    """All elements, in the same layout and another storage."""
    MOVE = "move"
    """All elements, by a node of the graph that does nothing else."""


class Conversion(Struct, frozen=True):
    """A copy of `value` from the edge type `source` to `target`, made once for all `consumers`.

    A consumer is a node and its input position, ("", -1) for the caller.  `bytes` are read and
    written together; a fill only writes.  `because` names the production and the requirements that
    disagree, `recipe` is how the kernel is made.  `seconds` are `measured`, or else estimated.
    """

    value: str
    source: EdgeType
    target: EdgeType
    consumers: tuple[tuple[str, int], ...]
    kind: CopyKind
    seconds: float
    bytes: int
    because: str
    recipe: Recipe
    measured: bool = False


class Cancelled(Struct, frozen=True):
    """A crop and a pad that met at a reader of `value` and were removed, with the proofs for it."""

    value: str
    consumer: str
    layout: Layout
    proofs: tuple[Proof, ...]


class Refused(Struct, frozen=True):
    """A crop and a pad that may not be cancelled: the reason, and the repair that the plan
    makes.
    """

    value: str
    consumer: str
    reason: str
    repair: str


class Relied(Struct, frozen=True):
    """A node whose variant is correct only because of a `fact` about the contents of `value`.

    `tensors` are the graph inputs whose assumptions the fact follows from.
    """

    node: str
    value: str
    fact: Fact
    tensors: tuple[str, ...]


class EdgePlan(Struct, frozen=True):
    """The decision about one value: its edge type, and whose variant decided it.

    `others` are the other edge types that its producer offers, those of the cheapest plans first.
    """

    value: str
    edge_type: EdgeType
    decided_by: str
    reason: str
    others: tuple[Other, ...] = ()


class Pinned(Struct, frozen=True):
    """A layout that the user asked for, and its cost.

    `cost` is by how many seconds the best plan without this pin (and with all others) is faster;
    None where it was not computed.  `because` gives the reason for either.
    """

    value: str
    layout: Layout
    cost: float | None
    because: str


PinPricing: TypeAlias = "Callable[[], tuple[tuple[Pinned, ...], float | None]]"
"""Computes the cost of each pin, and the price of the best plan without any."""


class Difference(Struct, frozen=True):
    """A node that takes another variant (`instead`) in the next best plan."""

    node: str
    variant: str
    instead: str


class EndToEndTime(Struct, frozen=True):
    """End-to-end times that made the plan another one than that with the least sum of prices.

    Run as programs, the baseline plan with `family` wherever possible took `seconds`, and the plan
    with the least sum of prices, `parts` seconds, took `instead`.
    """

    family: str
    seconds: float
    instead: float
    parts: float

    def __str__(self) -> str:
        """The reason in words."""
        less = 100 * (1 - self.seconds / self.instead)
        return (
            f"{self.family} wherever possible: timed end to end, that took {less:.1f} % less "
            f"than the plan with the least sum of prices, {microseconds(self.parts)}"
        )


SharingUnit: TypeAlias = str | int
"""What threads share or one of them runs: a node by its name, a copy by its number in the plan,
the copy of a constant into an output by its name (`copied_constant`)."""


def copied_constant(value: str) -> str:
    """The name of the copy of a constant into an output."""
    return f"copy {value}"


@dataclass(frozen=True)
class ThreadSharing:
    """Which kernels of a run its threads share: those where that saves more than it takes.

    `saved` are the estimated seconds by which `threads` threads run the `kernels` sooner than one
    does, less those in which they meet and wait for what the others wrote.  `waking` are those that
    a run takes to wake the other threads and to wait for them, and `meeting` those of one meeting
    behind a kernel.  The caller runs the kernels `alone` that would take longer if they were
    shared; `gains` has the estimated seconds that sharing saves of each of the others.
    """

    threads: int
    saved: float
    waking: float
    kernels: int = 0
    alone: frozenset[SharingUnit] = frozenset()
    meeting: float = 0.0
    gains: Mapping[SharingUnit, float] = field(default_factory=dict, repr=False)

    @property
    def pays(self) -> bool:
        """Whether the threads share any kernels."""
        return self.saved > self.waking

    def shares(self, unit: SharingUnit) -> bool:
        """Whether the threads share a kernel."""
        return self.pays and unit not in self.alone

    def __str__(self) -> str:
        """What one thread runs alone, and why, in words."""
        if self.pays:
            return (
                f"one thread runs {len(self.alone)} of {self.kernels} kernels, which "
                f"{self.threads} would run no sooner, as they meet and wait for lines of each other"
            )
        return (
            f"{self.threads} threads would save at most {microseconds(self.saved)}, and waking "
            f"them takes {microseconds(self.waking)}"
        )


@dataclass(frozen=True)
class LayoutPlan:
    """All decisions for one graph.

    - choices: the candidate that each node takes, by node.
    - edges: the edge type of each value, by value.
    - conversions: the copies to make, in a stable order.
    - moves: executed nodes that only move elements.
    - demands: the required layout and demand, by node and input position.
    - cancelled, refused: crop/pad pairs that were removed, and those that may not be.
    - seconds: the price of a run.
    - next_best: the price of the best plan that differs in some variant; `differences` says where.
    - gap: by what share a better plan may exist that the solver did not find (0.0: proven optimal).
    - price_pins: computes `pinned` and `unpinned`, which plans the graph without each pin; None
      where there are no pins.
    - assumed, relied: the user's assumptions, and the nodes that rely on them.
    - end_to_end: set where end-to-end times chose this plan.
    - sharing: whether the threads share the kernels; None for a plan for one thread.
    """

    choices: Mapping[str, Choice]
    edges: Mapping[str, EdgePlan]
    conversions: tuple[Conversion, ...]
    moves: tuple[Conversion, ...]
    demands: Mapping[tuple[str, int], tuple[Layout, Demand]]
    cancelled: tuple[Cancelled, ...]
    refused: tuple[Refused, ...]
    seconds: float
    next_best: float | None
    differences: tuple[Difference, ...]
    gap: float
    price_pins: PinPricing | None = field(default=None, compare=False, repr=False)
    assumed: tuple[Assumed, ...] = ()
    relied: tuple[Relied, ...] = ()
    end_to_end: EndToEndTime | None = None
    sharing: ThreadSharing | None = None

    @property
    def pinned(self) -> tuple[Pinned, ...]:
        """The user's pins with their costs, which are computed when they are first asked for."""
        return self._priced_pins[0]

    @property
    def unpinned(self) -> float | None:
        """The price of the best plan without any pin; None where there are no pins or it was not
        computed."""
        return self._priced_pins[1]

    @cached_property
    def _priced_pins(self) -> tuple[tuple[Pinned, ...], float | None]:
        return ((), None) if self.price_pins is None else self.price_pins()

    @property
    def measured_prices(self) -> int:
        """How many of the prices of what a run executes were measured."""
        return sum(self._executed)

    @property
    def estimated_prices(self) -> int:
        """How many of the prices of what a run executes were estimated."""
        return len(self._executed) - self.measured_prices

    @cached_property
    def _executed(self) -> tuple[bool, ...]:
        """For each executed variant and each conversion, whether its price was measured."""
        chosen = (c for c in self.choices.values() if not isinstance(c.variant.recipe, View))
        return (*(c.measured for c in chosen), *(made.measured for made in self.conversions))

    def _repr_html_(self) -> str:
        price = f"a run is priced at {microseconds(self.seconds)}"
        choices = (
            (made.node, made.variant_name, microseconds(made.seconds), made.because)
            for made in self.choices.values()
        )
        edges = (
            (edge.value, edge.edge_type.describe(), edge.decided_by, edge.reason)
            for edge in self.edges.values()
        )
        copies = (
            (m.value, m.kind, m.source.describe(), m.target.describe(), microseconds(m.seconds))
            for m in self.conversions
        )
        return shown(
            f"layout plan of {len(self.choices)} nodes",
            line(f"{price}; {len(self.conversions)} conversions"),
            folded("variants", table(("node", "variant", "price", "because"), choices)),
            folded("layouts", table(("value", "layout", "decided by", "because"), edges)),
            folded("conversions", table(("value", "kind", "from", "to", "price"), copies)),
        )

    def conversion_for(self, node: str, position: int, value: str) -> int | None:
        """The index of the conversion that input `position` of `node` reads; None if it reads the
        value.

        The caller, who reads graph outputs, is node "" with position -1.
        """
        return self._by_reader.get((node, position, value))

    def source(self, node: str, position: int, value: str) -> EdgeType:
        """The edge type that input `position` of `node` reads: that of a conversion, or the value's
        own.
        """
        number = self.conversion_for(node, position, value)
        return self.edges[value].edge_type if number is None else self.conversions[number].target

    def conversions_of(self, value: str) -> Sequence[tuple[int, Conversion]]:
        """The conversions of a value, each behind its index."""
        return self._by_value.get(value, ())

    @cached_property
    def _by_value(self) -> dict[str, list[tuple[int, Conversion]]]:
        found: dict[str, list[tuple[int, Conversion]]] = {}
        for index, made in enumerate(self.conversions):
            found.setdefault(made.value, []).append((index, made))
        return found

    @cached_property
    def _by_reader(self) -> dict[tuple[str, int, str], int]:
        return {
            (node, position, made.value): number
            for number, made in reversed(list(enumerate(self.conversions)))
            for node, position in made.consumers
        }
