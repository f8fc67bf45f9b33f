"""Indices that are data, and what has to hold of them.

In: an input of a node that indexes axes of another one.  Out: guards, which each run checks: every
index is in its axis.  Where a run decides how many elements an axis has, also the places that
indices name, counted from the front: a negative index counts from the last element of the run.
What always holds: indices that are known when the model is compiled are checked then, as far as no
run decides the extent.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.nodes.counted import filled
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.data_dependent import indexing
from graphflow.kernels.definitions.movements import selection
from graphflow.kernels.definitions.reductions import reduction


def require_indices(call: NodeCall, position: int, extent: int) -> None:
    """Ensure that each index in an input lies in `-extent <= index < extent`.

    Raises InvalidModel if known indices do not; otherwise adds a guard that is checked at each run.
    """
    require_from(call, position, -extent, extent - 1)


def require_tuples(call: NodeCall, position: int, extents: tuple[int, ...]) -> None:
    """The same for index tuples, where each number of a tuple indexes another axis."""
    name, known = call.inputs[position], call.known(position)
    if known is None and len(set(extents)) == 1:
        require_indices(call, position, extents[0])
        return
    for number, extent in enumerate(extents):
        taken = _number(call, name, number)
        if known is not None:
            call.context.known[taken] = known[..., number]
        _require_within(call, name, taken, (-extent, extent - 1), f".number{number}")


def require_from(call: NodeCall, position: int, lo: int, hi: int) -> None:
    """Ensure, as `require_indices` does, that each number in an integer input is from `lo` to
    `hi`."""
    source = call.inputs[position]
    _require_within(call, source, source, (lo, hi), "")


def require_room(call: NodeCall, position: int, count: str, extent: int) -> None:
    """Ensure, at each run, that `count` elements from each number of an input on are in an axis."""
    source = call.inputs[position]
    name = filled(call, source, 0, ".of_run")
    least = _extreme(call, name, "min", "least")
    call.context.graph.add_guard(least, 0, extent, f"{call.title}: the least index {source}")
    largest = _extreme(call, name, "max", "largest")
    dtype = call.context.graph.values[largest].dtype
    if dtype != "int64":
        largest = call.emit_part(elementwise.cast((), dtype, "int64"), (largest,), "wide")
    end = call.emit_part(elementwise.binary("add", (), (), "int64"), (largest, count), "end")
    subject = f"{call.title}: the end of the elements that begin at the largest index of {source}"
    call.context.graph.add_guard(end, 0, extent, subject)


def _extreme(call: NodeCall, name: str, kind: str, part: str) -> str:
    """The least or the largest number of a tensor of integers."""
    value = call.context.graph.values[name]
    func = reduction.reduce(kind, value.shape, range(len(value.shape)), False, value.dtype)
    return call.emit_part(func, (name,), part)


def _number(call: NodeCall, name: str, number: int) -> str:
    """The tensor of the numbers at one position of all index tuples in a tensor."""
    value = call.context.graph.values[name]
    ranges = [*map(range, value.shape[:-1]), range(number, number + 1)]
    func = selection.take_slice(value.shape, ranges, value.dtype)
    return call.emit_part(func, (name,), f"number{number}")


def _require_within(
    call: NodeCall, source: str, name: str, interval: tuple[int, int], part: str
) -> None:
    """`name` is the tensor of indices, which is the part `part` of the tensor `source`."""
    if 0 in call.context.graph.values[name].shape:
        return
    lo, hi = interval
    tensor = f"of tensor {source}"
    if lo > hi:
        raise call.invalid(f"the axis has no elements, so no index {tensor} is valid")
    known = call.context.known.get(name)
    if known is not None:
        outside = [n for n in known.reshape(-1).tolist() if not lo <= n <= hi]
        if outside:
            raise call.invalid(
                f"index {outside[0]} {tensor} is outside of its axis, "
                f"and has to be from {lo} to {hi}"
            )
        return
    value, counts = call.context.graph.values[name], call.context.counted.get(name, {})
    func = indexing.furthest_index(value.shape, lo, value.dtype, tuple(counts))
    label = f"{part}.furthest_index"[1:]
    limit = call.part_name(label)
    call.add_kernel(func, (name, *counts.values()), (limit,), label, gives_all=True)
    call.context.graph.add_guard(limit, lo, hi, f"{call.title}: an index {tensor}")


# Along axes of which a run gives a part -----------------------------------------------------------


def places_on_axis(call: NodeCall, position: int, axis: int) -> str:
    """The places on an axis of input 0 that the indices in an input name."""
    name = call.inputs[position]
    value = call.context.graph.values[name]
    count, room = call.counts(0).get(axis), call.shape(0)[axis]
    if call.known(position) is not None:
        require_indices(call, position, room)
    extent = room if count is None else None
    func = indexing.places_from_front(value.shape, (extent,), value.dtype)
    given = () if count is None else (count,)
    places = call.emit_part(func, (name, *given), "places")
    _require_places(call, name, places, count, room, ".places")
    return places


def require_places(call: NodeCall, position: int, axis: int) -> None:
    """Ensure that each number in an integer input is a place on an axis of input 0, from its
    front."""
    name = call.inputs[position]
    _require_places(call, name, name, call.counts(0).get(axis), call.shape(0)[axis], "")


def places_of_tuples(call: NodeCall, position: int, axes: Sequence[int]) -> str:
    """The same for index tuples, of which each number indexes one of the axes."""
    name, shape = call.inputs[position], call.shape(0)
    value = call.context.graph.values[name]
    counts = call.counts(0)
    if call.known(position) is not None:
        require_tuples(call, position, tuple(shape[axis] for axis in axes))
    extents = [None if axis in counts else shape[axis] for axis in axes]
    func = indexing.places_from_front(value.shape, extents, value.dtype, in_tuples=True)
    given = [counts[axis] for axis in axes if axis in counts]
    places = call.emit_part(func, (name, *given), "places")
    for number, axis in enumerate(axes):
        taken, part = _number(call, places, number), f".place{number}"
        _require_places(call, name, taken, counts.get(axis), shape[axis], part)
    return places


def _require_places(
    call: NodeCall, source: str, places: str, count: str | None, room: int, part: str
) -> None:
    """Make each run check that places are in an axis, of which it gives `count` elements."""
    graph = call.context.graph
    _require_within(call, source, places, (0, room - 1), part)
    if count is not None and 0 not in graph.values[places].shape:
        subject = (
            f"{call.title}: the largest index of tensor {source}, less the extent of its axis,"
        )
        _require_less(call, places, count, (-room - 1, -1), part, subject)


def require_lengths(call: NodeCall, position: int, axis: int) -> None:
    """Ensure, at each run, that each number in an input of int64 is at most how many elements input
    0 has along an axis, and not negative."""
    room, count, source = call.shape(0)[axis], call.counts(0).get(axis), call.inputs[position]
    require_from(call, position, 0, room)
    if count is not None and 0 not in call.shape(position):
        subject = (
            f"{call.title}: the largest length of tensor {source}, less the extent of its axis,"
        )
        _require_less(call, source, count, (-room, 0), "", subject)


def _require_less(
    call: NodeCall,
    name: str,
    count: str,
    interval: tuple[int, int],
    part: str,
    subject: str,
) -> None:
    """Make each run check that the largest number of a tensor of int64, less a count, is in an
    interval."""
    # Where a run gives none, there is none that could be outside.
    given = filled(call, name, min(interval[1], 0), f"{part}.of_run")
    largest = _extreme(call, given, "max", f"{part}.largest"[1:])
    less = elementwise.binary("sub", (), (), "int64")
    beyond = call.emit_part(less, (largest, count), f"{part}.beyond"[1:])
    call.context.graph.add_guard(beyond, *interval, subject)
