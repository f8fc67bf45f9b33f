"""Kernels whose indices are data: gathers, scatters, one-hot, ReverseSequence.

In: logical shapes and attributes.  Out: a PrimFunc that indexes through matched loops
(`graphflow.tir.traversal.matched`): a loop runs over all positions of an axis, and its body is
executed for the one position that equals the index.  For an index outside of the axis no iteration
matches: a gather writes zero, and a scatter drops the update.  Negative indices count from the end
of the axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, equal
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import (
    add,
    as_type,
    compared,
    divide,
    multiply,
    subtract,
)
from graphflow.kernels.definitions.stages import Loop, Shape

IndexTuple: TypeAlias = tuple[IndexExpr, ...]

REDUCTIONS = {
    "none": None,
    "add": tir.ReduceOp.ADD,
    "mul": tir.ReduceOp.MUL,
    "max": tir.ReduceOp.MAX,
    "min": tir.ReduceOp.MIN,
}
"""How a scatter combines an update with the element that is there, by ONNX's names."""


def matched_nest(loops: Sequence[Loop], values: Sequence[tir.Expr], body: tir.Body) -> tir.Body:
    """`body` with the variable of each loop bound to its value, executed only if all are in
    range."""
    for (var, extent), value in reversed(list(zip(loops, values, strict=True))):
        body = (stages.matched(var, extent, value, body),)
    return body


def as_int64(value: tir.Expr) -> tir.Expr:
    """A number converted to int64; floats are truncated."""
    return as_type(value, "int64")


def from_front(index: tir.Expr, extent: int) -> tir.Expr:
    """An index of an axis as int64; negative indices count from the end."""
    wide = as_int64(index)
    return tir.Select(compared("lt", wide, 0), add(wide, extent), wide)


def places_from_front(
    shape: Shape,
    extents: Sequence[int | None],
    index_dtype: str = "int64",
    in_tuples: bool = False,
) -> tir.PrimFunc:
    """`y[k…]` is the index there, counted from the front of an axis of `extents[0]` elements.

    With `in_tuples` the last axis has tuples, of which number j indexes an axis of `extents[j]`
    elements.  The further inputs are, in order, the extents that are None: scalars.
    """
    indices, y = tir.Buffer("indices", shape, index_dtype), tir.Buffer("y", shape, "int64")
    number = sum(extent is None for extent in extents)
    counts = [tir.Buffer(f"count{k}", (), "int64") for k in range(number)]
    loops, given = stages.loops_over("k", shape), iter(counts)
    values: list[tir.Expr] = [
        tir.Load(next(given), ()) if extent is None else stages.literal(extent, "int64")
        for extent in extents
    ]
    end = values[-1]
    if in_tuples:
        for k, value in reversed(list(enumerate(values[:-1]))):
            end = tir.Select(equal(loops[-1][0], k), value, end)
    wide = as_int64(stages.element(indices, loops))
    place = tir.Select(compared("lt", wide, 0), add(wide, end), wide)
    return stages.elementwise_kernel("places_from_front", (indices, *counts), y, loops, place)


def furthest_index(
    shape: Shape, lo: int, dtype: str = "int64", counted: Sequence[int] = ()
) -> tir.PrimFunc:
    """`y[()]` is the greatest element of x, or the greatest below `lo` where there are some; `lo`
    where x has none, or its dtype's least number if that is greater.

    So all elements are from `lo` to a limit if this one is: one pass finds what the least and the
    greatest element tell.  Along the axes in `counted` x has as many elements as the other inputs
    say, one scalar for each; the pass ends there.
    """
    unsigned = dtype if dtype in tir.UNSIGNED else f"u{dtype}"
    limits = np.iinfo(dtype)
    start = tir.Literal(max(lo, int(limits.min)) % (int(np.iinfo(unsigned).max) + 1), unsigned)
    x, y = tir.Buffer("x", shape, dtype), tir.Buffer("y", (), dtype)
    most, loops = tir.Buffer("most", (), unsigned), stages.loops_over("k", shape)
    above = subtract(as_type(stages.element(x, loops), unsigned), start)
    counts = {axis: tir.Buffer(f"count{axis}", (), "int64") for axis in counted}
    for axis, count in counts.items():
        above = tir.kept_below_count(loops[axis][0], count, above, tir.Literal(0, unsigned))
    parts = (
        tir.Allocate(most),
        stages.reduction_stage("most", tir.ReduceOp.MAX, most, (), loops, above),
        stages.store_stage("furthest", y, (), (), as_type(add(tir.Load(most, ()), start), dtype)),
    )
    return stages.kernel_of_stages("furthest_index", (x, *counts.values()), (y,), parts)


