"""Operators that move a part of a tensor, or move its elements to several positions: Slice, Split,
Pad, Expand, Tile and the like.

Starts, pads, sizes and repeats that are inputs of a node must be known when the model is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from graphflow.base.errors import ExtentsLost
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import (
    AxisPart,
    axis_part,
    count_also,
    count_by,
    emit_parts,
    filled_input,
    least_given,
    require_open,
    require_same,
    sizes_in,
)
from graphflow.frontends.nodes.counted_pads import bounds_of_pads, most_of, with_pads
from graphflow.frontends.protos.steps import only_element
from graphflow.frontends.tensors.derived_sizes import (
    Element,
    bounds_of,
    combined,
    held,
    merged,
    narrow,
    require_equal,
    rounded_down,
    total,
)
from graphflow.kernels.definitions.data_dependent import compaction, indexing
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.tir import PrimFunc

LONG_ROW = 512
"""The shortest rows whose mirrored ends are stages of their own: 64 rows of 512 take 6.4 µs for 8.7
then, one of 16,000 takes 4.7 for 9.7, and 3,584 rows of 56 take 32 for 15."""


def _slice(call: NodeCall) -> None:
    """Parameters are attributes before opset 10, inputs since; bounds are clamped as in numpy."""
    shape = call.shape(0)
    steps: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None
    if call.opset < 10:
        starts, ends = tuple(call.required("starts")), tuple(call.required("ends"))
        given = call.attribute("axes")
        axes = None if given is None else tuple(given)
    else:
        starts, ends = call.numbers(1, "starts"), call.numbers(2, "ends")
        axes = call.numbers(3, "axes") if call.has(3) else None
        steps = call.numbers(4, "steps") if call.has(4) else None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise call.invalid(
            f"starts {starts}, ends {ends}, axes {axes} and steps {steps} "
            "must have the same length, and no step may be 0"
        )
    sized = sizes_in(call, 1), sizes_in(call, 2)
    ranges = [range(n) for n in shape]
    parts: dict[int, AxisPart] = {}
    for place, (start, end, stated, step) in enumerate(zip(starts, ends, axes, steps, strict=True)):
        axis = call.normalized_axis(stated)
        # A larger step takes no element more, and its multiples may not fit a word.
        most = max(shape[axis], 1)
        step = min(max(step, -most), most)
        ranges[axis] = _range_of(start, end, step, shape[axis])
        is_whole = (start, step) == (0, 1) and end >= shape[axis] and place not in sized[1]
        if any(place in sizes for sizes in sized) or (call.is_counted(0, (axis,)) and not is_whole):
            first, behind = sized[0].get(place, start), sized[1].get(place, end)
            parts[axis] = axis_part(call, axis, first, behind, step)
    if parts:
        emit_parts(call, ranges, parts)
    else:
        call.emit(selection.take_slice(shape, ranges, call.dtype()), call.inputs[:1])


def _range_of(start: int, end: int, step: int, extent: int) -> range:
    """The indices that a slice takes of an axis: as numpy does, except that a slice in negative
    steps from before the axis begins with its first element."""
    first, last, step = slice(start, end, step).indices(extent)
    return range(max(first, 0) if extent else first, last, step)


def _split(call: NodeCall) -> None:
    """One kernel for each output, so that each can be a view if layouts allow."""
    shape, axis = call.shape(0), call.axis(0)
    if call.is_counted(0, (axis,)) or sizes_in(call, 1):
        _emit_sized_parts(call, axis)
        return
    sizes = _split_sizes(call, shape[axis])
    if sum(sizes) != shape[axis] or len(sizes) != len(call.outputs):
        raise call.invalid(
            f"parts {tuple(sizes)} for {len(call.outputs)} outputs do not "
            f"divide axis {axis} of shape {shape}"
        )
    start = 0
    for number, (size, name) in enumerate(zip(sizes, call.outputs, strict=True)):
        ranges = [range(n) for n in shape]
        ranges[axis] = range(start, start + size)
        start += size
        if name:
            func = selection.take_slice(shape, ranges, call.dtype(), "split")
            call.emit(func, call.inputs[:1], name, f"part{number}")


def _emit_sized_parts(call: NodeCall, axis: int) -> None:
    """Add kernels for parts of an axis of which a run decides some extents."""
    context, shape = call.context, call.shape(0)
    count, sizes = call.elements_along(0, axis), _sized_parts(call, axis)
    whole = total(context, sizes)
    if len(sizes) != len(call.outputs) or combined(context, "Sub", whole, count) != 0:
        require_equal(context, whole, count)
        raise call.extents_lost(call.inputs, "its parts are not known to be all of that")
    for number, (size, name) in enumerate(zip(sizes, call.outputs, strict=True)):
        part = AxisPart(total(context, sizes[:number]), size)
        if name:
            emit_parts(call, [*map(range, shape)], {axis: part}, name, f"part{number}.")


def _sized_parts(call: NodeCall, axis: int) -> list[Element]:
    """How many elements a run gives of each part."""
    parts, count = len(call.outputs), call.elements_along(0, axis)
    stated = call.attribute("num_outputs")
    if call.has(1):
        sizes = sizes_in(call, 1)
        return [sizes.get(k, size) for k, size in enumerate(call.numbers(1, "split"))]
    if call.opset < 13 and call.attribute("split") is not None:
        return [*call.required("split")]
    limits = bounds_of(call.context, count)
    if limits is None:
        raise call.extents_lost(call.inputs, "parts of it are quotients of sizes alone")
    each = rounded_down(call.context, count, 0 if stated is None else parts - 1, parts)
    if stated is None:
        return [each] * parts
    last = combined(call.context, "Sub", count, total(call.context, [each] * (parts - 1)))
    assert last is not None
    if isinstance(last, str):
        # With `parts` elements more, the last part has one more.
        least, most = (
            [n - -(-n // parts) * (parts - 1) for n in range(end, end + step * parts, step)]
            for end, step in zip(limits, (1, -1), strict=True)
        )
        narrow(call.context, last, min(least), max(most))
    return [*([each] * (parts - 1)), last]


def _split_sizes(call: NodeCall, extent: int) -> Sequence[int]:
    parts = len(call.outputs)
    stated = call.attribute("num_outputs")
    if stated is not None and stated != parts:
        raise call.invalid(f"num_outputs is {stated}, it has {parts}")
    if call.opset < 13:
        sizes = call.attribute("split")
        if sizes is not None:
            return tuple(sizes)
    elif call.has(1):
        return call.numbers(1, "split")
    each = -(-extent // parts)
    if stated is None and extent % parts:
        raise call.invalid(f"{parts} equal parts do not divide an extent of {extent}")
    return tuple(min(each, max(extent - k * each, 0)) for k in range(parts))


def _pad(call: NodeCall) -> None:
    """Parameters are attributes before opset 11, inputs since; pads list all begins, then all
    ends."""
    shape = call.shape(0)
    mode = call.attribute("mode", "constant")
    value: float | tuple[int, ...] = 0.0
    axes: Sequence[int] = range(len(shape))
    if call.opset < 11:
        pads = tuple(call.required("pads"))
        value = call.attribute("value", 0.0)
    else:
        pads = call.numbers(1, "pads")
        known = call.known(2)
        if known is not None:
            value = only_element(call.title, known, "its value")
        elif call.has(2):
            value = call.shape(2)
        if call.has(3):
            axes = call.numbers(3, "axes")
    if len(pads) != 2 * len(axes):
        raise call.invalid(f"pads {pads} are not two for each of axes {axes}")
    begins, ends = [0] * len(shape), [0] * len(shape)
    axes = [call.normalized_axis(axis) for axis in axes]
    for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        begins[axis], ends[axis] = begin, end
    stated = _stated_pads(call, axes, begins, ends)
    sized = any(isinstance(number, str) for pair in stated.values() for number in pair)
    counted = [axis for axis in call.counts(0) if axis in stated]
    if (counted or sized) and mode != "constant":
        _emit_mirrored(call, stated, mode)
        return
    if sized:
        _emit_placed(call, stated, value)
        return
    func = selection.pad(shape, begins, ends, mode, value, call.dtype())
    if not any(begins[:-1] + ends[:-1]) and not call.counts(0) and shape[-1:] >= (LONG_ROW,):
        func = selection.pad_rows(shape, begins[-1], ends[-1], mode, call.dtype()) or func
    x, counts, behind = call.inputs[0], {}, [axis for axis in counted if ends[axis] > 0]
    for axis in counted:
        counts[axis] = _padded_count(call, axis, begins[axis], ends[axis])
    if behind and isinstance(value, tuple):
        raise call.extents_lost(call.inputs[:1], "the number behind it is known in a run only")
    if behind and not isinstance(value, tuple):
        x = filled_input(call, 0, behind, value)
    given = {0: [axis for axis in counted if axis not in behind]}
    call.emit(func, (x, *call.inputs[2:3])[: len(func.inputs)], given=given)
    count_by(call, {axis: n for axis, n in counts.items() if isinstance(n, str)})


def _stated_pads(
    call: NodeCall, axes: Sequence[int], begins: Sequence[int], ends: Sequence[int]
) -> dict[int, tuple[Element, Element]]:
    """The pads of all axes that may have any, numbers or sizes."""
    sizes = sizes_in(call, 1) if call.opset >= 11 else {}
    pads: dict[int, tuple[Element, Element]] = {}
    for place, axis in enumerate(axes):
        begin = sizes.get(place, begins[axis])
        pads[axis] = begin, sizes.get(place + len(axes), ends[axis])
    return {axis: pair for axis, pair in pads.items() if pair != (0, 0)}


def _emit_placed(
    call: NodeCall, pads: Mapping[int, tuple[Element, Element]], value: float | tuple[int, ...]
) -> None:
    """Pad with a number, along one axis after the other."""
    if isinstance(value, tuple):
        raise ExtentsLost(
            f"{call.title}: a run decides how many elements are added, and the number in them; cut "
            "the model before this node"
        )
    name = call.inputs[0]
    for axis, (begin, end) in pads.items():
        name = with_pads(call, name, axis, begin, end, value, f"padded{axis}")
    call.emit(movement.copy(call.context.graph.values[name].shape, call.dtype()), (name,))


def _padded_count(call: NodeCall, axis: int, begin: Element, end: Element) -> Element:
    """How many elements a run has along an axis, if it is padded or cropped by these numbers."""
    cropped = sum(min(number, 0) for number in (begin, end) if isinstance(number, int))
    if least_given(call, 0, axis) + cropped < 0:
        raise call.extents_lost(call.inputs[:1], "more elements than it has are cropped")
    return total(call.context, (call.elements_along(0, axis), begin, end))


def _emit_mirrored(call: NodeCall, pads: Mapping[int, tuple[Element, Element]], mode: str) -> None:
    """Pad with elements of the input; along axes of which a run decides the extent, or the number
    of pads, from places that depend on these."""
    shape, counts = call.shape(0), dict[int, Element]()
    ahead, behind = [0] * len(shape), [0] * len(shape)
    for axis, (begin, end) in pads.items():
        if isinstance(begin, int) and isinstance(end, int) and not call.is_counted(0, (axis,)):
            ahead[axis], behind[axis] = begin, end
    func = selection.pad(shape, ahead, behind, mode, 0.0, call.dtype())
    name = call.emit_part(func, call.inputs[:1], "beside")
    moved = [axis for axis, pair in pads.items() if (ahead[axis], behind[axis]) != pair]
    for axis in moved:
        begin, end = pads[axis]
        most = [bounds_of_pads(call, number)[1] for number in (begin, end)]
        least = least_given(call, 0, axis) - (mode != "wrap")
        if (max(most) > least and mode != "edge") or least < 0:
            raise ExtentsLost(
                f"{call.title}: a run may give fewer elements of {call.inputs[0]} along axis "
                f"{axis} than the {max(most)} that are added; cut the model before this node, or "
                "state a greater least"
            )
        if isinstance(begin, str):
            raise ExtentsLost(
                f"{call.title}: a run decides how many elements are added in front of axis {axis}, "
                f"which is built for constants and not for mode {mode}; add them behind it"
            )
        counts[axis] = _padded_count(call, axis, begin, end)
        shape = call.context.graph.values[name].shape
        room = most_of(call, counts[axis])
        func = compaction.padded_places(shape[axis], begin, room - shape[axis] - begin, mode)
        extent = held(call.context, call.elements_along(0, axis))
        places = call.emit_part(func, (extent,), f"places{axis}")
        if isinstance(count := counts[axis], str):
            count_also(call, places, {0: count})
        taken = indexing.gather_at(shape, (room,), axis, call.dtype(), "int64")
        result = call.outputs[0] if axis == moved[-1] else call.part_name(f"axis{axis}")
        name = call.emit(taken, (name, places), result, f"axis{axis}", given={0: (axis,)})
    count_by(call, {axis: n for axis, n in counts.items() if isinstance(n, str)})


def _expand(call: NodeCall) -> None:
    wanted = call.numbers(1, "shape")
    func = selection.expand(call.shape(0), wanted, call.dtype())
    call.emit(func, call.inputs[:1])
    rank, shape = len(func.outputs[0].shape), call.shape(0)
    ahead = rank - len(wanted)
    sizes = {ahead + axis: tensor for axis, tensor in sizes_in(call, 1).items()}
    extents = (1,) * (rank - len(shape)) + shape
    counted = call.context.counted.get(call.outputs[0], {})
    repeated = (axis for axis in sizes if extents[axis] == 1 and axis not in counted)
    count_by(call, {axis: sizes[axis] for axis in repeated})
    stated = {ahead + axis for axis, n in enumerate(wanted) if n != 1}
    require_open(call, stated | sizes.keys(), sizes)


def _tile(call: NodeCall) -> None:
    """Along axes of which a run decides the extent, elements come from places that it computes."""
    repeats, sizes, shape = list(call.numbers(1, "repeats")), sizes_in(call, 1), call.shape(0)
    counts = {
        axis: combined(call.context, "Mul", call.elements_along(0, axis), sizes.get(axis, repeat))
        for axis, repeat in enumerate(repeats)
    }
    moved = [axis for axis in call.counts(0) if repeats[axis] != 1 or axis in sizes]
    beside = [1 if axis in moved else repeat for axis, repeat in enumerate(repeats)]
    func = selection.tile(shape, repeats, call.dtype())  # refuses repeats that do not fit
    func = selection.tile(shape, beside, call.dtype()) if moved else func
    name = (
        call.emit_part(func, call.inputs[:1], "beside")
        if moved
        else call.emit(func, call.inputs[:1])
    )
    for axis in moved:
        shape = call.context.graph.values[name].shape
        most = shape[axis] * repeats[axis]
        places = call.emit_part(
            compaction.repeated_places(most), (call.counts(0)[axis],), f"places{axis}"
        )
        if isinstance(count := counts[axis], str):
            count_also(call, places, {0: count})
        taken = indexing.gather_at(shape, (most,), axis, call.dtype(), "int64")
        result = call.outputs[0] if axis == moved[-1] else call.part_name(f"axis{axis}")
        name = call.emit(taken, (name, places), result, f"axis{axis}", given={0: (axis,)})
    count_by(call, {axis: n for axis, n in counts.items() if isinstance(n, str)})


def _space_and_depth(define: Callable[..., PrimFunc], order: str, call: NodeCall) -> None:
    """`order` is the parameter of `define` that says whether channels come before blocks.

    An index in front of the node is one behind it, divided by the block or times it, so the
    elements of a run are the first ones along each axis on both sides.
    """
    crd = call.choice("mode", ("DCR", "CRD"), "DCR") == "CRD"
    block, dtype = call.required("blocksize"), call.stored_dtype()
    counts = {axis: _block_count(call, axis, block) for axis in call.counts(0)}
    func = define(call.shape(0), block, dtype=dtype, **{order: crd})
    call.add_kernel(func, call.inputs[:1], call.outputs[:1], "", gives_all=True)
    count_by(call, {axis: n for axis, n in counts.items() if isinstance(n, str)})


def _block_count(call: NodeCall, axis: int, block: int) -> Element:
    """How many elements a run has along an axis behind DepthToSpace or SpaceToDepth."""
    count = call.counts(0)[axis]
    if axis == 0:
        return count
    if axis == 1 or count not in call.context.sizes:
        raise call.extents_lost(call.inputs[:1], f"its axis {axis} is taken in blocks of {block}")
    if call.op == "DepthToSpace":
        return merged(call.context, (count, block))
    blocks = rounded_down(call.context, count, 0, block)
    whole = merged(call.context, (blocks, block))
    require_same(call, count, whole if isinstance(whole, str) else None, "it is divided into")
    return blocks


OPERATORS: Emitters = {
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "Expand": _expand,
    "Tile": _tile,
    "DepthToSpace": partial(_space_and_depth, selection.depth_to_space, "column_row"),
    "SpaceToDepth": partial(_space_and_depth, selection.space_to_depth, "channel_first"),
}
