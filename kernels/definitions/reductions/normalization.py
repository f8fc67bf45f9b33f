"""Normalizations by statistics of the input itself.

In: logical shapes and attributes.  Out: a PrimFunc in stages.  The variance is computed in two
passes, from the differences to the mean, and sums are divided by logical counts, so padding is
never counted as data.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

from graphflow import tir
from graphflow.arith import IndexExpr, Var, floor_div, simplify_index, within
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.elementwise import broadcast, broadcast_indices
from graphflow.kernels.definitions.reductions.reduction import (
    axes_stage,
    kept_variables,
    without_axes,
)
from graphflow.kernels.definitions.scalar_functions import (
    UNARY_VALUES,
    add,
    compared,
    divide,
    multiply,
    square,
    subtract,
)
from graphflow.kernels.definitions.stages import Loop, Shape

Loops: TypeAlias = tuple[Loop, ...]


def layer_normalization(
    x_shape: Shape,
    axis: int,
    scale_shape: Shape,
    shift_shape: Shape | None = None,
    *,
    epsilon: float = 1e-5,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y = (x − mean) / sqrt(variance + epsilon) · scale + shift`, over all axes from `axis` on.

    Scale and shift broadcast to x.
    """
    (lead,) = stages.normalized_axes((axis,), len(x_shape))
    loops = stages.loops_over("i", x_shape)
    parameters = []
    for name, shape in (("scale", scale_shape), ("shift", shift_shape)):
        if shape is None:
            continue
        if broadcast([x_shape, shape]) != x_shape:
            raise InvalidModel(f"{name} {shape} does not broadcast to the input {x_shape}")
        parameters.append(tir.Load(tir.Buffer(name, shape, dtype), broadcast_indices(shape, loops)))
    name = "layer_normalization"
    return _normalization(name, x_shape, lead, 1, loops, parameters, epsilon, dtype)


