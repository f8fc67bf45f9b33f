"""Resizing: each output element is the nearest input element, or a weighted mean of neighbours.

In: logical shapes and, for each axis, the input coordinate of an output index as an exact fraction.
Out: a PrimFunc of one stage.  Coordinates are `(slope·i + offset) / unit` in integers, so the
indices that are read are quasi-affine in the loop variables.  Weights are computed from the
indices; where the number of weights depends on the scale they are read from a table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from math import floor, lcm

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow import arith
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import matched_nest
from graphflow.kernels.definitions.scalar_functions import (
    add,
    compared,
    divide,
    multiply,
    subtract,
)
from graphflow.kernels.definitions.stages import Loop, Shape
from graphflow.tir import (
    Binary,
    Block,
    Body,
    Buffer,
    Cast,
    Expr,
    IndexValue,
    Load,
    PrimFunc,
    ReduceOp,
    Select,
    Store,
    nest,
)

NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


class Coordinates(Struct, frozen=True):
    """The input coordinate of output index i along an axis: `slope·i + offset`, in elements."""

    slope: Fraction
    offset: Fraction

    def over(self, var: arith.IndexExpr) -> tuple[arith.IndexExpr, int]:
        """The coordinate as an integer expression, and the unit in which it counts."""
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
    """`y[i…] = x[round(coordinate of i)…]`, clamped to x.

    `rounding` is one of `NEAREST_MODES`.  If `outside` is given, it is the value of elements whose
    coordinates are not in x.
    """
    if rounding not in NEAREST_MODES:
        raise InvalidModel(f"nearest_mode {rounding} does not exist")
    x, y, loops = _buffers(x_shape, y_shape, coordinates, dtype)
    ranges = stages.ranges_of(loops)
    source: list[arith.IndexExpr] = []
    for (var, _), where, n in zip(loops, coordinates, x_shape, strict=True):
        place = _rounded(*where.over(var), rounding)
        source.append(arith.simplify_index(arith.minimum(arith.maximum(place, 0), n - 1), ranges))
    value = _or_outside(Load(x, tuple(source)), coordinates, x_shape, loops, outside)
    return stages.elementwise_kernel("resize", (x,), y, loops, value)


def _rounded(numerator: arith.IndexExpr, unit: int, rounding: str) -> arith.IndexExpr:
    match rounding:
        case "floor":
            return arith.floor_div(numerator, unit)
        case "ceil":
            return arith.floor_div(numerator + unit - 1, unit)
        case "round_prefer_ceil":
            return arith.floor_div(numerator * 2 + unit, 2 * unit)
        case _:
            return arith.floor_div(numerator * 2 + unit - 1, 2 * unit)


def resize_linear(
    x_shape: Shape,
    y_shape: Shape,
    coordinates: Sequence[Coordinates],
    outside: float | None = None,
    dtype: str = "float32",
) -> PrimFunc:
    """`y` is the linear interpolation of the neighbours along each axis that is resized.

    Coordinates outside of x are clamped, or give `outside` if that is given.
    """
    stages.require_floats("linear resizing", dtype)
    x, y, loops = _buffers(x_shape, y_shape, coordinates, dtype)
    value = _or_outside(
        _interpolated(x, coordinates, loops, ()), coordinates, x_shape, loops, outside
    )
    return stages.elementwise_kernel("resize", (x,), y, loops, value)


class Taps(Struct, frozen=True):
    """The weighted neighbours that make up each output element along one axis.

    The first tap of output index i is `first` elements from the element at or before its
    coordinate; `weights[i, k]` is the factor of the k-th tap.  The weights of an output element sum
    to one.
    """

    first: int
    weights: NDArray[np.float64]


MOST_PLACES, MOST_WEIGHTS = 1 << 18, 1 << 23
"""The most elements along a resized axis, and the most weights.

