"""Convolution and pooling: ONNX's window attributes become explicit pads, strides, dilations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from graphflow.base.fields import replace
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_also, count_by, filled_input
from graphflow.frontends.nodes.counted_windows import (
    SAME,
    CountedWindows,
    WindowInput,
    counted_windows,
    require_finite_weights,
    transposed_windows,
    window_input,
    with_pads_placed,
)
from graphflow.frontends.nodes.indices import require_from
from graphflow.frontends.operators.ops_reduction import emit_mean
from graphflow.frontends.protos.inference import POOLS_COUNTED
from graphflow.frontends.tensors.derived_sizes import held
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.data_dependent import indexing
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.kernels.definitions.windows import columns, convolution, pooling, pooling_places
from graphflow.kernels.definitions.windows.window import Window
from graphflow.tir import PrimFunc, ReduceOp, neutral_literal


def window_of(call: NodeCall, kernel: Sequence[int]) -> Window:
    """The window of a node, with `auto_pad` and ONNX's defaults filled in."""
    spatial = call.shape(0)[2:]
    rank = len(spatial)
    strides = tuple(call.attribute("strides", (1,) * rank))
    dilations = tuple(call.attribute("dilations", (1,) * rank))
    pads = tuple(call.attribute("pads", (0,) * (2 * rank)))
    mode = call.choice("auto_pad", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"), "NOTSET")
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise call.invalid(
            f"kernel {tuple(kernel)}, strides {strides} and dilations "
            f"{dilations} must have one number for each of {rank} spatial axes"
        )
    if mode == "VALID":
        pads = (0,) * (2 * rank)
    elif mode != "NOTSET":
        pads = _same_pads(spatial, kernel, strides, dilations, mode == "SAME_UPPER")
    return Window.of(kernel, strides, pads, dilations)


def weight_extents(call: NodeCall, position: int) -> tuple[int, ...]:
    """The spatial extents of the weight at an input position.

    `InvalidModel` where the node states another `kernel_shape`.
    """
    extents = call.shape(position)[2:]
    stated = tuple(call.attribute("kernel_shape", extents))
    if stated != extents:
        raise call.invalid(f"kernel_shape {stated} is not that of the weight, {extents}")
    return extents


def _same_pads(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    upper: bool,
) -> tuple[int, ...]:
    """Pads for `ceil(extent / stride)` outputs.

    Where their sum is odd, the larger half is at the end if `upper`, else at the beginning.
    """
    begins, ends = [], []
    for extent, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        outputs = -(-extent // stride)
        total = max((outputs - 1) * stride + (k - 1) * dilation + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return (*begins, *ends)


def convolution_input(call: NodeCall, x: str, weight: int) -> WindowInput:
    """The tensor `x` as the weight at input `weight` slides over it."""
    return with_pads_placed(call, x, window_of(call, weight_extents(call, weight)), 0)


def convolution_of(call: NodeCall, x: WindowInput, weight: int, bias: bool, dtype: str) -> PrimFunc:
    """The convolution of a tensor with the weight at input `weight`, by the node's attributes."""
    return convolution.convolution(
        call.context.graph.values[x.name].shape,
        call.shape(weight),
        x.window,
        groups=call.attribute("group", 1),
        bias=bias,
        dtype=dtype,
    )


def convolution_windows(call: NodeCall, x: WindowInput, weight: int) -> CountedWindows:
    """The windows of a convolution of a tensor, of which a run may decide extents.

    Zeros stand around what a run gives, so weights that these meet have to be finite.
    """
    windows = counted_windows(call, x.name, x.window, x.placed)
    require_finite_weights(call, x.name, weight, windows.overhanging.keys() | x.placed)
    return windows


def _conv(call: NodeCall) -> None:
    slid = convolution_input(call, call.inputs[0], 1)
    func = convolution_of(call, slid, 1, call.has(2), call.dtype())
    windows = convolution_windows(call, slid, 1)
    x, given = window_input(call, slid.name, windows, 0)
    call.emit(func, (x, *call.given_inputs[1:]), given=given)
    count_by(call, windows.counts)


def _conv_transpose(call: NodeCall) -> None:
    x_shape, w_shape = call.shape(0), call.shape(1)
    rank = len(w_shape) - 2
    window = window_of(call, weight_extents(call, 1))
    extra = tuple(call.attribute("output_padding", (0,) * rank))
    wanted = call.attribute("output_shape")
    if wanted is not None and len(wanted) not in (rank, rank + 2):
        raise call.invalid(f"output_shape {tuple(wanted)} does not fit {rank} axes")
    mode = call.attribute("auto_pad", "NOTSET")
    begins, outputs = [], []
    for axis, extent in enumerate(x_shape[2:]):
        stride, begin, end = window.strides[axis], window.pads_begin[axis], window.pads_end[axis]
        full = stride * (extent - 1) + extra[axis] + window.reach[axis]
        if wanted is not None or mode.startswith("SAME"):
            output = min(extent * stride, full) if wanted is None else wanted[axis - rank]
            total = max(full - output, 0)
            begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
        else:
            output = full - begin - end
        begins.append(begin)
        outputs.append(output)
    func, weight = _transposed(call, window, begins, outputs)
    inputs = (call.inputs[0], weight, *call.given_inputs[2:])
    if not call.is_counted(0, range(2, rank + 2)):
        call.emit(func, inputs)
        return
    is_stated = wanted is not None or mode.startswith("SAME")
    windows = transposed_windows(call, window, extra, is_stated)
    require_finite_weights(call, call.inputs[0], 1, windows.overhanging)
    x, given = window_input(call, call.inputs[0], windows, 0)
    call.emit(func, (x, *inputs[1:]), given=given)
    count_by(call, windows.counts)


def _transposed(
    call: NodeCall, window: Window, begins: Sequence[int], outputs: Sequence[int]
) -> tuple[PrimFunc, str]:
    """The kernel of a transposed convolution to images of `outputs`, and its weight.

    One of stride 1 is a convolution with its taps in reverse order, which transformed tiles and
    tiles of few output channels serve too.
    """
    x_shape, w_shape, groups = call.shape(0), call.shape(1), call.attribute("group", 1)
    bias, dtype, known = call.has(2), call.dtype(), call.known(1)
    reach = window.reach
    pads_begin = [r - 1 - begin for r, begin in zip(reach, begins, strict=True)]
    pads_end = [
        output + r - 1 - extent - pad
        for output, r, extent, pad in zip(outputs, reach, x_shape[2:], pads_begin, strict=True)
    ]
    pads = (*pads_begin, *pads_end)
    fits = set(window.strides) == {1} and min(pads) >= 0 and w_shape[0] % groups == 0
    if known is None or not fits:
        func = convolution.transposed_convolution(
            x_shape,
            w_shape,
            outputs,
            strides=window.strides,
            pads_begin=begins,
            dilations=window.dilations,
            groups=groups,
            bias=bias,
            dtype=dtype,
        )
        return func, call.inputs[1]
    in_groups = np.flip(known, tuple(range(2, known.ndim))).reshape(groups, -1, *w_shape[1:])
    reversed_taps = in_groups.swapaxes(1, 2).reshape(-1, in_groups.shape[1], *w_shape[2:])
    func = convolution.convolution(
        x_shape,
        reversed_taps.shape,
        Window.of(window.kernel, pads=pads, dilations=window.dilations),
        groups=groups,
        bias=bias,
        dtype=dtype,
    )
    return func, call.add_part(np.ascontiguousarray(reversed_taps), "reversed_taps")


def _max_pool(call: NodeCall) -> None:
    window, dtype = _pool_window(call), call.dtype()
    # The storage order only says how the second output, the indices, counts.
    column_major = call.flag("storage_order")
    places = call.outputs[1] if len(call.outputs) > 1 else ""
    lowest = neutral_literal(ReduceOp.MAX, dtype)
    if places in call.context.read:
        _emit_places(call, window, column_major, lowest)
        return
    call.refuse_further_outputs()
    slid = with_pads_placed(call, call.inputs[0], window, lowest)
    if not slid.placed and not call.counts(0) and _pays_by_axis(window):
        _emit_by_axis(call, window)
        return
    shape = call.context.graph.values[slid.name].shape
    _emit_pool(call, pooling.max_pool(shape, slid.window, dtype=dtype), slid, lowest)


def _emit_places(call: NodeCall, window: Window, column_major: bool, lowest: float) -> None:
    """Maxima and their places, as they are counted in the image of a run."""
    x, places = call.inputs[0], call.outputs[1]
    windows = counted_windows(call, x, window)
    read, given = window_input(call, x, windows, lowest)
    # How many images there are changes no place in one of them.
    images = {axis: count for axis, count in call.counts(0).items() if axis == 0}
    counts, allowed = {**images, **windows.counts}, {0: {*images, *given[0]}}
    place = partial(pooling_places.max_pool_place, call.shape(0), window, dtype=call.dtype())
    func = place(column_major=column_major)
    sides = {axis: count for axis, count in call.counts(0).items() if axis > 1}
    if sides:
        in_room = call.emit_part(func, (read,), "in_room", given=allowed)
        count_also(call, in_room, counts)
        extents = [held(call.context, sides.get(k, n)) for k, n in enumerate(call.shape(0))][2:]
        func = pooling_places.place_of_run(func.outputs[0].shape, call.shape(0), column_major)
        call.emit(func, (in_room, *extents), places, "indices")
    else:
        call.emit(func, None, places, "indices", given=allowed)
    count_also(call, places, counts)
    if call.outputs[0]:
        call.emit(place(value=True), (read,), given=allowed)
        count_also(call, call.outputs[0], counts)


def _pays_by_axis(window: Window) -> bool:
    """Whether windows of stride 1 have at least twice as many taps as one pool along each axis, the
    results of which are written and read between them."""
    one_by_one = sum(tap for tap in window.kernel if tap > 1)
    return set(window.strides) == {1} and prod(window.kernel) >= 2 * one_by_one > 0


def _emit_by_axis(call: NodeCall, window: Window) -> None:
    """A maximum over windows as maxima along one axis after the other, which are the same."""
    name, axes = call.inputs[0], [k for k, tap in enumerate(window.kernel) if tap > 1]
    for axis in reversed(axes):
        shape = call.context.graph.values[name].shape
        func = pooling.max_pool(shape, window.along(axis), dtype=call.dtype())
        if axis == axes[0]:
            call.emit(func, (name,))
        else:
            name = call.emit_part(func, (name,), f"axis{axis}")


def _pool_window(call: NodeCall) -> Window:
    """The window of a pool.

    In ceil mode, windows that would begin behind the image and the pads in front of it are left
    out, also where ONNX's inference counts them.  With pads of `auto_pad` no number is rounded.
    """
    window = window_of(call, call.required("kernel_shape"))
    rounds_up = call.flag("ceil_mode")
    if rounds_up and call.opset < POOLS_COUNTED:
        call.context.misinferred.update(call.outputs)
    is_exact = call.attribute("auto_pad", "NOTSET") in SAME
    return replace(window, ceil_mode=rounds_up and not is_exact)


def _emit_pool(call: NodeCall, func: PrimFunc, x: WindowInput, fill: float) -> None:
    """Add a kernel of pooling, for which `fill` is what an element that there is not would be."""
    windows = counted_windows(call, x.name, x.window, x.placed)
    read, given = window_input(call, x.name, windows, fill)
    call.emit(func, (read,), given=given)
    count_by(call, windows.counts)


def _max_unpool(call: NodeCall) -> None:
    """Indices are positions in the tensor that was pooled.

    A larger `output_shape` pads that tensor with zeros.
    """
    shape = call.shape(0)
    window = window_of(call, call.required("kernel_shape"))
    sides = zip(window.strides, window.pads_begin, window.pads_end, window.kernel, strict=True)
    spatial = tuple(
        (n - 1) * stride - begin - end + k
        for n, (stride, begin, end, k) in zip(shape[2:], sides, strict=True)
    )
    whole = (*shape[:2], *spatial)
    wanted = whole
    if call.has(2):
        wanted = call.numbers(2, "output_shape")
    if call.shape(1) != shape or len(wanted) != len(whole) or min(whole) < 0:
        raise call.invalid(
            f"indices of shape {call.shape(1)} and the output shape "
            f"{wanted} do not fit an input of shape {shape}, which becomes {whole}"
        )
    require_from(call, 1, 0, prod(whole) - 1)
    func = indexing.put(shape, prod(whole), call.dtype(), call.dtype(1))
    flat = call.emit_part(func, call.inputs[:2], "flat")
    if wanted == whole:
        call.emit(movement.reshape((prod(whole),), whole, call.dtype()), (flat,))
        return
    shaped = call.reshaped(flat, whole, "shaped")
    ends = [m - n for m, n in zip(wanted, whole, strict=True)]
    call.emit(selection.pad(whole, [0] * len(whole), ends, dtype=call.dtype()), (shaped,))


def _average_pool(call: NodeCall) -> None:
    include, window, dtype = call.flag("count_include_pad"), _pool_window(call), call.dtype()
    slid, shape = WindowInput(call.inputs[0], window), call.shape(0)
    windows = counted_windows(call, slid.name, window)
    # With its pads each window has all of its taps, except the last ones of ceil mode.
    if not windows.overhanging or (include and not window.ceil_mode):
        func = pooling.average_pool(shape, window, count_include_pad=include, dtype=dtype)
        _emit_pool(call, func, slid, 0)
        return
    x, given = window_input(call, slid.name, windows, 0)
    total = call.emit_part(pooling.sum_pool(shape, window, dtype), (x,), "sum", given=given)
    shape = call.context.graph.values[total].shape
    taps = _taps_of_windows(call, window, shape[2:], include)
    ratio = elementwise.binary("div", shape, shape[2:], dtype)
    call.emit(ratio, (total, taps))
    count_by(call, windows.counts)


def _taps_of_windows(
    call: NodeCall, window: Window, outputs: Sequence[int], include_pads: bool
) -> str:
    """The tensor that has, for each window of a run, the number of taps that count."""
    shape, counts = call.shape(0), call.counts(0)
    result = ""
    for k, number in enumerate(outputs):
        extent = held(call.context, counts.get(2 + k, shape[2 + k]))
        func = pooling.taps_among(window, k, number, include_pads)
        along = call.emit_part(func, (extent,), f"taps{k}")
        behind = (1,) * (len(outputs) - 1 - k)
        along = call.reshaped(along, (number, *behind), f"taps{k}.along")
        if result:
            before = call.context.graph.values[result].shape
            times = elementwise.binary("mul", before, (number, *behind), "int64")
            along = call.emit_part(times, (result, along), f"taps{k}.product")
        result = along
    divisor = elementwise.cast(tuple(outputs), "int64", call.dtype())
    return call.emit_part(divisor, (result,), "divisor")


def _lp_pool(call: NodeCall) -> None:
    window, p = _pool_window(call), int(call.attribute("p", 2))
    func = pooling.lp_pool(call.shape(0), window, p, dtype=call.dtype())
    _emit_pool(call, func, WindowInput(call.inputs[0], window), 0)


def _global_average_pool(call: NodeCall) -> None:
    shape = call.shape(0)
    axes = tuple(range(2, len(shape)))
    if call.is_counted(0, axes):
        emit_mean(call, call.inputs[0], axes, True)
        return
    call.emit(pooling.global_average_pool(shape, call.dtype()))


def _global_max_pool(call: NodeCall) -> None:
    lowest = neutral_literal(ReduceOp.MAX, call.dtype())
    _emit_global(call, pooling.global_max_pool(call.shape(0), call.dtype()), lowest)


def _global_lp_pool(call: NodeCall) -> None:
    p = int(call.attribute("p", 2))
    _emit_global(call, pooling.global_lp_pool(call.shape(0), p, call.dtype()), 0)


def _emit_global(call: NodeCall, func: PrimFunc, fill: float) -> None:
    """Add a kernel that reduces all spatial axes, to which `fill` is neutral."""
    call.emit(func, (filled_input(call, 0, range(2, len(call.shape(0))), fill),))


def _col2im(call: NodeCall) -> None:
    image = call.numbers(1, "image_shape")
    block = call.numbers(2, "block_shape")
    names = ("strides", "pads", "dilations")
    window = Window.of(block, *map(call.attribute, names))
    call.emit(columns.col2im(call.shape(0), image, window, call.dtype()), call.inputs[:1])


OPERATORS: Emitters = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": _global_max_pool,
    "LpPool": _lp_pool,
    "GlobalLpPool": _global_lp_pool,
    "Col2Im": _col2im,
}
