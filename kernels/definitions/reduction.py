"""Reductions over axes, and softmax.

In: a logical shape, axes, a kind.  Out: a PrimFunc with parameters x and y.  Dividing by a count is
a stage of its own; the count is the logical one.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from graphflow.arith import IndexExpr
from graphflow.errors import UnsupportedOp
from graphflow.kernels.definitions.stages import (
    Loop,
    Shape,
    elementwise_stage,
    indices_of,
    intermediate,
    kernel,
    literal,
    loops_over,
    normalized_axes,
    reduction_stage,
)
from graphflow.tir import FLOATS, Binary, Block, Buffer, Load, PrimFunc, ReduceOp, Unary

REDUCTIONS = {
    "sum": ReduceOp.ADD,
    "mean": ReduceOp.ADD,
    "prod": ReduceOp.MUL,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
}


def reduce(
    kind: str,
    x_shape: Shape,
    axes: Iterable[int],
    keepdims: bool = True,
    dtype: str = "float32",
    name: str = "",
) -> PrimFunc:
    """`y = kind over axes of x`; with `keepdims` the reduced axes stay with extent 1.

    `kind` is one of `REDUCTIONS`.  No axes means that nothing is reduced.
    """
    name = name or f"reduce_{kind}"
    reduced = normalized_axes(axes, len(x_shape))
    y_shape = _without(x_shape, reduced, keepdims)
    x, y = Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype)
    if kind != "mean":
        stage = _stage(name, REDUCTIONS[kind], x, y, reduced, keepdims, "i", "r")
        return kernel(name, (x,), (y,), (stage,))
    total, allocate = intermediate("total", y_shape, dtype)
    gather = _stage(f"{name}_sum", ReduceOp.ADD, x, total, reduced, keepdims, "i", "r")
    loops = loops_over("j", y_shape)
    count = literal(prod(x_shape[axis] for axis in reduced), dtype)
    divide = elementwise_stage(
        f"{name}_divide", y, loops, Binary("div", Load(total, indices_of(loops)), count)
    )
    return kernel(name, (x,), (y,), (allocate, gather, divide))


def softmax(x_shape: Shape, axes: Iterable[int], dtype: str = "float32") -> PrimFunc:
    """`y = exp(x − max) / Σ exp(x − max)`, max and sum over `axes` together.

    One axis is ONNX's softmax since opset 13; all axes from k on is the older one, which flattens.
    """
    if dtype not in FLOATS:
        raise UnsupportedOp(f"softmax of {dtype} is not built; cast the input to float32")
    reduced = normalized_axes(axes, len(x_shape))
    inner = _without(x_shape, reduced, False)
    x, y = Buffer("x", x_shape, dtype), Buffer("y", x_shape, dtype)
    largest, make_largest = intermediate("largest", inner, dtype)
    powers, make_powers = intermediate("powers", x_shape, dtype)
    total, make_total = intermediate("total", inner, dtype)
    up, out = loops_over("e", x_shape), loops_over("d", x_shape)
    shifted = Binary("sub", Load(x, indices_of(up)), Load(largest, _kept(up, reduced)))
    share = Binary("div", Load(powers, indices_of(out)), Load(total, _kept(out, reduced)))
    return kernel(
        "softmax",
        (x,),
        (y,),
        (
            make_largest,
            _stage("softmax_max", ReduceOp.MAX, x, largest, reduced, False, "i", "r"),
            make_powers,
            elementwise_stage("softmax_exp", powers, up, Unary("exp", shifted)),
            make_total,
            _stage("softmax_sum", ReduceOp.ADD, powers, total, reduced, False, "j", "s"),
            elementwise_stage("softmax_divide", y, out, share),
        ),
    )


def _without(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    return tuple(n for axis, n in enumerate(shape) if axis not in axes)


def _kept(loops: tuple[Loop, ...], axes: tuple[int, ...]) -> tuple[IndexExpr, ...]:
    return tuple(var for axis, (var, _) in enumerate(loops) if axis not in axes)


def _stage(
    name: str,
    op: ReduceOp,
    x: Buffer,
    out: Buffer,
    axes: tuple[int, ...],
    keepdims: bool,
    prefix: str,
    reduce_prefix: str,
) -> Block:
    """A loop `prefix`k for each axis of `out`, and a loop `reduce_prefix`k for each reduced one."""
    loops = loops_over(prefix, out.shape)
    reduce_loops = loops_over(reduce_prefix, [x.shape[axis] for axis in axes])
    outer, inner = iter(loops), iter(reduce_loops)
    where: list[IndexExpr] = []
    for axis in range(len(x.shape)):
        if axis in axes:
            where.append(next(inner)[0])
            if keepdims:
                next(outer)
        else:
            where.append(next(outer)[0])
    value = Load(x, tuple(where))
    return reduction_stage(name, op, out, loops, indices_of(loops), reduce_loops, value)
