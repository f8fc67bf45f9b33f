"""Every tensor of the ONNX graph, and what the compiler decided about it.

In: a `Compiled` model.  Out: a `TensorDecision` for each tensor name, in the order of the model.
What always holds: each name occurs once, and everything was recorded by a stage; nothing is decided
a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec import Struct

from graphflow.arith import Proof
from graphflow.base.decisions import CONSTANT, REGISTER, REMOVED, STORED
from graphflow.base.sizes import Size
from graphflow.graph import Node, OperatorGraph, Value
from graphflow.layout import LOGICAL, Demand, Fact, Layout, Unused, row_major
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import Conversion, EdgeType, LayoutPlan, Other, Pinned, edge_type_of, serving

GRAPH_OUTPUT = "graph output"
"""The name of the caller as the reader of graph outputs."""


class RegionFact(Struct, frozen=True):
    """One region of a tensor's box, and the fact about it, as texts."""

    region: str
    fact: str


class Reading(Struct, frozen=True):
    """One use of a tensor: the layout that the reader requires, and its demand on the padding.

    `buffer` is the reader's parameter; the caller has position -1 and no parameter.  The reader
    takes the tensor itself, or the result of a `conversion` (its kind); `proofs` say why it may.
    """

    consumer: str
    position: int
    buffer: str
    layout: str
    demand: str
    conversion: str | None
    proofs: tuple[Proof, ...]