def gather_at(
    x_shape: Shape,
    indices_shape: Shape,
    axis: int,
    dtype: str = "float32",
    index_dtype: str = "int64",
) -> tir.PrimFunc:
    """`y[a…, k…, b…] = x[a…, indices[k…], b…]`, where the index is that of `axis`."""
    (axis,) = stages.normalized_axes((axis,), len(x_shape))
    x, indices = tir.Buffer("x", x_shape, dtype), tir.Buffer("indices", indices_shape, index_dtype)
    y = tir.Buffer("y", (*x_shape[:axis], *indices_shape, *x_shape[axis + 1 :]), dtype)
    before, within = stages.loops_over("a", x_shape[:axis]), stages.loops_over("k", indices_shape)
    row = (Var("row"), x_shape[axis])
    position = from_front(stages.element(indices, within), x_shape[axis])
    outer = (*stages.indices_of(before), *stages.indices_of(within))
    source = (*stages.indices_of(before), row[0])
    body = _gathered(y, outer, x, source, x_shape[axis + 1 :], (row,), (position,))
    return stages.nest_kernel("gather", (x, indices), y, (*before, *within), body)


def gather_elements(
    x_shape: Shape,
    indices_shape: Shape,
    axis: int,
    dtype: str = "float32",
    index_dtype: str = "int64",
) -> tir.PrimFunc:
    """`y[i…] = x[i…]` with the index on `axis` replaced by `indices[i…]`."""
    (axis,) = stages.normalized_axes((axis,), len(x_shape))
    _check_elements(x_shape, indices_shape, axis)
    x, indices = tir.Buffer("x", x_shape, dtype), tir.Buffer("indices", indices_shape, index_dtype)
    y = tir.Buffer("y", indices_shape, dtype)
    loops, row = stages.loops_over("i", indices_shape), (Var("row"), x_shape[axis])
    at = stages.indices_of(loops)
    position = from_front(tir.Load(indices, at), x_shape[axis])
    source = (*at[:axis], row[0], *at[axis + 1 :])
    body = _gathered(y, at, x, source, (), (row,), (position,))
    return stages.nest_kernel("gather_elements", (x, indices), y, loops, body)


def gather_nd(
    x_shape: Shape,
    indices_shape: Shape,
    batch: int = 0,
    dtype: str = "float32",
    index_dtype: str = "int64",
) -> tir.PrimFunc:
    """`y[k…, b…] = x[k[:batch]…, indices[k…, 0], indices[k…, 1], …, b…]`."""
    taken = _index_length(x_shape, indices_shape, batch)
    if indices_shape[:batch] != x_shape[:batch]:
        raise InvalidModel(
            f"the first {batch} axes of data {x_shape} and indices {indices_shape} must agree"
        )
    x, indices = tir.Buffer("x", x_shape, dtype), tir.Buffer("indices", indices_shape, index_dtype)
    rest = x_shape[batch + taken :]
    y = tir.Buffer("y", (*indices_shape[:-1], *rest), dtype)
    outer = stages.loops_over("k", indices_shape[:-1])
    at = stages.indices_of(outer)
    rows = stages.loops_over("row", x_shape[batch : batch + taken])
    source = (*at[:batch], *stages.indices_of(rows))
    body = _gathered(y, at, x, source, rest, rows, _positions(indices, at, rows))
    return stages.nest_kernel("gather_nd", (x, indices), y, outer, body)


