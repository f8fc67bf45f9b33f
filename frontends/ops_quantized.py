"""Quantized operators: scales and zero points around integer arithmetic that is exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from graphflow.frontends.call import NodeCall
from graphflow.frontends.ops_window import convolution_of
from graphflow.frontends.protos import check_dtype, dtype_name
from graphflow.kernels.definitions import linear, quantized, reduction
from graphflow.kernels.definitions.stages import Shape


def _quantize(call: NodeCall) -> None:
    """The output dtype is that of the zero point, else that of an attribute, else uint8."""
    wanted = call.attribute("output_dtype", 0) or onnx.TensorProto.UINT8
    target = call.stored_dtype(2) if call.has(2) else dtype_name(wanted)
    check_dtype(f"{call.title}: output", target)
    if call.attribute("precision", 0) not in (0, onnx.TensorProto.FLOAT):
        call.refuse("a precision other than float32", "remove the attribute")
    func = quantized.quantize(
        call.shape(0),
        call.dtype(),
        call.shape(1),
        target,
        zero_shape=call.shape(2) if call.has(2) else None,
        axis=int(call.attribute("axis", 1)),
        block=int(call.attribute("block_size", 0)),
        saturate=bool(call.attribute("saturate", 1)),
    )
    _check_scale(call, 1)
    call.emit(func, call.given_inputs)


def _dequantize(call: NodeCall) -> None:
    call.attribute("output_dtype")
    _check_scale(call, 1)
    func = quantized.dequantize(
        call.shape(0),
        call.dtype(),
        call.shape(1),
        zero_shape=call.shape(2) if call.has(2) else None,
        axis=int(call.attribute("axis", 1)),
        block=int(call.attribute("block_size", 0)),
    )
    call.emit(func, call.given_inputs)


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
    ends = [
        call.emit(
            reduction.reduce(kind, shape, range(len(shape)), False),
            (ranged,),
            call.part_name(kind),
            kind,
        )
        for kind in ("min", "max")
    ]
    call.emit(quantized.dynamic_scale(), ends, names[1], "scale")
    call.emit(quantized.dynamic_zero_point(), (ends[0], names[1]), names[2], "zero")
    func = quantized.quantize(values[x].shape, "float32", (), "uint8", zero_shape=())
    call.emit(func, (x, *names[1:]), names[0])


def _shifted(call: NodeCall, position: int, zero: int, axis: int, part: str) -> str:
    """The name of an input minus its zero point, as int32."""
    zero_shape = call.shape(zero) if call.has(zero) else None
    func = quantized.shifted(call.shape(position), call.dtype(position), zero_shape, axis)
    names = [call.inputs[position]] + ([call.inputs[zero]] if zero_shape is not None else [])
    result = call.part_name(part)
    return call.emit(func, names, result, part)


def _matmul_integer(call: NodeCall) -> None:
    """Zero points may be given for each row of A and for each column of B."""
    factors = _shifted(call, 0, 2, -2, "a"), _shifted(call, 1, 3, -1, "b")
    call.emit(linear.matmul(call.shape(0), call.shape(1), "int32"), factors)


def _conv_integer(call: NodeCall) -> None:
    """Padding counts as the zero point of x; w may have a zero point for each output channel."""
    factors = _shifted(call, 0, 2, 1, "x"), _shifted(call, 1, 3, 0, "w")
    call.emit(convolution_of(call, 1, False, "int32"), factors)


def _qlinear_matmul(call: NodeCall) -> None:
    factors = _shifted(call, 0, 2, -2, "a"), _shifted(call, 3, 5, -1, "b")
    func = linear.matmul(call.shape(0), call.shape(3), "int32")
    total = call.part_name("total")
    call.emit(func, factors, total, "total")
    _requantize(call, total, func.outputs[0].shape, (1, 4, 6, 7), (-2, -1, -1))


def _qlinear_conv(call: NodeCall) -> None:
    """The bias is an int32 in units of x_scale · w_scale, so it is added to the integer sum."""
    factors = _shifted(call, 0, 2, 1, "x"), _shifted(call, 3, 5, 0, "w")
    func = convolution_of(call, 3, call.has(8), "int32")
    total = call.part_name("total")
    call.emit(func, (*factors, *call.inputs[8:9]) if call.has(8) else factors, total, "total")
    _requantize(call, total, func.outputs[0].shape, (1, 4, 6, 7), (1, 1, 1))


def _requantize(
    call: NodeCall,
    total: str,
    shape: Shape,
    positions: tuple[int, int, int, int],
    axes: tuple[int, int, int],
) -> None:
    """Scale an integer sum to the output; `positions` are those of three scales and the zero
    point."""
    *scales, zero = positions
    for position in scales:
        _check_scale(call, position)
    a, b, c = (call.shape(position) for position in scales)
    func = quantized.requantize(shape, (a, b, c), call.shape(zero), axes, call.stored_dtype(zero))
    call.emit(func, (total, *(call.inputs[position] for position in positions)))


QUANTIZED: dict[str, Callable[[NodeCall], None]] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
