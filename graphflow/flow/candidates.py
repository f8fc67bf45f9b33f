"""Every form of every node with the labels it reads and gives, enumerated forward.

In: the graph, the target, pins.  Out: `Candidates`: for each node its candidates, for each value
the labels that some candidate gives.  Labels start at the graph's inputs and are followed through
the forms, so only those that can occur are listed.  Facts come from evaluating bodies on the
padding of the inputs; a constant that some reader demands can also be written by the producer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from typing import TypeAlias

from graphflow.cost import CostModel
from graphflow.dtypes import FLOATING
from graphflow.errors import LayoutConflict
from graphflow.flow.contents import contents
from graphflow.flow.forms import forms_of, forms_with, respects, user_layouts
from graphflow.flow.labels import label_key, label_of, padding_regions
from graphflow.flow.plan import Label
from graphflow.flow.pricing import FormPrices
from graphflow.graph import Node, OperatorGraph, Value
from graphflow.kernels.recipes import (
    Alternative,
    Padding,
    RefusedVariant,
    Scheduled,
    Tiled,
    View,
    left_facts,
    memory_key,
)
from graphflow.layout import (
    Constant,
    Demand,
    Equal,
    Fact,
    Layout,
    Number,
    Undefined,
    Unused,
    dtype_limits,
    fact_of,
    row_major,
)

UNUSED = Unused()
"""The demand of whoever has none."""


class Unsatisfiable(LayoutConflict):
    """It was shown that no plan meets the constraints."""


class Place(Enum):
    """Where a reader needs a value to lie.

    OWN: in a storage of its own, as the caller wants outputs.  WINDOW and WINDOW_PIECE: inside the
    reader's own output, the latter in one piece.  HELD and HELD_PIECE: anywhere, but the reader's
    output lies in it, for the latter in one piece.
    """

    ANYWHERE = "anywhere"
    OWN = "own"
    WINDOW = "window"
    WINDOW_PIECE = "window, one piece"
    HELD = "held"
    HELD_PIECE = "held, one piece"

    @property
    def window(self) -> bool:
        """Whether the value lies inside its reader's output."""
        return self in (Place.WINDOW, Place.WINDOW_PIECE)

    @property
    def held(self) -> bool:
        """Whether the reader's output lies inside the value."""
        return self in (Place.HELD, Place.HELD_PIECE)


class Lies(Enum):
    """How a candidate's output lies in memory.

    FREE: wherever its readers want it.  PIECE: likewise, but in one piece, because of what lies in
    it.  INSIDE, INSIDE_PIECE: inside an input, the latter in one piece if that input does.
    """

    FREE = "free"
    PIECE = "piece"
    INSIDE = "inside"
    INSIDE_PIECE = "inside, one piece"


@dataclass(frozen=True)
class Need:
    """What a candidate reads: input `position` holds `value`, in this layout, with this demand.

    `facts` are the facts that the candidate's own claims about its output rest on.
    """

    position: int
    value: str
    layout: Layout
    demand: Demand
    facts: tuple[tuple[str, Fact], ...] = ()
    place: Place = Place.ANYWHERE


def output_need(value: Value) -> Need:
    """What the caller needs of a graph output."""
    return Need(-1, value.name, row_major(value.shape), UNUSED, place=Place.OWN)


@dataclass(frozen=True)
class Candidate:
    """One form of one node with everything decided but the rest of the graph."""

    node: str
    alternative: Alternative
    needs: tuple[Need, ...]
    gives: tuple[tuple[str, Label], ...]
    pad_value: float | None
    seconds: float
    lies: Lies = Lies.FREE
    measured: bool = False
    read: frozenset[str] = frozenset()

    @property
    def rests_on(self) -> frozenset[str]:
        """The inputs whose contents this rests on: for the form, or for what it leaves as padding.

        The latter are the `read` ones.
        """
        recipe = self.alternative.recipe
        return self.read | (recipe.rests_on if isinstance(recipe, Tiled) else frozenset())


@dataclass(frozen=True)
class Candidates:
    """All candidates by node, and all labels a value can be produced in.

    `refused` are by node the forms that steps of their recipes refused.
    """

    of_node: Mapping[str, tuple[Candidate, ...]]
    labels: Mapping[str, tuple[Label, ...]]
    refused: Mapping[str, tuple[RefusedVariant, ...]] = field(default_factory=dict)


