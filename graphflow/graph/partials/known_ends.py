"""Ends of ranges that are known before a run, where no element is below zero.

In: a graph in which kernels find how far a tensor reaches below zero, and above it.  Out: the same
with zero for the former where no element is below zero, and without the comparison in the latter.

    before:  v = Relu(x); below = max(|v[i] < 0 ? v[i] : 0|); above = max(|v[i] < 0 ? 0 : v[i]|)
    after:   v = Relu(x); below = 0; above = max(|v[i]|)

So the range of a tensor that DynamicQuantizeLinear quantizes takes one reduction.  What always
holds: results keep their bits, as a comparison with NaN is false.
"""

from __future__ import annotations

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import DTYPES
from graphflow.base.fields import replace
from graphflow.graph.number_sets import NonNegative
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.partials.partial_reductions import exact_reduction


def know_ends(graph: OperatorGraph) -> int:
    """Simplify the reductions to the ends of ranges of what is never below zero; returns their
    number."""
    known = NonNegative(graph)
    changes = 0
    for node in graph.topological():
        found = exact_reduction(node)
        if found is None or not all(extent for _, extent in found.loops):
            continue
        match found.update:
            case tir.Reduce(
                op=tir.ReduceOp.MAX,
                value=tir.Unary(
                    "abs",
                    tir.Select(
                        tir.Comparison("lt", tir.Load() as element, tir.Literal() as bound),
                        if_true,
                        if_false,
                    ),
                ),
            ) if bound.value == 0 and known.holds(node.bound[element.buffer.name]):
                changes += _simplified(graph, node, found.update, element, (if_true, if_false))
            case _:
                pass
    return changes


def _simplified(
    graph: OperatorGraph,
    node: Node,
    update: tir.Reduce,
    element: tir.Load,
    branches: tuple[tir.Expr, tir.Expr],
) -> bool:
    """Put what is known in the place of a reduction of the absolute values of what `branches` give
    for elements below zero, of which there are none, and for others; returns whether there was
    anything to change."""
    zero = tir.Literal(0.0, update.buffer.dtype)
    if branches == (element, zero):
        graph.remove(node.name)
        zeros = np.zeros(update.buffer.shape, DTYPES[update.buffer.dtype])
        graph.add_initializer(node.outputs[0], zeros)
        return True
    if branches != (zero, element):
        return False
    plain = replace(update, value=tir.Unary("abs", element))
    body = tir.map_body(node.func.body, lambda stmt: plain if stmt is update else stmt)
    graph.replace(node.name, replace(node, func=replace(node.func, body=body)))
    return True