def scatter_elements(
    x_shape: Shape,
    indices_shape: Shape,
    axis: int,
    reduction: str = "none",
    dtype: str = "float32",
    index_dtype: str = "int64",
) -> tir.PrimFunc:
    """`y = x`, then `y[i…] = updates[i…]` with the index on `axis` replaced by `indices[i…]`.

    Updates of one element are made in row-major order, or combined by `reduction`.
    """
    (axis,) = stages.normalized_axes((axis,), len(x_shape))
    _check_elements(x_shape, indices_shape, axis)
    x, indices = tir.Buffer("x", x_shape, dtype), tir.Buffer("indices", indices_shape, index_dtype)
    updates, y = tir.Buffer("updates", indices_shape, dtype), tir.Buffer("y", x_shape, dtype)
    loops, row = stages.loops_over("i", indices_shape), Var("row")
    at = stages.indices_of(loops)
    target = (*at[:axis], row, *at[axis + 1 :])
    update = _update(reduction, y, target, tir.Load(updates, at))
    position = from_front(tir.Load(indices, at), x_shape[axis])
    body = (stages.matched(row, x_shape[axis], position, (update,)),)
    return stages.nest_kernel(
        "scatter_elements", (x, indices, updates), y, loops, body, _copied(x, y)
    )


def scatter_nd(
    x_shape: Shape,
    indices_shape: Shape,
    reduction: str = "none",
    dtype: str = "float32",
    index_dtype: str = "int64",
) -> tir.PrimFunc:
    """`y = x`, then `y[indices[k…, 0], indices[k…, 1], …, b…] = updates[k…, b…]`.

    Updates of one element are made in row-major order, or combined by `reduction`.
    """
    taken = _index_length(x_shape, indices_shape, 0)
    x, indices = tir.Buffer("x", x_shape, dtype), tir.Buffer("indices", indices_shape, index_dtype)
    rest = x_shape[taken:]
    updates = tir.Buffer("updates", (*indices_shape[:-1], *rest), dtype)
    y = tir.Buffer("y", x_shape, dtype)
    outer, inner = stages.loops_over("k", indices_shape[:-1]), stages.loops_over("b", rest)
    at, rows = stages.indices_of(outer), stages.loops_over("row", x_shape[:taken])
    target = (*stages.indices_of(rows), *stages.indices_of(inner))
    update = _update(reduction, y, target, tir.Load(updates, (*at, *stages.indices_of(inner))))
    body = matched_nest(rows, _positions(indices, at, rows), tir.nest(inner, (update,)))
    return stages.nest_kernel("scatter_nd", (x, indices, updates), y, outer, body, _copied(x, y))


def reverse_sequence(
    x_shape: Shape,
    time_axis: int,
    batch_axis: int,
    dtype: str = "float32",
    index_dtype: str = "int64",
) -> tir.PrimFunc:
    """`y` is x with the first `lengths[b]` steps of `time_axis` reversed; b is the index on
    `batch_axis`."""
    if {time_axis, batch_axis} != {0, 1} or len(x_shape) < 2:
        raise InvalidModel(
            f"time axis {time_axis} and batch axis {batch_axis} must be 0 and 1, of a tensor of "
            f"rank 2 or more, not of shape {x_shape}"
        )
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    lengths = tir.Buffer("lengths", (x_shape[batch_axis],), index_dtype)
    outer, row = stages.loops_over("i", x_shape[:2]), (Var("row"), x_shape[time_axis])
    at = stages.indices_of(outer)
    step = tir.IndexValue(at[time_axis])
    length = as_int64(tir.Load(lengths, (at[batch_axis],)))
    mirrored = subtract(subtract(length, 1), step)
    position = tir.Select(tir.Comparison("lt", step, length), mirrored, step)
    source = tuple(row[0] if axis == time_axis else at[axis] for axis in range(2))
    body = _gathered(y, at, x, source, x_shape[2:], (row,), (position,))
    return stages.nest_kernel("reverse_sequence", (x, lengths), y, outer, body)


