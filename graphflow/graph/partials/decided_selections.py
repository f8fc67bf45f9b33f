"""Selections that constants decide.

In: a graph in which kernels select by comparisons of scalars that are known before a run.  Out: the
same with the branches that these take.

    before:  y[i] = select(c > 0, x[i] / s, 0)      where c is 0
    after:   y[i] = 0

So the zero point of a tensor that is quantized by its own range, and is never below zero, is known,
and products of it begin with nothing.  What always holds: results keep their bits.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import partial

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.kernels.definitions import stages


def decide_selections(graph: OperatorGraph) -> int:
    """Replace the selections that constants decide; returns the number of nodes that changed."""
    changes = 0
    for node in graph.topological():
        known = _scalars(graph, node) if node.has_definition and not node.offered else {}
        if not known:
            continue
        body = tir.map_expressions(node.func.body, partial(_settled, known=known))
        if body == node.func.body:
            continue
        read = {load.buffer for load in tir.loads_in(body)}
        bound = zip(node.func.inputs, node.inputs, strict=True)
        inputs = {buffer: value for buffer, value in bound if buffer in read}
        func = stages.with_inputs(node.func, inputs, body)
        graph.replace(node.name, replace(node, func=func, inputs=tuple(inputs.values())))
        changes += 1
    return changes


def _scalars(graph: OperatorGraph, node: Node) -> dict[str, tir.Literal]:
    """The inputs of one element that are known before a run, by parameter."""
    return {
        name: tir.Literal(graph.initializers[value].item(), str(graph.values[value].dtype))
        for name, value in node.bound.items()
        if value in graph.initializers
        and value not in graph.inputs
        and graph.values[value].size == 1
    }


def _settled(expr: tir.Expr, known: Mapping[str, tir.Literal]) -> tir.Expr:
    match expr:
        case tir.Select(tir.Comparison(op, left, right), if_true, if_false):
            a, b = _number(left, known), _number(right, known)
            if a is None or b is None:
                return expr
            return if_true if getattr(operator, op)(a, b) else if_false
        case _:
            return expr


def _number(expr: tir.Expr, known: Mapping[str, tir.Literal]) -> float | None:
    if isinstance(expr, tir.Load):
        expr = known.get(expr.buffer.name, expr)
    return expr.value if isinstance(expr, tir.Literal) else None
