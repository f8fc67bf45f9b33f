"""Max pooling with the positions of the maxima, the second output of ONNX's MaxPool.

In: a logical shape and a window.  Out: a PrimFunc that gives for each window the
maximum, or its position in the whole tensor.  As in onnxruntime the first of equal elements wins.
A NaN is the maximum only at the first position of a window, because elements are compared by `>`
and none is greater than it; at later positions it is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from graphflow import tir
from graphflow.arith import TRUE, IndexExpr, const, simplify_predicate
from graphflow.kernels.definitions import elementwise, stages
from graphflow.kernels.definitions.scalar_functions import (
    add,
    compared,
    divide,
    multiply,
    remainder,
)
from graphflow.kernels.definitions.stages import Loop, Shape, literal
from graphflow.kernels.definitions.windows.window import Window, spatial_names

MOST_WRITTEN_OUT = 9
"""Taps of a window that are compared without a loop: with those of a wider one the expression takes
longer to compile than is gained."""

_MOST_DISTANCE = 2**31
"""Elements of an image from which on their distances are no integers of 32 bits."""


def max_pool_place(
    x_shape: Shape,
    window: Window,
    *,
    column_major: bool = False,
    value: bool = False,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y[n, c, o…]` is the position in x of the maximum of a window, int64.

    Positions are row-major; with `column_major` the spatial axes are counted in reverse order.
    With `value` y is the maximum itself.  A window that lies in the padding entirely gives −1 and
    the lowest number.  Few taps that are all inside x become one expression, which lanes along the
    output compute.
    """
    x = tir.Buffer("x", x_shape, dtype)
    shape = (*x_shape[:2], *window.output_shape(x_shape[2:]))
    y = tir.Buffer("y", shape, dtype if value else "int64")
    loops = stages.loops_over(("n", "c", *spatial_names("o", window.rank)), shape)
    taps = stages.loops_over(spatial_names("k", window.rank), window.kernel)
    places = window.positions(loops[2:], taps)
    inside = simplify_predicate(
        window.inside(places, x_shape[2:]), stages.ranges_of((*loops, *taps))
    )
    is_small = prod(x_shape[2:]) < _MOST_DISTANCE
    if inside == TRUE and is_small and prod(window.kernel) <= MOST_WRITTEN_OUT:
        number = _written_out(x, window, loops, column_major, value)
        return stages.elementwise_kernel("max_pool_place", (x,), y, loops, number)
    best, found = tir.Buffer("best", (1,), dtype), tir.Buffer("found", (1,), "int64")
    at = (const(0),)
    lead = stages.indices_of(loops[:2])
    element = tir.Load(x, (*lead, *places))
    is_better: tir.Expr = tir.Comparison("gt", element, tir.Load(best, at))
    is_better = tir.Binary("or", compared("lt", tir.Load(found, at), 0), is_better)
    place = tir.IndexValue(_place(x_shape, lead, places, column_major))
    update: tir.Stmt = tir.If(
        is_better, (tir.Store(best, at, element), tir.Store(found, at, place))
    )
    if inside != TRUE:
        update = tir.If(inside, (update,))
    body = (
        tir.Allocate(best),
        tir.Allocate(found),
        tir.Store(best, at, stages.neutral(tir.ReduceOp.MAX, dtype)),
        tir.Store(found, at, stages.literal(-1, "int64")),
        *tir.nest(taps, (update,)),
        tir.Store(y, stages.indices_of(loops), tir.Load(best if value else found, at)),
    )
    return stages.nest_kernel("max_pool_place", (x,), y, loops, body)


def place_of_run(shape: Shape, x_shape: Shape, column_major: bool) -> tir.PrimFunc:
    """The positions of `max_pool_place`, of this shape, in an image with other sides.

    In: positions in x of `x_shape`, and the sides of an image that has its first elements.  Out:
    the positions of the same elements in that image; −1 of one that it has not, and −1 stays.
    """
    sides = x_shape[2:]
    names = {f"side{axis}": ((), "int64") for axis in range(len(sides))}
    order = range(len(sides)) if column_major else range(len(sides) - 1, -1, -1)

    def position(place: tir.Expr, *extents: tir.Expr) -> tir.Expr:
        is_none: tir.Expr = compared("lt", place, 0)
        step: tir.Expr = literal(1, "int64")
        rest, result = place, multiply(step, 0)
        for axis in order:
            side = literal(sides[axis], "int64")
            index = remainder(rest, side, truncated=True)
            is_none = tir.Binary("or", is_none, tir.Comparison("ge", index, extents[axis]))
            result = add(result, multiply(index, step))
            rest, step = divide(rest, side), multiply(step, extents[axis])
        return tir.Select(is_none, literal(-1, "int64"), add(result, multiply(rest, step)))

    operands = {"place": (shape, "int64"), **names}
    return elementwise.elementwise("place_of_run", operands, position, "int64")


def _written_out(
    x: tir.Buffer, window: Window, loops: Sequence[Loop], column_major: bool, value: bool
) -> tir.Expr:
    """The maximum of a window whose taps are all inside x, or its position.

    Which tap it is, is a distance from the first one, of 32 bits, so that it has as many lanes as
    the elements.
    """
    lead = stages.indices_of(loops[:2])
    first = [
        o * stride - begin
        for (o, _), stride, begin in zip(loops[2:], window.strides, window.pads_begin, strict=True)
    ]
    ends: list[tuple[tir.Expr, tir.Expr]] = []
    for tap in product(*map(range, window.kernel)):
        apart = [const(k * step) for k, step in zip(tap, window.dilations, strict=True)]
        at = tuple(o + k for o, k in zip(first, apart, strict=True))
        element: tir.Expr = tir.Load(x, (*lead, *at))
        if ends and x.dtype in tir.FLOATS:
            is_number = tir.Comparison("eq", element, element)
            lowest = stages.neutral(tir.ReduceOp.MAX, x.dtype)
            element = tir.Select(is_number, element, lowest)
        distance = _place(x.shape, (const(0), const(0)), apart, column_major)
        ends.append((element, tir.Cast(tir.IndexValue(distance), "int32")))
    best, found = _first_of_greatest(ends)
    place = tir.IndexValue(_place(x.shape, lead, first, column_major))
    return best if value else tir.Binary("add", place, tir.Cast(found, "int64"))


def _first_of_greatest(pairs: Sequence[tuple[tir.Expr, tir.Expr]]) -> tuple[tir.Expr, tir.Expr]:
    """The greatest element of pairs of an element and a mark, with its mark; of equal ones the
    first.

    Halves are compared, since an expression names both elements twice: of one after the other its
    length would double with each.
    """
    if len(pairs) == 1:
        return pairs[0]
    middle = len(pairs) // 2
    (best, mark), (other, other_mark) = map(_first_of_greatest, (pairs[:middle], pairs[middle:]))
    is_better = tir.Comparison("gt", other, best)
    return tir.Select(is_better, other, best), tir.Select(is_better, other_mark, mark)


def _place(
    x_shape: Shape, lead: Sequence[IndexExpr], places: Sequence[IndexExpr], column_major: bool
) -> IndexExpr:
    spatial = x_shape[2:]
    if column_major:
        places, spatial = places[::-1], spatial[::-1]
    return stages.linearize((*lead, *places), (*x_shape[:2], *spatial))
