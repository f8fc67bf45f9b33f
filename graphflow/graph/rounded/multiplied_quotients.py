"""Quotients by constants, computed as products.

In: a graph in which numbers of float32 are divided by powers of two, or numbers of float16 or
bfloat16 by other constants, each quotient of which is rounded to their type.  Out: the same with
products by the reciprocals.

    before:  s[i] = d[i] / 8           q[i] = f32(h[i]) / c;         g[i] = f16(q[i])
    after:   s[i] = d[i] · 0.125       q[i] = f32(h[i]) · (1 / c);   g[i] = f16(q[i])

Dividing 16 lanes takes a Granite Rapids 2.9 ns, multiplying them 0.15.

What always holds: each quotient, or rounded quotient, keeps its bits, NaN aside.  The reciprocal of
a power of two is exact, so that both ways round one number.  Else a dividend is one of 2¹⁶ numbers,
so that is proven by computing all of their quotients in both ways, for each divisor; where one
differs (14 in float16: 78 quotients that are denormals), and where nobody rounds the quotient, it
is divided.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import DTYPES
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.rounded.roundings import Representable, rounded_to, stores_halves
from graphflow.graph.structure import elementwise_store
from graphflow.graph.value import Array

WIDE = "float32"

MOST_DIVISORS = 16
"""The most different divisors of one tensor, each of which takes 3 ms to prove."""

LEAST_RECIPROCAL, MOST_RECIPROCAL = 2.0**-120, 2.0**120
"""Reciprocals that are far from denormals, which a run may count as zero."""

POWER_OF_TWO = 0.5
"""The mantissa of a power of two, as `frexp` gives it."""


def with_multiplied_quotients(graph: OperatorGraph) -> OperatorGraph:
    """The graph whose quotients by constants are products, where these have the same bits.

    It is the last rewrite of roundings: excess precision would drop those that this relies on.
    """
    quotients = [(n, divided) for n in graph.topological() if (divided := _divided(graph, n))]
    if not quotients:
        return graph
    out = graph.copy()
    known = Representable(graph) if stores_halves(graph) else None
    for node, (dividend, divisor) in quotients:
        factors = _exact_reciprocals(out.initializers[divisor])
        dtype = rounded_to(out, node.outputs[0]) if known is not None else None
        if factors is None and known is not None and dtype is not None:
            rounded = known.holds(dividend, dtype)
            factors = _reciprocals(out.initializers[divisor], dtype) if rounded else None
        if factors is not None:
            name = out.free_name(f"{divisor}.reciprocal")
            out.add_initializer(name, factors)
            out.replace(node.name, _multiplying(node, name))
            if not out.consumers(divisor) and divisor not in out.outputs:
                out.remove_value(divisor)
                out.removed[divisor] = Removed(f"only its reciprocal {name} is read")
    return out


def _divided(graph: OperatorGraph, node: Node) -> tuple[str, str] | None:
    """The dividend and the constant divisor of a node that divides float32 numbers, element by
    element; None for other nodes."""
    store = elementwise_store(node.func) if node.has_definition else None
    match store:
        case tir.Store(value=tir.Binary("div", tir.Load() as left, tir.Load() as right)):
            dividend, divisor = (node.bound[load.buffer.name] for load in (left, right))
            constant = divisor in graph.initializers and divisor not in graph.inputs
            return (dividend, divisor) if constant and right.dtype == WIDE else None
        case _:
            return None


def _exact_reciprocals(divisors: Array) -> Array | None:
    """The reciprocals of divisors that are all powers of two, or negatives of these; else None."""
    with np.errstate(all="ignore"):
        factors = np.reciprocal(divisors.astype(np.float32))
        size = np.abs(factors)
        is_power = (np.frexp(size)[0] == POWER_OF_TWO) & (np.abs(divisors) * size == 1)
    near = (size >= LEAST_RECIPROCAL) & (size <= MOST_RECIPROCAL)
    return np.asarray(factors) if np.all(is_power & near) else None


def _reciprocals(divisors: Array, dtype: str) -> Array | None:
    """The reciprocals of divisors; None unless all numbers of `dtype` times these, rounded to it,
    are the quotients rounded to it."""
    different = np.unique(divisors)
    if len(different) > MOST_DIVISORS or not all(is_factor(float(c), dtype) for c in different):
        return None
    return np.asarray(np.reciprocal(divisors.astype(np.float32)))


@lru_cache(maxsize=256)
def is_factor(divisor: float, dtype: str) -> bool:
    """Whether each number of a 16-bit type times the reciprocal of a float32, rounded to the type,
    is the quotient rounded to it."""
    numbers = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype]).astype(np.float32)
    with np.errstate(all="ignore"):
        factor = np.float32(1) / np.float32(divisor)
        if not LEAST_RECIPROCAL <= abs(factor) <= MOST_RECIPROCAL:
            return False
        quotients = (numbers / np.float32(divisor)).astype(DTYPES[dtype])
        products = (numbers * factor).astype(DTYPES[dtype])
    same = quotients.view(np.uint16) == products.view(np.uint16)
    return bool(np.all(same | np.isnan(numbers)))


def _multiplying(node: Node, factor: str) -> Node:
    """The node with a product by the value `factor` in the place of its quotient."""
    store = elementwise_store(node.func)
    assert store is not None
    assert isinstance(store.value, tir.Binary)
    assert isinstance(store.value.right, tir.Load)
    divisor = store.value.right.buffer.name

    def multiplied(expr: tir.Expr) -> tir.Expr:
        return replace(expr, op="mul") if isinstance(expr, tir.Binary) else expr

    func = replace(node.func, name="mul", body=tir.map_expressions(node.func.body, multiplied))
    values = zip((buffer.name for buffer in func.inputs), node.inputs, strict=True)
    inputs = tuple(factor if name == divisor else value for name, value in values)
    return replace(node, func=func, inputs=inputs)
