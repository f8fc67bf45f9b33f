"""Uniform baseline plans: every tensor in one family of layouts, as in libraries with a fixed
layout.

In: a graph of fusion groups, a target, a family.  Out: pins for `compile(layouts=…)` under which
every node still has a variant; they are found from the variants alone, without planning.  What
always holds: only values that kernels both write and read are pinned; inputs and outputs of the
graph are row-major under every plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from graphflow.base.target import Target
from graphflow.flow import variants_of
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.recipes import KernelVariant, memory_key
from graphflow.layout import Family, Layout


def inner_values(graph: OperatorGraph, rank: int) -> tuple[str, ...]:
    """The values of this rank that a run computes and that are not outputs, in topological
    order.
    """
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

    Blocks have as many channels as a vector has lanes for the value's element type.  A variant must
    meet all pins around its node at once.  Where none does, the pins that the best variant (by
    elements) misses are given up; that only makes it easier for the other nodes.
    """
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
    """The pins around `node` that its best variant misses: the one that misses the fewest
    elements.
    """
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
