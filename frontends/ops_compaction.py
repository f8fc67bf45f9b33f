"""Operators whose output extent depends on data: Compress, NonZero, Unique.

Their output buffers have the largest extent that is possible; each run trims the results to the
elements that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from graphflow.base.dtypes import HALVES
from graphflow.base.errors import InvalidModel
from graphflow.frontends.call import NodeCall
from graphflow.kernels.definitions import compaction, movement, selection
from graphflow.tir import PrimFunc


def _axis_of(call: NodeCall) -> int | None:
    axis = call.attribute("axis")
    return None if axis is None else call.normalized_axis(int(axis))


def _reshaped(call: NodeCall, name: str, shape: tuple[int, ...], part: str) -> str:
    """A kernel that reshapes the tensor `name`; returns the name of its result."""
    value = call.context.graph.values[name]
    if value.shape == shape:
        return name
    return call.emit(
        movement.reshape(value.shape, shape, value.dtype), (name,), call.part_name(part), part
    )


def _compress(call: NodeCall) -> None:
    """Without an axis the input is flattened; conditions beyond the axis are ignored, as in
    ONNX."""
    axis, shape = _axis_of(call), call.shape(0)
    if len(call.shape(1)) != 1 or call.dtype(1) != "bool":
        raise InvalidModel(
            f"{call.title}: the condition is {call.dtype(1)}{call.shape(1)}, and has "
            "to be a vector of bools"
        )
    if axis is None:
        axis, shape = 0, (prod(shape),)
    x, keep = _reshaped(call, call.inputs[0], shape, "flat"), call.inputs[1]
    (given,) = call.shape(1)
    if given > shape[axis]:
        given = shape[axis]
        func = selection.take_slice(call.shape(1), (range(given),), "bool")
        keep = call.emit(func, (keep,), call.part_name("looked_at"), "looked_at")
    count = call.emit(
        compaction.count_of((given,), "bool"), (keep,), call.part_name("count"), "count"
    )
    func = compaction.kept_slices(shape, axis, given, call.dtype())
    call.emit_bounded(func, (x, keep), call.outputs[0], axis, count)


def _non_zero(call: NodeCall) -> None:
    shape, dtype = call.shape(0), call.dtype()
    if not shape:
        call.refuse("a scalar", "reshape it to one element")
    count = call.emit(
        compaction.count_of(shape, dtype), call.inputs, call.part_name("count"), "count"
    )
    call.emit_bounded(compaction.non_zero(shape, dtype), call.inputs, call.outputs[0], 1, count)


def _unique(call: NodeCall) -> None:
    """Unique slices along an axis, or unique elements; slices are compared pair by pair."""
    axis, ordered, dtype = _axis_of(call), bool(call.attribute("sorted", 1)), call.dtype()
    shape, x = call.shape(0), call.inputs[0]
    ahead: tuple[int, ...] = (prod(shape),)
    if axis is not None:
        order = (axis, *(k for k in range(len(shape)) if k != axis))
        ahead = tuple(shape[k] for k in order)
        if axis:
            x = call.emit(
                movement.transpose(shape, order, dtype), (x,), call.part_name("ahead"), "ahead"
            )
    rows = (ahead[0], prod(ahead[1:]))
    x = _reshaped(call, x, rows, "rows")
    first = call.emit(compaction.first_alike(rows, dtype), (x,), call.part_name("first"), "first")
    count = call.emit(compaction.unique_extent(rows[0]), (first,), call.part_name("count"), "count")
    y, indices, inverse, counts = (*call.outputs, "", "", "")[:4]
    places = inverse or call.part_name("places")
    call.emit(compaction.places_of(rows, ordered, dtype), (x, first), places, "inverse")
    if indices:
        func = compaction.unique_indices(rows[0])
        call.emit_bounded(func, (first, places), indices, 0, count, "indices")
    if counts:
        call.emit_bounded(compaction.unique_counts(rows[0]), (places,), counts, 0, count, "counts")
    if y:
        func = compaction.unique_rows(rows, dtype)
        found = call.emit(func, (x, first, places), call.part_name("found"), "found")
        _emit_back(call, found, ahead, axis or 0, count)


def _emit_back(call: NodeCall, rows: str, ahead: tuple[int, ...], axis: int, count: str) -> None:
    """The first output: `rows` reshaped to `ahead`, whose first axis is then moved to `axis`."""
    value = call.context.graph.values[rows]
    if not axis:
        func = movement.reshape(value.shape, ahead, value.dtype)
        call.emit_bounded(func, (rows,), call.outputs[0], 0, count)
        return
    shaped = _reshaped(call, rows, ahead, "shaped")
    back = (*range(1, axis + 1), 0, *range(axis + 1, len(ahead)))
    func = movement.transpose(ahead, back, value.dtype)
    call.emit_bounded(func, (shaped,), call.outputs[0], axis, count)


def emit_joined(call: NodeCall, joins: PrimFunc, axis: int) -> None:
    """Join tensors along an axis along which a run gives fewer elements of some than there is room
    for: all room is joined by the kernel `joins`, and the slices that a run gives are kept."""
    parts, kept = [], []
    for position, name in enumerate(call.inputs):
        shape, dtype = call.shape(position), call.stored_dtype(position)
        counts = call.counts(position)
        if counts.keys() - {axis} or dtype in HALVES:
            call.refuse(
                f"a run decides how many elements {name} of {dtype} has along axes {[*counts]}",
                "join tensors of float32 along that axis",
            )
        parts.append(call.filled(name, 0, f".part{position}"))
        mask = call.add_part(np.ones(shape[axis], np.bool_), f"all{position}")
        if axis in counts:
            func = compaction.counted_slices((shape[axis],), 0, 0, "bool")
            mask = call.emit_part(func, (mask, counts[axis]), f"given{position}")
        kept.append(mask)
    room = joins.outputs[0].shape
    whole = call.emit_part(joins, parts, "room")
    given = movement.concat([(call.shape(k)[axis],) for k in range(len(kept))], 0, "bool")
    keep = call.emit_part(given, kept, "given")
    count = call.emit_part(compaction.count_of(room[axis : axis + 1], "bool"), (keep,), "count")
    func = compaction.kept_slices(room, axis, room[axis], call.dtype())
    call.emit_bounded(func, (whole, keep), call.outputs[0], axis, count)


COMPACTION: dict[str, Callable[[NodeCall], None]] = {
    "Compress": _compress,
    "NonZero": _non_zero,
    "Unique": _unique,
}
