"""Operators whose output extent depends on data: Compress, NonZero, Unique.

Their output buffers have the largest extent that is possible; each run trims the results to the
elements that there are.
"""

from __future__ import annotations

from math import prod

import numpy as np

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import filled_input
from graphflow.frontends.tensors.data_extents import Counts
from graphflow.frontends.tensors.derived_sizes import bounds_of, held, require_equal, total
from graphflow.kernels.definitions.data_dependent import compaction, distinct, indexing
from graphflow.kernels.definitions.movements import movement, selection


def _axis_of(call: NodeCall) -> int | None:
    axis = call.attribute("axis")
    return None if axis is None else call.normalized_axis(int(axis))


def _compress(call: NodeCall) -> None:
    """Without an axis the input is flattened; conditions beyond the axis are ignored, as in ONNX.
    What a constant condition keeps has known extents."""
    axis, shape = _axis_of(call), call.shape(0)
    if len(call.shape(1)) != 1 or call.dtype(1) != "bool":
        raise call.invalid(
            f"the condition is {call.dtype(1)}{call.shape(1)}, and has to be a vector of bools"
        )
    if axis is None:
        axis, shape = 0, (prod(shape),)
    x, keep = call.reshaped(call.inputs[0], shape, "flat"), call.inputs[1]
    known = call.known(1)
    if known is not None and not call.counts(0):
        places = np.flatnonzero(known[: shape[axis]])
        func = indexing.gather_at(shape, places.shape, axis, call.dtype(), "int64")
        call.emit(func, (x, call.add_part(places, "kept")))
        return
    (given,) = call.shape(1)
    keep = filled_input(call, 1, (0,), 0)
    if given > shape[axis]:
        given = shape[axis]
        func = selection.take_slice(call.shape(1), (range(given),), "bool")
        keep = call.emit_part(func, (keep,), "looked_at")
    extent = call.context.counted.get(x, {}).get(axis)
    if extent not in (None, call.counts(1).get(0)):
        func = compaction.counted_slices((given,), 0, 0, "bool")
        keep = call.emit_part(func, (keep, extent), "in_axis")
    count = _count_of(call, keep, (given,), "bool")
    func = compaction.kept_slices(shape, axis, given, call.dtype())
    call.emit_bounded(func, (x, keep), call.outputs[0], axis, count, given={0: (axis,)})


def _non_zero(call: NodeCall) -> None:
    shape, dtype = call.shape(0), call.dtype()
    if not shape:
        call.refuse("a scalar", "reshape it to one element")
    x = filled_input(call, 0, range(len(shape)), 0)
    count = _count_of(call, x, shape, dtype)
    call.emit_bounded(compaction.non_zero(shape, dtype), (x,), call.outputs[0], 1, count)


def _count_of(call: NodeCall, x: str, shape: tuple[int, ...], dtype: str) -> str:
    """How many elements of a tensor are not zero: one tensor for all nodes that ask for it, so that
    what they make of one mask is known to have equally many elements."""
    context, key = call.context, ("count", x)
    known = context.shared.get(key)
    if known is None or known not in context.graph.values:
        known = call.emit_part(compaction.count_of(shape, dtype), (x,), "count")
        context.shared[key] = known
    return known


def _unique(call: NodeCall) -> None:
    """Unique slices along an axis, or unique elements: the slices are sorted as rows."""
    axis, ordered, dtype = _axis_of(call), call.flag("sorted", True), call.dtype()
    shape, x = call.shape(0), call.inputs[0]
    ahead: tuple[int, ...] = (prod(shape),)
    if axis is not None:
        order = (axis, *(k for k in range(len(shape)) if k != axis))
        ahead = tuple(shape[k] for k in order)
        if axis:
            x = call.emit_part(movement.transpose(shape, order, dtype), (x,), "ahead")
    rows = (ahead[0], prod(ahead[1:]))
    x = call.reshaped(x, rows, "rows")
    sorted_rows = call.emit_part(distinct.row_order(rows, dtype), (x,), "order")
    first = call.emit_part(distinct.first_alike(rows, dtype), (x, sorted_rows), "first")
    count = call.emit_part(distinct.unique_extent(rows[0]), (first,), "count")
    y, indices, inverse, counts = (*call.outputs, "", "", "")[:4]
    places = inverse or call.part_name("places")
    known = (sorted_rows, first) if ordered else (first,)
    call.emit(distinct.places_of(rows[0], ordered), known, places, "inverse")
    if indices:
        func = distinct.unique_indices(rows[0])
        call.emit_bounded(func, (first, places), indices, 0, count, "indices")
    if counts:
        call.emit_bounded(distinct.unique_counts(rows[0]), (places,), counts, 0, count, "counts")
    if y:
        func = distinct.unique_rows(rows, dtype)
        found = call.emit_part(func, (x, first, places), "found")
        _emit_back(call, found, ahead, axis or 0, count)


def _emit_back(call: NodeCall, rows: str, ahead: tuple[int, ...], axis: int, count: str) -> None:
    """The first output: `rows` reshaped to `ahead`, whose first axis is then moved to `axis`."""
    value = call.context.graph.values[rows]
    if not axis:
        func = movement.reshape(value.shape, ahead, value.dtype)
        call.emit_bounded(func, (rows,), call.outputs[0], 0, count)
        return
    shaped = call.reshaped(rows, ahead, "shaped")
    back = (*range(1, axis + 1), 0, *range(axis + 1, len(ahead)))
    func = movement.transpose(ahead, back, value.dtype)
    call.emit_bounded(func, (shaped,), call.outputs[0], axis, count)


def emit_joined(call: NodeCall, axis: int) -> None:
    """Join tensors along an axis along which a run gives fewer elements of some than there is room
    for."""
    positions = range(len(call.inputs))
    for position in positions[1:]:
        beside, first = _beside(call, position, axis), _beside(call, 0, axis)
        if beside != first:
            for other in beside.keys() & first.keys():
                require_equal(call.context, beside[other], first[other])
            call.refuse(
                f"a run decides how many elements {call.inputs[0]} and {call.inputs[position]} "
                f"have along axes other than {axis}, and the numbers may differ",
                "cut the model before this node",
            )
    shapes = [call.shape(k) for k in positions]
    counts = [call.elements_along(k, axis) for k in positions]
    whole = total(call.context, counts)
    limits = bounds_of(call.context, whole)
    room = sum(shape[axis] for shape in shapes) if limits is None else limits[1]
    count = held(call.context, whole)
    given = dict.fromkeys(positions, (axis,))
    if all(isinstance(n, int) for n in counts[:-1]) and room == sum(n[axis] for n in shapes):
        # Each operand has a place that no run decides.
        func = movement.concat(shapes, axis, call.dtype())
        call.emit_bounded(func, call.inputs, call.outputs[0], axis, count, given=given)
        return
    ahead = [held(call.context, count) for count in counts[:-1]]
    func = compaction.joined_slices(shapes, axis, room, call.dtype())
    call.emit_bounded(func, (*call.inputs, *ahead), call.outputs[0], axis, count, given=given)


def _beside(call: NodeCall, position: int, axis: int) -> Counts:
    """The counts of an input along the other axes."""
    return {k: count for k, count in call.counts(position).items() if k != axis}


OPERATORS: Emitters = {
    "Compress": _compress,
    "NonZero": _non_zero,
    "Unique": _unique,
}
