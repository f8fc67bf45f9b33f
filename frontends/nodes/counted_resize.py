"""Resizing along axes whose extents a run decides, in front of the node or behind it.

In: a node, its output extents and how it finds coordinates.  Out: kernels that compute from the
sizes which elements are taken, and gather these, axis by axis.  What always holds: these are the
elements that a program for exactly these extents takes, with the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.nodes.counted import count_also, count_by, least_given
from graphflow.frontends.tensors.data_extents import ExtentsLost
from graphflow.frontends.tensors.derived_sizes import (
    Element,
    bounds_of,
    held,
    merged,
    rounded_down,
)
from graphflow.kernels.definitions.data_dependent import indexing
from graphflow.kernels.definitions.interpolation import resize
from graphflow.kernels.definitions.movements import movement
from graphflow.tir import PrimFunc

EXACT = 1 << 24
"""Below this, products of extents and scales in float32 are not rounded."""


@dataclass(frozen=True, slots=True)
class ResizedExtent:
    """The extent of an axis behind a resize: a number or a size, and the scale if that is given."""

    after: Element
    scale: Fraction | None = None


def resized_lost(call: NodeCall, reason: str) -> ExtentsLost:
    """The error for a node of which a run decides an extent, of the input or the output."""
    return ExtentsLost(
        f"{call.title}: an extent of its input or output is only known at run time, and {reason}; "
        "cut the model before this node"
    )


def scaled_extent(call: NodeCall, axis: int, scale: Fraction) -> ResizedExtent:
    """The extent of input 0 along an axis times a scale, rounded down as float32 does."""
    numerator, divisor = scale.numerator, scale.denominator
    if divisor & (divisor - 1) or call.shape(0)[axis] * numerator >= EXACT:
        raise resized_lost(call, f"the scale {float(scale)} is rounded")
    count: Element = call.counts(0).get(axis, call.shape(0)[axis])
    scaled = merged(call.context, (count, numerator))
    return ResizedExtent(rounded_down(call.context, scaled, 0, divisor), scale)


def emit_counted_resize(
    call: NodeCall,
    extents: Mapping[int, ResizedExtent],
    mode: str,
    rounding: str | None,
) -> None:
    """Add kernels that resize input 0 along some axes, by coordinates of a mode.

    `rounding` is that of the nearest element; None for linear interpolation.
    """
    name = call.inputs[0]
    # The last axis comes first: so neighbours are combined in the order of one kernel for all.
    for axis in sorted(extents, reverse=True):
        wanted = extents[axis]
        before: Element = call.counts(0).get(axis, call.shape(0)[axis])
        if wanted.after != before or mode == "tf_half_pixel_for_nn":
            name = _emit_axis(call, name, axis, before, wanted, mode, rounding)
    value = call.context.graph.values[name]
    call.emit(movement.copy(value.shape, call.dtype()), (name,))
    counts = {axis: one.after for axis, one in extents.items()}
    count_by(call, {axis: n for axis, n in counts.items() if isinstance(n, str)})


def _emit_axis(
    call: NodeCall,
    x: str,
    axis: int,
    before: Element,
    wanted: ResizedExtent,
    mode: str,
    rounding: str | None,
) -> str:
    room = wanted.after if isinstance(wanted.after, int) else call.context.sizes[wanted.after].hi
    limits = bounds_of(call.context, wanted.after)
    assert limits is not None
    # By a scale, no elements become none.
    if wanted.scale is None and min(least_given(call, 0, axis), limits[0]) < 1:
        raise resized_lost(call, "there may be no element to resize")
    if mode == "pytorch_half_pixel" and limits[0] < 2:
        raise resized_lost(call, f"{mode} treats an axis of one another way")
    known = {"pytorch_half_pixel": "half_pixel", "half_pixel_symmetric": "half_pixel"}
    is_whole = wanted.scale is None or wanted.scale.denominator == 1
    computed = resize.ComputedAxis(room, known.get(mode, mode), wanted.scale)
    if computed.mode not in resize.COMPUTED_MODES or (
        mode == "half_pixel_symmetric" and not is_whole
    ):
        raise resized_lost(call, f"coordinates by {mode} depend on it")
    sizes = [held(call.context, extent) for extent in (before, wanted.after)]

    def of_run(func: PrimFunc, part: str) -> str:
        name = call.emit_part(func, sizes, part)
        if isinstance(wanted.after, str):
            count_also(call, name, {0: wanted.after})
        return name

    def taken(func: PrimFunc, part: str) -> str:
        places = of_run(func, f"{part}{axis}.places")
        shape = call.context.graph.values[x].shape
        gather = indexing.gather_at(shape, (room,), axis, call.dtype(), "int64")
        return call.emit_part(gather, (x, places), f"{part}{axis}", given={0: (axis,)})

    if rounding is not None:
        return taken(resize.nearest_places(computed, rounding), "nearest")
    low, high = (
        taken(resize.neighbour_places(computed, k), part) for k, part in enumerate(("low", "high"))
    )
    weights = resize.neighbour_weights(computed, call.dtype())
    table = of_run(weights, f"weights{axis}")
    shape = call.context.graph.values[low].shape
    func = resize.weighted_neighbours(shape, axis, call.dtype())
    return call.emit_part(func, (low, high, table), f"axis{axis}")
