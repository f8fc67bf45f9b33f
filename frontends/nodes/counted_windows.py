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

from collections.abc import Collection, Mapping

import numpy as np
from msgspec import Struct

from graphflow.base.errors import UnsupportedOp
from graphflow.base.fields import replace
from graphflow.base.sizes import Size
from graphflow.frontends.nodes.call import Given, NodeCall
from graphflow.frontends.nodes.counted import filled, filled_behind
from graphflow.frontends.nodes.counted_pads import with_pads
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.derived_sizes import (
    Element,
    combined,
    narrow,
    require_at_least,
    rounded_down,
    total,
)
from graphflow.graph import is_finite_dequantized
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.scalar_functions import is_infinite, is_nan
from graphflow.kernels.definitions.windows.window import Window
from graphflow.tir import FLOATS, Binary, Cast, Expr

SAME = ("SAME_UPPER", "SAME_LOWER")
"""The values of `auto_pad` with as many windows as steps fit into the extent."""


class CountedWindows(Struct, frozen=True):
    """The windows over a tensor along the axes whose extents a run decides."""

    counts: Mapping[int, str]
    """For each of these axes the tensor that counts the windows; none where all runs have as
    many."""
    axes: frozenset[int]
    """These axes."""
    overhanging: Mapping[int, int]
    """Those along which a window of a run may reach behind what the run gives, and how far."""


class WindowInput(Struct, frozen=True):
    """A tensor that a window slides over: along the axes `placed`, pads are elements of it."""

    name: str
    window: Window
    placed: frozenset[int] = frozenset()


def with_pads_placed(call: NodeCall, x: str, window: Window, fill: float) -> WindowInput:
    """The tensor `x` as the windows of a node slide over it: with `fill` in the place of pads along
    axes where `auto_pad` pads the beginning of some runs by more than that of others."""
    placed = set()
    mode = call.attribute("auto_pad", "NOTSET")
    counted = call.context.counted.get(x, {}) if mode in SAME else {}
    for axis, count in [(axis, n) for axis, n in counted.items() if axis >= 2]:
        k, size = axis - 2, call.context.sizes.get(count)
        stride, reach = window.strides[k], window.reach[k]
        if size is None or size.lo < 1 or reach < stride:
            continue
        _, begins = _same_pads(size, stride, reach, mode)
        if len(begins) > 1:
            x = _with_pads(call, x, axis, count, (stride, reach, mode), fill)
            front, behind = (
                tuple(0 if axis == k else pad for axis, pad in enumerate(given))
                for given in (window.pads_begin, window.pads_end)
            )
            window = replace(window, pads_begin=front, pads_end=behind)
            placed.add(axis)
    return WindowInput(x, window, frozenset(placed))


