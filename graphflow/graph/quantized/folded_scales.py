"""Scales folded at compile time: what is computed of constants alone, and quotients by constants.

In: a graph whose products add up integers.  Out: the same with new initializers.

    before:  y = f32(n[i, c]) · (a · b[c] / s)       after:  y = f32(n[i, c]) · k[c]
    before:  q = saturate(round(y / s) + z)          after:  q = saturate(round(y · r) + z), r = 1/s
    before:  y = f32(n[i, c]) · k[c]; y · r          after:  f32(n[i, c]) · (k[c] · r)

k is computed in float32 as the kernel would compute it, so the first gives the same bits.  The
others are done only behind a sum of integers whose scales were folded, within the kernels that are
fused with it: y · r meets two roundings and y / s one, so that q is the same but where the quotient
is half-way between two steps, to within these roundings.  With k · r it meets as many.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphflow import tir
from graphflow.arith import IndexExpr, Var, constant_value
from graphflow.base.dtypes import BYTES
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.quantized.dequantized import (
    EXACT,
    WIDE,
    Floats,
    known_floats,
    quantization,
    uniform_integer,
)
from graphflow.graph.structure import elementwise_store
from graphflow.kernels.definitions import stages

MOST = 1 << 16
"""The most elements of a constant that is computed here."""

NORMAL = 2.0**-126

OPERATIONS: dict[str, Callable[[Floats, Floats], Floats]] = {"mul": np.multiply, "div": np.divide}


def fold_scales(graph: OperatorGraph) -> int:
    """Compute products and quotients of constants in kernels that read or write bytes; returns the
    number of kernels that change."""
    changes = 0
    for node in graph.topological():
        quantized = any(p.buffer.dtype in BYTES for p in node.func.params)
        if quantized and graph.may_rewrite(node):
            changes += _ConstantParts(graph, node).fold()
    return changes


class _ConstantParts:
    """The parts of a kernel's expressions that are computed of constants alone."""

    def __init__(self, graph: OperatorGraph, node: Node) -> None:
        self._graph, self._node, self._bound = graph, node, node.bound
        self._names = {buffer.name for buffer in tir.buffers_of(node.func)}
        self._made: dict[tir.Expr, tir.Buffer] = {}
        self._arrays: dict[tir.Buffer, Floats] = {}

    def fold(self) -> bool:
        """Exchange the kernel of the node; returns whether there was anything to compute."""
        func = self._node.func
        # Parts first: of what a part is computed of, only the whole is read in the end.
        body = tir.map_expressions(func.body, self._folded)
        read = {load.buffer for load in tir.loads_in(body)}
        bound = {b: self._bound[b.name] for b in func.inputs if b in read}
        for buffer, array in self._arrays.items():
            if buffer in read:
                bound[buffer] = self._graph.free_name(f"{self._node.name}.scale")
                self._graph.add_initializer(bound[buffer], array)
        if not self._arrays:
            return False
        changed = stages.with_inputs(func, bound, body)
        self._graph.replace(
            self._node.name, replace(self._node, func=changed, inputs=tuple(bound.values()))
        )
        return True

    def _folded(self, expr: tir.Expr) -> tir.Expr:
        """A load of the elements of `expr`, if they are known; `expr` itself if they are not."""
        if not isinstance(expr, tir.Binary) or expr.op not in OPERATIONS:
            return expr
        loads = [e for e in (expr.left, expr.right) if isinstance(e, tir.Load)]
        along = {i for load in loads for i in load.indices if constant_value(i) != 0}
        if len(loads) < 2 or len(along) > 1 or not all(isinstance(index, Var) for index in along):
            return expr
        elements = self._elements(expr)
        if elements is None or elements.size > MOST or not np.isfinite(elements).all():
            return expr
        if expr not in self._made:
            array = np.array(elements.reshape(-1 if along else ()), np.float32)
            buffer = tir.Buffer(stages.fresh("factor", self._names), array.shape, WIDE)
            self._made[expr], self._arrays[buffer] = buffer, array
        place: tuple[IndexExpr, ...] = tuple(along)
        return tir.Load(self._made[expr], place)

    def _elements(self, expr: tir.Expr) -> Floats | None:
        """The elements of a product or quotient of constants along one axis, or of one number."""
        match expr:
            case tir.Binary(op, left, right) if op in OPERATIONS and expr.dtype == WIDE:
                one, other = self._elements(left), self._elements(right)
                if one is None or other is None:
                    return None
                with np.errstate(all="ignore"):
                    return OPERATIONS[op](one, other)
            case tir.Load(buffer) if buffer.dtype == WIDE:
                array = self._arrays.get(buffer)
                if array is None:
                    array = known_floats(self._graph, self._bound.get(buffer.name))
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
        scale = None if known is None else known_floats(graph, known.scale_value)
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


