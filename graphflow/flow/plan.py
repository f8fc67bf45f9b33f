"""The layout plan: what flow decided, with reasons and proofs; frozen, later stages follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import inf

from graphflow.arith import Proof
from graphflow.base.assumed import Assumed
from graphflow.base.decisions import microseconds
from graphflow.kernels.recipes import KernelVariant, RefusedVariant, View
from graphflow.layout import Constant, Demand, Fact, Layout
from graphflow.tir import Literal


@dataclass(frozen=True)
class EdgeType:
    """A layout, and what each of its padding regions holds (no regions: no padding)."""

    layout: Layout
    facts: tuple[tuple[str, Fact], ...] = ()

    @property
    def constant(self) -> Literal | None:
        """The constant that some padding region holds, if one does."""
        return next((fact.literal for _, fact in self.facts if isinstance(fact, Constant)), None)

    def describe(self) -> str:
        """Layout and facts as text."""
        facts = ", ".join(f"{region} = {fact}" for region, fact in self.facts)
        return self.layout.describe() + (f" [{facts}]" if facts else "")


@dataclass(frozen=True)
class Other:
    """What was not chosen: a variant, the edge type that it would give, the seconds it would take
    alone.

    `extra` is by how many seconds the best plan that has it takes longer than the one that was
    chosen: infinite where no plan has it, None where the integer program decided and this is not
    known.  `seconds` are `measured`, or else estimated.
    """

    variant: str
    edge_type: EdgeType
    seconds: float
    extra: float | None
    measured: bool = False

    def price(self) -> str:
        """What the best plan with it costs, in words."""
        if self.extra is None:
            return "what a plan with it costs is not computed, as the integer program decided"
        if self.extra == inf:
            return "no plan has it"
        return f"the best plan with it takes {microseconds(self.extra)} more"


@dataclass(frozen=True)
class Choice:
    """The variant chosen for one node.

    `variant_name` is its name, with what the epilogue writes to padding; `pad_value` is that
    constant, or None.  `because` says in words why this variant and not another; `others` are the
    remaining variants, the cheapest by themselves first, `refused` those that a step of their
    recipe refused.  The price is `measured`, or else estimated."""

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


@dataclass(frozen=True)
class Conversion:
    """A copy of `value` into another edge type, made once for all `consumers`.

    `because` names the two constraints that disagree.  The price is `measured`, or else estimated.
    """

    value: str
    source: EdgeType
    target: EdgeType
    consumers: tuple[tuple[str, int], ...]
    kind: CopyKind
    seconds: float
    bytes: int
    because: str
    measured: bool = False


@dataclass(frozen=True)
class Cancelled:
    """A crop and a pad that met on an edge and went, with the proofs for it."""

    value: str
    consumer: str
    layout: Layout
    proofs: tuple[Proof, ...]


@dataclass(frozen=True)
class Refused:
    """A pair that may not be cancelled, why, and what the plan does instead."""

    value: str
    consumer: str
    reason: str
    repair: str


@dataclass(frozen=True)
class Relied:
    """A node whose variant is right only because of a `fact` about the contents of `value`.

    `tensors` are the inputs whose users' assumptions it follows from.
    """

    node: str
    value: str
    fact: Fact
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class EdgePlan:
    """What was decided for one value: the edge type its producer gives, and who decided it.

    `others` are the edge types that it could have had, those of the cheapest plans first.
    """

    value: str
    edge_type: EdgeType
    decided_by: str
    reason: str
    others: tuple[Other, ...] = ()


@dataclass(frozen=True)
class Pinned:
    """A layout that the user asked for, and what it costs.

    `cost` is by how many seconds the best plan without this pin, and with all others, is faster;
    None where that was not computed, and `because` says why.
    """

    value: str
    layout: Layout
    cost: float | None
    because: str


@dataclass(frozen=True)
class Difference:
    """A node that has another variant in the next best plan."""

    node: str
    variant: str
    instead: str


@dataclass(frozen=True)
class EndToEndTime:
    """Why the plan is not the one whose parts take least.

    Timed as programs, a plan with `family` wherever that can be had took `seconds`, and the one
    whose parts take least, `parts` seconds, took `instead`.
    """

    family: str
    seconds: float
    instead: float
    parts: float

    def __str__(self) -> str:
        """The reason in words."""
        less = 100 * (1 - self.seconds / self.instead)
        return (
            f"{self.family} wherever it can be had: timed as a whole, that took {less:.1f} % less "
            f"than the plan whose parts take least, {microseconds(self.parts)} together"
        )


@dataclass(frozen=True)
class LayoutPlan:
    """All decisions for one graph.

    `choices` by node, `edges` by value, `conversions` in a stable order, `moves` the nodes that
    only move elements and are no views, `seconds` the estimated time of a run, `next_best` the same
    for the best plan that differs in some variant, `differences` the nodes where it does, and `gap`
    the relative optimality gap that the solver left (0.0: proven optimal).  `unpinned` is the time
    of the best plan without pins, None where there are none or it was not computed.  `assumed` is
    what the user says of the inputs, `relied` what of it the plan rests on.  `whole` says why it
    is a plan with one family of layouts, where timing whole programs decided so.
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
    pinned: tuple[Pinned, ...] = ()
    unpinned: float | None = None
    assumed: tuple[Assumed, ...] = ()
    relied: tuple[Relied, ...] = ()
    whole: EndToEndTime | None = None

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

    def conversion_for(self, node: str, position: int, value: str) -> int | None:
        """The number of the conversion that input `position` of `node` reads; None: the value.

        The caller, who reads graph outputs, is node "" with position -1.
        """
        return self._by_reader.get((node, position, value))

    def source(self, node: str, position: int, value: str) -> EdgeType:
        """The edge type in which input `position` of `node` is read: a conversion's, or the
        value's."""
        number = self.conversion_for(node, position, value)
        return self.edges[value].edge_type if number is None else self.conversions[number].target

    @cached_property
    def _by_reader(self) -> dict[tuple[str, int, str], int]:
        return {
            (node, position, made.value): number
            for number, made in reversed(list(enumerate(self.conversions)))
            for node, position in made.consumers
        }
