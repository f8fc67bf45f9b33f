"""Constant weights of 16 bits that products of few rows read as they are stored.

In: a graph in which products read constants of float16 or bfloat16 that are widened.  Out: products
of few rows widen them where they multiply.

    before:  w[k, n] = f32(h[k, n]); y[i, n] = Σ a[i, k] · w[k, n]
    after:   y[i, n] = Σ a[i, k] · f32(h[k, n])

What always holds: the terms of the sums are the same, bit for bit.  Weights that are widened once,
when the program is loaded, take twice the memory, which a product of few rows waits for.  A product
of more rows keeps them widened: its tiles would widen them again for every few rows.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.base.dtypes import HALVES
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.quantized import with_inlined
from graphflow.graph.rounded.roundings import converted_value, stores_halves
from graphflow.kernels.definitions.linear_algebra.unscaled_sum import (
    NotUnscalable,
    sum_of_products,
)

MOST_READS = 2
"""How often a product may read each weight.  The time over that with widened weights on one core of
a Zen 4, 1024×4096 and 4096×4096: with AVX-512 0.66 and 0.45 for 2 rows, 0.82 and 0.64 for 4, 0.96
and 1.58 for 8; with AVX2 0.64 and 0.50 for 2, 1.00 and 1.13 for 4, 1.04 and 1.24 for 8."""


def read_narrow_weights(graph: OperatorGraph) -> int:
    """Let products of few rows widen their constant weights; returns how many do."""
    if not stores_halves(graph):
        return 0
    changes = 0
    for node in graph.topological():
        values = [v for v in dict.fromkeys(node.inputs) if _is_widened_constant(graph, v)]
        if not values or graph.is_constant(node.outputs[0]):
            continue
        multiplied = _multiplied(node)
        few = [v for v in values if 0 < multiplied.get(v, 0) <= MOST_READS]
        if few:
            graph.replace(node.name, with_inlined(graph, node, few))
            changes += 1
    return changes


def _is_widened_constant(graph: OperatorGraph, value: str) -> bool:
    """Whether a value is a constant of 16 bits as float32."""
    maker = graph.producer(value)
    source = None if maker is None else converted_value(maker)
    if source is None or not graph.is_constant(source):
        return False
    return graph.values[source].dtype in HALVES and graph.values[value].dtype == "float32"


def _multiplied(node: Node) -> dict[str, int]:
    """How often each element of an operand of a sum of products is multiplied, by the operand's
    value; none for a node that computes anything else."""
    try:
        found = sum_of_products(node.func) if node.has_definition else None
    except NotUnscalable:
        return {}
    if found is None:
        return {}
    products = found.terms * found.target.size
    read = (e.buffer for e in tir.walk_expr(found.update.value) if isinstance(e, tir.Load))
    return {
        node.bound[buffer.name]: -(-products // buffer.size)
        for buffer in read
        if buffer.name in node.bound and buffer.size
    }
