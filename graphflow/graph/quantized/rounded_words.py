"""Scaled sums of integers that are saturated as integers, since they are known to fit 32 bits.

In: a graph whose products add up integers, with the scales folded to constants.  Out: the same with
kernels that round such sums to bytes changed.

    before:  q = u8(clip(round(v) + f32(z), 0, 255))            v = f32(n) · k
    after:   q = u8(clip(i32(round(v)) + i32(z), 0, 255))

What always holds: |k| ≤ 1/4 for all elements of the constant k.  n is an int32, so that |v| ≤ 2^29,
and the results are those of before, bit for bit.  Instructions that narrow integers saturate them,
while a float that does not fit 32 bits has to be bounded before it is rounded: of five instructions
for a vector behind its sum that bound is one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import BYTES
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.quantized.dequantized import EXACT, known_floats
from graphflow.graph.quantized.folded_scales import last_factor
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.quantized import rounded, rounded_in_words

LARGEST = 0.25
"""The most that an int32 is multiplied by."""


def round_in_words(graph: OperatorGraph) -> int:
    """Saturate scaled sums as integers; returns the number of kernels that change."""

    def in_words(node: Node, expr: tir.Expr) -> tir.Expr:
        found = rounded_value(expr)
        if found is None or not _is_scaled_sum(graph, node, found[0]):
            return expr
        return rounded_in_words(*found, expr.dtype)

    return change_bytes(graph, in_words)


def change_bytes(graph: OperatorGraph, changed: Callable[[Node, tir.Expr], tir.Expr]) -> int:
    """Change the expressions of the kernels that make bytes; returns the number of kernels that
    change."""
    changes = 0
    for node in graph.topological():
        if not node.has_definition or node.func.outputs[0].dtype not in BYTES:
            continue
        func = node.func
        body = tir.map_expressions(func.body, partial(changed, node))
        if body is not func.body:
            changes += 1
            made = stages.with_inputs(func, func.inputs, body)
            graph.replace(node.name, replace(node, func=made))
    return changes


def rounded_value(expr: tir.Expr) -> tuple[tir.Expr, tir.Expr | None] | None:
    """What an expression rounds to a byte as a float, and the zero point; None where it computes
    something else."""
    if not isinstance(expr, tir.Cast) or expr.dtype not in BYTES:
        return None
    for part in tir.walk_expr(expr.operand):
        match part:
            case tir.Binary("add", tir.Unary("round", value), tir.Cast(zero)):
                return (value, zero) if rounded(value, zero, expr.dtype) == expr else None
            case tir.Unary("round", value):
                return (value, None) if rounded(value, None, expr.dtype) == expr else None
    return None


def _is_scaled_sum(graph: OperatorGraph, node: Node, value: tir.Expr) -> bool:
    """Whether a value in the kernel of a node is an int32 times a constant that is small enough, or
    an element of a tensor of such products."""
    match value:
        case tir.Load(buffer):
            source = node.bound.get(buffer.name)
            maker = None if source is None else graph.producer(source)
            factor = None if maker is None or not maker.has_definition else last_factor(maker)
        case tir.Binary("mul", tir.Cast(total), tir.Load() as factor) if total.dtype == EXACT:
            maker = node
        case _:
            return False
    if maker is None or factor is None:
        return False
    elements = known_floats(graph, maker.bound.get(factor.buffer.name))
    return elements is not None and bool((np.abs(elements) <= LARGEST).all())
