"""Products that end at a count: expansions that read a factor without zeros behind it.

In: a graph with the expansions that are known.  Out: further expansions.  A product along an open
length has factors that are zero behind the length of a run.  Where a node of its own makes one of
them so, by a copy, the product has an expansion that reads what is copied, up to the count:

    before:  z = select(j < count, v[j], 0); y = sum over j of p[j] * z[j]
    after:   y = sum over j of select(j < count, p[j] * v[j], 0)

What always holds: both factors are zero from the count on, so both sum the same terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from graphflow.base.dtypes import FLOATS
from graphflow.base.fields import replace
from graphflow.graph.expansions import Expansion, Expansions
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.kernels.definitions.linear_algebra.counted_terms import (
    with_counted_terms,
    zero_from,
    zeroed_axes,
)
from graphflow.kernels.recipes import RefusedVariant, summed_operands
from graphflow.schedule import Refusal, fresh_name, names_of_places
from graphflow.tir import Buffer, Load, Param, PrimFunc, Role, Select, matched_variables, writes_in


class Zeroed(Struct, frozen=True):
    """A node that copies `source`, but for zeros from `count` on along an axis of it."""

    node: Node
    source: str
    count: str
    axis: int

    @property
    def made(self) -> str:
        """The value that the node makes."""
        return self.node.outputs[0]


ENDS_AT_COUNT = "ending at a count"
"""The name under which a product is refused that keeps the copy of a factor."""


def ending_at_counts(known: Expansions) -> Expansions:
    """`known` and the expansions of products that end at a count."""
    graph = known.graph
    found: dict[str, list[Expansion]] = {}
    refused: dict[str, tuple[RefusedVariant, ...]] = {}
    for node in graph.nodes:
        copies = [*_copied_factors(graph, node)]
        expansion = _expansion(graph, node, copies) if copies else None
        if isinstance(expansion, Refusal):
            refused[node.name] = (RefusedVariant(ENDS_AT_COUNT, expansion),)
        elif expansion is not None:
            found[node.name] = [expansion]
    if not found and not refused:
        return known
    absorbed = (value for (expansion,) in found.values() for value in expansion.absorbed)
    return replace(
        known,
        of_node=known.adding(found),
        origins={**known.origins, **dict.fromkeys(absorbed, ())},
        refused={**known.refused, **refused},
    )


def zeroed(graph: OperatorGraph, values: Iterable[str]) -> Iterator[Zeroed]:
    """The nodes that make some of these values in each run, which nothing else reads, by zeros."""
    for value in values:
        node = graph.producer(value)
        if node is None or not node.has_definition or not is_read_once(graph, value):
            continue
        if graph.is_constant(value):
            continue
        writes = [*writes_in(node.func.body)]
        bound = dict(zip(node.func.inputs, node.inputs, strict=True))
        for count in (b for b in node.func.inputs if b.shape == ()):
            key = zero_from(writes[0].value, count) if len(writes) == 1 else None
            if key is None or not isinstance(select := writes[0].value, Select):
                continue
            at = writes[0].indices
            match select.if_true:
                case Load(source, indices) if (
                    source in bound
                    and source.shape == writes[0].buffer.shape
                    and indices == at
                    and key in at
                ):
                    yield Zeroed(node, bound[source], bound[count], at.index(key))


def is_read_once(graph: OperatorGraph, value: str) -> bool:
    """Whether one node reads a value, once, and the graph does not give it."""
    return value not in graph.outputs and len(graph.consumers(value)) == 1


def _copied_factors(graph: OperatorGraph, node: Node) -> Iterator[Zeroed]:
    """The nodes that copy a factor of a product in each run, with zeros behind a count."""
    if not node.has_definition or matched_variables(node.func.body):
        return
    operands = summed_operands(node.func)
    factors = (value for name, value in node.bound.items() if name in operands)
    yield from zeroed(graph, factors)


def _expansion(
    graph: OperatorGraph, node: Node, copies: Sequence[Zeroed]
) -> Expansion | Refusal | None:
    """A product that reads what `copies` are made of, up to a count; the reason if it does not."""
    dtype = graph.values[copies[0].made].dtype
    if dtype not in FLOATS:
        return Refusal("", f"its factors are of {dtype}, of which several are multiplied at once")
    func, inputs = node.func, node.inputs
    zeros = {value: _zeroed_axes(graph, value) for value in inputs}
    taken: list[Zeroed] = []
    for read in copies:
        with_count, count = _with_input(func, inputs, read.count)
        names = inputs if with_count is func else (*inputs, read.count)
        bound = dict(zip(names, with_count.inputs, strict=True))
        known = {bound[value]: zeros[value].get(read.count, ()) for value in inputs}
        counted = with_counted_terms(with_count, bound[read.made], read.axis, count, known)
        if counted is not None:
            func, taken = counted, [*taken, read]
            inputs = tuple(read.source if value == read.made else value for value in names)
            zeros |= {read.source: {}, read.count: {}}
    if not taken:
        copy = copies[0]
        return Refusal(
            "",
            f"no other factor than {copy.made} is known to be zero behind the count {copy.count}",
        )
    sources = ", ".join(read.source for read in taken)
    return Expansion(
        replace(node, func=func, inputs=inputs, offered=(), found=()),
        gone={read.made: f"{node.op} {node.name} reads {read.source} instead" for read in taken},
        absorbed=tuple(read.made for read in taken),
        because=f"it reads {sources} up to the count of a run, and no copy with zeros behind",
    )


def _with_input(func: PrimFunc, inputs: tuple[str, ...], count: str) -> tuple[PrimFunc, Buffer]:
    """A definition with an input for a count, the last one where it had none, and that input."""
    if count in inputs:
        return func, func.inputs[inputs.index(count)]
    taken = {*names_of_places(func)}
    buffer = Buffer(fresh_name("count", taken.__contains__), (), "int64")
    params = [param for param in func.params if param.role is Role.INPUT]
    others = [param for param in func.params if param.role is not Role.INPUT]
    return replace(func, params=(*params, Param(buffer, Role.INPUT), *others)), buffer


def _zeroed_axes(graph: OperatorGraph, value: str) -> dict[str, tuple[int, ...]]:
    """By count the axes along which the node that makes a value stores zeros from it on."""
    node = graph.producer(value)
    if node is None or not node.has_definition:
        return {}
    (output,) = node.func.outputs
    counts = (b for b in node.func.inputs if b.shape == ())
    return {node.bound[b.name]: tuple(zeroed_axes(node.func, output, b)) for b in counts}
