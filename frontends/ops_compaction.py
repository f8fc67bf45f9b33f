"""Operators that give as many elements as data says: Compress, NonZero, Unique.

Their outputs have room for all elements; each run cuts them to those that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from graphflow.base.errors import InvalidModel
from graphflow.frontends.call import Call
from graphflow.kernels.definitions import (
    count_of,
    first_alike,
    kept_slices,
    non_zero,
    places_of,
    reshape,
    take_slice,
    transpose,
    unique_counts,
    unique_extent,
    unique_indices,
    unique_rows,
)


def _part(call: Call, word: str) -> str:
    """A name for a tensor between the kernels of a node."""
    return call.context.unique_tensor_name(f"{call.name}.{word}")


def _axis_of(call: Call) -> int | None:
    axis, rank = call.attribute("axis"), len(call.shape(0))
    if axis is None:
        return None
    if not -rank <= axis < rank:
        raise InvalidModel(f"{call.op} node {call.name}: axis {axis} does not exist in rank {rank}")
    return int(axis) % rank


def _reshaped(call: Call, name: str, shape: tuple[int, ...], part: str) -> str:
    """The tensor under another shape."""
    value = call.context.graph.values[name]
    if value.shape == shape:
        return name
    return call.emit(reshape(value.shape, shape, value.dtype), (name,), _part(call, part), part)


def _compress(call: Call) -> None:
    """Without an axis, of all elements in a row; conditions beyond the axis are not looked at."""
    axis, shape = _axis_of(call), call.shape(0)
    if len(call.shape(1)) != 1 or call.dtype(1) != "bool":
        raise InvalidModel(
            f"Compress node {call.name}: the condition is {call.dtype(1)}{call.shape(1)}, and has "
            "to be a vector of bools"
        )
    if axis is None:
        axis, shape = 0, (prod(shape),)
    x, keep = _reshaped(call, call.inputs[0], shape, "flat"), call.inputs[1]
    (given,) = call.shape(1)
    if given > shape[axis]:
        given = shape[axis]
        func = take_slice(call.shape(1), (range(given),), "bool")
        keep = call.emit(func, (keep,), _part(call, "looked_at"), "looked_at")
    count = call.emit(count_of((given,), "bool"), (keep,), _part(call, "count"), "count")
    func = kept_slices(shape, axis, given, call.dtype())
    call.emit_bounded(func, (x, keep), call.outputs[0], axis, count)


def _non_zero(call: Call) -> None:
    shape, dtype = call.shape(0), call.dtype()
    if not shape:
        call.refuse("a scalar", "reshape it to one element")
    count = call.emit(count_of(shape, dtype), call.inputs, _part(call, "count"), "count")
    call.emit_bounded(non_zero(shape, dtype), call.inputs, call.outputs[0], 1, count)


def _unique(call: Call) -> None:
    """Of the slices along an axis, or of all elements; equal ones are found pair by pair."""
    axis, ordered, dtype = _axis_of(call), bool(call.attribute("sorted", 1)), call.dtype()
    shape, x = call.shape(0), call.inputs[0]
    ahead: tuple[int, ...] = (prod(shape),)
    if axis is not None:
        order = (axis, *(k for k in range(len(shape)) if k != axis))
        ahead = tuple(shape[k] for k in order)
        if axis:
            x = call.emit(transpose(shape, order, dtype), (x,), _part(call, "ahead"), "ahead")
    rows = (ahead[0], prod(ahead[1:]))
    x = _reshaped(call, x, rows, "rows")
    first = call.emit(first_alike(rows, dtype), (x,), _part(call, "first"), "first")
    count = call.emit(unique_extent(rows[0]), (first,), _part(call, "count"), "count")
    y, indices, inverse, counts = (*call.outputs, "", "", "")[:4]
    places = inverse or _part(call, "places")
    call.emit(places_of(rows, ordered, dtype), (x, first), places, "inverse")
    if indices:
        func = unique_indices(rows[0])
        call.emit_bounded(func, (first, places), indices, 0, count, "indices")
    if counts:
        call.emit_bounded(unique_counts(rows[0]), (places,), counts, 0, count, "counts")
    if y:
        func = unique_rows(rows, dtype)
        found = call.emit(func, (x, first, places), _part(call, "found"), "found")
        _emit_back(call, found, ahead, axis or 0, count)


def _emit_back(call: Call, rows: str, ahead: tuple[int, ...], axis: int, count: str) -> None:
    """The first output: rows under the shape `ahead`, whose first axis then goes back to `axis`."""
    value = call.context.graph.values[rows]
    if not axis:
        func = reshape(value.shape, ahead, value.dtype)
        call.emit_bounded(func, (rows,), call.outputs[0], 0, count)
        return
    shaped = _reshaped(call, rows, ahead, "shaped")
    back = (*range(1, axis + 1), 0, *range(axis + 1, len(ahead)))
    func = transpose(ahead, back, value.dtype)
    call.emit_bounded(func, (shaped,), call.outputs[0], axis, count)


COMPACTION: dict[str, Callable[[Call], None]] = {
    "Compress": _compress,
    "NonZero": _non_zero,
    "Unique": _unique,
}