def _same_pads(size: Size, stride: int, reach: int, mode: str) -> tuple[set[int], set[int]]:
    """The numbers of pads that `auto_pad` adds, over all extents of a size, and those at the
    beginning."""
    missing = {-n % stride for n in range(size.lo, min(size.hi, size.lo + stride - 1) + 1)}
    pads = {max(reach - stride + rest, 0) for rest in missing}
    return pads, {pad // 2 if mode == "SAME_UPPER" else pad - pad // 2 for pad in pads}


def _with_pads(
    call: NodeCall, x: str, axis: int, count: str, steps: tuple[int, int, str], fill: float
) -> str:
    """The tensor `x` with the pads of a run along an axis of n elements, which are at least 1.

    The last window begins at (n - 1) // stride · stride, so that and its reach are the elements
    with pads. All have the most pads in front; a run begins behind those that it has not.
    """
    context, (stride, reach, mode) = call.context, steps
    last = rounded_down(context, count, -1, stride)
    padded = total(context, (*(last for _ in range(stride)), reach))
    pads = combined(context, "Sub", padded, count)
    assert pads is not None
    begin = rounded_down(context, pads, 0 if mode == "SAME_UPPER" else 1, 2)
    numbers, begins = _same_pads(context.sizes[count], stride, reach, mode)
    if isinstance(begin, str):  # else all multiples of a step have as many pads
        narrow(context, begin, min(begins), max(begins))
    end = combined(context, "Sub", pads, begin)
    assert end is not None
    if isinstance(end, str):
        narrow(context, end, 0, max(numbers))
    return with_pads(call, x, axis, begin, end, fill, f"padded{axis}")


def counted_windows(
    call: NodeCall, x: str, window: Window, placed: Collection[int] = ()
) -> CountedWindows:
    """The windows of a node over the spatial axes, from the second on, of the tensor `x`.

    Along the axes `placed` pads are elements of `x`.  Raises `ExtentsLost`, with the reason, where
    a run may have no window, and where the padding at the beginning depends on the extent.
    """
    shape = call.context.graph.values[x].shape
    rooms = window.output_shape(shape[2:])
    counted = {k: n for k, n in call.context.counted.get(x, {}).items() if k >= 2}
    counts: dict[int, str] = {}
    overhanging = dict[int, int]()
    for axis, count in counted.items():
        size = call.context.sizes.get(count)
        if size is None:
            raise call.extents_lost((x,), "windows along it need bounds of this number")
        mode = "NOTSET" if axis in placed else call.attribute("auto_pad", "NOTSET")
        summand, behind = _along(call, x, axis - 2, window, size, mode)
        stride = window.strides[axis - 2]
        if (size.lo + summand) // stride < 1:
            require_at_least(call.context, count, stride - summand)
            raise call.extents_lost((x,), f"no window fits into {size.lo}")
        number = rounded_down(call.context, count, summand, stride)
        _require_room(call, x, number, rooms[axis - 2])
        if behind > 0:
            overhanging[axis] = behind
        if isinstance(number, str):
            counts[axis] = number
    return CountedWindows(counts, frozenset(counted), overhanging)


def transposed_windows(
    call: NodeCall, window: Window, extra: tuple[int, ...], is_stated: bool
) -> CountedWindows:
    """The same of a transposed convolution of input 0: its elements take taps of a kernel each, and
    `counts` has those of the output.  Refuses outputs of a stated extent."""
    counted = {k: n for k, n in call.counts(0).items() if k >= 2}
    counts: dict[int, str] = {}
    overhanging = dict[int, int]()
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
            overhanging[axis] = (reach - 1) // stride
    return CountedWindows(counts, frozenset(counted), overhanging)


def require_finite_weights(call: NodeCall, x: str, weight: int, axes: Collection[int]) -> None:
    """Refuse weights that may be infinite where zeros along `axes` of `x` are multiplied with them;
    of those that kernels compute each run checks that they are finite.

    Constants that kernels compute, such as weights that are normalized, are evaluated here, so that
    no run is refused for what the model holds; kernels may round them otherwise.
    """
    context = call.context
    if not axes or call.dtype(weight) not in FLOATS:
        return
    known, name = call.known(weight), call.inputs[weight]
    is_finite = known is not None and bool(np.isfinite(known).all())
    if is_finite or is_finite_dequantized(context.graph, name):
        return
    if known is not None or (context.graph.is_constant(name) and not _is_finite(context, name)):
        raise call.extents_lost((x,), "its weights, times the zeros behind that, may be NaN")
    name = filled(call, name, 0, ".weights")
    shape, dtype = call.shape(weight), call.dtype(weight)

    def is_other(w: Expr) -> Expr:
        return Cast(Binary("or", is_nan(w), is_infinite(w)), "int64")

    func = elementwise.elementwise("not_finite", {"w": (shape, dtype)}, is_other, "int64")
    found = call.emit_part(func, (name,), "not_finite")
    func = reduction.reduce("sum", shape, range(len(shape)), False, "int64")
    number = call.emit_part(func, (found,), "not_finite_in_all")
    subject = f"{call.title}: the number of weights in {call.inputs[weight]} that are not finite"
    context.graph.add_guard(number, 0, 0, subject)


def _is_finite(context: ImportContext, name: str) -> bool:
    """Whether a constant that kernels compute is finite if it is evaluated when the model is
    imported; False where that is not possible."""
    try:
        array = context.constant(name)
    except UnsupportedOp:
        return False
    return array is not None and bool(np.isfinite(array.astype(np.float64)).all())


def _along(
    call: NodeCall, x: str, spatial: int, window: Window, size: Size, mode: str
) -> tuple[int, int]:
    """For one axis the s for which `(n + s) // stride` windows are over n elements, and how far one
    of these windows may reach behind the last element."""
    begin, end = window.pads_begin[spatial], window.pads_end[spatial]
    stride, reach = window.strides[spatial], window.reach[spatial]
    if mode in SAME:
        pads, begins = _same_pads(size, stride, reach, mode)
        if len(begins) > 1:
            raise call.extents_lost((x,), f"{mode} pads its beginning by {sorted(begins)}")
        return stride - 1, max(pads) - min(begins)
    if not window.ceil_mode:
        return begin + end - reach + stride, end
    if end > reach:
        raise call.extents_lost((x,), "a window may lie in the padding behind it")
    # The windows that begin ahead of the end padding, or those with an element in what is padded.
    return begin + stride - 1 + min(end - reach + stride, 0), end + stride - 1


def _require_room(call: NodeCall, x: str, number: Element, room: int) -> None:
    """Refuse a count whose bounds are wider than what its extent can be."""
    most = number if isinstance(number, int) else call.context.sizes[number].hi
    if most != room:
        raise call.extents_lost((x,), f"the bounds of {most} windows are not exact")


def window_input(call: NodeCall, x: str, windows: CountedWindows, fill: float) -> tuple[str, Given]:
    """What a kernel over windows reads in place of `x`, and along which axes it allows for what a
    run does not give there: `fill` is neutral to what the kernel makes of a window."""
    if windows.axes:
        call.drops_counts = True
    return filled_behind(call, x, fill, windows.overhanging), {0: windows.axes}