@dataclass(frozen=True)
class TensorDecision:
    """The decision about one tensor.

    `where` is one of STORED, REGISTER, CONSTANT, REMOVED. `layout` is None for a tensor without
    storage; `facts` are those about its padding, by region.  `decided_by` names the rule, or the
    node with buffer and variant, and `reason` says why.  `others` are the other edge types that it
    could have, `pinned` the layout that the user asked for.
    """

    name: str
    dtype: str
    logical_shape: tuple[int, ...]
    where: str
    layout: Layout | None
    facts: tuple[tuple[str, Fact], ...]
    decided_by: str
    reason: str
    producer: str | None
    variant: str | None
    consumers: tuple[str, ...]
    regions: tuple[RegionFact, ...] = ()
    readings: tuple[Reading, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    others: tuple[Other, ...] = ()
    pinned: Pinned | None = None

    @property
    def physical_shape(self) -> tuple[int, ...] | None:
        """The shape of the box that holds the tensor, in elements; None without storage."""
        return None if self.layout is None else self.layout.physical_shape

    def describe(self) -> str:
        """The layout with the facts about padding, as text; a dash without storage."""
        if self.layout is None:
            return "-"
        return EdgeType(self.layout, self.facts).describe()


def readers_text(made: Conversion) -> str:
    """The readers of a conversion's result in words: nodes with input positions, or the graph
    output.
    """
    return ", ".join(
        f"{node} input {position}" if node else GRAPH_OUTPUT for node, position in made.consumers
    )


def tensor_decisions(compiled: Compiled) -> dict[str, TensorDecision]:
    """The decisions about all tensors of the model, by name, in the order of the model."""
    return _decisions(compiled, compiled.tensors)


def value_decisions(compiled: Compiled) -> dict[str, TensorDecision]:
    """The decisions about all tensors of the model, then about those that only the compiler's graph
    has, by name."""
    return _decisions(compiled, dict.fromkeys((*compiled.tensors, *compiled.graph.values)))


def _decisions(compiled: Compiled, names: Iterable[str]) -> dict[str, TensorDecision]:
    inner = {value: node for node in compiled.graph.nodes for value, _ in node.inner}
    pinned = {pin.value: pin for pin in compiled.plan.pinned}
    found: dict[str, TensorDecision] = {}
    for name in names:
        if name in compiled.graph.values:
            found[name] = _kept(compiled, name, pinned.get(name))
        elif name in inner:
            found[name] = _inside(compiled, name, inner[name])
        else:
            found[name] = _gone(compiled, name)
    return found


def _kept(compiled: Compiled, name: str, pin: Pinned | None) -> TensorDecision:
    graph, plan = compiled.graph, compiled.plan
    value = graph.values[name]
    producer = graph.producer(name)
    constant = graph.is_constant(name)
    decision = plan.edges.get(name)
    if decision is not None:
        edge_type, decided_by, reason = decision.edge_type, decision.decided_by, decision.reason
    elif constant:
        edge_type, decided_by, reason = _constant_edge_type(compiled, value)
    else:
        edge_type = EdgeType(row_major(value.shape))
        decided_by, reason = "graph", "no kernel of the plan touches it"
    if pin is not None and producer is not None:
        decided_by, reason = f"a pin; {decided_by}", f"pinned to {pin.layout.describe()}; {reason}"
    choice = None if producer is None else plan.choices.get(producer.name)
    given = compiled.transformed.get(name)
    if given is not None and edge_type.layout == row_major(value.shape):
        edge_type = edge_type_of(given.layout, given.padding)
        decided_by, reason = "schedule", "the schedule transformed this parameter"
    return TensorDecision(
        name=name,
        dtype=value.dtype,
        logical_shape=edge_type.layout.logical_shape,
        where=CONSTANT if constant else STORED,
        layout=edge_type.layout,
        facts=edge_type.facts,
        decided_by=decided_by,
        reason=reason,
        producer=None if producer is None else producer.name,
        variant=None if choice is None else choice.variant.name,
        consumers=tuple(dict.fromkeys(node.name for node, _ in graph.consumers(name))),
        regions=tuple(known_regions(edge_type)),
        readings=tuple(_readings(compiled, name)),
        conversions=(
            *(c for _, c in plan.conversions_of(name)),
            *(c for c in plan.moves if c.value == name),
        ),
        others=() if decision is None else decision.others,
        pinned=pin,
    )


def _constant_edge_type(compiled: Compiled, value: Value) -> tuple[EdgeType, str, str]:
    """The edge type to which a constant is packed for its first reader, who decided it, and why."""
    for node, position in compiled.graph.consumers(value.name):
        choice = compiled.plan.choices.get(node.name)
        if choice is None:
            continue
        buffer = node.func.inputs[position].name
        layout = choice.variant.layouts.get(buffer)
        if layout is not None:
            decided_by = f"{node.name} ({node.op}), input {buffer}, variant {choice.variant_name}"
            return EdgeType(layout), decided_by, f"packed before the first run for {node.name}"
    return EdgeType(row_major(value.shape)), "graph", "kept as the model has it"


def run_sizes(compiled: Compiled, name: str) -> Iterator[tuple[int, Size]]:
    """The axes of a tensor whose extents each run decides, with these sizes."""
    graph = compiled.graph
    value = graph.values.get(name)
    sizes = {one.tensor: one.size for one in graph.sizes}
    sizes.update((one.tensor, one.size) for one in graph.derived)
    for axis, tensor in ({} if value is None else graph.counted.get(value, {})).items():
        if tensor in sizes:
            yield axis, sizes[tensor]


def known_regions(edge_type: EdgeType) -> Iterator[RegionFact]:
    """The regions of padding with what they hold, and the logical region if its fact is known."""
    known = dict(edge_type.facts)
    if not edge_type.layout.is_padded and LOGICAL not in known:
        return
    for region in edge_type.layout.regions():
        if region.name in known:
            yield RegionFact(region.name, str(known[region.name]))
        elif region.name != LOGICAL:
            yield RegionFact(region.name, "undef")


def _readings(compiled: Compiled, name: str) -> Iterator[Reading]:
    graph, plan = compiled.graph, compiled.plan
    for node, position in graph.consumers(name):
        wanted = plan.demands.get((node.name, position))
        if wanted is not None:
            buffer = node.func.inputs[position].name
            yield _reading(plan, name, node.name, position, buffer, *wanted)
    if name in graph.outputs and name in plan.edges:
        wanted = row_major(graph.values[name].shape), Unused()
        yield _reading(plan, name, "", -1, "", *wanted)


def _reading(
    plan: LayoutPlan,
    name: str,
    node: str,
    position: int,
    buffer: str,
    layout: Layout,
    demand: Demand,
) -> Reading:
    number = plan.conversion_for(node, position, name)
    return Reading(
        consumer=node or GRAPH_OUTPUT,
        position=position,
        buffer=buffer,
        layout=layout.describe(),
        demand=str(demand),
        conversion=None if number is None else plan.conversions[number].kind,
        proofs=serving(plan.source(node, position, name), layout, demand),
    )


def _inside(compiled: Compiled, name: str, node: Node) -> TensorDecision:
    value = _value_before(compiled.imported, name)
    choice = compiled.plan.choices.get(node.name)
    variant = None if choice is None else choice.variant.name
    reason = f"only {node.op} {node.name} uses it, and computes it element by element"
    return _without_storage(value, REGISTER, node.name, reason, variant)


def _gone(compiled: Compiled, name: str) -> TensorDecision:
    graph = compiled.graph
    removed = graph.removed.get(name) or compiled.imported.removed.get(name)
    reason = "no output depends on it" if removed is None else removed.reason
    alias = None if removed is None else removed.alias_of
    if alias is not None:
        reason = f"{reason}; {graph.resolved(alias) or alias} holds the same"
    value = _value_before(compiled.imported, name)
    return _without_storage(value, REMOVED, None, reason, None)


def _without_storage(
    value: Value, where: str, producer: str | None, reason: str, variant: str | None
) -> TensorDecision:
    return TensorDecision(
        name=value.name,
        dtype=value.dtype,
        logical_shape=value.shape,
        where=where,
        layout=None,
        facts=(),
        decided_by="grouping" if where == REGISTER else "canonicalization",
        reason=reason,
        producer=producer,
        variant=variant,
        consumers=() if producer is None else (producer,),
    )


def _value_before(imported: OperatorGraph, name: str) -> Value:
    """The tensor as the importer knew it; a dropped one has the type of the tensor that it
    equals.
    """
    resolved = imported.resolved(name)
    if resolved is None:  # for example an optional output without readers
        return Value(name, "unknown", ())
    value = imported.values[resolved]
    return Value(name, value.dtype, value.shape)