Coordinates are computed exactly, in Python, which takes some seconds for 2^18 elements.
"""


def filter_taps(
    mode: str,
    where: Coordinates,
    extents: tuple[int, int],
    scale: Fraction,
    *,
    cubic: float = -0.75,
    antialias: bool = False,
    exclude_outside: bool = False,
) -> Taps:
    """The taps of a linear or cubic filter along an axis; `extents` are those before and after.

    `cubic` is the parameter a of the cubic filter.  With `antialias` the filter is stretched if the
    axis shrinks.  With `exclude_outside` taps beyond the input have weight zero and the others are
    normalized; otherwise such taps read the element at the border.  Raises UnsupportedOp if the
    table would be too large.
    """
    stretch = min(scale, Fraction(1)) if antialias else Fraction(1)
    reach = 1 if mode == "linear" else 2
    first = floor(-reach / stretch) + 1
    before, after = extents
    if after > MOST_PLACES or after * (2 - 2 * first) > MOST_WEIGHTS:
        raise UnsupportedOp(
            f"filtered resizing from {before} to {after} elements would need a table of "
            f"{after * (2 - 2 * first)} weights, which is not built: at most {MOST_WEIGHTS} for "
            f"{MOST_PLACES} elements; check the sizes or scales"
        )
    places = [where.slope * i + where.offset for i in range(after)]
    bases = np.array([floor(place) for place in places], np.int64).reshape(-1, 1)
    ratios = np.array([float(place - floor(place)) for place in places]).reshape(-1, 1)
    steps = np.arange(first, 2 - first)
    weights = _filter(mode, (steps - ratios) * float(stretch), cubic)
    if exclude_outside:
        inside = (bases + steps >= 0) & (bases + steps < before)
        weights = np.where(inside, weights, 0.0)
    # A coordinate so far outside that every tap is: what such an element is, nobody says.
    total = weights.sum(axis=1, keepdims=True)
    return Taps(first, weights / np.where(total == 0, 1.0, total))


def _filter(mode: str, distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    x: NDArray[np.float64] = np.abs(distance)
    if mode == "linear":
        return (1 - x).clip(0.0)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    weights: NDArray[np.float64] = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
    return weights


def resize_taps(
    x_shape: Shape,
    axis: int,
    after: int,
    where: Coordinates,
    first: int,
    taps: int,
    dtype: str = "float32",
) -> PrimFunc:
    """`y[…, i, …] = Σ_k weights[i, k] · x[…, floor(coordinate of i) + first + k, …]`.

    Only `axis` is resized, to extent `after`; the weights have shape (after, taps).  Positions
    outside of x are clamped.
    """
    stages.require_floats("filtered resizing", dtype)
    y_shape = (*x_shape[:axis], after, *x_shape[axis + 1 :])
    same = Coordinates(Fraction(1), Fraction(0))
    x, y, loops = _buffers(x_shape, y_shape, [same] * len(x_shape), dtype)
    table, tap = Buffer("weights", (after, taps), dtype), arith.Var("k")
    var = loops[axis][0]
    numerator, unit = where.over(var)
    place = arith.minimum(
        arith.maximum(arith.floor_div(numerator, unit) + first + tap, 0), x_shape[axis] - 1
    )
    at = [v for v, _ in loops]
    source = (
        *at[:axis],
        arith.simplify_index(place, stages.ranges_of((*loops, (tap, taps)))),
        *at[axis + 1 :],
    )
    value = multiply(Load(x, source), Load(table, (var, tap)))
    stage = stages.reduction_stage("resize", ReduceOp.ADD, y, loops, ((tap, taps),), value)
    return stages.kernel_of_stages("resize", (x, table), (y,), (stage,))


def resize_outside(
    x_shape: Shape,
    y_shape: Shape,
    coordinates: Sequence[Coordinates],
    outside: float,
    dtype: str = "float32",
) -> PrimFunc:
    """`y` is the resized tensor `r`, or `outside` where the coordinates are not in x."""
    r, y, loops = _buffers(y_shape, y_shape, coordinates, dtype)
    value = _or_outside(stages.element(r, loops), coordinates, x_shape, loops, outside)
    return stages.elementwise_kernel("resize", (r,), y, loops, value)


def _interpolated(
    x: Buffer,
    coordinates: Sequence[Coordinates],
    loops: Sequence[Loop],
    at: tuple[arith.IndexExpr, ...],
) -> Expr:
    """The value with the first axes fixed to `at`, interpolated along the others."""
    axis = len(at)
    if axis == len(x.shape):
        return Load(x, at)
    var, ranges, extent = loops[axis][0], stages.ranges_of(loops), x.shape[axis]
    numerator, unit = coordinates[axis].over(var)
    if (
        unit == 1
        and arith.simplify_index(arith.minimum(arith.maximum(numerator, 0), extent - 1), ranges)
        is numerator
    ):
        return _interpolated(x, coordinates, loops, (*at, numerator))
    clamped = arith.simplify_index(
        arith.minimum(arith.maximum(numerator, 0), unit * (extent - 1)), ranges
    )
    low = arith.simplify_index(arith.floor_div(clamped, unit), ranges)
    high = arith.simplify_index(arith.minimum(low + 1, extent - 1), ranges)
    weight = divide(
        IndexValue(arith.simplify_index(arith.floor_mod(clamped, unit), ranges), x.dtype), unit
    )
    below = _interpolated(x, coordinates, loops, (*at, low))
    above = _interpolated(x, coordinates, loops, (*at, high))
    share = multiply(below, subtract(stages.literal(1, x.dtype), weight))
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
    inside: arith.Predicate = arith.TRUE
    for (var, _), where, n in zip(loops, coordinates, x_shape, strict=True):
        numerator, unit = where.over(var)
        inside = arith.conjunction((inside, arith.within(numerator, 0, unit * (n - 1) + 1)))
    inside = arith.simplify_predicate(inside, stages.ranges_of(loops))
    return (
        value
        if inside == arith.TRUE
        else Select(inside, value, stages.literal(outside, value.dtype))
    )


def _buffers(
    x_shape: Shape, y_shape: Shape, coordinates: Sequence[Coordinates], dtype: str
) -> tuple[Buffer, Buffer, tuple[Loop, ...]]:
    if not len(x_shape) == len(y_shape) == len(coordinates):
        raise InvalidModel(f"shapes {x_shape} and {y_shape} must have the same rank to be resized")
    if min(x_shape, default=1) < 1:
        raise InvalidModel(f"a tensor of shape {x_shape} has no elements to resize")
    return Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype), stages.loops_over("i", y_shape)


# Axes whose extents a run decides ----------------------------------------------------------------

CHANNELS = 1
"""The axis of the channels."""

COMPUTED_MODES = ("align_corners", "asymmetric", "half_pixel", "tf_half_pixel_for_nn")
"""How coordinates of indices may be computed from extents of a run."""


class ComputedCoordinate(Struct, frozen=True):
    """`(slope·index + offset) / unit`, at least −½, on an axis of `extent` elements, for an index
    of `after` ones; int64."""

    index: Expr
    slope: Expr
    offset: Expr
    unit: Expr
    extent: Expr
    after: Expr

    @property
    def numerator(self) -> Expr:
        """The coordinate in units."""
        return add(multiply(self.slope, self.index), self.offset)

    @property
    def clamped(self) -> Expr:
        """The coordinate in units, moved into the axis."""
        last = multiply(subtract(self.extent, 1), self.unit)
        return at_least(Binary("min", self.numerator, last), 0)

    @property
    def is_element(self) -> Expr:
        """Whether the coordinate of every index is a whole number."""
        rests = (_remainder(n, self.unit) for n in (self.slope, self.offset))
        return Binary("and", *(compared("eq", rest, 0) for rest in rests))

    @property
    def is_identity(self) -> Expr:
        """Whether the coordinate of every index is that index, in front and behind."""
        same = compared("eq", self.extent, self.after)
        steps = Binary("and", compared("eq", self.slope, self.unit), compared("eq", self.offset, 0))
        return Binary("and", steps, same)

    def inside(self, place: Expr) -> Expr:
        """A place, moved into the axis."""
        return at_least(Binary("min", place, subtract(self.extent, 1)), 0)


class ComputedAxis(Struct, frozen=True):
    """An axis that is resized from `before[()]` to `after[()]` elements, with room for `room`.

    `mode` is one of `COMPUTED_MODES`; `scale` is the ratio of the extents, or None for
    `after / before` of the run.
    """

    room: int
    mode: str
    scale: Fraction | None

    def coordinates(self, scale: int) -> Coordinates | None:
        """The coordinates by a whole scale; None in modes in which the extents decide them."""
        step = Fraction(1, scale)
        offsets = {
            "asymmetric": Fraction(0),
            "half_pixel": (step - 1) / 2,
            "tf_half_pixel_for_nn": step / 2,
        }
        return Coordinates(step, offsets[self.mode]) if self.mode in offsets else None

    def kernel(
        self,
        name: str,
        dtype: str,
        value: Callable[[ComputedCoordinate], Expr],
        inner: tuple[Loop, ...] = (),
    ) -> PrimFunc:
        """`y[i…]` is the value for the coordinate of index i; further loops are `inner`."""
        extents = [Buffer(key, (), "int64") for key in ("before", "after")]
        before, after = (Load(extent, ()) for extent in extents)
        loops = (*stages.loops_over("i", (self.room,)), *inner)
        y, index = Buffer("y", tuple(n for _, n in loops), dtype), IndexValue(loops[0][0])
        where = ComputedCoordinate(index, *self._coordinate(before, after), before, after)
        return stages.elementwise_kernel(name, extents, y, loops, value(where))

    def _coordinate(self, before: Expr, after: Expr) -> tuple[Expr, Expr, Expr]:
        over, under, zero = before, at_least(after, 1), stages.literal(0, "int64")
        if self.scale is not None:
            over = stages.literal(self.scale.denominator, "int64")
            under = stages.literal(self.scale.numerator, "int64")
        match self.mode:
            case "align_corners":
                return at_least(subtract(before, 1), 0), zero, at_least(subtract(after, 1), 1)
            case "asymmetric":
                return over, zero, under
            case "tf_half_pixel_for_nn":
                return multiply(over, 2), over, multiply(under, 2)
            case _:
                return multiply(over, 2), subtract(over, under), multiply(under, 2)


def nearest_places(axis: ComputedAxis, rounding: str) -> PrimFunc:
    """`y[i]` is the place of the input element that is nearest to output index i, int64."""
    if rounding not in NEAREST_MODES:
        raise InvalidModel(f"nearest_mode {rounding} does not exist")

    def place(where: ComputedCoordinate) -> Expr:
        numerator, unit = where.numerator, where.unit
        match rounding:
            case "ceil":
                numerator = add(numerator, subtract(unit, 1))
            case "round_prefer_ceil":
                numerator, unit = add(multiply(numerator, 2), unit), multiply(unit, 2)
            case "round_prefer_floor":
                numerator = add(multiply(numerator, 2), subtract(unit, 1))
                unit = multiply(unit, 2)
        # Kernels round quotients to zero, so that of a number which is not negative is taken.
        return where.inside(subtract(divide(add(numerator, unit), unit), 1))

    return axis.kernel("nearest_places", "int64", place)


def neighbour_places(axis: ComputedAxis, distance: int) -> PrimFunc:
    """`y[i]` is the place of the input element at or below the coordinate of output index i, or
    `distance` elements above it, int64."""
    return axis.kernel(
        "neighbour_places",
        "int64",
        lambda where: where.inside(add(divide(where.clamped, where.unit), distance)),
    )


def neighbour_weights(axis: ComputedAxis, dtype: str) -> PrimFunc:
    """`y[i]` is the weight of the element above the coordinate of output index i; −1 if all
    coordinates are elements."""
    stages.require_floats("linear resizing", dtype)

    def weight(where: ComputedCoordinate) -> Expr:
        rest = _remainder(where.clamped, where.unit)
        share = Binary("div", Cast(rest, dtype), Cast(where.unit, dtype))
        return Select(where.is_element, stages.literal(-1, dtype), share)

    return axis.kernel("neighbour_weights", dtype, weight)


def takes_the_same_of_all_extents(where: Coordinates, rounding: str, scale: int) -> bool:
    """Whether the nearest elements of an axis that a whole scale makes longer are none behind it,
    so that the extent decides nothing: each further `scale` elements are those of one element."""
    places = (_rounded(*where.over(arith.const(i)), rounding) for i in range(scale))
    return all((arith.constant_value(place) or 0) <= 0 for place in places)


def inner_axis(rank: int, resized: Collection[int]) -> int | None:
    """The axis of which `resize_at_places` takes elements from the same places: that of the
    channels, or the last one that is not resized; None if all are."""
    kept = [axis for axis in range(rank) if axis not in resized]
    return CHANNELS if CHANNELS in kept else max(kept, default=None)


def resize_at_places(
    x_shape: Shape, rooms: Mapping[int, int], linear: bool, dtype: str
) -> PrimFunc:
    """`y[…, i, …] = x[…, place[i], …]` along axes with room for `rooms` elements behind, or with
    `linear` the neighbours there, mixed by weights as in `weighted_neighbours`.

    The inputs are x, and for each axis its places, or those of the lower neighbours, of the higher
    ones, and the weights.  The innermost loop is that over `inner_axis`.
    """
    if linear:
        stages.require_floats("linear resizing", dtype)
    y_shape = tuple(rooms.get(axis, extent) for axis, extent in enumerate(x_shape))
    x, y = Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype)
    loops = stages.loops_over("i", y_shape)
    inner = inner_axis(len(x_shape), rooms)
    parts = ("low", "high") if linear else ("place",)
    tables = {
        axis: tuple(Buffer(f"{part}{axis}", (room,), "int64") for part in parts)
        for axis, room in rooms.items()
    }
    weights = {axis: Buffer(f"weight{axis}", (n,), dtype) for axis, n in rooms.items() if linear}
    found = {
        axis: tuple(arith.Var(f"{table.name}_row") for table in held)
        for axis, held in tables.items()
    }

    def value(at: tuple[arith.IndexExpr, ...]) -> Expr:
        axis = len(at)
        if axis == len(x_shape):
            return Load(x, at)
        var = loops[axis][0]
        if axis not in rooms:
            return value((*at, var))
        first, *others = (value((*at, row)) for row in found[axis])
        return _mixed(first, others[0], Load(weights[axis], (var,))) if linear else first

    body: Body = (Store(y, stages.indices_of(loops), value(())),)
    order = sorted(range(len(x_shape)), key=lambda axis: (axis != inner, -axis))
    for axis in order:  # from the innermost loop on
        if axis in rooms:
            rows = [(row, x_shape[axis]) for row in found[axis]]
            body = matched_nest(rows, [Load(t, (loops[axis][0],)) for t in tables[axis]], body)
        body = nest((loops[axis],), body)
    held = ((*tables[axis], *([weights[axis]] if linear else ())) for axis in rooms)
    inputs = (x, *chain.from_iterable(held))
    return stages.kernel_of_stages("resize_at_places", inputs, (y,), (Block("resize", body),))


def _mixed(below: Expr, above: Expr, weight: Expr) -> Expr:
    share = multiply(below, subtract(stages.literal(1, weight.dtype), weight))
    return Select(compared("lt", weight, 0), below, add(share, multiply(above, weight)))


def weighted_neighbours(shape: Shape, axis: int, dtype: str) -> PrimFunc:
    """`y` is `low`, moved towards `high` by weights along an axis; `low` where these are negative,
    as `resize_linear` reads no neighbours of elements."""
    stages.require_floats("linear resizing", dtype)
    low, high, y = (Buffer(key, shape, dtype) for key in ("low", "high", "y"))
    weights = Buffer("weights", (shape[axis],), dtype)
    loops = stages.loops_over("i", shape)
    weight = Load(weights, (loops[axis][0],))
    value = _mixed(stages.element(low, loops), stages.element(high, loops), weight)
    return stages.elementwise_kernel("weighted_neighbours", (low, high, weights), y, loops, value)


def at_least(value: Expr, least: int) -> Expr:
    """The value, or the least one if that is greater."""
    return Binary("max", value, stages.literal(least, value.dtype))


def _remainder(value: Expr, divisor: Expr) -> Expr:
    return subtract(value, multiply(divide(value, divisor), divisor))
