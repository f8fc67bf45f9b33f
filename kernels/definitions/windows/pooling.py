"""Pooling: the maximum, the mean or a norm of each window, or of all spatial positions.

In: logical shapes, windows and attributes.  Out: a PrimFunc with parameters x and y.  Padding never
takes part: a maximum starts from its neutral element, and a mean divides by a count that is
computed from the indices of the window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as fold

from graphflow import tir
from graphflow.arith import const, constant_value, floor_div, maximum
from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.reductions.reduction import axes_stage, reduce, without_axes
from graphflow.kernels.definitions.scalar_functions import add, divide, powered, root, subtract
from graphflow.kernels.definitions.stages import Loop, Shape
from graphflow.kernels.definitions.windows.window import Window, spatial_names


def max_pool(
    x_shape: Shape,
    window: Window,
    *,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y[n, c, o…] = max over the taps inside x`; −inf if there is none, NaN if one of them is
    NaN."""
    x, y = _pooled(x_shape, window, dtype)
    stage = _window_stage("max_pool", tir.ReduceOp.MAX, window, x, y)
    return stages.kernel_of_stages("max_pool", (x,), (y,), (stage,))


def average_pool(
    x_shape: Shape,
    window: Window,
    *,
    count_include_pad: bool = False,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y[n, c, o…] = Σ taps inside x / count`, where the count includes the pads or not.

    Two stages: a sum into an intermediate, then the division by a product of index expressions.
    """
    x, y = _pooled(x_shape, window, dtype)
    total = replace(y, name="total")
    gather = _window_stage("average_pool_sum", tir.ReduceOp.ADD, window, x, total)
    loops = _loops("p", y.shape)
    count = _count(window, loops[2:], x_shape[2:], count_include_pad, dtype)
    mean = tir.Binary("div", stages.element(total, loops), count)
    divide = stages.elementwise_stage("average_pool_divide", y, loops, mean)
    return stages.kernel_of_stages("average_pool", (x,), (y,), (gather, divide))


def sum_pool(x_shape: Shape, window: Window, dtype: str = "float32") -> tir.PrimFunc:
    """`y[n, c, o…] = Σ taps inside x`."""
    x, y = _pooled(x_shape, window, dtype)
    stage = _window_stage("sum_pool", tir.ReduceOp.ADD, window, x, y)
    return stages.kernel_of_stages("sum_pool", (x,), (y,), (stage,))


def taps_among(window: Window, axis: int, outputs: int, include_pads: bool) -> tir.PrimFunc:
    """`y[o]` is how many taps of window o lie among `extent[()]` elements along one axis, int64.

    With `include_pads` those in the pads count too; taps behind them, in ceil mode, never do.
    """
    extent = tir.Buffer("extent", (), "int64")
    y = tir.Buffer("y", (outputs,), "int64")
    ((o, _),) = loops = stages.loops_over("o", y.shape)
    begin, dilation = window.pads_begin[axis], window.dilations[axis]
    start = o * window.strides[axis] - begin
    low, end = (-begin, window.pads_end[axis]) if include_pads else (0, 0)
    zero = _number(0)
    # Taps k with low <= start + k·dilation < extent + end, as a range [first, last) of k.
    first = tir.IndexValue(maximum(0, -floor_div(start - low, dilation)))
    ahead = tir.Binary("max", add(tir.Load(extent, ()), tir.IndexValue(end - start)), zero)
    last = tir.Binary(
        "min", divide(add(ahead, dilation - 1), dilation), _number(window.kernel[axis])
    )
    taps = tir.Binary("max", subtract(last, first), zero)
    return stages.elementwise_kernel("taps_among", (extent,), y, loops, taps)


def _number(value: int) -> tir.Literal:
    return stages.literal(value, "int64")


def lp_pool(x_shape: Shape, window: Window, p: int = 2, dtype: str = "float32") -> tir.PrimFunc:
    """`y[n, c, o…] = (Σ |taps inside x| ^ p) ^ (1/p)`; 0 if there is none inside."""
    _check_norm(p, dtype)
    x, y = _pooled(x_shape, window, dtype)
    total = replace(y, name="total")
    gather = _window_stage("lp_pool_sum", tir.ReduceOp.ADD, window, x, total, powered(p))
    loops = _loops("p", y.shape)
    last = stages.elementwise_stage("lp_pool_root", y, loops, root(stages.element(total, loops), p))
    return stages.kernel_of_stages("lp_pool", (x,), (y,), (gather, last))


def global_lp_pool(x_shape: Shape, p: int = 2, dtype: str = "float32") -> tir.PrimFunc:
    """`y[n, c, 0…] = (Σ |x[n, c, …]| ^ p) ^ (1/p)`; y has shape (N, C, 1…)."""
    _check_norm(p, dtype)
    axes = tuple(range(2, len(x_shape)))
    x = tir.Buffer("x", x_shape, dtype)
    y, total = (
        tir.Buffer(role, without_axes(x_shape, axes, True), dtype) for role in ("y", "total")
    )
    add = tir.ReduceOp.ADD
    gather = axes_stage("global_lp_pool_sum", add, x, total, axes, term=powered(p))
    loops = stages.loops_over("o", y.shape)
    value = root(stages.element(total, loops), p)
    last = stages.elementwise_stage("global_lp_pool_root", y, loops, value)
    return stages.kernel_of_stages("global_lp_pool", (x,), (y,), (gather, last))


def _check_norm(p: int, dtype: str) -> None:
    if p < 1:
        raise InvalidModel(f"a norm of order {p} does not exist; p must be at least 1")
    stages.require_floats("a norm", dtype)


def global_average_pool(x_shape: Shape, dtype: str = "float32") -> tir.PrimFunc:
    """`y[n, c, 0…] = mean of x[n, c, …]`; y has shape (N, C, 1…)."""
    axes = range(2, len(x_shape))
    return reduce("mean", x_shape, axes, True, dtype, name="global_average_pool")


def global_max_pool(x_shape: Shape, dtype: str = "float32") -> tir.PrimFunc:
    """`y[n, c, 0…] = max of x[n, c, …]`; y has shape (N, C, 1…)."""
    axes = range(2, len(x_shape))
    return reduce("max", x_shape, axes, True, dtype, name="global_max_pool")


def _loops(prefix: str, shape: Shape) -> tuple[Loop, ...]:
    lead = ("n", "c") if prefix == "o" else (f"{prefix}n", f"{prefix}c")
    return stages.loops_over((*lead, *spatial_names(prefix, len(shape) - 2)), shape)


def _pooled(x_shape: Shape, window: Window, dtype: str) -> tuple[tir.Buffer, tir.Buffer]:
    """The buffers x and y, which has an element for each position of the window."""
    y_shape = (*x_shape[:2], *window.output_shape(x_shape[2:]))
    return tir.Buffer("x", x_shape, dtype), tir.Buffer("y", y_shape, dtype)


def _window_stage(
    name: str,
    op: tir.ReduceOp,
    window: Window,
    x: tir.Buffer,
    out: tir.Buffer,
    term: Callable[[tir.Expr], tir.Expr] | None = None,
) -> tir.Block:
    """`out = op over the taps inside x of term(x)`; without a term, of x itself."""
    loops = _loops("o", out.shape)
    window = window.reaching(x.shape[2:], out.shape[2:])
    taps = stages.loops_over(spatial_names("k", window.rank), window.kernel)
    places = window.positions(loops[2:], taps)
    lead = stages.indices_of(loops[:2])
    where = window.inside(places, x.shape[2:])
    value: tir.Expr = tir.Load(x, (*lead, *places))
    if term is not None:
        value = term(value)
    return stages.reduction_stage(name, op, out, loops, taps, value, where=where)


def _count(
    window: Window, loops: Sequence[Loop], spatial: Shape, include_pads: bool, dtype: str
) -> tir.Expr:
    factors = window.counts(loops, spatial, include_pads)
    whole = fold(lambda k, f: k * (constant_value(f) or 1), factors, 1)
    varying = [f for f in factors if constant_value(f) is None]
    if any(f is const(0) for f in factors):
        return stages.literal(0, dtype)
    start: tir.Expr | None = stages.literal(whole, dtype) if whole != 1 or not varying else None
    for factor in varying:
        value = tir.IndexValue(factor, dtype)
        start = value if start is None else tir.Binary("mul", start, value)
    assert start is not None
    return start