def root_mean_square_normalization(
    x_shape: Shape,
    axis: int,
    scale_shape: Shape,
    *,
    epsilon: float = 1e-5,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y = x / sqrt(mean of squares + epsilon) · scale`, over all axes from `axis` on.

    The scale broadcasts to x.
    """
    name = "root_mean_square_normalization"
    stages.require_floats(name, dtype)
    (lead,) = stages.normalized_axes((axis,), len(x_shape))
    if broadcast([x_shape, scale_shape]) != x_shape:
        raise InvalidModel(f"scale {scale_shape} does not broadcast to the input {x_shape}")
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    scale = tir.Buffer("scale", scale_shape, dtype)
    squares, factor = (tir.Buffer(role, x_shape[:lead], dtype) for role in ("squares", "factor"))
    summed, scaled = (stages.loops_over(prefix, x_shape[:lead]) for prefix in "sf")
    taps, loops = stages.loops_over("r", x_shape[lead:]), stages.loops_over("i", x_shape)
    element = tir.Load(x, (*stages.indices_of(summed), *stages.indices_of(taps)))
    mean = divide(stages.element(squares, scaled), prod(x_shape[lead:]))
    inverse = divide(stages.literal(1, dtype), tir.Unary("sqrt", add(mean, epsilon)))
    value = multiply(stages.element(x, loops), tir.Load(factor, stages.indices_of(loops[:lead])))
    value = multiply(value, tir.Load(scale, broadcast_indices(scale_shape, loops)))
    body = (
        stages.reduction_stage(
            f"{name}_squares", tir.ReduceOp.ADD, squares, summed, taps, square(element)
        ),
        stages.elementwise_stage(f"{name}_factor", factor, scaled, inverse),
        stages.elementwise_stage(f"{name}_scale", y, loops, value),
    )
    return stages.kernel_of_stages(name, (x, scale), (y,), body)


def group_normalization(
    x_shape: Shape,
    groups: int,
    parameters: int,
    *,
    epsilon: float = 1e-5,
    dtype: str = "float32",
    name: str = "group_normalization",
) -> tir.PrimFunc:
    """`y = (x − mean) / sqrt(variance + epsilon) · scale + shift`, over each group of channels.

    Scale and shift have `parameters` elements, one for each channel or for each group.  With as
    many groups as channels it is instance normalization.
    """
    channels = x_shape[1] if len(x_shape) > 1 else 0
    if groups < 1 or channels % groups or not channels:
        raise InvalidModel(f"{groups} groups do not divide the channels of input {x_shape}")
    if parameters not in (channels, groups):
        raise InvalidModel(
            f"scale and shift have {parameters} elements, input {x_shape} needs one for each "
            f"channel, or for each of {groups} groups"
        )
    loops = stages.loops_over("i", x_shape)
    each = (
        simplify_index(floor_div(loops[1][0], channels // parameters), stages.ranges_of(loops)),
    )
    loads = [tir.Load(tir.Buffer(key, (parameters,), dtype), each) for key in ("scale", "shift")]
    return _normalization(name, x_shape, 2, channels // groups, loops, loads, epsilon, dtype)


def _normalization(
    name: str,
    x_shape: Shape,
    lead: int,
    group: int,
    loops: Loops,
    parameters: list[tir.Load],
    epsilon: float,
    dtype: str,
) -> tir.PrimFunc:
    """Statistics for each point of the first `lead` axes, where `group` consecutive points of the
    last of them share one."""
    stages.require_floats(name, dtype)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    shape = x_shape[:lead] if group == 1 else (*x_shape[: lead - 1], x_shape[lead - 1] // group)
    inner = x_shape[lead:] if group == 1 else (group, *x_shape[lead:])
    count = prod(inner)

    def element(outer: Loops, reduced: Loops) -> tir.Load:
        at, rest = stages.indices_of(outer), stages.indices_of(reduced)
        if group > 1:
            at, rest = (*at[:-1], at[-1] * group + rest[0]), rest[1:]
        return tir.Load(x, (*at, *rest))

    total, mean, squares, factor = (
        tir.Buffer(role, shape, dtype) for role in ("total", "mean", "squares", "factor")
    )
    first, second, averaged, scaled = (stages.loops_over(prefix, shape) for prefix in "svmf")
    taps, again = stages.loops_over("r", inner), stages.loops_over("q", inner)
    average = divide(stages.element(total, averaged), count)
    difference = subtract(element(second, again), stages.element(mean, second))
    variance = divide(stages.element(squares, scaled), count)
    deviation = tir.Unary("sqrt", add(variance, epsilon))
    inverse = divide(stages.literal(1, dtype), deviation)

    place = stages.indices_of(loops[:lead])
    if group > 1:
        place = (*place[:-1], floor_div(place[-1], group))
    value: tir.Expr = subtract(stages.element(x, loops), tir.Load(mean, place))
    value = multiply(value, tir.Load(factor, place))
    for combine, parameter in zip((multiply, add), parameters, strict=False):
        value = combine(value, parameter)

    def summed(part: str, out: tir.Buffer, at: Loops, reduced: Loops, term: tir.Expr) -> tir.Block:
        return stages.reduction_stage(f"{name}_{part}", tir.ReduceOp.ADD, out, at, reduced, term)

    body = (
        summed("sum", total, first, taps, element(first, taps)),
        stages.elementwise_stage(f"{name}_mean", mean, averaged, average),
        summed("squares", squares, second, again, square(difference)),
        stages.elementwise_stage(f"{name}_factor", factor, scaled, inverse),
        stages.elementwise_stage(f"{name}_scale", y, loops, value),
    )
    return stages.kernel_of_stages(name, (x, *(load.buffer for load in parameters)), (y,), body)


def lp_normalization(x_shape: Shape, axis: int, p: int = 2, dtype: str = "float32") -> tir.PrimFunc:
    """`y = x / (Σ |x| ^ p) ^ (1/p)` along axis, with p 1 or 2; 0 if the norm is 0."""
    stages.require_floats("LpNormalization", dtype)
    if p not in (1, 2):
        raise InvalidModel(f"a norm of order {p} is none of ONNX's LpNormalization; p is 1 or 2")
    reduced = stages.normalized_axes((axis,), len(x_shape))
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    total = tir.Buffer("total", without_axes(x_shape, reduced, False), dtype)
    term = UNARY_VALUES["abs" if p == 1 else "square"]
    gather = axes_stage("lp_sum", tir.ReduceOp.ADD, x, total, reduced, term=term)
    loops = stages.loops_over("o", x_shape)
    norm: tir.Expr = tir.Load(total, kept_variables(loops, reduced))
    norm = norm if p == 1 else tir.Unary("sqrt", norm)
    share = divide(stages.element(x, loops), norm)
    value = tir.Select(compared("eq", norm, 0), stages.literal(0, dtype), share)
    stage = stages.elementwise_stage("lp_normalization", y, loops, value)
    return stages.kernel_of_stages("lp_normalization", (x,), (y,), (gather, stage))


def local_response_normalization(
    x_shape: Shape,
    size: int,
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y = x / (bias + alpha / size · Σ x²) ^ beta`, where the sum is over `size` neighbouring
    channels.

    With an even size there is one channel more above than below; missing channels count as zero.
    """
    stages.require_floats("LRN", dtype)
    if len(x_shape) < 2 or size < 1:
        raise InvalidModel(f"LRN of size {size} over input {x_shape}: it needs channels and a size")
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    total = tir.Buffer("total", x_shape, dtype)
    loops, out = stages.loops_over("i", x_shape), stages.loops_over("o", x_shape)
    tap = Var("k")
    # Taps further away than there are channels meet none of them.
    below = min((size - 1) // 2, x_shape[1] - 1)
    taps = below + 1 + min(size // 2, x_shape[1] - 1)
    channel: IndexExpr = loops[1][0] + tap - below
    at = stages.indices_of(loops)
    term = square(tir.Load(x, (at[0], channel, *at[2:])))
    inside = within(channel, 0, x_shape[1])
    gather = stages.reduction_stage(
        "lrn_sum", tir.ReduceOp.ADD, total, loops, ((tap, taps),), term, where=inside
    )
    base = add(multiply(stages.element(total, out), alpha / size), bias)
    value = divide(stages.element(x, out), _power(base, beta))
    stage = stages.elementwise_stage("lrn", y, out, value)
    return stages.kernel_of_stages("lrn", (x,), (y,), (gather, stage))


def _power(base: tir.Expr, exponent: float) -> tir.Expr:
    """`base ** exponent`; for the usual 0.75 by two square roots, which vectorize."""
    if exponent == 0.75:
        root = tir.Unary("sqrt", base)
        return multiply(root, tir.Unary("sqrt", root))
    return tir.Binary("pow", base, stages.literal(exponent, base.dtype))