def put(
    x_shape: Shape, size: int, dtype: str = "float32", index_dtype: str = "int64"
) -> tir.PrimFunc:
    """`y[indices[i…]] = x[i…]` in a vector of `size` elements, which is zero elsewhere."""
    x, indices = tir.Buffer("x", x_shape, dtype), tir.Buffer("indices", x_shape, index_dtype)
    y = tir.Buffer("y", (size,), dtype)
    loops, place = stages.loops_over("i", x_shape), Var("place")
    at = stages.indices_of(loops)
    store = tir.Store(y, (place,), tir.Load(x, at))
    placed = (stages.matched(place, size, as_int64(tir.Load(indices, at)), (store,)),)
    return stages.nest_kernel("put", (x, indices), y, loops, placed, stages.cleared(y))


def write_slices(
    x_shape: Shape,
    update_shape: Shape,
    axis: int,
    circular: bool = False,
    dtype: str = "float32",
    index_dtype: str = "int64",
    is_counted: bool = False,
) -> tir.PrimFunc:
    """`y = x`, then `y[b, …, starts[b] + t, …] = updates[b, …, t, …]` with t on `axis`.

    With `circular`, positions beyond the end wrap around to the beginning.  If the updates are
    counted, t is below the number in a further input, a scalar.
    """
    (axis,) = stages.normalized_axes((axis,), len(x_shape))
    rests = [shape[:axis] + shape[axis + 1 :] for shape in (x_shape, update_shape)]
    if axis == 0 or rests[0] != rests[1] or update_shape[axis] > x_shape[axis]:
        raise InvalidModel(
            f"an update of shape {update_shape} does not fit along axis {axis} of shape {x_shape}"
        )
    x, updates = tir.Buffer("x", x_shape, dtype), tir.Buffer("updates", update_shape, dtype)
    starts, y = tir.Buffer("starts", x_shape[:1], index_dtype), tir.Buffer("y", x_shape, dtype)
    outer = stages.loops_over("i", update_shape[: axis + 1])
    inner = stages.loops_over("b", update_shape[axis + 1 :])
    at, row, extent = stages.indices_of(outer), Var("row"), x_shape[axis]
    position = add(as_int64(tir.Load(starts, at[:1])), tir.IndexValue(at[axis]))
    if circular:
        position = subtract(position, multiply(divide(position, extent), extent))
    target = (*at[:axis], row, *stages.indices_of(inner))
    store = tir.Store(y, target, tir.Load(updates, (*at, *stages.indices_of(inner))))
    body: tir.Body = (stages.matched(row, extent, position, tir.nest(inner, (store,))),)
    inputs: tuple[tir.Buffer, ...] = (x, updates, starts)
    if is_counted:
        count = tir.Buffer("count", (), "int64")
        inputs = (*inputs, count)
        body = (tir.If(tir.below_count(at[axis], count), body),)
    return stages.nest_kernel("write_slices", inputs, y, outer, body, _copied(x, y))


