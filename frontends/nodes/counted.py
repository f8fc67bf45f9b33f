"""Tensors of which a run gives fewer elements than there is room for, as operators treat them.

In: a node whose inputs have counted axes: for each of these, an integer tensor holds the number of
elements that a run gives.  Out: kernels that allow for what the run does not give, and the counts
of the node's output.  What always holds: an element that a run gives is computed from elements that
it gives, or from a fill that is neutral to the computation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from graphflow.base.errors import ExtentsLost
from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.tensors.derived_sizes import (
    Element,
    bounds_of,
    combined,
    held,
    lesser,
    narrow,
    require_equal,
    rounded_down,
    total,
)
from graphflow.kernels.definitions.data_dependent import compaction, indexing
from graphflow.kernels.definitions.movements import selection


def least_given(call: NodeCall, position: int, axis: int) -> int:
    """The least number of elements that a run gives of an input along an axis."""
    count = call.counts(position).get(axis)
    if count is None:
        return call.shape(position)[axis]
    size = call.context.sizes.get(count)
    return 0 if size is None else size.lo


def sizes_in(call: NodeCall, position: int) -> Mapping[int, str]:
    """The elements of an input that are sizes, with the tensors that hold these."""
    if not call.has(position):
        return {}
    sized = call.context.sized_values.get(call.inputs[position])
    return {} if sized is None else sized.sizes


# Counts of outputs --------------------------------------------------------------------------------


def count_like(call: NodeCall, name: str, position: int) -> None:
    """Record that a run gives as many elements of the tensor `name` as of an input, along the axes
    that the input counts."""
    counts = call.counts(position)
    if counts:
        call.context.counted[name] = dict(counts)


def count_by(call: NodeCall, counts: Mapping[int, str], output: str = "") -> None:
    """Record that a run gives as many elements of an output, by default the first, along some axes
    as `counts` say.

    Refuses the node if one of these may be negative in a run.
    """
    if counts:
        # Known contents would be computed with at import, as if a run gave all of them.
        name = output or call.outputs[0]
        assert name not in call.context.known
        count_also(call, name, counts)


def count_also(call: NodeCall, name: str, counts: Mapping[int, str]) -> None:
    """Record that a run gives as many elements of a tensor of the node as `counts` say, besides
    what is recorded of other axes.  Of a tensor without counts nothing is recorded."""
    if counts:
        _require_extents(call, counts.values())
        call.context.counted.setdefault(name, {}).update(counts)


class AxisPart(Struct, frozen=True):
    """A part of an axis: every `step`-th of `extent` elements from `start` on, down where it is
    negative; both are numbers or counts of a run."""

    start: Element
    extent: Element
    step: int = 1


def axis_part(call: NodeCall, axis: int, start: Element, end: Element, step: int) -> AxisPart:
    """The elements of input 0 along an axis from `start` up to `end`, as Slice counts them: from
    the back if negative, and none outside of the axis.

    Refuses bounds of which a run decides on which side of 0 they are.
    """
    count = call.elements_along(0, axis)
    if step < 0:
        return _part_backwards(call, axis, start, end, step)
    first, behind = (_from_front(call, axis, count, bound) for bound in (start, end))
    if step > 1 and not bounds_of(call.context, behind):
        raise _part_lost(call, axis, f"it takes elements in steps of {step}")
    return AxisPart(first, _between(call, axis, first, behind), step)


def _part_backwards(call: NodeCall, axis: int, start: Element, end: Element, step: int) -> AxisPart:
    """The elements from `start` down to the one behind `end`; both count as Slice does."""
    context = call.context
    count = call.elements_along(0, axis)
    limits = bounds_of(context, count)
    if limits is None or (isinstance(start, int) and start < -max(limits[0], 1)):
        raise _part_lost(call, axis, f"it takes elements in steps of {step} from {start} on")
    behind, low = (_behind(call, axis, count, bound) for bound in (start, end))
    first = combined(context, "Sub", behind, 1)
    assert first is not None
    return AxisPart(first, _between(call, axis, low, behind), step)


def _behind(call: NodeCall, axis: int, count: Element, bound: Element) -> Element:
    """The place behind a bound of a slice backwards, from the front."""
    if bound == -1:  # the last of the axis, which no bound stands behind
        return count
    limits = bounds_of(call.context, bound)
    if limits is None or limits[0] <= -1 <= limits[1]:
        raise _either_sign(call, axis, bound)
    return _from_front(call, axis, count, total(call.context, (bound, 1)))


def _between(call: NodeCall, axis: int, first: Element, behind: Element) -> Element:
    """How many elements are from `first` on ahead of `behind`."""
    if first == 0:
        return behind
    extent = combined(call.context, "Sub", behind, first)
    limits = None if extent is None else bounds_of(call.context, extent)
    if extent is None or limits is None or limits[0] < 0:
        raise _part_lost(call, axis, "the end of a slice may stand before its start")
    return extent


def _from_front(call: NodeCall, axis: int, count: Element, bound: Element) -> Element:
    """A bound of a slice of `count` elements, as a place from the front that is in the axis."""
    limits = bounds_of(call.context, bound)
    if bound == 0:
        return 0
    if limits is not None and limits[0] >= 0:
        return lesser(call.context, count, bound)
    if limits is None or limits[1] >= 0:
        raise _either_sign(call, axis, bound)
    from_back = combined(call.context, "Sub", 0, bound)
    assert from_back is not None
    place = combined(call.context, "Sub", count, lesser(call.context, count, from_back))
    assert place is not None
    most = bounds_of(call.context, count)
    if isinstance(place, str) and place in call.context.sizes and most is not None:
        # What `count` and the lesser of it and another number have in common is lost in a sum.
        narrow(call.context, place, 0, max(most[1] + limits[1], 0))
    return place


def _either_sign(call: NodeCall, axis: int, bound: Element) -> ExtentsLost:
    return _part_lost(call, axis, f"the bound {bound} of a slice may have either sign")


def _part_lost(call: NodeCall, axis: int, reason: str) -> ExtentsLost:
    return ExtentsLost(
        f"{call.title}: a run decides what it takes along axis {axis} of {call.inputs[0]}, and "
        f"{reason}; cut the model before this node"
    )


def emit_parts(
    call: NodeCall,
    ranges: Sequence[range],
    parts: Mapping[int, AxisPart],
    output: str = "",
    label: str = "",
) -> None:
    """Add kernels that keep parts of input 0: `ranges` of its axes, or `parts`, by axis, where a
    run decides how many elements there are, or which.

    They give the tensor `output`, by default the node's first; their names begin with `label`.
    """
    context, source, result = call.context, call.inputs[0], output or call.outputs[0]
    shape, kept, counts = list(call.shape(0)), list(ranges), dict(call.counts(0))
    dtype = call.stored_dtype()
    for axis, part in parts.items():
        extent, apart = part.extent, abs(part.step)
        if apart > 1:
            extent = rounded_down(context, extent, apart - 1, apart)
        limits, room = bounds_of(context, extent), -(-shape[axis] // apart)
        most = room if limits is None else min(limits[1], room)
        if isinstance(part.start, str) or part.step < 0:
            places = compaction.stepped_places(shape[axis], most, part.step)
            at = call.emit_part(places, (held(context, part.start),), f"{label}places{axis}")
            moved = call.part_name(f"{label}moved{axis}")
            func = indexing.gather_at(tuple(shape), (most,), axis, dtype, "int64")
            call.add_kernel(func, (source, at), (moved,), f"{label}moved{axis}", gives_all=True)
            others = {k: n for k, n in counts.items() if k not in parts}
            if isinstance(extent, str):
                count_also(call, at, {0: extent})
                others[axis] = extent
            count_also(call, moved, others)
            source, shape[axis], kept[axis] = moved, most, range(most)
        else:
            kept[axis] = range(part.start, part.start + (most - 1) * part.step + 1, part.step)
        if isinstance(extent, str):
            counts[axis] = extent
        elif counts.pop(axis, None) is not None:  # every run gives as many
            call.drops_counts = True
    func = selection.take_slice(tuple(shape), kept, dtype)
    call.add_kernel(func, (source,), (result,), label[:-1], gives_all=True)
    count_by(call, counts, result)


# Fills --------------------------------------------------------------------------------------------


def filled(
    call: NodeCall, name: str, fill: float, part: str, axes: Collection[int] | None = None
) -> str:
    """The name of a tensor like `name`, with `fill` in place of elements that a run does not give
    along `axes` (None: all); `name` itself if it gives all of these."""
    counts = call.context.counted.get(name, {})
    behind = {axis: n for axis, n in counts.items() if axes is None or axis in axes}
    if not behind:
        return name
    known = call.context.filled.get(name, {})
    if all(known.get(axis) == fill for axis in behind):
        call.read_with_fill[name] = call.read_with_fill.get(name, frozenset()) | behind.keys()
        return name
    source = call.widened(name)
    value = call.context.graph.values[source]
    others = {axis: n for axis, n in counts.items() if axis not in behind}
    for axis, count in behind.items():
        func = compaction.counted_slices(value.shape, axis, fill, value.dtype)
        result = call.context.unique_tensor_name(f"{call.outputs[0]}{part}.given{axis}")
        call.add_kernel(func, (source, count), (result,), f"{part[1:]}given{axis}", gives_all=True)
        source = result
    if others:
        call.context.counted[source] = others
    return source


def filled_behind(call: NodeCall, name: str, fill: float, behind: Mapping[int, int]) -> str:
    """The name of a tensor like `name`, with `fill` in place of as many elements behind those of a
    run as `behind` says for some axes, and nothing known of what stands behind these.

    So a run writes no more of it than it reads.
    """
    counts = dict(call.context.counted.get(name, {}))
    result = filled(call, name, fill, "", behind) if behind else name
    if result == name:
        return name
    context = call.context
    for axis, number in behind.items():
        if counts[axis] not in context.sizes:
            continue
        reach = total(context, (counts[axis], number))
        read = lesser(context, reach, context.graph.values[result].shape[axis])
        if isinstance(read, str):  # else every run reads all of it
            context.counted.setdefault(result, {})[axis] = read
    return result


def filled_input(call: NodeCall, position: int, axes: Iterable[int], fill: float) -> str:
    """The input at `position` with `fill` in place of elements that a run does not give along
    `axes`, over which the node reduces: neutral to the reduction."""
    reduced = tuple(axes)
    if call.is_counted(position, reduced):
        call.drops_counts = True
    return filled(call, call.inputs[position], fill, f".{position}" if position else "", reduced)


def filled_factors(call: NodeCall, left: int, right: int) -> tuple[str, str]:
    """Both factors of a product that adds over axis `left` of input 0 and axis `right` of input 1,
    with zeros in place of what a run does not give along these.

    Both are filled, as zero times what lies there may be NaN.
    """
    require_same_count(call, left, right, "it is multiplied with")
    return filled_input(call, 0, (left,), 0), filled_input(call, 1, (right,), 0)


def filled_parts(call: NodeCall, names: tuple[str, str], left: int, right: int) -> tuple[str, str]:
    """The same of two tensors that kernels of the node make of its inputs."""
    counted = call.context.counted
    first, second = names
    count = counted.get(first, {}).get(left)
    require_same(call, count, counted.get(second, {}).get(right), "it is multiplied with")
    if count is None:
        return names
    call.drops_counts = True
    return filled(call, first, 0, ".left", (left,)), filled(call, second, 0, ".right", (right,))


# Refusals -----------------------------------------------------------------------------------------


def _require_extents(call: NodeCall, counts: Iterable[str]) -> None:
    """Refuse the node if one of the counts that it takes as extents may be negative in a run."""
    for count in counts:
        size = call.context.sizes.get(count)
        if size is not None and size.lo < 0:
            raise ExtentsLost(
                f"{call.title}: the extent {size.name} may be {size.lo} in a run, and how many "
                "elements its output has is only known then; cut the model before this node"
            )


def require_open(
    call: NodeCall, axes: Iterable[int], sizes: Mapping[int, str] = MappingProxyType({})
) -> None:
    """Refuse the node if a run decides the extent of its output along one of `axes`, for which the
    node states an extent; or along one for which it states one of `sizes`, if it is not that
    size."""
    counts = call.context.counted.get(call.outputs[0], {})
    wrong = [axis for axis in axes if counts.get(axis) != sizes.get(axis)]
    if wrong:
        name = next((n for n in call.inputs if n in call.context.counted), call.inputs[-1])
        raise ExtentsLost(
            f"{call.title}: how many elements its input {name} has is only known at run time, and "
            f"the node states the extent of axis {min(wrong)}; cut the model before this node"
        )


def require_same_count(call: NodeCall, left: int, right: int, use: str) -> None:
    """Refuse the node unless a run gives as many elements of input 0 along axis `left` as of input
    1 along axis `right`; `use` says what the node does with them."""
    require_same(call, call.counts(0).get(left), call.counts(1).get(right), use)


def require_same(call: NodeCall, left: str | None, right: str | None, use: str) -> None:
    """Refuse the node unless two axes have the same count, or none."""
    if left == right:
        return
    if left is not None and right is not None:
        require_equal(call.context, left, right)
    raise call.extents_lost(call.inputs, f"{use} a tensor that may have another number")


def require_several(call: NodeCall, position: int) -> None:
    """Refuse the node if a run may give a single element along an axis of an input that has room
    for more, where the node does something else with such an axis."""
    shape = call.shape(position)
    for axis in call.counts(position):
        if shape[axis] > 1 and least_given(call, position, axis) < 2:
            raise call.extents_lost(
                call.inputs[position : position + 1], "it treats an axis of one another way"
            )
