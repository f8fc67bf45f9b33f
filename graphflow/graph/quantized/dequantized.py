"""Values that an elementwise kernel makes of stored integers, and kernels that compute them anew.

In: nodes of a graph.  Out: what is known of a dequantized value, and a node with the kernel of such
a value inlined.  What always holds: names in a kernel depend on the kernels alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow import tir
from graphflow.arith import IndexExpr, Var, constant_value, substitute
from graphflow.base.dtypes import FLOATING, integer_limits
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.structure import composed_store, elementwise_store
from graphflow.graph.value import Array
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.quantized import quantize_elements

EXACT = "int32"
WIDE = "float32"
Floats: TypeAlias = "NDArray[np.float32]"
QUANTIZED_INTEGERS = ("uint8", "int8", "uint16", "int16", "int32")
"""What tensors and biases are quantized to."""


class Dequantized(Struct, frozen=True):
    """A value `(q − zero) · scale`, or with no scale the int32 `q − zero`.

    `stored`, `zero` and `scale` are loads of the parameters of the `maker`'s kernel.
    """

    maker: Node
    stored: tir.Load
    zero: tir.Load | None
    scale: tir.Load | None

    @property
    def source(self) -> str:
        """The value that holds the integers."""
        return self.maker.bound[self.stored.buffer.name]

    @property
    def zero_value(self) -> str | None:
        """The value that holds the zero points; None where they are 0."""
        return None if self.zero is None else self.maker.bound[self.zero.buffer.name]

    @property
    def scale_value(self) -> str | None:
        """The value that holds the scales."""
        return None if self.scale is None else self.maker.bound[self.scale.buffer.name]

    @property
    def per_tensor(self) -> bool:
        """Whether one scale and one zero point serve all elements."""
        parameters = (load for load in (self.zero, self.scale) if load is not None)
        return all(constant_value(index) == 0 for load in parameters for index in load.indices)


def dequantized(graph: OperatorGraph, value: str) -> Dequantized | None:
    """What `value` is made of; None where its kernel is none that dequantizes."""
    maker = graph.producer(value)
    return None if maker is None else dequantization(maker)


def dequantization(maker: Node) -> Dequantized | None:
    """What a node dequantizes; None where it computes anything else."""
    store = elementwise_store(maker.func) if maker.has_definition else None
    if store is None:
        return None
    integers, scale = store.value, None
    if isinstance(integers, tir.Binary) and integers.op == "mul":
        sides = (integers.left, integers.right)
        scale = next((s for s in sides if isinstance(s, tir.Load) and s.dtype == WIDE), None)
        wide = next((s for s in sides if isinstance(s, tir.Cast) and s.dtype == WIDE), None)
        if scale is None or wide is None:
            return None
        integers = wide.operand
    zero = None
    if isinstance(integers, tir.Binary) and integers.op == "sub":
        zero = _stored(integers.right)
        if zero is None:
            return None
        integers = integers.left
    stored = _stored(integers)
    if stored is None or stored.indices != store.indices or integers.dtype != EXACT:
        return None
    loads = [load for load in (stored, zero, scale) if load is not None]
    if len({load.buffer for load in loads}) < len(loads):
        return None
    return Dequantized(maker, stored, zero, scale)


class Quantized(Struct, frozen=True):
    """A value `saturate(round(x / scale) + zero)` with one scale and one zero point, of the type
    `target`: input 0 of its `maker` is x, 1 the scale, 2 the zero point if there is one."""

    maker: Node
    target: str

    @property
    def scale_value(self) -> str:
        return self.maker.inputs[1]

    @property
    def zero_value(self) -> str | None:
        return self.maker.inputs[2] if len(self.maker.inputs) > 2 else None


def quantization(maker: Node) -> Quantized | None:
    """What a node quantizes; None where its kernel is not that of `quantize_elements` for integers
    with one scale for the tensor."""
    func = maker.func
    if not maker.has_definition or len(func.inputs) not in (2, 3):
        return None
    x, scale, *zero = func.inputs
    target = func.outputs[0].dtype
    one_each = all(extent == 1 for buffer in (scale, *zero) for extent in buffer.shape)
    if target not in QUANTIZED_INTEGERS or x.dtype != WIDE or scale.dtype != WIDE or not one_each:
        return None
    zero_shape = zero[0].shape if zero else None
    known = quantize_elements(x.shape, WIDE, scale.shape, target, zero_shape=zero_shape)
    return Quantized(maker, target) if known == func else None


def stores_integers(graph: OperatorGraph) -> bool:
    """Whether any value of a graph is of a type that tensors are quantized to."""
    return any(value.dtype in QUANTIZED_INTEGERS for value in graph.values.values())


def is_dequantized(maker: Node) -> bool:
    """Whether a node dequantizes or shifts stored integers."""
    return dequantization(maker) is not None


def is_finite_dequantized(graph: OperatorGraph, value: str) -> bool:
    """Whether a value is known to be dequantized with constant scales to finite numbers."""
    known = dequantized(graph, value)
    scale = None if known is None else known_floats(graph, known.scale_value)
    if known is None or scale is None:
        return False
    lowest, highest = integer_limits(known.stored.dtype)
    most = np.float32(min(highest - lowest, 2**31))  # q − z is an int32
    with np.errstate(over="ignore"):
        return bool(np.isfinite(scale * most).all())


def _stored(expr: tir.Expr) -> tir.Load | None:
    """The load of a stored integer, as int32."""
    if isinstance(expr, tir.Cast) and expr.dtype == EXACT:
        expr = expr.operand
    wanted = isinstance(expr, tir.Load) and expr.dtype in QUANTIZED_INTEGERS
    return expr if wanted and isinstance(expr, tir.Load) else None


def known_elements(graph: OperatorGraph, value: str | None) -> Array | None:
    """The elements of a constant; None where they are not known at compile time."""
    if value is None or value in graph.inputs:
        return None
    return graph.initializers.get(value)


def known_floats(graph: OperatorGraph, value: str | None) -> Floats | None:
    """The elements of a constant of float32; None where they are not known, or of another type."""
    array = known_elements(graph, value)
    return None if array is None or array.dtype != WIDE else array.astype(np.float32, copy=False)


def uniform_integer(graph: OperatorGraph, value: str | None) -> int | None:
    """The integer that all elements of a constant are; 0 for no value, None for any other one,
    bools among them."""
    if value is None:
        return 0
    array = known_elements(graph, value)
    if array is None or array.dtype.name in (*FLOATING, "bool") or not array.size:
        return None
    first = array.reshape(-1)[0]
    return int(first) if (array == first).all() else None


def with_inlined(graph: OperatorGraph, node: Node, values: Iterable[str]) -> Node:
    """`node` with the elementwise kernels of `values`, which it reads, inlined.

    before:  v[i] = f(q[i]); y[j] = g(v[e(j)])
    after:   y[j] = g(f(q[e(j)]))

    Zero points that are one known integer become literals.
    """
    makers = {value: graph.producer(value) for value in values}
    return _Inlining(graph, node, {v: m for v, m in makers.items() if m is not None}).node()


class _Inlining:
    """The new kernel under construction: its buffers, by the values that are bound to them."""

    def __init__(self, graph: OperatorGraph, node: Node, makers: Mapping[str, Node]) -> None:
        self._graph, self._node, self._makers = graph, node, makers
        self._names = {buffer.name for buffer in tir.buffers_of(node.func)}
        self._buffers: dict[str, tir.Buffer] = {}
        for buffer, value in zip(node.func.inputs, node.inputs, strict=True):
            if value not in makers:
                self._buffers.setdefault(value, buffer)

    def node(self) -> Node:
        node, bound = self._node, self._node.bound
        params = {b: bound[b.name] for b in node.func.inputs if bound[b.name] in self._makers}

        def change(expr: tir.Expr) -> tir.Expr:
            if isinstance(expr, tir.Load) and expr.buffer in params:
                return self._element(self._makers[params[expr.buffer]], expr)
            return expr

        body = tir.map_expressions(node.func.body, change)
        read = dict.fromkeys(load.buffer for load in tir.loads_in(body))
        values = {buffer: value for value, buffer in self._buffers.items()}
        kept = [
            (buffer, bound[buffer.name])
            for buffer in node.func.inputs
            if buffer in read and buffer not in params
        ]
        own = {buffer for buffer, _ in kept}
        kept += [(b, values[b]) for b in read if b in values and b not in own]
        func = stages.with_inputs(node.func, (buffer for buffer, _ in kept), body)
        return replace(node, func=func, inputs=tuple(value for _, value in kept))

    def _element(self, maker: Node, load: tir.Load) -> tir.Expr:
        """The element of a value that the node loads, as its maker computes it."""
        store = composed_store(maker.func)
        assert store is not None, "only elementwise kernels are inlined"
        at: dict[Var, IndexExpr] = {
            var: index
            for var, index in zip(store.indices, load.indices, strict=True)
            if isinstance(var, Var)
        }

        def placed(expr: tir.Expr) -> tir.Expr:
            if isinstance(expr, tir.Load):
                return self._load(maker, load.buffer.name, expr, at)
            return without_zero(expr)

        return tir.map_expr(store.value, placed)

    def _load(
        self, maker: Node, wanted: str, load: tir.Load, at: Mapping[Var, IndexExpr]
    ) -> tir.Expr:
        value = maker.bound[load.buffer.name]
        number = uniform_integer(self._graph, value)
        if number is not None:
            return tir.Literal(number, load.dtype)
        if value not in self._buffers:
            name = stages.fresh(f"{wanted}_{load.buffer.name}", self._names)
            self._buffers[value] = replace(load.buffer, name=name)
        return tir.Load(self._buffers[value], tuple(substitute(i, dict(at)) for i in load.indices))


def without_zero(expr: tir.Expr) -> tir.Expr:
    """An integer literal converted to int32 as a literal, and `x − 0` as x."""
    match expr:
        case tir.Cast(tir.Literal(value, dtype), "int32") if dtype in QUANTIZED_INTEGERS:
            return tir.Literal(int(value), EXACT)
        case tir.Binary("sub", left, tir.Literal(0, "int32")):
            return left
    return expr


def equal_parameters(graph: OperatorGraph, one: Dequantized, other: Dequantized) -> bool:
    """Whether two values have the same scales and zero points, and integers of the same type."""
    if one.stored.dtype != other.stored.dtype:
        return False
    return equal_scales(graph, one.scale_value, other.scale_value) and equal_zeros(
        graph, one.zero_value, other.zero_value
    )


def equal_scales(graph: OperatorGraph, one: str | None, other: str | None) -> bool:
    """Whether two scales are the same value, or known to be equal."""
    if one == other:
        return True
    left, right = known_elements(graph, one), known_elements(graph, other)
    if left is None or right is None or left.dtype != right.dtype or left.size != right.size:
        return False
    return bool(np.array_equal(left.reshape(-1), right.reshape(-1)))


def equal_zeros(graph: OperatorGraph, one: str | None, other: str | None) -> bool:
    """Whether two zero points are the same value, or known to be equal."""
    numbers = uniform_integer(graph, one), uniform_integer(graph, other)
    if None not in numbers:
        return numbers[0] == numbers[1]
    return equal_scales(graph, one, other)