def enumerate_candidates(
    graph: OperatorGraph,
    cost: CostModel,
    pins: Mapping[str, Layout],
    relaxed: Set[str] = frozenset(),
    facts: Mapping[str, Fact] | None = None,
) -> Candidates:
    """All candidates, nodes in topological order; priced by `cost`.

    `facts` are those of the values' contents, by default what follows from the graph alone.

    Those of `relaxed` nodes ignore the pins.

    Unsatisfiable where pins leave a node without any.
    """
    facts = contents(graph) if facts is None else facts
    target = cost.target
    forms = forms_of(graph, target, facts)
    wanted = forms.demanded()
    labels: dict[str, tuple[Label, ...]] = {
        name: (label_of(row_major(graph.values[name].shape)),) for name in graph.inputs
    }
    layouts = user_layouts(graph, forms, pins, target)
    found: dict[str, tuple[Candidate, ...]] = {}
    refused: dict[str, tuple[RefusedVariant, ...]] = {}
    for node in graph.nodes:
        if node.name not in forms.of_node:
            continue
        candidates: dict[object, Candidate] = {}
        options, refused[node.name] = forms_with(
            graph, node, forms, labels, pins, layouts, target, facts
        )
        prices = FormPrices(node.func, options, wanted, cost)
        reads = _reads(graph, node)
        dtype = node.func.outputs[0].dtype
        writable = tuple(filter(None, (_held(value, dtype) for value in wanted)))
        for form in options:
            if node.name not in relaxed and not respects(node, form, pins):
                continue
            for candidate in _of_form(node, form, reads, labels, writable, prices):
                key = (
                    form.recipe if isinstance(form.recipe, Scheduled) else None,
                    candidate.lies,
                    tuple([(n.position, memory_key(n.layout), n.facts, n.demand, n.place)
                           for n in candidate.needs]),
                    tuple([(v, label_key(label)) for v, label in candidate.gives]),
                )  # fmt: skip
                kept = candidates.get(key)
                if kept is None or candidate.seconds < kept.seconds:
                    candidates[key] = candidate
        if not candidates:
            raise Unsatisfiable(f"{node.name} ({node.op}) has no form with the pins around it")
        found[node.name] = tuple(candidates.values())
        for value in node.outputs:
            given = [label for c in found[node.name] for v, label in c.gives if v == value]
            labels[value] = tuple({label_key(label): label for label in given}.values())
    return Candidates(found, labels, refused)


Read: TypeAlias = tuple[int, str, str]
"""Of an input that is no constant: the position, the parameter, and the value."""


def _reads(graph: OperatorGraph, node: Node) -> tuple[Read, ...]:
    bound = enumerate(zip(node.func.inputs, node.inputs, strict=True))
    return tuple((k, b.name, value) for k, (b, value) in bound if not graph.is_constant(value))


def _of_form(
    node: Node,
    form: Alternative,
    reads: tuple[Read, ...],
    labels: Mapping[str, tuple[Label, ...]],
    writable: tuple[Constant, ...],
    prices: FormPrices,
) -> list[Candidate]:
    output, value = node.func.outputs[0], node.outputs[0]
    layout = form.layouts[output.name]
    # Of several outputs only the first one's padding is ever known, and none of it written.
    others = tuple(
        (name, label_of(form.layouts[buffer.name]))
        for buffer, name in zip(node.func.outputs[1:], node.outputs[1:], strict=True)
    )
    if isinstance(form.recipe, View):
        label, free = label_of(layout), prices.price(form, None)
        return [
            Candidate(node.name, form, _needs(form, reads, place), ((value, label),), None,
                      free.seconds, lies)
            for place, lies in _view_places(form.recipe)
        ]  # fmt: skip
    needs = _needs(form, reads)
    regions = padding_regions(layout)

    def candidate(
        facts: Mapping[str, Fact], using: tuple[Need, ...], pad: float | None
    ) -> Candidate:
        label = Label(layout, tuple((r, facts[r]) for r in regions))
        price = prices.price(form, pad)
        by_user = isinstance(form.recipe, Scheduled)
        lies = Lies.PIECE if by_user and layout.is_padded else Lies.FREE
        gives = ((value, label), *others)
        return Candidate(node.name, form, using, gives, pad, price.seconds, lies, price.measured)

    left: dict[str, Fact] = dict.fromkeys(regions, Undefined())
    if form.padding is Padding.EVALUATED and any(isinstance(n.demand, Equal) for n in needs):
        left = _evaluated(node, form, {n.position: _least(n) for n in needs})
    found = [candidate(left, needs, None)]
    if not regions or others or form.padding is Padding.KEPT:
        return found
    for constant in writable:
        literal = constant.literal.value
        found.append(candidate(dict.fromkeys(regions, constant), needs, literal))
    if form.padding is Padding.EVALUATED:
        for known in _known_inputs(needs, labels):
            facts = _evaluated(node, form, known)
            if any(fact != Undefined() for fact in facts.values()):
                using = tuple(
                    Need(n.position, n.value, n.layout, n.demand, known[n.position].facts)
                    for n in needs
                )
                found.append(candidate(facts, using, None))
    return found


