"""Resizing: each output element is the nearest input element, or a mean of its neighbours.

In: logical shapes and, for each axis, where an output index lies in the input as an exact fraction.
Out: a PrimFunc of one stage.  Coordinates are `(slope·i + offset) / unit` in integers, so the
elements taken are quasi-affine in the loop variables; weights are computed from indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from graphflow.arith import (
    TRUE,
    IndexExpr,
    Predicate,
    Var,
    conjunction,
    floor_div,
    floor_mod,
    maximum,
    minimum,
    simplify,
    simplify_predicate,
    within,
)
from graphflow.errors import InvalidModel, UnsupportedOp
from graphflow.kernels.definitions.stages import (
    Loop,
    Shape,
    elementwise_stage,
    kernel,
    literal,
    loops_over,
    ranges_of,
)
from graphflow.kernels.definitions.values import add, divide, multiply, subtract
from graphflow.tir import FLOATS, Buffer, Expr, IndexValue, Load, PrimFunc, Select

NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Output index i of an axis lies at `slope·i + offset` of the input, in elements."""

    slope: Fraction
    offset: Fraction

    def over(self, var: Var) -> tuple[IndexExpr, int]:
        """The coordinate as an integer expression and the unit that it is counted in."""
        unit = lcm(self.slope.denominator, self.offset.denominator)
        return var * int(self.slope * unit) + int(self.offset * unit), unit


def resize_nearest(
    x_shape: Shape,
    y_shape: Shape,
    coordinates: Sequence[Coordinates],
    rounding: str = "round_prefer_floor",
    outside: float | None = None,
    dtype: str = "float32",
) -> PrimFunc:
    """`y[i…] = x[round(coordinate of i)…]`, moved into x where it lies outside.

    `rounding` is one of `NEAREST_MODES`.  With `outside` given, elements whose coordinates are not
    in x have that value.
    """
    if rounding not in NEAREST_MODES:
        raise InvalidModel(f"nearest_mode {rounding} does not exist")
    x, y, loops = _buffers(x_shape, y_shape, coordinates, dtype)
    ranges = ranges_of(loops)
    source: list[IndexExpr] = []
    for (var, _), where, n in zip(loops, coordinates, x_shape, strict=True):
        place = _rounded(*where.over(var), rounding)
        source.append(simplify(minimum(maximum(place, 0), n - 1), ranges))
    value = _or_outside(Load(x, tuple(source)), coordinates, x_shape, loops, outside)
    return kernel("resize", (x,), (y,), (elementwise_stage("resize", y, loops, value),))


def _rounded(numerator: IndexExpr, unit: int, rounding: str) -> IndexExpr:
    match rounding:
        case "floor":
            return floor_div(numerator, unit)
        case "ceil":
            return floor_div(numerator + unit - 1, unit)
        case "round_prefer_ceil":
            return floor_div(numerator * 2 + unit, 2 * unit)
        case _:
            return floor_div(numerator * 2 + unit - 1, 2 * unit)


def resize_linear(
    x_shape: Shape,
    y_shape: Shape,
    coordinates: Sequence[Coordinates],
    outside: float | None = None,
    dtype: str = "float32",
) -> PrimFunc:
    """`y` is the mean of the neighbours along each axis that is resized, weighted by distance.

    Coordinates outside x are moved to its border, or give `outside` if that is given.
    """
    if dtype not in FLOATS:
        raise UnsupportedOp(f"linear resizing of {dtype} is not built; cast the input to float32")
    x, y, loops = _buffers(x_shape, y_shape, coordinates, dtype)
    value = _or_outside(
        _interpolated(x, coordinates, loops, ()), coordinates, x_shape, loops, outside
    )
    return kernel("resize", (x,), (y,), (elementwise_stage("resize", y, loops, value),))


def _interpolated(
    x: Buffer, coordinates: Sequence[Coordinates], loops: Sequence[Loop], at: tuple[IndexExpr, ...]
) -> Expr:
    """The value with the first axes fixed to `at` and the others interpolated."""
    axis = len(at)
    if axis == len(x.shape):
        return Load(x, at)
    var, ranges, extent = loops[axis][0], ranges_of(loops), x.shape[axis]
    numerator, unit = coordinates[axis].over(var)
    if unit == 1 and simplify(minimum(maximum(numerator, 0), extent - 1), ranges) is numerator:
        return _interpolated(x, coordinates, loops, (*at, numerator))
    clamped = simplify(minimum(maximum(numerator, 0), unit * (extent - 1)), ranges)
    low = simplify(floor_div(clamped, unit), ranges)
    high = simplify(minimum(low + 1, extent - 1), ranges)
    weight = divide(IndexValue(simplify(floor_mod(clamped, unit), ranges), x.dtype), unit)
    below = _interpolated(x, coordinates, loops, (*at, low))
    above = _interpolated(x, coordinates, loops, (*at, high))
    share = multiply(below, subtract(literal(1, x.dtype), weight))
    return add(share, multiply(above, weight))


def _or_outside(
    value: Expr,
    coordinates: Sequence[Coordinates],
    x_shape: Shape,
    loops: Sequence[Loop],
    outside: float | None,
) -> Expr:
    if outside is None:
        return value
    inside: Predicate = TRUE
    for (var, _), where, n in zip(loops, coordinates, x_shape, strict=True):
        numerator, unit = where.over(var)
        inside = conjunction((inside, within(numerator, 0, unit * (n - 1) + 1)))
    inside = simplify_predicate(inside, ranges_of(loops))
    return value if inside == TRUE else Select(inside, value, literal(outside, value.dtype))


def _buffers(
    x_shape: Shape, y_shape: Shape, coordinates: Sequence[Coordinates], dtype: str
) -> tuple[Buffer, Buffer, tuple[Loop, ...]]:
    if not len(x_shape) == len(y_shape) == len(coordinates):
        raise InvalidModel(f"shapes {x_shape} and {y_shape} must have one same rank to be resized")
    if min(x_shape, default=1) < 1:
        raise InvalidModel(f"a tensor of shape {x_shape} has no elements to resize")
    return Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype), loops_over("i", y_shape)
