"""Gather and scatter: operators whose indices are data.

Indices that are known when the model is compiled are checked then, and if they form few contiguous
runs the gather becomes slice copies.  Indices that come with a run are checked after it: a guard on
their minimum and maximum raises an error if one is outside of the axis, and the kernels neither
read nor write for such an index.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphflow.frontends.nodes.call import Emitters, Given, NodeCall
from graphflow.frontends.nodes.counted import filled, least_given
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.data_dependent import indexing
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.kernels.definitions.reductions import reduction


def require_indices(call: NodeCall, position: int, extent: int) -> None:
    """Ensure that each index in an input lies in `-extent <= index < extent`.

    Raises InvalidModel if known indices do not; otherwise adds a guard that is checked at each run.
    """
    require_from(call, position, -extent, extent - 1)


def _require_tuples(call: NodeCall, position: int, extents: tuple[int, ...]) -> None:
    """The same for index tuples, where each number of a tuple indexes another axis."""
    name, shape = call.inputs[position], call.shape(position)
    known = call.known(position)
    if known is None and len(set(extents)) == 1:
        require_indices(call, position, extents[0])
        return
    for number, extent in enumerate(extents):
        part = f"number{number}"
        ranges = [*map(range, shape[:-1]), range(number, number + 1)]
        func = selection.take_slice(shape, ranges, call.dtype(position))
        taken = call.emit_part(func, (name,), part)
        if known is not None:
            call.context.known[taken] = known[..., number]
        _require_within(call, name, taken, (-extent, extent - 1), f".{part}")


def _require_within(
    call: NodeCall, source: str, name: str, interval: tuple[int, int], part: str
) -> None:
    """`name` is the tensor of indices, which is the part `part` of the tensor `source`."""
    shape, dtype = call.context.graph.values[name].shape, call.context.graph.values[name].dtype
    if 0 in shape:
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
    name = filled(call, name, max(lo, 0), part)
    for kind, word in (("min", "least"), ("max", "largest")):
        limit = call.part_name(f"{part[1:]}.{word}_index" if part else f"{word}_index")
        func = reduction.reduce(kind, shape, range(len(shape)), False, dtype)
        call.emit(func, (name,), limit, f"{part[1:]}{word}")
        subject = f"{call.title}: the {word} index {tensor}"
        call.context.graph.add_guard(limit, lo, hi, subject)


def require_from(call: NodeCall, position: int, lo: int, hi: int) -> None:
    """Ensure, as `require_indices` does, that each number in an integer input is from `lo` to
    `hi`."""
    source = call.inputs[position]
    _require_within(call, source, source, (lo, hi), "")


def _gather(call: NodeCall) -> None:
    shape, axis = call.shape(0), call.axis(0)
    require_indices(call, 1, shape[axis])
    contents = call.known(1)
    known = None if contents is None else contents.astype(np.int64)
    given = {} if known is None else _axes_given(call, axis, known)
    if known is not None and given and (known < 0).any():
        places = _places_from_front(call, known, call.counts(0)[axis])
        func = indexing.gather_at(shape, known.shape, axis, call.dtype(), "int64")
        call.emit(func, (call.inputs[0], places), given=given)
        return
    runs = [] if known is None else selection.runs_of(known.reshape(-1).tolist(), shape[axis])
    if known is None or len(runs) > selection.MOST_RUNS:
        func = indexing.gather_at(shape, call.shape(1), axis, call.dtype(), call.dtype(1))
        call.emit(func, given=given)
        return
    # Indices with several axes are gathered as a vector, and the result is reshaped.
    positions = known.reshape(-1).tolist() if known.ndim else int(known)
    func = selection.gather(shape, axis, positions, call.dtype())
    if known.ndim < 2:
        call.emit(func, call.inputs[:1], given=given)
        return
    flat = call.emit_part(func, call.inputs[:1], "flat", given=given)
    result = (*shape[:axis], *known.shape, *shape[axis + 1 :])
    call.emit(movement.reshape(func.outputs[0].shape, result, call.dtype()), (flat,))


def _axes_given(call: NodeCall, axis: int, indices: NDArray[np.int64]) -> Given:
    """The axis of the data, if a run decides its extent, and every run gives the elements that
    known indices take from its front or from its back."""
    least = least_given(call, 0, axis)
    if call.is_counted(0, (axis,)) and ((-least <= indices) & (indices < least)).all():
        return {0: (axis,)}
    return {}


def _places_from_front(call: NodeCall, indices: NDArray[np.int64], count: str) -> str:
    """A tensor of known indices, to the negative of which the number of elements is added."""
    behind = call.add_part((indices < 0).astype(np.int64), "from_back")
    ends = call.emit_part(
        elementwise.binary("mul", indices.shape, (), "int64"), (behind, count), "ends"
    )
    plus = elementwise.binary("add", indices.shape, indices.shape, "int64")
    stated = call.add_part(indices, "stated")
    return call.emit_part(plus, (stated, ends), "places")


def _gather_elements(call: NodeCall) -> None:
    axis = call.axis(0)
    require_indices(call, 1, call.shape(0)[axis])
    func = indexing.gather_elements(call.shape(0), call.shape(1), axis, call.dtype(), call.dtype(1))
    call.emit(func)


def _gather_nd(call: NodeCall) -> None:
    batch, shape = int(call.attribute("batch_dims", 0)), call.shape(0)
    func = indexing.gather_nd(shape, call.shape(1), batch, call.dtype(), call.dtype(1))
    _require_tuples(call, 1, shape[batch : batch + call.shape(1)[-1]])
    call.emit(func)


def _scatter_elements(call: NodeCall) -> None:
    axis, reduction = call.axis(0), str(call.attribute("reduction", "none"))
    shape = call.shape(0)
    _check_updates(call, call.shape(1))
    func = indexing.scatter_elements(
        shape, call.shape(1), axis, reduction, call.dtype(), call.dtype(1)
    )
    require_indices(call, 1, shape[axis])
    call.emit(func)


def _scatter_nd(call: NodeCall) -> None:
    shape, indices = call.shape(0), call.shape(1)
    func = indexing.scatter_nd(
        shape, indices, str(call.attribute("reduction", "none")), call.dtype(), call.dtype(1)
    )
    _check_updates(call, (*indices[:-1], *shape[indices[-1] :]))
    _require_tuples(call, 1, shape[: indices[-1]])
    call.emit(func)


def _check_updates(call: NodeCall, wanted: tuple[int, ...]) -> None:
    if call.shape(2) != wanted:
        raise call.invalid(
            f"the updates have shape {call.shape(2)}, data of shape "
            f"{call.shape(0)} and indices of shape {call.shape(1)} take {wanted}"
        )


def _one_hot(call: NodeCall) -> None:
    depth = int(call.constant(1, "depth").reshape(-1)[0])
    if depth < 1:
        raise call.invalid(f"depth {depth} is not positive")
    if call.shape(2) != (2,):
        raise call.invalid(f"values have shape {call.shape(2)}, and have to be two numbers")
    axis = int(call.attribute("axis", -1))
    func = indexing.one_hot(call.shape(0), depth, axis, call.dtype(2), call.dtype())
    call.emit(func, (call.inputs[0], call.inputs[2]))


def _reverse_sequence(call: NodeCall) -> None:
    time, batch = int(call.attribute("time_axis", 0)), int(call.attribute("batch_axis", 1))
    shape = call.shape(0)
    func = indexing.reverse_sequence(shape, time, batch, call.dtype(), call.dtype(1))
    if call.shape(1) != (shape[batch],):
        raise call.invalid(
            f"lengths of shape {call.shape(1)} do not fit axis {batch} of shape {shape}"
        )
    require_from(call, 1, 0, shape[time])
    call.emit(func)


def _tensor_scatter(call: NodeCall) -> None:
    """Writes updates into a cache, for each batch from its own start on, which is 0 if not
    given."""
    shape, updates = call.shape(0), call.shape(1)
    axis = int(call.attribute("axis", -2))
    circular = call.choice("mode", ("linear", "circular"), "linear") == "circular"
    dtype = call.dtype(2) if call.has(2) else "int64"
    func = indexing.write_slices(shape, updates, axis, circular, call.dtype(), dtype)
    if call.has(2):
        require_from(call, 2, 0, shape[axis] - (1 if circular else updates[axis]))
        call.emit(func)
        return
    starts = call.emit_part(movement.fill(shape[:1], 0, "int64"), (), "starts")
    call.emit(func, (*call.inputs[:2], starts))


OPERATORS: Emitters = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "TensorScatter": _tensor_scatter,
}
