"""Compaction: kernels that keep some elements of a tensor, whose number depends on data.

In: logical shapes.  Out: a PrimFunc whose output has room for all elements; the kept elements stand
at its beginning, zeros behind them.  A kernel of its own (`count_of`) counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import (
    add,
    compared,
    multiply,
    remainder,
    subtract,
)
from graphflow.kernels.definitions.stages import Loop, Shape

LONG_PLACE = 16
"""Elements that one vector clears."""

Places: TypeAlias = Callable[[Var], tir.Body]
"""The statements that write at a place."""


def compacted(
    name: str, loops: Sequence[Loop], test: tir.Expr, y: tir.Buffer, axis: int, stores: Places
) -> tuple[tir.Block, ...]:
    """Stages that execute `stores(place)` at each point of `loops` where `test` holds, in order,
    with `place` 0, 1, 2, …, which write all of y at that place on `axis`.

    Points behind the last place of y are dropped; places behind the last point become zero: only
    these are cleared where a place is `LONG_PLACE` elements of memory, else all of y is before.
    """
    count, place, room = tir.Buffer("count", (), "int64"), Var("place"), y.shape[axis]
    number = tir.Load(count, ())
    appended = stages.matched(place, room, number, stores(place))
    counted = tir.Reduce(tir.ReduceOp.ADD, count, (), stages.literal(1, "int64"))
    rest = stages.loops_over("z", (room, *y.shape[:axis], *y.shape[axis + 1 :]))
    last, *others = stages.indices_of(rest)
    clear = tir.Store(y, (*others[:axis], last, *others[axis:]), stages.literal(0, y.dtype))
    is_behind = tir.Comparison("lt", number, tir.IndexValue(last + 1))
    body = (
        tir.Allocate(count),
        tir.Store(count, (), stages.literal(0, "int64")),
        *tir.nest(loops, (tir.If(test, (appended, counted)),)),
        *tir.nest(rest[:1], (tir.If(is_behind, tir.nest(rest[1:], (clear,))),)),
    )
    if prod(y.shape[axis + 1 :]) >= LONG_PLACE:
        return (tir.Block(name, body),)
    return stages.cleared(y), tir.Block(name, body[:-1])


def kept_slices(x_shape: Shape, axis: int, conditions: int, dtype: str = "float32") -> tir.PrimFunc:
    """The slices of x along `axis` for which the element of `keep`, a vector of bools, is true.

    `keep` has `conditions` elements; slices behind them are not kept.
    """
    (axis,) = stages.normalized_axes((axis,), len(x_shape))
    room = min(conditions, x_shape[axis])
    x, keep = tir.Buffer("x", x_shape, dtype), tir.Buffer("keep", (conditions,), "bool")
    y = tir.Buffer("y", (*x_shape[:axis], room, *x_shape[axis + 1 :]), dtype)
    ((i, _),) = along = stages.loops_over("i", (room,))
    others = stages.loops_over("b", (*x_shape[:axis], *x_shape[axis + 1 :]))

    def element(index: IndexExpr) -> tuple[IndexExpr, ...]:
        around = stages.indices_of(others)
        return (*around[:axis], index, *around[axis:])

    def stores(place: Var) -> tir.Body:
        return tir.nest(others, (tir.Store(y, element(place), tir.Load(x, element(i))),))

    parts = compacted("kept_slices", along, tir.Load(keep, (i,)), y, axis, stores)
    return stages.kernel_of_stages("kept_slices", (x, keep), (y,), parts)


def non_zero(x_shape: Shape, dtype: str = "float32") -> tir.PrimFunc:
    """`y[k, p]` is the index on axis k of the p-th element that is not zero, in row-major order."""
    x = tir.Buffer("x", x_shape, dtype)
    y = tir.Buffer("y", (len(x_shape), x.size), "int64")
    loops = stages.loops_over("i", x_shape)

    def stores(place: Var) -> tir.Body:
        numbers = enumerate(stages.indices_of(loops))
        return tuple(tir.Store(y, (const(k), place), tir.IndexValue(n)) for k, n in numbers)

    is_kept = is_not_zero(stages.element(x, loops))
    parts = compacted("non_zero", loops, is_kept, y, 1, stores)
    return stages.kernel_of_stages("non_zero", (x,), (y,), parts)


def count_of(x_shape: Shape, dtype: str, at_least: int | None = None) -> tir.PrimFunc:
    """`y[()]` is the number of elements of x that are not zero, or that are >= `at_least`;
    int64."""
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", (), "int64")
    loops = stages.loops_over("r", x_shape)
    element = stages.element(x, loops)
    counts = is_not_zero(element) if at_least is None else compared("ge", element, at_least)
    stage = stages.reduction_stage(
        "count_of", tir.ReduceOp.ADD, y, (), loops, tir.Cast(counts, "int64")
    )
    return stages.kernel_of_stages("count_of", (x,), (y,), (stage,))


def counted_slices(shape: Shape, axis: int, fill: float, dtype: str) -> tir.PrimFunc:
    """`y[i…] = x[i…]` for the first `count[()]` indices of an axis, `fill` behind them."""
    x, y = tir.Buffer("x", shape, dtype), tir.Buffer("y", shape, dtype)
    count = tir.Buffer("count", (), "int64")
    loops = stages.loops_over("i", shape)
    element, literal = stages.element(x, loops), stages.literal(fill, dtype)
    value = tir.kept_below_count(loops[axis][0], count, element, literal)
    return stages.elementwise_kernel("counted_slices", (x, count), y, loops, value)


def joined_slices(
    shapes: Sequence[Shape], axis: int, room: int, dtype: str = "float32"
) -> tir.PrimFunc:
    """The operands x0, x1, … one behind the other along `axis`, of each the first `count` slices.

    The inputs are the operands and then the counts of all but the last, scalars: slice t of an
    operand is slice t + n of y, if those ahead of it have n and y has `room` for it.  What an
    operand has behind its count is overwritten by the next one; zeros or such slices stand behind
    the last.
    """
    first = min(shapes[0][axis], room)
    y = tir.Buffer("y", (*shapes[0][:axis], room, *shapes[0][axis + 1 :]), dtype)
    operands = [tir.Buffer(f"x{k}", shape, dtype) for k, shape in enumerate(shapes)]
    counts = [tir.Buffer(f"count{k}", (), "int64") for k in range(len(shapes) - 1)]
    parts = []
    ahead: tir.Expr | None = None
    for k, operand in enumerate(operands):
        extents = list(operand.shape)
        extents[axis] = min(extents[axis], room)
        loops = stages.loops_over(f"i{k}_", tuple(extents))
        at, value = list(stages.indices_of(loops)), stages.element(operand, loops)
        if ahead is None:
            parts.append(stages.store_stage(f"part{k}", y, loops, at, value))
            if first < room:
                loops = stages.loops_over(
                    "z", (*y.shape[:axis], room - first, *y.shape[axis + 1 :])
                )
                at = [var + first if n == axis else var for n, (var, _) in enumerate(loops)]
                parts.append(stages.store_stage("cleared", y, loops, at, stages.literal(0, dtype)))
        else:
            row = Var(f"row{k}")
            place = add(tir.IndexValue(at[axis]), ahead)
            at[axis] = row
            store = tir.Store(y, tuple(at), value)
            moved = stages.matched(row, room, place, tir.nest(loops[axis + 1 :], (store,)))
            parts.append(tir.Block(f"part{k}", tir.nest(loops[: axis + 1], (moved,))))
        if k < len(counts):
            count = tir.Load(counts[k], ())
            ahead = count if ahead is None else add(ahead, count)
    return stages.kernel_of_stages("joined_slices", (*operands, *counts), (y,), parts)


def stepped_places(room: int, most: int, step: int = 1) -> tir.PrimFunc:
    """`y[j]` is the j-th of `most` places from `start` on, every `step`-th, and an end of the axis
    of `room` elements behind these."""
    start, y = tir.Buffer("start", (), "int64"), tir.Buffer("y", (most,), "int64")
    loops = stages.loops_over("j", y.shape)
    place = add(tir.IndexValue(step * loops[0][0]), tir.Load(start, ()))
    end = tir.Binary("min", place, stages.literal(room - 1, "int64"))
    if step < 0:
        end = tir.Binary("max", place, stages.literal(0, "int64"))
    return stages.elementwise_kernel("stepped_places", (start,), y, loops, end)


def repeated_places(most: int) -> tir.PrimFunc:
    """`y[j]` is the place of the first `extent[()]` elements that `most` ones come to, one after
    another and again from the front."""
    extent, y = tir.Buffer("extent", (), "int64"), tir.Buffer("y", (most,), "int64")
    loops = stages.loops_over("j", y.shape)
    count = tir.Binary("max", tir.Load(extent, ()), stages.literal(1, "int64"))
    place = remainder(tir.IndexValue(loops[0][0]), count, True)
    return stages.elementwise_kernel("repeated_places", (extent,), y, loops, place)


def padded_places(room: int, begin: int, end: int, mode: str) -> tir.PrimFunc:
    """`y[j]` is the place of the first `extent[()]` elements, of `room`, that padding copies to j.

    `begin` and `end` elements are added, in one of the modes "edge", "reflect" and "wrap" of
    `selection.pad`: at most as many as there are, and one less for "reflect".
    """
    extent = tir.Buffer("extent", (), "int64")
    y = tir.Buffer("y", (begin + room + end,), "int64")
    loops = stages.loops_over("j", y.shape)
    place, count = tir.IndexValue(loops[0][0] - begin), tir.Load(extent, ())
    zero, last = stages.literal(0, "int64"), subtract(count, 1)
    source: tir.Expr
    match mode:
        case "edge":
            source = tir.Binary("min", place, last)
        case "reflect":
            distance = tir.Binary("max", place, subtract(zero, place))
            source = tir.Binary("min", distance, subtract(multiply(last, 2), distance))
        case _:
            ahead = tir.Select(compared("lt", place, 0), add(place, count), place)
            source = tir.Select(compared("ge", place, count), subtract(place, count), ahead)
    kept = tir.Binary("min", tir.Binary("max", source, zero), stages.literal(room - 1, "int64"))
    return stages.elementwise_kernel("padded_places", (extent,), y, loops, kept)


def is_not_zero(value: tir.Expr) -> tir.Expr:
    """Whether a number is not zero, which is true of NaN; a bool is returned as it is."""
    return value if value.dtype == "bool" else compared("ne", value, 0)
