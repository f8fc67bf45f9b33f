"""Gather and scatter: operators whose indices are data.

Indices that are known when the model is compiled are checked then, and if they form few contiguous
runs the gather becomes slice copies.  Indices that come with a run are checked after it: a guard on
their minimum and maximum raises an error if one is outside of the axis, and the kernels neither
read nor write for such an index.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from graphflow.frontends.nodes.call import Emitters, Given, NodeCall
from graphflow.frontends.nodes.counted import count_also, count_like, filled, least_given
from graphflow.frontends.nodes.indices import (
    places_of_tuples,
    places_on_axis,
    require_from,
    require_indices,
    require_lengths,
    require_room,
    require_tuples,
)
from graphflow.frontends.tensors.derived_sizes import require_equal
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.data_dependent import indexing
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.tir import PrimFunc


def _gather(call: NodeCall) -> None:
    shape, axis = call.shape(0), call.axis(0)
    contents = call.known(1)
    known = None if contents is None else contents.astype(np.int64)
    given = {} if known is None else _axes_given(call, axis, known)
    if call.is_counted(0, (axis,)) and not given:
        places = places_on_axis(call, 1, axis)
        func = indexing.gather_at(shape, call.shape(1), axis, call.dtype())
        call.emit(func, (call.inputs[0], places), given={0: (axis,)})
        return
    require_indices(call, 1, shape[axis])
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
    shape, axis = call.shape(0), call.axis(0)
    if call.is_counted(0, (axis,)):
        places = places_on_axis(call, 1, axis)
        func = indexing.gather_elements(shape, call.shape(1), axis, call.dtype())
        call.emit(func, (call.inputs[0], places), given={0: (axis,)})
        return
    require_indices(call, 1, shape[axis])
    call.emit(indexing.gather_elements(shape, call.shape(1), axis, call.dtype(), call.dtype(1)))


def _gather_nd(call: NodeCall) -> None:
    batch, shape = int(call.attribute("batch_dims", 0)), call.shape(0)
    func = indexing.gather_nd(shape, call.shape(1), batch, call.dtype(), call.dtype(1))
    axes = range(batch, batch + call.shape(1)[-1])
    if call.is_counted(0, axes):
        places = places_of_tuples(call, 1, axes)
        func = indexing.gather_nd(shape, call.shape(1), batch, call.dtype())
        call.emit(func, (call.inputs[0], places), given={0: axes})
        return
    require_tuples(call, 1, tuple(shape[axis] for axis in axes))
    call.emit(func)


def _scatter_elements(call: NodeCall) -> None:
    axis, reduction = call.axis(0), str(call.attribute("reduction", "none"))
    shape, dtype = call.shape(0), call.dtype()
    _check_updates(call, call.shape(1))
    if call.is_counted(0, (axis,)) or call.is_counted(1, (axis,)):
        places = places_on_axis(call, 1, axis)
        func = indexing.scatter_elements(shape, call.shape(1), axis, reduction, dtype)
        _emit_counted_scatter(call, func, places, call.counts(1))
        return
    func = indexing.scatter_elements(shape, call.shape(1), axis, reduction, dtype, call.dtype(1))
    require_indices(call, 1, shape[axis])
    call.emit(func)


def _scatter_nd(call: NodeCall) -> None:
    shape, indices, dtype = call.shape(0), call.shape(1), call.dtype()
    reduction = str(call.attribute("reduction", "none"))
    func = indexing.scatter_nd(shape, indices, reduction, dtype, call.dtype(1))
    axes = range(indices[-1])
    _check_updates(call, (*indices[:-1], *shape[indices[-1] :]))
    if call.is_counted(0, axes) or call.counts(1):
        places = places_of_tuples(call, 1, axes)
        func = indexing.scatter_nd(shape, indices, reduction, dtype)
        behind = {k + len(indices) - 1 - len(axes): n for k, n in call.counts(0).items()}
        of_rest = {k: n for k, n in behind.items() if k >= len(indices) - 1}
        _emit_counted_scatter(call, func, places, {**call.counts(1), **of_rest})
        return
    require_tuples(call, 1, shape[: indices[-1]])
    call.emit(func)


def _emit_counted_scatter(
    call: NodeCall, func: PrimFunc, places: str, of_updates: Mapping[int, str]
) -> None:
    """Add the kernel of a scatter along axes of which a run gives a part: it drops updates that the
    run does not give, as their places are filled with one behind all axes."""
    if call.counts(2) != of_updates:
        for axis, count in call.counts(2).items():
            require_equal(call.context, count, of_updates.get(axis, count))
        raise call.extents_lost(call.inputs, "its updates may have another number than its indices")
    beyond = max(call.shape(0))
    read = filled(call, places, beyond, ".updated")
    given = {0: tuple(call.counts(0)), 2: tuple(call.counts(2))}
    call.emit(func, (call.inputs[0], read, call.inputs[2]), given=given)
    count_like(call, call.outputs[0], 0)


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
    count = call.counts(0).get(time)
    if call.shape(1) != (shape[batch],):
        raise call.invalid(
            f"lengths of shape {call.shape(1)} do not fit axis {batch} of shape {shape}"
        )
    require_lengths(call, 1, time)
    call.emit(func, given={0: (time,)})
    count_also(call, call.outputs[0], {} if count is None else {time: count})


def _tensor_scatter(call: NodeCall) -> None:
    """Writes updates into a cache, for each batch from its own start on, which is 0 if not
    given."""
    shape, updates = call.shape(0), call.shape(1)
    axis = int(call.attribute("axis", -2))
    circular = call.choice("mode", ("linear", "circular"), "linear") == "circular"
    if call.has(2):
        starts, dtype = call.inputs[2], call.dtype(2)
    else:
        starts, dtype = call.emit_part(movement.fill(shape[:1], 0, "int64"), (), "starts"), "int64"
    count = call.counts(1).get(range(len(shape))[axis])
    if count is not None and circular:
        raise call.extents_lost(call.inputs, "its updates go on at the beginning of the axis")
    func = indexing.write_slices(
        shape, updates, axis, circular, call.dtype(), dtype, count is not None
    )
    names, along = (*call.inputs[:2], starts), (axis % len(shape),)
    if call.has(2) and count is not None:
        require_room(call, 2, count, shape[axis])
    elif call.has(2):
        require_from(call, 2, 0, shape[axis] - (1 if circular else updates[axis]))
    call.emit(func, names if count is None else (*names, count), given={0: along, 1: along})
    count_like(call, call.outputs[0], 0)


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