def _needs(
    form: Alternative, reads: tuple[Read, ...], place: Place = Place.ANYWHERE
) -> tuple[Need, ...]:
    """What a form needs of each input that is no constant."""
    return tuple([
        Need(k, value, form.layouts[name], form.demands.get(name, UNUSED), place=place)
        for k, name, value in reads
    ])  # fmt: skip


def _held(value: Number, dtype: str) -> Constant | None:
    """The constant as a dtype has it; None where it has no such number."""
    if dtype not in FLOATING:
        low, high = dtype_limits(dtype)
        if not low <= value <= high or value != int(value):
            return None
        value = bool(value) if dtype == "bool" else int(value)
    else:
        value = float(value)
    return fact_of(value, dtype)


def _view_places(view: View) -> Iterator[tuple[Place, Lies]]:
    """Where a view's inputs and output can lie: as boxes of the whole, or as pieces of it."""
    if all(link.window is not None for link in view.links):
        yield (Place.HELD, Lies.INSIDE) if view.outward else (Place.WINDOW, Lies.FREE)
    if all(link.offset is not None for link in view.links):
        inward = Place.WINDOW_PIECE, Lies.PIECE
        yield (Place.HELD_PIECE, Lies.INSIDE_PIECE) if view.outward else inward


def _known_inputs(
    needs: Sequence[Need], labels: Mapping[str, tuple[Label, ...]]
) -> list[dict[int, Label]]:
    """Every combination of labels in which the inputs may already be in the wanted layouts."""
    options: list[list[tuple[int, Label]]] = []
    for need in needs:
        if isinstance(need.demand, Equal):
            options.append([(need.position, _least(need))])
            continue
        fitting = [
            label
            for label in labels[need.value]
            if memory_key(label.layout) == memory_key(need.layout)
        ]
        if not fitting:
            fitting = [label_of(need.layout)]
        options.append([(need.position, label) for label in fitting])
    return [dict(chosen) for chosen in product(*options)]


def _least(need: Need) -> Label:
    """What is certain of an input: what is demanded of it."""
    if isinstance(need.demand, Equal):
        literal = need.demand.literal
        return label_of(need.layout, fact_of(literal.value, literal.dtype))
    return label_of(need.layout)


def _evaluated(node: Node, form: Alternative, known: Mapping[int, Label]) -> dict[str, Fact]:
    """What the body leaves in the padding of its output, for these facts of its inputs."""
    facts: dict[tuple[str, str], Fact] = {}
    for k, buffer in enumerate(node.func.inputs):
        layout = form.layouts[buffer.name]
        zero = fact_of(0, buffer.dtype)  # constants are packed with that
        given = dict(known[k].facts) if k in known else None
        for region in padding_regions(layout):
            facts[buffer.name, region] = zero if given is None else given.get(region, Undefined())
    output = node.func.outputs[0]
    result = left_facts(node.func, form, facts)
    return {
        region: _settled(result.get((output.name, region), Undefined()))
        for region in padding_regions(form.layouts[output.name])
    }


def _settled(fact: Fact) -> Fact:
    """Whatever was stored can be read back; only constants are worth a label of their own."""
    return fact if isinstance(fact, Constant) else Undefined()
