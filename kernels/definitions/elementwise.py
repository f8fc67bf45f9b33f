"""Elementwise kernels with numpy's broadcasting.

In: logical shapes, dtypes, a function from operand expressions to a value.  Out: a PrimFunc of one
stage over the broadcast shape.  An operand is read at exactly the loop variables where its extents
are those of the output, at 0 along the axes it is broadcast over, and its rank may be lower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Literal as Literals

import numpy as np

from graphflow import tir
from graphflow.arith import IndexExpr, const
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import (
    UNARY_VALUES,
    add,
    clipped,
    converted,
    divide,
    leaky_relu,
    multiply,
    remainder,
)
from graphflow.kernels.definitions.stages import Loop, Shape

LONGEST_CHAIN = 64
"""The most operands that one expression combines.

Recursive walks over an expression are as deep as it is, and Python allows a thousand nested calls.
"""


def elementwise(
    name: str,
    operands: Mapping[str, tuple[Shape, str]],
    value: Callable[..., tir.Expr],
    dtype: str | None = None,
) -> tir.PrimFunc:
    """`y[i…] = value(operands at i…)`.

    `operands` gives (shape, dtype) by parameter name; `dtype` is that of y, by default that of the
    first operand.
    """
    buffers = [tir.Buffer(key, shape, kind) for key, (shape, kind) in operands.items()]
    y = tir.Buffer("y", broadcast([b.shape for b in buffers]), dtype or buffers[0].dtype)
    loops = stages.loops_over("i", y.shape)
    loads = [tir.Load(buffer, broadcast_indices(buffer.shape, loops)) for buffer in buffers]
    return stages.elementwise_kernel(name, buffers, y, loops, value(*loads))


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape to which `shapes` broadcast, aligned at the last axis."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        listed = ", ".join(map(str, shapes))
        raise InvalidModel(
            f"shapes {listed} do not broadcast: aligned at the end, extents must match or be 1"
        ) from None


def broadcast_indices(shape: Shape, loops: Sequence[Loop]) -> tuple[IndexExpr, ...]:
    """The index of an operand of `shape` in `loops` over the broadcast shape."""
    inner = loops[len(loops) - len(shape) :]
    return tuple(
        var if extent == own else const(0) for own, (var, extent) in zip(shape, inner, strict=True)
    )


def unary(
    op: str, shape: Shape, dtype: str = "float32", attributes: Mapping[str, float] | None = None
) -> tir.PrimFunc:
    """`y = op(x)` for an op of `UNARY_VALUES`; `attributes` are parameters of the op, such as
    alpha."""
    make = UNARY_VALUES[op]
    extra = dict(attributes or {})
    return elementwise(op, {"x": (shape, dtype)}, lambda x: make(x, **extra))


def binary(
    op: tir.BinaryOp | tir.ComparisonOp, a_shape: Shape, b_shape: Shape, dtype: str = "float32"
) -> tir.PrimFunc:
    """`y = a op b` with broadcasting, for an op of `graphflow.tir`; y of a comparison is bool."""
    operands = {"a": (a_shape, dtype), "b": (b_shape, dtype)}
    if op in tir.COMPARISONS:
        compare: tir.ComparisonOp = op
        return elementwise(op, operands, lambda a, b: tir.Comparison(compare, a, b), "bool")
    assert op in tir.BINARY, f"{op} is no operator on two values"
    combine: tir.BinaryOp = op
    return elementwise(op, operands, lambda a, b: tir.Binary(combine, a, b))


def power(a_shape: Shape, b_shape: Shape, dtype: str, exponent_dtype: str) -> tir.PrimFunc:
    """`y = a ** b` with broadcasting, in the dtype of a.

    b is converted to that dtype, unless a is an integer and b a float: that power is computed in
    float64 and truncated.
    """

    def value(a: tir.Expr, b: tir.Expr) -> tir.Expr:
        if exponent_dtype in tir.FLOATS and dtype not in tir.FLOATS:
            wide = (e if e.dtype == "float64" else tir.Cast(e, "float64") for e in (a, b))
            return tir.Cast(tir.Binary("pow", *wide), dtype)
        return tir.Binary("pow", a, b if exponent_dtype == dtype else tir.Cast(b, dtype))

    return elementwise("pow", {"a": (a_shape, dtype), "b": (b_shape, exponent_dtype)}, value)


def modulo(a_shape: Shape, b_shape: Shape, truncated: bool, dtype: str = "float32") -> tir.PrimFunc:
    """`y` is the remainder of a / b, broadcast; its sign is that of a if `truncated`, else of b."""
    operands = {"a": (a_shape, dtype), "b": (b_shape, dtype)}
    return elementwise("modulo", operands, lambda a, b: remainder(a, b, truncated))


def predicate(
    name: str, shape: Shape, dtype: str, holds: Callable[[tir.Expr], tir.Expr]
) -> tir.PrimFunc:
    """`y = holds(x)`, a bool for each element."""
    return elementwise(name, {"x": (shape, dtype)}, holds, "bool")


def where(condition: Shape, a_shape: Shape, b_shape: Shape, dtype: str = "float32") -> tir.PrimFunc:
    """`y = a` where the condition (bool) holds, else `b`, with broadcasting."""
    operands = {"condition": (condition, "bool"), "a": (a_shape, dtype), "b": (b_shape, dtype)}
    return elementwise("where", operands, tir.Select, dtype)


def prelu(x_shape: Shape, slope_shape: Shape, dtype: str = "float32") -> tir.PrimFunc:
    """`y = x · slope` below zero, else `x`; the slope broadcasts to x, but x not to the slope."""
    if broadcast([x_shape, slope_shape]) != x_shape:
        raise InvalidModel(f"slope {slope_shape} does not broadcast to the input {x_shape}")
    return elementwise("prelu", {"x": (x_shape, dtype), "slope": (slope_shape, dtype)}, leaky_relu)


def variadic(
    op: tir.BinaryOp | Literals["mean"],
    shapes: Sequence[Shape],
    dtype: str = "float32",
    count: int | None = None,
) -> tir.PrimFunc:
    """`y = a0 op a1 op …` from the left, with broadcasting; "mean" divides the sum of the operands
    by `count`, by default their number.

    More than `LONGEST_CHAIN` operands are combined in groups of that many.
    """
    operands = {f"a{i}": (shape, dtype) for i, shape in enumerate(shapes)}
    count = len(shapes) if count is None else count
    mean = op == "mean" and count > 1
    combine: tir.BinaryOp = "add" if op == "mean" else op

    def both(left: tir.Expr, right: tir.Expr) -> tir.Expr:
        return tir.Binary(combine, left, right)

    def value(*loads: tir.Expr) -> tir.Expr:
        left = list(loads)
        while len(left) > 1:
            rows = (left[k : k + LONGEST_CHAIN] for k in range(0, len(left), LONGEST_CHAIN))
            left = [reduce(both, row) for row in rows]
        return divide(left[0], count) if mean else left[0]

    return elementwise(op, operands, value)


def cast(shape: Shape, source: str, target: str, saturate: bool = False) -> tir.PrimFunc:
    """`y = x` converted to `target`; to bool it is `x != 0`.

    With `saturate`, numbers beyond the range of a float8, and infinities, become its largest
    number.
    """

    def value(x: tir.Expr) -> tir.Expr:
        return converted(x, target, saturate)

    return elementwise("cast", {"x": (shape, source)}, value, target)


def clip(
    shape: Shape,
    low: float | Shape | None = None,
    high: float | Shape | None = None,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y = min(max(x, low), high)`; NaN is kept, and where low > high the result is high.

    A bound is a number, None for no bound, or a shape: then it is a parameter `low` or `high`.
    """
    operands: dict[str, tuple[Shape, str]] = {"x": (shape, dtype)}
    if isinstance(low, tuple):
        operands["low"] = (low, dtype)
    if isinstance(high, tuple):
        operands["high"] = (high, dtype)

    def value(*loads: tir.Expr) -> tir.Expr:
        found = dict(zip(operands, loads, strict=True))
        below = found.get("low", _bound(low, dtype))
        above = found.get("high", _bound(high, dtype))
        return clipped(found["x"], below, above)

    return elementwise("clip", operands, value)


