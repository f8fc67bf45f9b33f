"""Filters of many taps along an axis of which a run decides the extents.

In: how coordinates follow from the extents, and the filter.  Out: kernels that compute a table of
places and one of weights from the extents, and one that adds up the weighted elements.  What always
holds: output index i takes the taps of a program for exactly these extents; a table has room for
the taps of every run, and those that a run does not have are at the place -1, where no element is.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil

from msgspec import Struct

from graphflow import arith
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import matched_nest
from graphflow.kernels.definitions.interpolation.resize import (
    ComputedAxis,
    ComputedCoordinate,
    at_least,
)
from graphflow.kernels.definitions.scalar_functions import (
    add,
    compared,
    divide,
    multiply,
    subtract,
)
from graphflow.kernels.definitions.stages import Shape
from graphflow.tir import (
    Binary,
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
from graphflow.tir import Reduce as Update

REACHES = {"linear": 1, "cubic": 2}
"""By filter the distance from which on its weights are zero, in elements."""


class FilterOptions(Struct, frozen=True):
    """A filter as `filter_taps` takes it."""

    kind: str
    cubic: float
    antialias: bool
    exclude_outside: bool


class ComputedFilter(Struct, frozen=True):
    """The taps of an axis.

    `least_stretch` is the least factor by which a run multiplies distances: 1 without `antialias`.
    """

    axis: ComputedAxis
    options: FilterOptions
    least_stretch: Fraction

    @property
    def most_reach(self) -> int:
        """The most elements on either side of a coordinate that a run takes."""
        return ceil(REACHES[self.options.kind] / self.least_stretch)

    @property
    def taps(self) -> int:
        """How many taps the tables have room for."""
        return 2 * self.most_reach

    @property
    def is_normalized(self) -> bool:
        """Whether weights have to be divided by their sum."""
        return self.options.antialias or self.options.exclude_outside

    def places(self) -> PrimFunc:
        """`y[i, k]` is the place of tap k of output index i, int64; -1 if there is no such tap."""

        def place(where: ComputedCoordinate, step: Expr) -> Expr:
            nearest = where.inside(add(_base(where), step))
            # Coordinates that are all elements' own take these alone, as NaN times zero is NaN.
            alone = Binary("and", where.is_identity, compared("ne", step, 0))
            lost = Binary("or", alone, _not(self._is_reached(where, step)))
            return Select(lost, stages.literal(-1, "int64"), nearest)

        return self._table("filter_places", "int64", place)

    def weights(self, dtype: str) -> PrimFunc:
        """`y[i, k]` is the weight of tap k of output index i, before its division by their sum."""
        stages.require_floats("filtered resizing", dtype)

        def weight(where: ComputedCoordinate, step: Expr) -> Expr:
            base = _base(where)
            rest = subtract(where.numerator, multiply(base, where.unit))
            steps = multiply(step, where.unit)
            distance = Binary("max", subtract(steps, rest), subtract(rest, steps))
            over, under = self._stretch(where)
            far = multiply(distance, over)
            x = Binary("div", Cast(far, dtype), Cast(multiply(where.unit, under), dtype))
            value, none = self._value(x), stages.literal(0, dtype)
            value = Select(self._is_reached(where, step), value, none)
            if not self.options.exclude_outside:
                return value
            place = add(base, step)
            is_inside = Binary("and", compared("ge", place, 0), compared("lt", place, where.extent))
            return Select(is_inside, value, none)

        return self._table("filter_weights", dtype, weight)

    def _table(
        self, name: str, dtype: str, value: Callable[[ComputedCoordinate, Expr], Expr]
    ) -> PrimFunc:
        tap = (arith.Var("k"), self.taps)
        step = add(IndexValue(tap[0]), 1 - self.most_reach)
        return self.axis.kernel(name, dtype, lambda where: value(where, step), (tap,))

    def _stretch(self, where: ComputedCoordinate) -> tuple[Expr, Expr]:
        """The factor of distances, as a fraction."""
        one, scale = stages.literal(1, "int64"), self.axis.scale
        if not self.options.antialias:
            return one, one
        if scale is not None:
            stretch = min(scale, Fraction(1))
            return (
                stages.literal(stretch.numerator, "int64"),
                stages.literal(stretch.denominator, "int64"),
            )
        before = at_least(where.extent, 1)
        return Binary("min", at_least(where.after, 1), before), before

    def _is_reached(self, where: ComputedCoordinate, step: Expr) -> Expr:
        """Whether a program for these extents has a tap at this step from the base."""
        over, under = self._stretch(where)
        reach = multiply(under, REACHES[self.options.kind])
        most = divide(add(reach, subtract(over, 1)), over)
        return Binary(
            "and", compared("gt", add(step, most), 0), compared("le", subtract(step, most), 0)
        )

    def _value(self, x: Expr) -> Expr:
        """The weight at a distance that is not negative."""
        if self.options.kind == "linear":
            rest = subtract(stages.literal(1, x.dtype), x)
            return Select(compared("gt", rest, 0), rest, stages.literal(0, x.dtype))
        a = self.options.cubic
        near = add(multiply(multiply(subtract(multiply(x, a + 2), a + 3), x), x), 1)
        far = subtract(multiply(add(multiply(subtract(multiply(x, a), 5 * a), x), 8 * a), x), 4 * a)
        outer = Select(compared("lt", x, 2), far, stages.literal(0, x.dtype))
        return Select(compared("le", x, 1), near, outer)


def _base(where: ComputedCoordinate) -> Expr:
    """The element at or below a coordinate, which is above -1."""
    # Kernels round quotients to zero, so that of a number which is not negative is taken.
    return subtract(divide(add(where.numerator, where.unit), where.unit), 1)


def _not(test: Expr) -> Expr:
    return compared("eq", test, False)


def filter_at_places(
    x_shape: Shape, axis: int, room: int, taps: int, inner: int | None, dtype: str
) -> PrimFunc:
    """`y[…, i, …] = Σ_k weights[i, k] · x[…, places[i, k], …]` over the places that `axis` has.

    The axis has room for `room` elements behind.  The innermost loop is that over `inner`, an axis
    that stays, if there is one.
    """
    stages.require_floats("filtered resizing", dtype)
    y_shape = (*x_shape[:axis], room, *x_shape[axis + 1 :])
    x, y = Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype)
    places, weights = Buffer("places", (room, taps), "int64"), Buffer("w", (room, taps), dtype)
    loops, tap = stages.loops_over("i", y_shape), (arith.Var("k"), taps)
    row = (arith.Var("row"), x_shape[axis])
    lanes = () if inner is None else (loops[inner],)
    at, taken = stages.indices_of(loops), (loops[axis][0], tap[0])
    source = (*at[:axis], row[0], *at[axis + 1 :])
    update = Update(ReduceOp.ADD, y, at, multiply(Load(x, source), Load(weights, taken)))
    added = matched_nest((row,), (Load(places, taken),), nest(lanes, (update,)))
    # The name of a loop variable is unique in a kernel.
    others = {inner: (arith.Var("z"), y_shape[inner])} if inner is not None else {}
    to = tuple(others[k][0] if k in others else i for k, i in enumerate(at))
    clear = nest(tuple(others.values()), (Store(y, to, stages.literal(0, dtype)),))
    outer = tuple(loop for loop in loops if loop not in lanes)
    body = (*clear, *nest((tap,), added))
    return stages.nest_kernel("filter_at_places", (x, places, weights), y, outer, body)
