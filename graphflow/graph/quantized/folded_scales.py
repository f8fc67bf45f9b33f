"""Scales folded at compile time: what is computed of constants alone, and quotients by constants.

In: a graph whose products add up integers.  Out: the same with new initializers.

    before:  y = f32(n[i, c]) · (a · b[c] / s)       after:  y = f32(n[i, c]) · k[c]
    before:  q = saturate(round(y / s) + z)          after:  q = saturate(round(y · r) + z), r = 1/s

k is computed in float32 as the kernel would compute it, so the first gives the same bits.  The
second is done only behind a sum of integers whose scales were folded, within the kernels that are
fused with it: y · r meets two roundings and y / s one, so that q is the same but where the quotient
is half-way between two steps, to within these roundings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from graphflow import tir
from graphflow.arith import IndexExpr, Var, constant_value
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.quantized.dequantized import WIDE, known_array, quantization
from graphflow.graph.structure import elementwise_store
from graphflow.graph.value import Array
from graphflow.kernels.definitions import stages

BYTES = ("uint8", "int8")

MOST = 1 << 16
"""The most elements of a constant that is computed here."""

NORMAL = 2.0**-126

OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {"mul": np.multiply, "div": np.divide}


def fold_scales(graph: OperatorGraph) -> int:
    """Compute products and quotients of constants in kernels that read or write bytes; returns the
    number of kernels that change."""
    changes = 0
    for node in graph.topological():
        quantized = any(p.buffer.dtype in BYTES for p in node.func.params)
        if quantized and node.has_definition and not graph.is_constant(node.outputs[0]):
            changes += _ConstantParts(graph, node).fold()
    return changes


class _ConstantParts:
    """The largest parts of a kernel's expressions that are computed of constants alone."""

    def __init__(self, graph: OperatorGraph, node: Node) -> None:
        self._graph, self._node, self._bound = graph, node, node.bound
        self._names = {buffer.name for buffer in tir.buffers_of(node.func)}
        self._made: dict[tir.Expr, tuple[tir.Buffer, str]] = {}

    def fold(self) -> bool:
        func = self._node.func
        body = tir.map_body(func.body, self._folded)
        if not self._made:
            return False
        read = {load.buffer for load in tir.loads_in(body)}
        bound = {
            **self._bound,
            **{buffer.name: value for buffer, value in self._made.values()},
        }
        inputs = [buffer for buffer in func.inputs if buffer in read]
        inputs += [buffer for buffer, _ in self._made.values()]
        params = (
            *(tir.Param(buffer, tir.Role.INPUT) for buffer in inputs),
            *(p for p in func.params if p.role is not tir.Role.INPUT),
        )
        changed = replace(
            self._node,
            func=tir.PrimFunc(func.name, params, body),
            inputs=tuple(bound[buffer.name] for buffer in inputs),
        )
        self._graph.replace(self._node.name, changed)
        return True

    def _folded(self, stmt: tir.Stmt) -> tir.Stmt:
        if not isinstance(stmt, tir.Store):
            return stmt
        return replace(stmt, value=self._within(stmt.value))

    def _within(self, expr: tir.Expr) -> tir.Expr:
        """An expression with its largest constant parts exchanged for loads."""
        match expr:
            case tir.Binary() if (load := self._constant(expr)) is not None:
                return load
            case tir.Binary(op, left, right):
                return tir.Binary(op, self._within(left), self._within(right))
            case tir.Cast(operand, dtype):
                return tir.Cast(self._within(operand), dtype)
            case tir.Unary(op, operand):
                return tir.Unary(op, self._within(operand))
        return expr

    def _constant(self, expr: tir.Binary) -> tir.Load | None:
        """A load of the elements of `expr`, if they are known; None if they are not."""
        loads = [e for e in tir.walk_expr(expr) if isinstance(e, tir.Load)]
        along = {i for load in loads for i in load.indices if constant_value(i) != 0}
        if len(along) > 1 or not all(isinstance(index, Var) for index in along):
            return None
        elements = self._elements(expr)
        if elements is None or elements.size > MOST or not np.isfinite(elements).all():
            return None
        place: tuple[IndexExpr, ...] = tuple(along)
        array = np.array(elements.reshape(-1 if along else ()), np.float32)
        if expr not in self._made:
            name = self._graph.free_name(f"{self._node.name}.scale")
            self._graph.add_initializer(name, array)
            wanted = stages.fresh("factor", self._names)
            self._made[expr] = tir.Buffer(wanted, array.shape, WIDE), name
        return tir.Load(self._made[expr][0], place)

    def _elements(self, expr: tir.Expr) -> Array | None:
        """The elements of a product or quotient of constants along one axis, or of one number."""
        match expr:
            case tir.Binary(op, left, right) if op in OPERATIONS and expr.dtype == WIDE:
                one, other = self._elements(left), self._elements(right)
                if one is None or other is None:
                    return None
                with np.errstate(all="ignore"):
                    return OPERATIONS[op](one, other)
            case tir.Load(buffer) if buffer.dtype == WIDE:
                array = known_array(self._graph, self._bound.get(buffer.name))
                # Of an array with several axes only the indexed one may have several elements.
                varying = [k for k, i in enumerate(expr.indices) if constant_value(i) != 0]
                whole = array is not None and all(
                    n == 1 or k in varying for k, n in enumerate(array.shape)
                )
                return array.reshape(-1) if array is not None and whole else None
        return None


def multiply_by_reciprocals(graph: OperatorGraph) -> int:
    """Multiply in place of dividing by constant scales behind integer sums that are scaled; returns
    the number of kernels that change."""
    behind = {value for value, why_not in graph.integer_products.items() if not why_not}
    changes = 0
    for node in graph.topological():
        if not _follows(graph, node, behind):
            continue
        behind.add(node.outputs[0])
        known = quantization(node)
        scale = None if known is None else known_array(graph, known.scale_value)
        if scale is None or not _has_reciprocal(scale):
            continue
        changes += 1
        graph.replace(node.name, _multiplying(graph, node, scale))
    return changes


def _follows(graph: OperatorGraph, node: Node, behind: set[str]) -> bool:
    """Whether a node is elementwise and the only reader of a value `behind` a product."""
    if not node.has_definition or elementwise_store(node.func) is None:
        return False
    return any(
        value in behind and value not in graph.outputs and len(graph.consumers(value)) == 1
        for value in node.inputs
    )


def _has_reciprocal(scale: Array) -> bool:
    """Whether a scale and its reciprocal are normal numbers."""
    return bool((scale >= NORMAL).all() and (scale <= 1 / NORMAL).all())


def _multiplying(graph: OperatorGraph, node: Node, scale: Array) -> Node:
    """A node that quantizes, with a reciprocal in place of the scale."""
    func, buffer = node.func, node.func.inputs[1]
    name = graph.free_name(f"{node.inputs[1]}.reciprocal")
    graph.add_initializer(name, (np.float32(1) / scale).astype(np.float32))

    def change(expr: tir.Expr) -> tir.Expr:
        match expr:
            case tir.Binary("div", left, tir.Load() as load) if load.buffer == buffer:
                return tir.Binary("mul", left, load)
        return expr

    body = tir.map_expressions(func.body, change)
    inputs = (node.inputs[0], name, *node.inputs[2:])
    return replace(node, func=replace(func, body=body), inputs=inputs)