def _bound(bound: float | Shape | None, dtype: str) -> tir.Literal | None:
    return None if bound is None or isinstance(bound, tuple) else stages.literal(bound, dtype)


def normalization_scale(shape: Shape, epsilon: float, dtype: str = "float32") -> tir.PrimFunc:
    """`y = gamma / sqrt(variance + epsilon)`: the factor of a batch normalization per channel."""

    def value(gamma: tir.Expr, variance: tir.Expr) -> tir.Expr:
        spread = tir.Binary("add", variance, stages.literal(epsilon, dtype))
        return tir.Binary("div", gamma, tir.Unary("sqrt", spread))

    operands = {"gamma": (shape, dtype), "variance": (shape, dtype)}
    return elementwise("normalization_scale", operands, value)


def mixed(shape: Shape, share: float, dtype: str = "float32") -> tir.PrimFunc:
    """`y = a · share + b · (1 - share)`."""

    def value(a: tir.Expr, b: tir.Expr) -> tir.Expr:
        rest = stages.literal(1 - share, dtype)
        return add(multiply(a, stages.literal(share, dtype)), multiply(b, rest))

    return elementwise("mixed", {"a": (shape, dtype), "b": (shape, dtype)}, value)


def inverse_deviation(shape: Shape, epsilon: float, dtype: str = "float32") -> tir.PrimFunc:
    """`y = 1 / sqrt(variance + epsilon)`."""

    def value(variance: tir.Expr) -> tir.Expr:
        return divide(stages.literal(1, dtype), tir.Unary("sqrt", add(variance, epsilon)))

    return elementwise("inverse_deviation", {"variance": (shape, dtype)}, value)


def normalization_shift(channels: int, dtype: str = "float32") -> tir.PrimFunc:
    """`y[c] = beta[c] − mean[c] · scale[c]`: the summand of a batch normalization per channel."""

    def value(beta: tir.Expr, mean: tir.Expr, scale: tir.Expr) -> tir.Expr:
        return tir.Binary("sub", beta, tir.Binary("mul", mean, scale))

    operands = dict.fromkeys(("beta", "mean", "scale"), ((channels,), dtype))
    return elementwise("normalization_shift", operands, value)


def scale_and_shift(x_shape: Shape, dtype: str = "float32") -> tir.PrimFunc:
    """`y[n, c, …] = x[n, c, …] · scale[c] + shift[c]`: batch normalization at inference."""
    if len(x_shape) < 2:
        raise InvalidModel(f"input {x_shape} has no channel axis; it needs a rank of at least 2")
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    scale, shift = (tir.Buffer(key, (x_shape[1],), dtype) for key in ("scale", "shift"))
    loops = stages.loops_over("i", x_shape)
    channel = (loops[1][0],)
    scaled = tir.Binary(
        "mul", tir.Load(x, tuple(var for var, _ in loops)), tir.Load(scale, channel)
    )
    value = tir.Binary("add", scaled, tir.Load(shift, channel))
    return stages.elementwise_kernel("scale_and_shift", (x, scale, shift), y, loops, value)
