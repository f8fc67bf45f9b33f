"""Convolution and pooling: ONNX's window attributes become explicit pads, strides, dilations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphflow.errors import InvalidModel
from graphflow.frontends.call import Call
from graphflow.kernels.definitions import (
    average_pool,
    convolution,
    global_average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
    transposed_convolution,
)


@dataclass(frozen=True, slots=True)
class WindowAttributes:
    """Window attributes, one number a spatial axis; `pads` are all begins, then all ends."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    explicit: bool
    """Whether the pads are the model's, not computed by `auto_pad`."""


def window_attributes(call: Call, kernel: Sequence[int]) -> WindowAttributes:
    """The attributes of a node whose first input is read in windows of extents `kernel`.

    Raises `InvalidModel` where their numbers do not fit the spatial axes.
    """
    spatial = call.shape(0)[2:]
    rank = len(spatial)
    strides = tuple(call.attribute("strides", (1,) * rank))
    dilations = tuple(call.attribute("dilations", (1,) * rank))
    pads = tuple(call.attribute("pads", (0,) * (2 * rank)))
    mode = call.attribute("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise InvalidModel(f"{call.op} node {call.name}: auto_pad {mode} does not exist")
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise InvalidModel(
            f"{call.op} node {call.name}: kernel {tuple(kernel)}, strides {strides} and dilations "
            f"{dilations} must have one number for each of {rank} spatial axes"
        )
    if mode == "VALID":
        pads = (0,) * (2 * rank)
    elif mode != "NOTSET":
        pads = _same_pads(spatial, kernel, strides, dilations, mode == "SAME_UPPER")
    return WindowAttributes(strides, pads, dilations, mode == "NOTSET")


def _same_pads(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    upper: bool,
) -> tuple[int, ...]:
    """Pads that make `ceil(extent / stride)` outputs; the odd one goes to the end if `upper`."""
    begins, ends = [], []
    for extent, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        outputs = -(-extent // stride)
        total = max((outputs - 1) * stride + (k - 1) * dilation + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return (*begins, *ends)


def _conv(call: Call) -> None:
    kernel = call.shape(1)[2:]
    stated = tuple(call.attribute("kernel_shape", kernel))
    if stated != kernel:
        raise InvalidModel(
            f"Conv node {call.name}: kernel_shape {stated} is not that of the weight, {kernel}"
        )
    window = window_attributes(call, kernel)
    func = convolution(
        call.shape(0),
        call.shape(1),
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=call.attribute("group", 1),
        bias=call.has(2),
        dtype=call.dtype(),
    )
    call.emit(func, [name for name in call.inputs if name])


def _conv_transpose(call: Call) -> None:
    x_shape, w_shape = call.shape(0), call.shape(1)
    rank = len(w_shape) - 2
    stated = tuple(call.attribute("kernel_shape", w_shape[2:]))
    if stated != w_shape[2:]:
        raise InvalidModel(
            f"ConvTranspose node {call.name}: kernel_shape {stated} is not that of the weight, "
            f"{w_shape[2:]}"
        )
    window = window_attributes(call, w_shape[2:])
    extra = tuple(call.attribute("output_padding", (0,) * rank))
    wanted = call.attribute("output_shape")
    if wanted is not None and len(wanted) not in (rank, rank + 2):
        raise InvalidModel(
            f"ConvTranspose node {call.name}: output_shape {tuple(wanted)} does not fit {rank} axes"
        )
    mode = call.attribute("auto_pad", "NOTSET")
    begins, outputs = [], []
    for axis, extent in enumerate(x_shape[2:]):
        stride, dilation = window.strides[axis], window.dilations[axis]
        reach = (w_shape[2 + axis] - 1) * dilation + 1
        full = stride * (extent - 1) + extra[axis] + reach
        begin, end = window.pads[axis], window.pads[rank + axis]
        if wanted is not None or mode.startswith("SAME"):
            output = min(extent * stride, full) if wanted is None else wanted[axis - rank]
            total = max(full - output, 0)
            begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
        else:
            output = full - begin - end
        begins.append(begin)
        outputs.append(output)
    func = transposed_convolution(
        x_shape,
        w_shape,
        outputs,
        strides=window.strides,
        pads_begin=begins,
        dilations=window.dilations,
        groups=call.attribute("group", 1),
        bias=call.has(2),
        dtype=call.dtype(),
    )
    call.emit(func, [name for name in call.inputs if name])


def _max_pool(call: Call) -> None:
    # The storage order only says how the second output, the indices, counts.
    call.attribute("storage_order")
    call.refuse_outputs_from(1)
    kernel = call.required("kernel_shape")
    window = window_attributes(call, kernel)
    func = max_pool(
        call.shape(0),
        kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        ceil_mode=bool(call.attribute("ceil_mode", 0)) and window.explicit,
        dtype=call.dtype(),
    )
    call.emit(func)


def _average_pool(call: Call) -> None:
    kernel = call.required("kernel_shape")
    window = window_attributes(call, kernel)
    func = average_pool(
        call.shape(0),
        kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        ceil_mode=bool(call.attribute("ceil_mode", 0)) and window.explicit,
        count_include_pad=bool(call.attribute("count_include_pad", 0)),
        dtype=call.dtype(),
    )
    call.emit(func)


def _lp_pool(call: Call) -> None:
    kernel = call.required("kernel_shape")
    window = window_attributes(call, kernel)
    func = lp_pool(
        call.shape(0),
        kernel,
        int(call.attribute("p", 2)),
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        ceil_mode=bool(call.attribute("ceil_mode", 0)) and window.explicit,
        dtype=call.dtype(),
    )
    call.emit(func)


def _global_lp_pool(call: Call) -> None:
    call.emit(global_lp_pool(call.shape(0), int(call.attribute("p", 2)), call.dtype()))


def _global_average_pool(call: Call) -> None:
    call.emit(global_average_pool(call.shape(0), call.dtype()))


def _global_max_pool(call: Call) -> None:
    call.emit(global_max_pool(call.shape(0), call.dtype()))


WINDOW: dict[str, Callable[[Call], None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": _global_max_pool,
    "LpPool": _lp_pool,
}
