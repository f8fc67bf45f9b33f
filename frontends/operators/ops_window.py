"""Convolution and pooling: ONNX's window attributes become explicit pads, strides, dilations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypedDict

from graphflow.frontends.operators.call import Emitters, NodeCall
from graphflow.frontends.operators.forwarded import forwarded
from graphflow.frontends.operators.ops_indexing import require_from
from graphflow.kernels.definitions.data_dependent import indexing
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.kernels.definitions.windows import columns, convolution, pooling, pooling_places
from graphflow.tir import PrimFunc


class WindowAttributes(TypedDict):
    """Window attributes, one number for each spatial axis; `pads` are all begins, then all ends."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]


def window_attributes(call: NodeCall, kernel: Sequence[int]) -> WindowAttributes:
    """Strides, pads and dilations of a node, with `auto_pad` and ONNX's defaults filled in."""
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
    return WindowAttributes(strides=strides, pads=pads, dilations=dilations)


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


def convolution_of(call: NodeCall, weight: int, bias: bool, dtype: str) -> PrimFunc:
    """The convolution of input 0 with the weight at input `weight`, by the node's attributes."""
    return convolution.convolution(
        call.shape(0),
        call.shape(weight),
        **window_attributes(call, weight_extents(call, weight)),
        groups=call.attribute("group", 1),
        bias=bias,
        dtype=dtype,
    )


def _conv(call: NodeCall) -> None:
    call.emit(convolution_of(call, 1, call.has(2), call.dtype()), call.given_inputs)


def _conv_transpose(call: NodeCall) -> None:
    x_shape, w_shape = call.shape(0), call.shape(1)
    rank = len(w_shape) - 2
    window = window_attributes(call, weight_extents(call, 1))
    extra = tuple(call.attribute("output_padding", (0,) * rank))
    wanted = call.attribute("output_shape")
    if wanted is not None and len(wanted) not in (rank, rank + 2):
        raise call.invalid(f"output_shape {tuple(wanted)} does not fit {rank} axes")
    mode = call.attribute("auto_pad", "NOTSET")
    begins, outputs = [], []
    for axis, extent in enumerate(x_shape[2:]):
        stride, dilation = window["strides"][axis], window["dilations"][axis]
        reach = (w_shape[2 + axis] - 1) * dilation + 1
        full = stride * (extent - 1) + extra[axis] + reach
        begin, end = window["pads"][axis], window["pads"][rank + axis]
        if wanted is not None or mode.startswith("SAME"):
            output = min(extent * stride, full) if wanted is None else wanted[axis - rank]
            total = max(full - output, 0)
            begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
        else:
            output = full - begin - end
        begins.append(begin)
        outputs.append(output)
    func = convolution.transposed_convolution(
        x_shape,
        w_shape,
        outputs,
        strides=window["strides"],
        pads_begin=begins,
        dilations=window["dilations"],
        groups=call.attribute("group", 1),
        bias=call.has(2),
        dtype=call.dtype(),
    )
    call.emit(func, call.given_inputs)


def _max_pool(call: NodeCall) -> None:
    # The storage order only says how the second output, the indices, counts.
    column_major = call.flag("storage_order")
    pooling_of = _pooled(call)
    places = call.outputs[1] if len(call.outputs) > 1 else ""
    if places not in call.context.read:
        call.refuse_outputs_from(1)
        call.emit(pooling_of(pooling.max_pool))
        return
    place = pooling_of(pooling_places.max_pool_place, column_major=column_major)
    call.emit(place, None, places, "indices")
    if call.outputs[0]:
        call.emit(pooling_of(pooling_places.max_pool_place, value=True))


def _pooled(call: NodeCall) -> Callable[..., PrimFunc]:
    """Makes kernels of pooling from their definitions, with the attributes that all of them
    have."""
    kernel = call.required("kernel_shape")
    window = window_attributes(call, kernel)
    shape, ceil_mode, dtype = call.shape(0), call.flag("ceil_mode"), call.dtype()

    def pooled(define: Callable[..., PrimFunc], *positional: Any, **named: Any) -> PrimFunc:
        named |= {**window, "ceil_mode": ceil_mode, "dtype": dtype}
        func: PrimFunc = define(shape, kernel, *positional, **named)
        return func

    return pooled


def _max_unpool(call: NodeCall) -> None:
    """Indices are positions in the tensor that was pooled.

    A larger `output_shape` pads that tensor with zeros.
    """
    shape = call.shape(0)
    kernel = call.required("kernel_shape")
    window = window_attributes(call, kernel)
    rank = len(kernel)
    spatial = tuple(
        (n - 1) * stride - begin - end + k
        for n, stride, begin, end, k in zip(
            shape[2:],
            window["strides"],
            window["pads"][:rank],
            window["pads"][rank:],
            kernel,
            strict=True,
        )
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
    include = call.flag("count_include_pad")
    call.emit(_pooled(call)(pooling.average_pool, count_include_pad=include))


def _lp_pool(call: NodeCall) -> None:
    call.emit(_pooled(call)(pooling.lp_pool, int(call.attribute("p", 2))))


def _col2im(call: NodeCall) -> None:
    image = call.numbers(1, "image_shape")
    block = call.numbers(2, "block_shape")
    func = columns.col2im(
        call.shape(0),
        image,
        block,
        strides=call.attribute("strides"),
        pads=call.attribute("pads"),
        dilations=call.attribute("dilations"),
        dtype=call.dtype(),
    )
    call.emit(func, call.inputs[:1])


OPERATORS: Emitters = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": forwarded(pooling.global_average_pool),
    "GlobalMaxPool": forwarded(pooling.global_max_pool),
    "LpPool": _lp_pool,
    "GlobalLpPool": forwarded(pooling.global_lp_pool, p=("p", 2)),
    "Col2Im": _col2im,
}
