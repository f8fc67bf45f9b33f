"""Products of bytes without zero points, which processors have instructions for.

In: a graph in which products add up `(x − zx) · (w − zw)` in int32, x and w bytes.  Out: the same
graph, edited: the products add up `x · w`, x unsigned and w signed where a row of x meets several
columns of w, and begin with what the zero points contribute.

    before:  t[i] = b[i]; for k: t[i] += (x[…, k] − zx) · (w[k, i] − zw)
    after:   t[i] = c[i]; for k: t[i] += x[…, k] · w'[k, i]      c = b − zx · Σ w', w' = w − zw

The sums over constant weights are nodes of their own, which are computed once, when the program is
loaded.  Weights whose differences from their zero point fit into a byte are stored as these.  Where
they do not fit, the products begin with sums of x too, which each run computes.  Signed data is
stored as unsigned bytes, 128 more with a zero point that is 128 more.  All results are the same bit
for bit, see `kernels/definitions/linear_algebra/byte_products.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from graphflow import tir
from graphflow.arith import constant_value
from graphflow.base.dtypes import BYTES
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.quantized.dequantized import known_elements, uniform_integer
from graphflow.graph.quantized.dequantized_reads import round_where_read
from graphflow.graph.value import Array, Value
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.linear_algebra.byte_products import (
    Border,
    ByteFactor,
    ByteProduct,
    NotSeparable,
    Sums,
    axes_in_place,
    borders_of,
    byte_product,
    sums_of,
    with_plain_products,
)
from graphflow.kernels.definitions.linear_algebra.unscaled_sum import (
    TOTAL,
    NotUnscalable,
    sum_of_products,
)
from graphflow.kernels.definitions.scalar_functions import add, multiply, subtract
from graphflow.kernels.recipes import sums_terms

WORD = "int16"

HALF = 128
"""The distance of the unsigned byte from the signed one of the same order."""


def with_plain_products_of(graph: OperatorGraph, target: Target) -> OperatorGraph:
    """The graph whose products of bytes are those that the target has instructions for: of bytes,
    else of their differences from zero points in 16 bits.

    Why a product has none is noted in `unseparated_products`.
    """
    rewrite = _rewrite_for(target)
    if rewrite is None or not any(value.dtype in BYTES for value in graph.values.values()):
        return graph
    out, made = graph.copy(), dict[tuple[str, ...], str]()
    for node in graph.topological():
        if not out.may_rewrite(node):
            continue
        try:
            found = byte_product(sum_of_products(node.func))
            if found is not None:
                rewrite(_Rewriting(out, node, found, made))
        except NotUnscalable:
            continue
        except NotSeparable as error:
            out.unseparated_products[node.outputs[0]] = str(error)
    for name in made.values():
        round_where_read(out, out.node(name))
    return out


def _rewrite_for(target: Target) -> Callable[[_Rewriting], None] | None:
    """How products are rewritten for a target; None where it has no instruction for them."""
    if sums_terms(target, ("uint8", "int8"), 4):
        return _Rewriting.as_bytes
    return _Rewriting.as_words if sums_terms(target, ("int16", "int16"), 2) else None


class _Rewriting:
    """The product of one node on its way: new values are bound to buffers of new names.

    `made` are the values that products share, by what they are made of.
    """

    def __init__(
        self, graph: OperatorGraph, node: Node, found: ByteProduct, made: dict[tuple[str, ...], str]
    ) -> None:
        self._graph, self._node, self._made = graph, node, made
        self._bound = node.bound
        self._names = {buffer.name for buffer in tir.buffers_of(node.func)}
        found = replace(found, left=self._settled(found.left), right=self._settled(found.right))
        constant = [graph.is_constant(self._bound[f.name]) for f in (found.left, found.right)]
        self._found = found.swapped() if constant == [True, False] else found

    def _settled(self, factor: ByteFactor) -> ByteFactor:
        """The factor, with a zero point of one element that is known as a number."""
        match factor.zero:
            case tir.Cast(tir.Load(buffer)) if buffer.size == 1:
                known = uniform_integer(self._graph, self._bound.get(buffer.name))
                if known is not None:
                    zero = stages.literal(known, TOTAL) if known else None
                    return replace(factor, zero=zero)
        return factor

    def as_words(self) -> None:
        """Let the node multiply differences from zero points; raises NotSeparable where a zero
        point is not one for each element of its operand.

        Unsigned bytes with a zero point of 0 are read as they are where each meets weights of its
        own, in lanes: widening them there takes no more than widening 16 bits.
        """
        found = self._found
        data, weight = found.left, found.right
        kernels = [self._wide(factor) for factor in (data, weight)]  # may raise
        if not self._columns_apart() and _fits_unsigned(data):
            data = self._unsigned(data)
        else:
            data = self._as(data, self._shared(*kernels[0]), WORD, None)
        weight = self._as(weight, self._shared(*kernels[1]), WORD, None)
        self._exchange(replace(found, left=data, right=weight), found.product.start.value)

    def _columns_apart(self) -> bool:
        """Whether an element of the data meets several of the weights, in different sums."""
        found = self._found
        several = {v for v, n in found.outer if n > 1}
        return bool(several & (found.right.used - found.left.used))

    def _wide(self, factor: ByteFactor) -> tuple[tir.PrimFunc, tuple[str, ...], str]:
        """The kernel of a factor's differences from its zero point in 16 bits, with the values that
        it reads and the text of what it computes."""
        source, load = factor.load.buffer, factor.load
        x, y = tir.Buffer("x", source.shape, source.dtype), tir.Buffer("y", source.shape, WORD)
        loops = stages.loops_over("i", source.shape)
        places = dict(zip(load.indices, stages.indices_of(loops), strict=True))
        inputs = {x: self._bound[factor.name]}

        def placed(e: tir.Expr) -> tir.Expr:
            if not isinstance(e, tir.Load):
                return e
            if any(i not in places and constant_value(i) is None for i in e.indices):
                raise NotSeparable(f"the zero point of {factor.name} is none of its elements")
            zero = tir.Buffer(f"zero_{e.buffer.name}", e.buffer.shape, e.buffer.dtype)
            inputs[zero] = self._bound[e.buffer.name]
            return tir.Load(zero, tuple(places.get(i, i) for i in e.indices))

        less = None if factor.zero is None else tir.map_expr(factor.zero, placed)
        centred = _minus(tir.Cast(stages.element(x, loops), TOTAL), less)
        func = stages.elementwise_kernel("wide", [*inputs], y, loops, tir.Cast(centred, WORD))
        return func, tuple(inputs.values()), tir.expr_text(centred)

    def _shared(self, func: tir.PrimFunc, values: tuple[str, ...], what: str) -> str:
        """The value that a kernel of one output makes of `values`; one for all products."""
        key = (func.name, what, *values)
        if key not in self._made:
            name = self._made[key] = self._graph.free_name(f"{values[0]}.{func.name}")
            result = func.outputs[0]
            self._graph.count_like(Value(name, result.dtype, result.shape), values[0])
            self._graph.add(Node(name, func.name.capitalize(), func, values, (name,)))
        return self._made[key]

    def as_bytes(self) -> None:
        """Let the node multiply bytes; raises NotSeparable where it has to stay."""
        found = self._found
        constant = self._is_constant(found.right.load)
        borders = borders_of(found) if constant and found.where else (() if constant else None)
        centred = self._centred(found.right)
        plain = found.right == ByteFactor(found.right.load, None)
        if not self._columns_apart() and centred is None and not plain:
            raise NotSeparable(f"{found.right.name} does not fit into signed bytes")
        # Nothing raises from here on: what is added to the graph is read.
        data, weight = self._unsigned(found.left), self._signed(found.right, centred)
        found = replace(found, left=data, right=weight)
        first = found.product.start.value
        if data.zero is not None:
            first = self._less_weights(found, first, borders)
        if weight.zero is not None:
            less = _minus(tir.Cast(data.load, TOTAL), data.zero)
            sums = sums_of(found, less, stages.literal(0, TOTAL), None, self._fresh("data_sums"))
            first = _minus(first, multiply(weight.zero, self._bind(sums)))
        self._exchange(found, first)

    def _exchange(self, found: ByteProduct, first: tir.Expr) -> None:
        """Let the node add up plain products, beginning with the value `first`."""
        func = with_plain_products(self._node.func, found, first)
        inputs = tuple(self._bound[buffer.name] for buffer in func.inputs)
        graph, node = self._graph, self._node
        graph.replace(node.name, replace(node, func=func, inputs=inputs))
        for name in dict.fromkeys(node.inputs):
            known = name in graph.initializers and name not in (*graph.inputs, *graph.outputs)
            if known and not graph.consumers(name):
                graph.remove_value(name)
                graph.removed[name] = Removed("other constants were computed from it")

    def _less_weights(
        self, found: ByteProduct, first: tir.Expr, borders: tuple[Border, ...] | None
    ) -> tir.Expr:
        """The first value less the zero point of the data times the sums of the weights."""
        zero, weight = found.left.zero, tir.Cast(found.right.load, TOTAL)
        assert zero is not None
        name = self._fresh("weight_sums")
        if isinstance(zero, tir.Literal) and borders is not None and self._is_constant(first):
            term = multiply(stages.literal(-int(zero.value), TOTAL), weight)
            return self._bind(sums_of(found, term, first, borders, name))
        sums = sums_of(found, weight, stages.literal(0, TOTAL), borders, name)
        return _minus(first, multiply(zero, self._bind(sums)))

    def _is_constant(self, value: tir.Expr) -> bool:
        loads = [e for e in tir.walk_expr(value) if isinstance(e, tir.Load)]
        return all(
            e.buffer.name in self._bound and self._graph.is_constant(self._bound[e.buffer.name])
            for e in loads
        )

    def _unsigned(self, data: ByteFactor) -> ByteFactor:
        """The factor of unsigned bytes."""
        if data.load.dtype == "uint8":
            return data
        value = self._shifted(data, "uint8", HALF, "unsigned")
        return self._as(data, value, "uint8", _plus(data.zero, HALF))

    def _centred(self, weight: ByteFactor) -> Array | None:
        """The differences of weights from their zero points as signed bytes; None where they are
        not known, or do not fit."""
        array, zero = known_elements(self._graph, self._bound[weight.name]), self._elements(weight)
        if array is None or zero is None:
            return None
        differences = array.astype(np.int16) - zero
        fits = differences.min(initial=0) >= -HALF and differences.max(initial=0) < HALF
        return differences.astype(np.int8) if fits else None

    def _signed(self, weight: ByteFactor, centred: Array | None) -> ByteFactor:
        """The factor of signed bytes, with the zero point that is left."""
        if centred is not None:
            return self._as(weight, self._stored(self._bound[weight.name], centred), "int8", None)
        if weight.load.dtype == "int8":
            return weight
        shifted = self._shifted(weight, "int8", -HALF, "signed")
        return self._as(weight, shifted, "int8", _plus(weight.zero, -HALF))

    def _elements(self, weight: ByteFactor) -> NDArray[np.int16] | None:
        """The zero points of the weights, broadcast to them; None where they are not known."""
        if weight.uniform_zero is not None:
            return np.asarray(weight.uniform_zero, np.int16)
        match weight.zero:
            case tir.Cast(tir.Load() as load, _) if set(load.indices) <= set(weight.load.indices):
                array = known_elements(self._graph, self._bound.get(load.buffer.name))
                places = [weight.load.indices.index(e) for e in load.indices]
                if array is None or places != sorted(places):
                    return None
                rank = len(weight.load.indices)
                shape = [n if k in places else 1 for k, n in enumerate(weight.load.buffer.shape)]
                return array.astype(np.int16).reshape(shape if rank else ())
            case _:
                return None

    def _stored(self, value: str, centred: Array) -> str:
        """The value of these elements: `value` itself, or a new initializer."""
        array = self._graph.initializers[value]
        if array.dtype == centred.dtype and (array == centred).all():
            return value
        name = self._graph.free_name(f"{value}.centred")
        self._graph.add_initializer(name, centred)
        return name

    def _shifted(self, factor: ByteFactor, dtype: str, by: int, role: str) -> str:
        """The value of a factor's bytes and `by` as `dtype`, which other products share."""
        source = factor.load.buffer
        x, y = tir.Buffer("x", source.shape, source.dtype), tir.Buffer("y", source.shape, dtype)
        loops = stages.loops_over("i", source.shape)
        moved = _plus(tir.Cast(stages.element(x, loops), TOTAL), by)
        assert moved is not None
        func = stages.elementwise_kernel(role, (x,), y, loops, tir.Cast(moved, dtype))
        return self._shared(func, (self._bound[factor.name],), role)

    def _as(self, factor: ByteFactor, value: str, dtype: str, zero: tir.Expr | None) -> ByteFactor:
        """The factor with its bytes in another value."""
        if value == self._bound[factor.name]:
            return replace(factor, zero=zero)
        buffer = replace(factor.load.buffer, name=self._fresh(factor.name), dtype=dtype)
        self._bound[buffer.name] = value
        return ByteFactor(replace(factor.load, buffer=buffer), zero)

    def _bind(self, sums: Sums) -> tir.Load:
        """The element of sums that a new node computes."""
        graph = self._graph
        inputs: dict[str, str] = {}
        for buffer in sums.func.inputs:
            if buffer.name in sums.masks:
                inputs[buffer.name] = graph.free_name(f"{self._node.name}.{buffer.name}")
                graph.add_initializer(inputs[buffer.name], sums.masks[buffer.name])
            else:
                inputs[buffer.name] = self._bound[buffer.name]
        out = sums.result.buffer
        name = graph.free_name(f"{self._node.name}.{out.name}")
        values = tuple(inputs[buffer.name] for buffer in sums.func.inputs)
        axes = axes_in_place(self._node.func, self._found, sums)
        graph.count_like(Value(name, out.dtype, out.shape), self._node.outputs[0], axes)
        graph.add(Node(name, "Sums", sums.func, values, (name,)))
        self._bound[out.name] = name
        return sums.result

    def _fresh(self, wanted: str) -> str:
        return stages.fresh(wanted, self._names)


def _fits_unsigned(factor: ByteFactor) -> bool:
    """Whether a factor's differences from its zero point are unsigned bytes."""
    return factor.uniform_zero == (0 if factor.load.dtype == "uint8" else -HALF)


def _plus(value: tir.Expr | None, number: int) -> tir.Expr | None:
    """`value + number`; None for 0, which None is too."""
    if value is None or isinstance(value, tir.Literal):
        total = number + (0 if value is None else int(value.value))
        return stages.literal(total, TOTAL) if total else None
    return add(value, number)


def _minus(left: tir.Expr, right: tir.Expr | None) -> tir.Expr:
    return left if right is None else subtract(left, right)
