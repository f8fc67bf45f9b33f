"""Windows along axes of which a run gives fewer elements than there is room for.

In: the window of a node, and the tensor that it slides over.  Out: how many windows a run has along
each axis, and what the kernel reads.  What always holds: a window that a run has takes the elements
that the run gives, each by the tap that takes it in the program for exactly that extent, and behind
them a fill that is neutral to what is made of a window.

Tap k of window o is at `o · stride + k · dilation − begin`, which no extent changes.  A program for
an extent n takes the taps from 0 to n − 1 and leaves out the others; a kernel for more room takes
those from n on too, up to the end of the room, where the fill stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphflow.base.sizes import Size
from graphflow.frontends.nodes.call import Given, NodeCall
from graphflow.frontends.nodes.counted import filled
from graphflow.frontends.tensors.derived_sizes import (
    Element,
    require_at_least,
    rounded_down,
    total,
)
from graphflow.kernels.definitions.windows.window import Window

SAME = ("SAME_UPPER", "SAME_LOWER")
"""The values of `auto_pad` with as many windows as steps fit into the extent."""


@dataclass(frozen=True, slots=True)
class CountedWindows:
    """The windows over a tensor along the axes whose extents a run decides."""

    counts: Mapping[int, str]
    """For each of these axes the tensor that counts the windows; none where all runs have as
    many."""
    axes: frozenset[int]
    """These axes."""
    overhanging: frozenset[int]
    """Those along which a window of a run may reach behind what the run gives."""


def counted_windows(
    call: NodeCall, x: str, window: Window, ceil_mode: bool = False
) -> CountedWindows:
    """The windows of a node over the spatial axes, from the second on, of the tensor `x`.

    Raises `ExtentsLost`, with the reason, where a run may have no window, and where the padding at
    the beginning depends on the extent.
    """
    shape = call.context.graph.values[x].shape
    rooms = window.output_shape(shape[2:], ceil_mode)
    counted = {k: n for k, n in call.context.counted.get(x, {}).items() if k >= 2}
    counts: dict[int, str] = {}
    overhanging = set()
    for axis, count in counted.items():
        size = call.context.sizes.get(count)
        if size is None:
            raise call.extents_lost((x,), "windows along it need bounds of this number")
        summand, overhangs = _along(call, x, axis - 2, window, ceil_mode, size)
        stride = window.strides[axis - 2]
        if (size.lo + summand) // stride < 1:
            require_at_least(call.context, count, stride - summand)
            raise call.extents_lost((x,), f"no window fits into {size.lo}")
        number = rounded_down(call.context, count, summand, stride)
        _require_room(call, x, number, rooms[axis - 2])
        if overhangs:
            overhanging.add(axis)
        if isinstance(number, str):
            counts[axis] = number
    return CountedWindows(counts, frozenset(counted), frozenset(overhanging))


def transposed_windows(
    call: NodeCall, window: Window, extra: tuple[int, ...], is_stated: bool
) -> CountedWindows:
    """The same of a transposed convolution of input 0: its elements take taps of a kernel each, and
    `counts` has those of the output.  Refuses outputs of a stated extent."""
    counted = {k: n for k, n in call.counts(0).items() if k >= 2}
    counts: dict[int, str] = {}
    overhanging = set()
    for axis, count in counted.items():
        k = axis - 2
        if is_stated or count not in call.context.sizes:
            raise call.extents_lost(call.inputs[:1], "its output has a stated extent")
        stride = window.strides[k]
        reach = window.reach[k] + extra[k] - window.pads_end[k]
        number = total(
            call.context,
            (*(count for _ in range(stride)), reach - stride - window.pads_begin[k]),
        )
        assert isinstance(number, str)
        counts[axis] = number
        if reach > stride:  # the last outputs would take a tap of an element behind the last one
            overhanging.add(axis)
    return CountedWindows(counts, frozenset(counted), frozenset(overhanging))


def _along(
    call: NodeCall, x: str, spatial: int, window: Window, ceil_mode: bool, size: Size
) -> tuple[int, bool]:
    """For one axis the s for which `(n + s) // stride` windows are over n elements, and whether one
    of these windows may reach behind the last element."""
    begin, end = window.pads_begin[spatial], window.pads_end[spatial]
    stride, reach = window.strides[spatial], window.reach[spatial]
    mode = call.attribute("auto_pad", "NOTSET")
    if mode in SAME:
        missing = {-n % stride for n in range(size.lo, min(size.hi, size.lo + stride - 1) + 1)}
        pads = {max(reach - stride + rest, 0) for rest in missing}
        begins = {pad // 2 if mode == "SAME_UPPER" else pad - pad // 2 for pad in pads}
        if len(begins) > 1:
            raise call.extents_lost((x,), f"{mode} pads its beginning by {sorted(begins)}")
        return stride - 1, max(pads) > min(begins)
    if not ceil_mode:
        return begin + end - reach + stride, end > 0
    if end > reach:
        raise call.extents_lost((x,), "a window may lie in the padding behind it")
    # The windows that begin ahead of the end padding, or those with an element in what is padded.
    return begin + stride - 1 + min(end - reach + stride, 0), end > 0 or stride > 1


def _require_room(call: NodeCall, x: str, number: Element, room: int) -> None:
    """Refuse a count whose bounds are wider than what its extent can be."""
    most = number if isinstance(number, int) else call.context.sizes[number].hi
    if most != room:
        raise call.extents_lost((x,), f"the bounds of {most} windows are not exact")


def window_input(
    call: NodeCall, x: str, windows: CountedWindows, fill: float, part: str = ""
) -> tuple[str, Given]:
    """What a kernel over windows reads in place of `x`, and along which axes it allows for what a
    run does not give there: `fill` is neutral to what the kernel makes of a window."""
    if windows.axes:
        call.drops_counts = True
    read = filled(call, x, fill, part, windows.overhanging) if windows.overhanging else x
    return read, {0: windows.axes - windows.overhanging}
