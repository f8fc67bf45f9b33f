"""Tensors that are never below zero are quantized as magnitudes.

In: a graph in which kernels quantize tensors by scales that a run decides.  Out: the same with the
kernels changed that quantize what has no element below zero.

    before:  v = Relu(x); q[i] = u8(clip(round(v[i] / s) + z, 0, 255))
    after:   v = Relu(x); q[i] = u8(clip(round(|v[i]| / s) + z, 0, 255))

So a lower bound is no step of its own: one instruction bounds a magnitude, where a number takes
two (`RoundedQuotients`).  What always holds: results keep their bits, since v is |v| but for the
sign of zero, and both zeros are quantized alike; what a NaN is quantized to is not defined.  Scales
that are known before a run are left out: kernels multiply by their reciprocals.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.graph.number_sets import NonNegative
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.quantized.rounded_words import change_bytes, rounded_value
from graphflow.kernels.definitions.quantized import rounded


def quantize_magnitudes(graph: OperatorGraph) -> int:
    """Quantize the magnitudes of what is never below zero; returns the number of kernels that
    change."""
    known = NonNegative(graph)

    def of_magnitude(node: Node, expr: tir.Expr) -> tir.Expr:
        # Buffers of the kernel's own are no values of the graph, of which nothing is known.
        bound = node.bound
        match rounded_value(expr):
            case (
                tir.Binary("div", tir.Load(x) as element, tir.Load(scale)) as quotient,
                zero,
            ) if x.name in bound and scale.name in bound:
                of_run = graph.producer(bound[scale.name]) is not None
                if of_run and known.holds(bound[x.name]):
                    size = replace(quotient, left=tir.Unary("abs", element))
                    return rounded(size, zero, expr.dtype)
        return expr

    return change_bytes(graph, of_magnitude)
