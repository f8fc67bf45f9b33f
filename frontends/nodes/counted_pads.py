"""Pads whose number a run decides, in front of the elements of an axis and behind them.

In: a tensor, and how many elements are added along an axis: numbers or sizes.  Out: kernels that
add them, and the count of the result.  What always holds: the elements of a run stand behind as
many pads as the run adds, and what stands behind them is the fill.
"""

from __future__ import annotations

from graphflow.base.errors import ExtentsLost
from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.nodes.counted import count_also, filled
from graphflow.frontends.tensors.derived_sizes import (
    Element,
    bounds_of,
    combined,
    held,
    narrow,
    total,
)
from graphflow.kernels.definitions.data_dependent import compaction, indexing
from graphflow.kernels.definitions.movements import selection


def with_pads(
    call: NodeCall, x: str, axis: int, begin: Element, end: Element, fill: float, part: str
) -> str:
    """The tensor `x` with `begin` and `end` elements of `fill` along an axis.

    All runs have the most pads in front; a run begins behind those that it has not.  Refuses the
    node if one of the numbers may be negative in a run.
    """
    context = call.context
    least, front = bounds_of_pads(call, begin)
    bounds_of_pads(call, end)
    count = context.elements_along(x, axis)
    extent = total(context, (count, begin, end))
    most = most_of(call, extent)
    call.drops_counts = True
    x = filled(call, x, fill, f".{part}", (axis,))
    value = context.graph.values[x]
    start = combined(context, "Sub", front, begin)
    assert start is not None
    spare = 0
    if isinstance(start, str):  # else all runs have as many pads in front
        narrow(context, start, 0, front - least)
        spare = front - least
    behind = most + spare - front - value.shape[axis]
    ahead, ends = (
        [n if k == axis else 0 for k in range(len(value.shape))] for n in (front, behind)
    )
    func = selection.pad(value.shape, ahead, ends, "constant", fill, value.dtype)
    result = call.emit_part(func, (x,), part)
    if isinstance(start, str):
        room = context.graph.values[result].shape
        places = compaction.stepped_places(room[axis], most)
        at = call.emit_part(places, (held(context, start),), f"{part}.places")
        if isinstance(extent, str):
            count_also(call, at, {0: extent})
        func = indexing.gather_at(room, (most,), axis, value.dtype)
        result = call.emit_part(func, (result, at), f"{part}.moved")
    elif isinstance(extent, str):
        count_also(call, result, {axis: extent})
    return result


def bounds_of_pads(call: NodeCall, number: Element) -> tuple[int, int]:
    """The least and the most of a number of pads; refuses one that may be negative in a run."""
    limits = bounds_of(call.context, number)
    if limits is None or limits[0] < 0:
        raise ExtentsLost(
            f"{call.title}: {call.inputs[1]} may be negative in a run, where it is not 0, and how "
            "many elements its output has is only known then; cut the model before this node"
        )
    return limits


def most_of(call: NodeCall, extent: Element) -> int:
    """The greatest number of elements that an axis of a run has; refuses what is no size."""
    limits = bounds_of(call.context, extent)
    if limits is None:
        raise ExtentsLost(
            f"{call.title}: data decides how many elements its input {call.inputs[0]} has, and a "
            "run how many are added; cut the model before this node"
        )
    return limits[1]