def one_hot(
    indices_shape: Shape,
    depth: int,
    axis: int = -1,
    dtype: str = "float32",
    index_dtype: str = "int64",
) -> tir.PrimFunc:
    """`y[…, d, …] = values[1]` if `d` equals the index there, else `values[0]`; d is on `axis`.

    Float indices are truncated; an index outside of `-depth <= index < depth` equals no `d`.
    """
    (axis,) = stages.normalized_axes((axis,), len(indices_shape) + 1)
    indices = tir.Buffer("indices", indices_shape, index_dtype)
    values = tir.Buffer("values", (2,), dtype)
    y = tir.Buffer("y", (*indices_shape[:axis], depth, *indices_shape[axis:]), dtype)
    loops = stages.loops_over("i", y.shape)
    at = stages.indices_of(loops)
    position = from_front(tir.Load(indices, (*at[:axis], *at[axis + 1 :])), depth)
    here = tir.Comparison("eq", tir.IndexValue(at[axis]), position)
    value = tir.Select(here, tir.Load(values, (const(1),)), tir.Load(values, (const(0),)))
    return stages.elementwise_kernel("one_hot", (indices, values), y, loops, value)


def _gathered(
    y: tir.Buffer,
    at: IndexTuple,
    x: tir.Buffer,
    source: IndexTuple,
    rest: Shape,
    rows: Sequence[Loop],
    values: Sequence[tir.Expr],
) -> tir.Body:
    """`y[at, b…] = x[source, b…]`, with b over the extents `rest`; 0 if a row is out of range.

    The variables of `rows` occur in `source` and are bound to `values`.
    """
    empty, copied = (stages.loops_over(prefix, rest) for prefix in ("z", "b"))
    clear = tir.Store(y, (*at, *stages.indices_of(empty)), stages.literal(0, y.dtype))
    behind = stages.indices_of(copied)
    copy = tir.Store(y, (*at, *behind), tir.Load(x, (*source, *behind)))
    cleared = tir.nest(empty, (clear,))
    if rest:
        outside = [
            tir.Binary("or", compared("lt", value, 0), compared("ge", value, extent))
            for value, (_, extent) in zip(values, rows, strict=True)
        ]
        # A row is written once, but for one that there is not.
        cleared = (tir.If(reduce(lambda a, b: tir.Binary("or", a, b), outside), cleared),)
    return (*cleared, *matched_nest(rows, values, tir.nest(copied, (copy,))))


def _check_elements(x_shape: Shape, indices_shape: Shape, axis: int) -> None:
    fits = len(x_shape) == len(indices_shape) and all(
        k == axis or m <= n for k, (n, m) in enumerate(zip(x_shape, indices_shape, strict=False))
    )
    if not fits:
        raise InvalidModel(
            f"indices of shape {indices_shape} do not fit data of shape {x_shape}: they must have "
            f"its rank, and no axis but {axis} may be longer"
        )


def _index_length(x_shape: Shape, indices_shape: Shape, batch: int) -> int:
    """The number of axes of x, behind the first `batch` ones, that an index tuple indexes."""
    if not indices_shape or not 0 <= batch < len(indices_shape):
        raise InvalidModel(
            f"indices of shape {indices_shape} have no axis behind {batch} of a batch"
        )
    taken = indices_shape[-1]
    if batch + taken > len(x_shape):
        raise InvalidModel(
            f"index tuples of length {taken} behind {batch} batch axes do not fit data of shape "
            f"{x_shape}"
        )
    return taken


def _positions(indices: tir.Buffer, at: IndexTuple, rows: Sequence[Loop]) -> list[tir.Expr]:
    """The index tuple at `at`; each of its numbers is counted from the front of its axis."""
    return [
        from_front(tir.Load(indices, (*at, const(k))), extent) for k, (_, extent) in enumerate(rows)
    ]


def _update(reduction: str, y: tir.Buffer, target: IndexTuple, value: tir.Expr) -> tir.Stmt:
    if reduction not in REDUCTIONS:
        known = ", ".join(REDUCTIONS)
        raise UnsupportedOp(f"a scatter with reduction {reduction} is not built; {known} are")
    op = REDUCTIONS[reduction]
    return tir.Store(y, target, value) if op is None else tir.Reduce(op, y, target, value)


def _copied(x: tir.Buffer, y: tir.Buffer) -> tir.Block:
    loops = stages.loops_over("c", x.shape)
    return stages.elementwise_stage("copied", y, loops, stages.element(x, loops))
