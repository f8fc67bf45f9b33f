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

from math import prod

from graphflow import tir
from graphflow.base.dtypes import HALVES
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.quantized import with_inlined
from graphflow.graph.roundings import converted_value

MOST_READS = 8
"""How often a product may read each weight.  A decoder of width 768 on one core of a Zen 4, whose
weights come from memory, takes 0.41 of its time with 1 row, 0.77 with 4, 0.91 with 8 and 1.08 with
16; single products whose weights stay in the third-level cache 0.8 to 1.06 with up to 8."""


def read_narrow_weights(graph: OperatorGraph) -> int:
    """Let products of few rows widen their constant weights; returns how many do."""
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
    if not node.has_definition:
        return {}
    sums = [s for s in tir.sites(node.func.body) if isinstance(s.stmt, tir.Reduce)]
    if len(sums) != 1:
        return {}
    stmt, ranges = sums[0].stmt, sums[0].domain.ranges().values()
    assert isinstance(stmt, tir.Reduce)
    is_product = isinstance(stmt.value, tir.Binary) and stmt.value.op == "mul"
    if stmt.op is not tir.ReduceOp.ADD or not is_product:
        return {}
    terms = prod(high - low + 1 for low, high in ranges if low is not None and high is not None)
    read = (e.buffer for e in tir.walk_expr(stmt.value) if isinstance(e, tir.Load))
    return {
        node.bound[buffer.name]: -(-terms // buffer.size)
        for buffer in read
        if buffer.name in node.bound and buffer.size
    }
