"""Products of bfloat16 numbers that the processor's dot products of two of them add up.

In: a graph, of which all elements of some float32 tensors are numbers of bfloat16, and a target
that permits such instructions.  Out: the same, in which products with constant weights read both
operands in bfloat16, where that is cheaper, so that recipes can make tiles of dot products.

    before:  h = bf16(v); u = f32(h); y[i, n] = Σ u[i, k] · f32(w[k, n])
    after:   h = bf16(v); y[i, n] = Σ f32(h[i, k]) · f32(w[k, n])

Numbers that are moved, such as the parts of a Concat, are moved as they are stored; rounding is
done behind selections, such as Clip (`rounded.moved_roundings`).

What always holds: no element changes, and widening is exact, so the terms of all sums are the same,
bit for bit.  Each product is compared by its price with that of its float32 kernels, transformed
tiles included, and a tensor changes its type only if all that read it take less time together.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphflow import cost, tir
from graphflow.base.target import Target
from graphflow.cost import CostModel
from graphflow.graph.canonicalize import remove_dead
from graphflow.graph.contents import constant_inputs, contents, known_inputs
from graphflow.graph.expansions import Expansions
from graphflow.graph.filtered_convolutions import filtering_convolutions
from graphflow.graph.narrow_tensors import loads_of, read_narrow, reading_narrow, store_narrow
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.rounded import Representable
from graphflow.kernels.definitions.linear_algebra.unscaled_sum import (
    NotUnscalable,
    sum_of_products,
)
from graphflow.kernels.recipes import (
    KernelContext,
    KernelVariant,
    KnownContents,
    Tiled,
    kernel_variants,
    sums_terms,
)

BRAIN, WIDE = "bfloat16", "float32"
FACTORS, TERMS = (BRAIN, BRAIN), 2
"""What one instruction multiplies, and how many products it adds to a sum."""


def with_brain_products(
    graph: OperatorGraph, target: Target, threads: int, winograd: bool = True
) -> OperatorGraph:
    """The graph whose products of bfloat16 numbers read them as they are stored, where that is
    cheaper; without `winograd` no float32 kernel has transformed tiles."""
    if not any(value.dtype == BRAIN for value in graph.values.values()):
        return graph
    if not sums_terms(target, FACTORS, TERMS):
        return graph
    out, known = graph.copy(), Representable(graph)
    prices = _Prices(graph, CostModel(target, threads), winograd)
    for value in reversed([node.outputs[0] for node in graph.topological()]):
        # From the last to the first, so that what is moved is stored before it is moved.
        if value not in out.values or not _may_narrow(out, value) or not known.holds(value, BRAIN):
            continue
        weights = _weights(out, value, known)
        if weights and _saves(out, value, weights, prices):
            store_narrow(out, value, BRAIN)
            for name, weight in weights.items():
                read_narrow(out, weight, BRAIN, name)
    remove_dead(out)
    return out


def _may_narrow(graph: OperatorGraph, value: str) -> bool:
    """Whether each run computes a value of float32 for kernels alone."""
    if graph.values[value].dtype != WIDE or value in graph.outputs or graph.is_constant(value):
        return False
    maker = graph.producer(value)
    return (
        maker is not None
        and maker.has_definition
        and not graph.counted.get(graph.values[value])
        and all(reader.has_definition for reader, _ in graph.consumers(value))
    )


def _weights(graph: OperatorGraph, value: str, known: Representable) -> dict[str, str]:
    """By nodes that multiply a value with constants that are numbers of bfloat16, those."""
    found = {}
    for reader, _ in graph.consumers(value):
        weight = _other_factor(reader, value)
        if weight is not None and graph.is_constant(weight) and known.holds(weight, BRAIN):
            found[reader.name] = weight
    return found


def _other_factor(node: Node, value: str) -> str | None:
    """What a node multiplies a value with in its only sum; None where it does not."""
    try:
        factors = sum_of_products(node.func).operands
    except NotUnscalable:
        return None
    read = [node.bound.get(f.buffer.name) for f in factors if isinstance(f, tir.Load)]
    return read[1 - read.index(value)] if len(read) == 2 and read.count(value) == 1 else None


def _saves(graph: OperatorGraph, value: str, weights: dict[str, str], prices: _Prices) -> bool:
    """Whether all readers of a value take less time together if they read it in bfloat16.

    Products that no instruction adds up are removed from `weights`.
    """
    saved = 0.0
    for name in dict.fromkeys(reader.name for reader, _ in graph.consumers(value)):
        faster = prices.saved(name, value, weights[name]) if name in weights else None
        if faster is None:
            weights.pop(name, None)
            saved -= prices.widening(loads_of(graph.node(name), value))
        else:
            saved += faster
    return saved > 0


class _Prices:
    """Seconds that kernels of the graph take, estimated without what is fused with them."""

    def __init__(self, graph: OperatorGraph, model: CostModel, winograd: bool) -> None:
        self._graph, self._model, self._facts = graph, model, contents(graph)
        self._expansions = Expansions(graph)
        if winograd:
            self._expansions = filtering_convolutions(self._expansions, self._facts, model.target)

    def widening(self, loads: int) -> float:
        """What widening takes, of so many elements that are loaded."""
        return cost.widening_seconds(loads, self._model.target) / self._model.threads

    def saved(self, name: str, *operands: str) -> float | None:
        """What a product saves by reading its operands in bfloat16; None where no instruction adds
        it up then."""
        node = self._graph.node(name)
        known, narrow = known_inputs(self._graph, node, self._facts), {v: v for v in operands}
        dots = [
            variant
            for variant in self._variants(reading_narrow(node, narrow, BRAIN), known)
            if isinstance(variant.recipe, Tiled) and variant.recipe.kind.terms == TERMS
        ]
        if not dots:
            return None
        expanded = (expansion.node for expansion in self._expansions.of_node.get(name, ()))
        floats = (v for each in (node, *expanded) for v in self._variants(each, known))
        return self._least(floats) - self._least(dots)

    def _variants(self, node: Node, known: KnownContents) -> tuple[KernelVariant, ...]:
        constants = constant_inputs(self._expansions.graph, node)
        target, context = self._model.target, KernelContext(known)
        return kernel_variants(node.func, constants, target, context)

    def _least(self, variants: Iterable[KernelVariant]) -> float:
        """The seconds that the fastest of some variants takes."""
        return min(self._model.kernel_seconds(variant.work) for variant in variants)
