"""Uniform plans: every tensor in one family of layouts, as libraries with a fixed layout run.

In: a fused graph, a target, a family.  Out: pins for `compile(layouts=…)` that together leave every
node a variant, found from the variants alone: nothing is compiled to find out.  What always holds:
only values that one kernel writes and others read are pinned; inputs and outputs of the graph are
row-major whatever the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from graphflow.base.target import Target
from graphflow.flow import variants_of
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.recipes import KernelVariant, memory_key
from graphflow.layout import Family, Layout


def inner_values(graph: OperatorGraph, rank: int) -> tuple[str, ...]:
    """The values of this rank that a run computes and that are no outputs, in topological order."""
    return tuple(
        value
        for node in graph.nodes
        for value in node.outputs
        if len(graph.values[value].shape) == rank
        and not graph.is_constant(value)
        and value not in graph.outputs
    )


def uniform_pins(graph: OperatorGraph, target: Target, family: Family) -> dict[str, Layout]:
    """A layout of `family` for each inner value that its producer and its readers can have in it.

    Blocks have as many channels as a vector computes elements of the value's type.  A variant has
    to meet all pins around its node at once.  Where none does, the node keeps the pins of the
    variant that meets the most elements of them; giving a pin up only helps its other nodes."""
    variants = variants_of(graph, target).of_node
    placed = {
        v: family.with_lanes(target.computed_lanes(graph.values[v].dtype)).instantiate(
            graph.values[v].shape
        )
        for v in inner_values(graph, family.rank)
    }
    pins = {value: layout for value, layout in placed.items() if layout is not None}
    for node in graph.nodes:
        if node.name in variants:
            for value in _unmet(node, variants[node.name], pins):
                del pins[value]
    return pins


def _unmet(node: Node, variants: Sequence[KernelVariant], pins: Mapping[str, Layout]) -> list[str]:
    """The pins around `node` not met by the variant that leaves the fewest elements unmet."""
    bound = [
        (buffer.name, value)
        for buffer, value in (
            *zip(node.func.inputs, node.inputs, strict=True),
            *zip(node.func.outputs, node.outputs, strict=True),
        )
        if value in pins
    ]
    unmet = (
        {v for name, v in bound if memory_key(variant.layouts[name]) != memory_key(pins[v])}
        for variant in variants
    )
    fewest = min(unmet, key=lambda values: sum(prod(pins[v].logical_shape) for v in values))
    return sorted(fewest)
