"""Quantized operators: scales and zero points around integer arithmetic that is exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import onnx

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_also, count_by, filled, filled_parts
from graphflow.frontends.nodes.counted_windows import window_input
from graphflow.frontends.operators.ops_window import (
    convolution_input,
    convolution_of,
    convolution_windows,
)
from graphflow.frontends.protos.protos import check_dtype, dtype_name
from graphflow.kernels.definitions import quantized
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.stages import Shape


def _quantize(call: NodeCall) -> None:
    """The output dtype is that of the zero point, else that of an attribute, else uint8."""
    wanted = call.attribute("output_dtype", 0) or onnx.TensorProto.UINT8
    target = call.stored_dtype(2) if call.has(2) else dtype_name(wanted)
    check_dtype(f"{call.title}: output", target)
    if call.attribute("precision", 0) not in (0, onnx.TensorProto.FLOAT):
        call.refuse("a precision other than float32", "remove the attribute")
    func = quantized.quantize_elements(
        call.shape(0),
        call.dtype(),
        call.shape(1),
        target,
        **_parameters(call),
        saturate=call.flag("saturate", True),
    )
    call.emit(func, call.given_inputs)


def _dequantize(call: NodeCall) -> None:
    call.attribute("output_dtype")
    func = quantized.dequantize(call.shape(0), call.dtype(), call.shape(1), **_parameters(call))
    call.emit(func, call.given_inputs)


class _Parameters(TypedDict):
    """How the scale and the zero point of a node lie along its input."""

    zero_shape: Shape | None
    axis: int
    block: int


def _parameters(call: NodeCall) -> _Parameters:
    _check_scale(call, 1)
    axis, block = int(call.attribute("axis", 1)), int(call.attribute("block_size", 0))
    return _Parameters(zero_shape=call.optional_shape(2), axis=axis, block=block)


def _check_scale(call: NodeCall, position: int) -> None:
    if call.dtype(position) != "float32":
        call.refuse(f"a scale of {call.dtype(position)}", "cast the scale to float32")


def _dynamic_quantize(call: NodeCall) -> None:
    """Three outputs: the quantized tensor, its scale, its zero point."""
    names = [
        name or call.part_name(role)
        for name, role in zip((*call.outputs, "", "")[:3], ("y", "scale", "zero"), strict=True)
    ]
    emit_quantized(call, call.inputs[0], call.inputs[0], names)


def emit_quantized(call: NodeCall, x: str, ranged: str, names: Sequence[str]) -> None:
    """Add kernels that quantize the tensor `x` to uint8 by the range of the tensor `ranged`.

    `names` are those of the quantized tensor, its scale and its zero point.
    """
    values = call.context.graph.values
    shape = values[ranged].shape
    whole = filled(call, ranged, 0, ".range")  # a range has zero
    # NaN need not be in both ends, as it makes the scale NaN by either.
    ends = (
        call.emit_part(reduction.reach(shape, below=True), (whole,), "below"),
        call.emit_part(reduction.reach(shape, below=False), (whole,), "above"),
    )
    call.drops_counts = True  # of the range, to which all elements that a run gives contribute
    call.read_with_fill.pop(x, None)  # zeros known behind a count are of the range alone
    call.emit(quantized.dynamic_scale(), ends, names[1], "scale")
    call.emit(quantized.dynamic_zero_point(), (ends[0], names[1]), names[2], "zero")
    func = quantized.quantize_elements(values[x].shape, "float32", (), "uint8", zero_shape=())
    call.emit(func, (x, *names[1:]), names[0])


def _shifted(call: NodeCall, position: int, zero: int, axis: int, part: str) -> str:
    """The name of an input minus its zero point, as int32."""
    func = quantized.shifted(
        call.shape(position), call.dtype(position), call.optional_shape(zero), axis
    )
    zeros = call.inputs[zero : zero + 1] if call.has(zero) else ()
    return call.emit_part(func, (call.inputs[position], *zeros), part)


def _product_factors(call: NodeCall, second: int) -> tuple[str, str]:
    """The factors of a matrix product of inputs 0 and `second`, less their zero points, which are
    the inputs 2 behind these."""
    names = _shifted(call, 0, 2, -2, "a"), _shifted(call, second, second + 2, -1, "b")
    return filled_parts(call, names, len(call.shape(0)) - 1, max(len(call.shape(second)) - 2, 0))


def _matmul_integer(call: NodeCall) -> None:
    """Zero points may be given for each row of A and for each column of B."""
    factors = _product_factors(call, 1)
    call.emit(linear.matmul(call.shape(0), call.shape(1), "int32"), factors)


def _conv_integer(call: NodeCall) -> None:
    """Padding counts as the zero point of x; w may have a zero point for each output channel."""
    x, w = _shifted(call, 0, 2, 1, "x"), _shifted(call, 1, 3, 0, "w")
    slid = convolution_input(call, x, 1)
    func = convolution_of(call, slid, 1, False, "int32")
    windows = convolution_windows(call, slid, 1)
    x, given = window_input(call, slid.name, windows, 0)
    call.emit(func, (x, w), given=given)
    count_by(call, windows.counts)


def _qlinear_matmul(call: NodeCall) -> None:
    factors = _product_factors(call, 3)
    func = linear.matmul(call.shape(0), call.shape(3), "int32")
    total = call.emit_part(func, factors, "total")
    _emit_requantized(call, total, (-2, -1, -1))


def _qlinear_conv(call: NodeCall) -> None:
    """The bias is an int32 in units of x_scale · w_scale, so it is added to the integer sum."""
    x, w = _shifted(call, 0, 2, 1, "x"), _shifted(call, 3, 5, 0, "w")
    slid = convolution_input(call, x, 3)
    func = convolution_of(call, slid, 3, call.has(8), "int32")
    windows = convolution_windows(call, slid, 3)
    x, given = window_input(call, slid.name, windows, 0)
    total = call.emit_part(func, (x, w, *call.inputs[8:9][: call.has(8)]), "total", given=given)
    if windows.counts:
        count_also(call, total, windows.counts)
    _emit_requantized(call, total, (1, 1, 1))


def _emit_requantized(call: NodeCall, total: str, axes: tuple[int, int, int]) -> None:
    """The integer sum `total`, scaled to the output.

    Inputs 1, 4 and 6 are the scales of both factors and of the output, with their elements along
    `axes` of the sum; input 7 is the zero point of the output.
    """
    for position in (1, 4, 6):
        _check_scale(call, position)
    scales = (call.shape(1), call.shape(4), call.shape(6))
    shape, zero_shape = call.context.graph.values[total].shape, call.shape(7)
    parameters = (call.inputs[1], call.inputs[4], *call.inputs[6:8])
    func = quantized.requantize(shape, scales, zero_shape, axes, call.stored_dtype(7))
    call.emit(func, (total, *parameters))


OPERATORS: Emitters = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
