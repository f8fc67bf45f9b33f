"""Operators that reshape, transpose, concatenate, make constants or compute shapes.

Shapes are known when the model is compiled, so an input that holds one must be known by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, isfinite, prod

import numpy as np

from graphflow.base.errors import InvalidModel
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_by, require_open, require_several, sizes_in
from graphflow.frontends.nodes.counted_reshape import (
    emit_counted_reshape,
    extents_of,
    is_of_sizes,
    missing_extent,
)
from graphflow.frontends.operators.ops_compaction import emit_joined
from graphflow.frontends.protos.protos import check_dtype, known_array
from graphflow.frontends.protos.steps import only_element
from graphflow.frontends.tensors.derived_sizes import (
    Element,
    bounds_of,
    combined,
    merged,
    rounded_down,
)
from graphflow.frontends.tensors.folding import LARGEST
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement


def axes_of(call: NodeCall, input_since: int, rank: int | None = 1) -> tuple[int, ...] | None:
    """The axes that a node names; None if it names none.

    They are an attribute before opset `input_since`, and input 1 since, which must have rank `rank`
    (None: any).
    """
    if call.opset < input_since:
        axes = call.attribute("axes")
        return None if axes is None else tuple(axes)
    if not call.has(1):
        return None
    return tuple(int(axis) for axis in call.constant(1, "axes", rank=rank).reshape(-1))


def _emit_reshape(call: NodeCall, shape: tuple[int, ...]) -> None:
    func = movement.reshape(call.shape(0), shape, call.dtype(), call.op.lower())
    call.emit(func, call.inputs[:1])


def _reshape(call: NodeCall) -> None:
    wanted = stated = [int(n) for n in call.constant(1, "shape", rank=1)]
    source, sizes = call.shape(0), sizes_in(call, 1)
    keeps_zeros = call.attribute("allowzero", 0)
    if is_of_sizes(call) and not (keeps_zeros and 0 in wanted):
        _reshape_counted(call, wanted, sizes, bool(keeps_zeros))
        return
    if not keeps_zeros:
        if any(n == 0 and axis >= len(source) for axis, n in enumerate(wanted)):
            raise call.invalid(
                f"0 in shape {wanted} copies an axis that the input of shape {source} does not have"
            )
        wanted = [source[axis] if n == 0 else n for axis, n in enumerate(wanted)]
    rest = prod(n for n in wanted if n != -1)
    if wanted.count(-1) > 1 or (-1 in wanted and (rest == 0 or prod(source) % rest)):
        raise call.invalid(f"{prod(source)} elements do not determine the shape {wanted}")
    _emit_reshape(call, tuple(prod(source) // rest if n == -1 else n for n in wanted))
    require_open(call, (axis for axis, n in enumerate(stated) if n > 0), sizes)


def _reshape_counted(
    call: NodeCall, stated: list[int], sizes: Mapping[int, str], keeps_zeros: bool
) -> None:
    given = extents_of(call)
    if stated.count(-1) > 1 or any(n == 0 for n in stated[len(given) :]):
        raise call.invalid(f"the shape {stated} is none for an input of {len(given)} axes")
    wanted: list[Element] = [sizes.get(axis, n) for axis, n in enumerate(stated)]
    wanted = [given[axis] if n == 0 else n for axis, n in enumerate(wanted)]
    if not keeps_zeros:
        _require_no_copies(call, wanted, sizes)
    if -1 in wanted:
        rest = [n for n in wanted if n != -1]
        wanted[wanted.index(-1)] = missing_extent(call, rest)
    emit_counted_reshape(call, wanted)


def _require_no_copies(call: NodeCall, wanted: Sequence[Element], sizes: Mapping[int, str]) -> None:
    """Refuse the node if a run may state one of `sizes` as 0, and that copies another extent of the
    input.  Where all other extents are positive, no run does so: an empty input would get elements.
    """
    for axis, given in enumerate(extents_of(call)[: len(wanted)]):
        others = (n for k, n in enumerate(wanted) if k != axis)
        is_copy = axis in sizes and given != sizes[axis] and _may_be_empty(call, sizes[axis])
        if is_copy and any(_may_be_empty(call, n) for n in others):
            raise call.extents_lost(
                call.inputs[:1], f"where {call.inputs[1]} states axis {axis} as 0, that is copied"
            )


def _may_be_empty(call: NodeCall, extent: Element) -> bool:
    """Whether an extent, -1 for one that is not stated, may be 0 in a run."""
    limits = bounds_of(call.context, extent)
    return limits is None or limits[0] <= 0


def _flatten(call: NodeCall) -> None:
    shape, axis = call.shape(0), call.attribute("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    if is_of_sizes(call):
        extents = extents_of(call)
        emit_counted_reshape(
            call, [merged(call.context, part) for part in (extents[:axis], extents[axis:])]
        )
        return
    _emit_reshape(call, (prod(shape[:axis]), prod(shape[axis:])))


def _squeeze(call: NodeCall) -> None:
    shape, axes = call.shape(0), axes_of(call, 13)
    if axes is None:
        require_several(call, 0)
        axes = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    gone = {axis % len(shape) if shape else axis for axis in axes}
    if any(shape[axis] != 1 for axis in gone):
        raise call.invalid(f"axes {axes} of shape {shape} are not all of extent 1")
    _emit_reshape(call, tuple(n for axis, n in enumerate(shape) if axis not in gone))


def _unsqueeze(call: NodeCall) -> None:
    shape, axes = call.shape(0), axes_of(call, 13, rank=None)
    if axes is None:
        raise InvalidModel(f"{call.title} lacks its axes")
    rank = len(shape) + len(axes)
    new = {axis % rank for axis in axes}
    if len(new) != len(axes):
        raise call.invalid(f"axes {axes} name an axis twice")
    rest = iter(shape)
    _emit_reshape(call, tuple(1 if axis in new else next(rest) for axis in range(rank)))


def _transpose(call: NodeCall) -> None:
    shape = call.shape(0)
    order = call.attribute("perm", tuple(reversed(range(len(shape)))))
    call.emit(movement.transpose(shape, order, call.dtype()))


def _concat(call: NodeCall) -> None:
    shapes = [call.shape(k) for k in range(len(call.inputs))]
    axis, dtype = call.required("axis"), call.dtype()
    if any(call.is_counted(k, (axis % len(shapes[0]),)) for k in range(len(shapes))):
        emit_joined(call, axis % len(shapes[0]))
        return
    call.emit_tree(lambda shapes: movement.concat(shapes, axis, dtype), stored=call.stored_dtype())


_CONSTANT_KINDS = {
    "value_float": "float32",
    "value_floats": "float32",
    "value_int": "int64",
    "value_ints": "int64",
}


def _constant(call: NodeCall) -> None:
    what = call.title
    tensor = call.attribute("value")
    if tensor is not None:
        call.emit_constant(known_array(tensor, what))
        return
    for name, dtype in _CONSTANT_KINDS.items():
        value = call.attribute(name)
        if value is not None:
            call.emit_constant(np.asarray(value, dtype))
            return


def _constant_of_shape(call: NodeCall) -> None:
    shape = tuple(int(n) for n in call.constant(0, "shape", rank=1))
    tensor = call.attribute("value")
    if tensor is None:
        call.emit(movement.fill(shape, 0.0), ())
    else:
        array = known_array(tensor, call.title)
        check_dtype(call.title, array.dtype.name)
        value = only_element(call.title, array, "its value")
        call.emit(movement.fill(shape, value, array.dtype.name), ())
    count_by(call, sizes_in(call, 0))


def _shape(call: NodeCall) -> None:
    shape = call.shape(0)
    part = shape[call.attribute("start", 0) : call.attribute("end", len(shape))]
    call.emit_constant(np.asarray(part, np.int64))


def _size(call: NodeCall) -> None:
    call.emit_constant(np.asarray(prod(call.shape(0)), np.int64))


SHIFT = "add the start to a range from 0 in steps of 1"
"""How a range to an extent of a run can be had that does not begin with an integer."""

MULTIPLY = "multiply a range in steps of 1"
"""How a range to an extent of a run can be had in steps that are no integers."""


def _range(call: NodeCall) -> None:
    roles = ("start", "limit", "delta")
    start, limit, delta = (
        only_element(call.title, call.constant(k, role), role) for k, role in enumerate(roles)
    )
    if delta == 0:
        raise call.invalid("delta is 0")
    if not all(map(isfinite, (start, limit, delta))):
        raise call.invalid(
            f"start, limit and delta are {start}, {limit} and {delta}; all of them "
            "have to be finite"
        )
    if abs((limit - start) / delta) > LARGEST:
        call.refuse(f"more than {LARGEST} elements", "use a smaller limit")
    starts, limits = sizes_in(call, 0), sizes_in(call, 1)
    if not starts and not limits:
        call.emit_constant(np.arange(start, limit, delta).astype(call.dtype()))
        return
    if delta != int(delta):
        call.refuse(f"a range in steps of {delta} between extents of a run", MULTIPLY)
    if start != int(start):
        call.refuse(f"a range from {start} to an extent of a run", SHIFT)
    # Elements are integers, so a limit between two of them is the one that is not before it.
    behind = ceil(limit) if delta > 0 else floor(limit)
    _emit_range(call, starts.get(0, int(start)), limits.get(0, behind), int(delta))


def _emit_range(call: NodeCall, start: Element, limit: Element, step: int) -> None:
    """Add kernels for every `step`-th integer from `start` on ahead of `limit`, of which one is a
    size."""
    low, high = (start, limit) if step > 0 else (limit, start)
    extent = combined(call.context, "Sub", high, low)
    if extent is not None and abs(step) > 1:
        extent = rounded_down(call.context, extent, abs(step) - 1, abs(step))
    bounds = None if extent is None else bounds_of(call.context, extent)
    if extent is None or bounds is None or bounds[1] < 0:
        call.refuse("a range between extents of a run whose number of elements is no size", SHIFT)
    most = bounds[1]
    # A tensor of known contents would be computed with at import, as if a run gave all of it.
    if isinstance(start, int):
        dtype = call.dtype()
        whole = call.add_part((start + step * np.arange(most)).astype(dtype), "whole")
        call.emit(movement.copy((most,), dtype), (whole,))
    else:
        steps = call.add_part(step * np.arange(most), "steps")
        func = elementwise.binary("add", (most,), (), "int64")
        numbers = call.emit_part(func, (steps, start), "numbers")
        dtype = call.constant(0, "start").dtype.name  # a size is no tensor of this node's dtype
        call.emit(elementwise.cast((most,), "int64", dtype), (numbers,))
    count_by(call, {0: extent} if isinstance(extent, str) else {})


OPERATORS: Emitters = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Shape": _shape,
    "Size": _size,
}