def _has_reciprocal(scale: Floats) -> bool:
    """Whether a scale and its reciprocal are normal numbers."""
    return bool((scale >= NORMAL).all() and (scale <= 1 / NORMAL).all())


def _multiplying(graph: OperatorGraph, node: Node, scale: Floats) -> Node:
    """A node that quantizes, with a reciprocal in place of the scale, and no zero point of 0."""
    func, buffer = node.func, node.func.inputs[1]
    name = graph.free_name(f"{node.inputs[1]}.reciprocal")
    graph.add_initializer(name, np.divide(np.float32(1), scale))
    bound = {**node.bound, buffer.name: name}
    zeros = func.inputs[2:] if uniform_integer(graph, node.inputs[-1]) == 0 else ()

    def change(expr: tir.Expr) -> tir.Expr:
        match expr:
            case tir.Binary("div", left, tir.Load() as load) if load.buffer == buffer:
                return tir.Binary("mul", left, load)
            case tir.Binary("add", left, tir.Cast(tir.Load() as load)) if load.buffer in zeros:
                return left
        return expr

    kept = {b: bound[b.name] for b in func.inputs if b not in zeros}
    changed = stages.with_inputs(func, kept, tir.map_expressions(func.body, change))
    return replace(node, func=changed, inputs=tuple(kept.values()))


def join_scales(graph: OperatorGraph) -> int:
    """Let one factor scale sums of integers to the steps that they are quantized to; returns the
    number of sums.

    The value between holds numbers of steps then, and no kernel but the one that rounds them reads
    it.
    """
    changes = 0
    for value, why_not in graph.integer_products.items():
        maker, readers = graph.producer(value), graph.consumers(value)
        if why_not or maker is None or value in graph.outputs or len(readers) != 1:
            continue
        ((reader, _),) = readers
        changes += _joined(graph, maker, reader)
    return changes


def _joined(graph: OperatorGraph, maker: Node, reader: Node) -> bool:
    """Exchange the kernels of a node that scales a sum and of the one that multiplies it again;
    returns whether both factors are known and their product is a normal number."""
    scaling, rounding = last_factor(maker), _first_factor(reader)
    if scaling is None or rounding is None:
        return False
    one, other = (
        known_floats(graph, node.bound[factor.buffer.name])
        for node, factor in ((maker, scaling), (reader, rounding))
    )
    if one is None or other is None or other.size != 1:
        return False
    with np.errstate(all="ignore"):
        product = np.multiply(one, other.reshape(()), dtype=np.float32)
    if not _has_reciprocal(product):
        return False
    joined = graph.free_name(f"{maker.name}.factor")
    graph.add_initializer(joined, product)
    bound = {**maker.bound, scaling.buffer.name: joined}
    graph.replace(
        maker.name, replace(maker, inputs=tuple(bound[b.name] for b in maker.func.inputs))
    )

    def change(expr: tir.Expr) -> tir.Expr:
        return expr.left if isinstance(expr, tir.Binary) and expr.right == rounding else expr

    kept = {b: reader.bound[b.name] for b in reader.func.inputs if b != rounding.buffer}
    func = stages.with_inputs(reader.func, kept, tir.map_expressions(reader.func.body, change))
    graph.replace(reader.name, replace(reader, func=func, inputs=tuple(kept.values())))
    return True


def last_factor(maker: Node) -> tir.Load | None:
    """The factor that a node multiplies an integer by, last of all; None where it does not."""
    output = maker.func.outputs[0]
    stores = [s for s in tir.walk(maker.func.body) if isinstance(s, tir.Store)]
    match [s.value for s in stores if s.buffer == output]:
        case [tir.Binary("mul", tir.Cast(operand), tir.Load() as factor)] if (
            operand.dtype == EXACT and _reads(maker.func, factor) == 1
        ):
            return factor
    return None


def _first_factor(reader: Node) -> tir.Load | None:
    """The factor that an elementwise node multiplies its first input by wherever it reads it; None
    where it does not."""
    store = elementwise_store(reader.func) if reader.has_definition else None
    if store is None:
        return None
    found: dict[tir.Load, None] = {}
    products = 0
    for expr in tir.walk_expr(store.value):
        match expr:
            case tir.Binary("mul", tir.Load(x), tir.Load() as factor) if x == reader.func.inputs[0]:
                found[factor] = None
                products += 1
    if len(found) != 1:
        return None
    (factor,) = found
    x = reader.func.inputs[0]
    reads = sum(isinstance(e, tir.Load) and e.buffer == x for e in tir.walk_expr(store.value))
    return factor if products == reads == _reads(reader.func, factor) else None


def _reads(func: tir.PrimFunc, load: tir.Load) -> int:
    """How often a kernel reads the buffer of a load."""
    return sum(found.buffer == load.buffer for found in tir.loads_in(func.body))
