"""Elementwise operators: each function turns one ONNX node into one elementwise kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from graphflow.frontends.call import Call, check_dtype, dtype_name
from graphflow.kernels.definitions import (
    binary,
    cast,
    clip,
    copy,
    normalization_scale,
    normalization_shift,
    scale_and_shift,
    unary,
    variadic,
)


def _unary(op: str, call: Call) -> None:
    call.emit(unary(op, call.shape(0), call.dtype()))


def _binary(op: str, call: Call) -> None:
    call.emit(binary(op, call.shape(0), call.shape(1), call.dtype()))


def _variadic(op: str, call: Call) -> None:
    shapes = [call.shape(k) for k in range(len(call.inputs))]
    call.emit(variadic(op, shapes, call.dtype()))


def _leaky_relu(call: Call) -> None:
    alpha = {"alpha": call.attribute("alpha", 0.01)}
    call.emit(unary("leaky_relu", call.shape(0), call.dtype(), alpha))


def _clip(call: Call) -> None:
    """Bounds are attributes before opset 11, optional scalar inputs since."""
    if call.opset < 11:
        low, high = call.attribute("min"), call.attribute("max")
        call.emit(clip(call.shape(0), low, high, call.dtype()))
        return
    bounds: list[float | tuple[int, ...] | None] = []
    inputs = [call.inputs[0]]
    for position in (1, 2):
        known = call.known(position)
        if known is not None and known.size == 1:
            bounds.append(known.reshape(()).item())
        elif call.has(position):
            bounds.append(call.shape(position))
            inputs.append(call.inputs[position])
        else:
            bounds.append(None)
    call.emit(clip(call.shape(0), bounds[0], bounds[1], call.dtype()), inputs)


def _cast(call: Call) -> None:
    for attribute in ("saturate", "round_mode"):
        # They speak of float8 targets only, which `check_dtype` refuses.
        call.attribute(attribute)
    target = dtype_name(call.required("to"))
    check_dtype(f"Cast node {call.name}: target", target)
    call.emit(cast(call.shape(0), call.dtype(), target))


def _identity(call: Call) -> None:
    call.emit(copy(call.shape(0), call.dtype()), call.inputs[:1])


def _dropout(call: Call) -> None:
    """At inference the input; a mask is refused where it is used."""
    call.attribute("ratio")
    call.attribute("seed")
    if call.has(2) and call.constant(2, "training_mode").any():
        call.refuse("training_mode is true", "export the model for inference")
    call.refuse_outputs_from(1)
    call.emit(copy(call.shape(0), call.dtype()), call.inputs[:1])


def _batch_normalization(call: Call) -> None:
    """Factor and summand a channel, which fold to constants, and one elementwise kernel."""
    call.attribute("momentum")
    if call.attribute("training_mode", 0):
        call.refuse("training_mode is 1", "export the model for inference")
    if not call.attribute("spatial", 1):
        call.refuse("spatial is 0", "convert the model to opset 9 or later")
    call.refuse_outputs_from(1)
    x, gamma, beta, mean, variance = call.inputs
    context, dtype, result = call.context, call.dtype(), call.outputs[0]
    channels = call.shape(1)[0]
    scale = call.emit(
        normalization_scale(channels, call.attribute("epsilon", 1e-5), dtype),
        (gamma, variance),
        context.unique_tensor_name(f"{result}.scale"),
        "scale",
    )
    shift = call.emit(
        normalization_shift(channels, dtype),
        (beta, mean, scale),
        context.unique_tensor_name(f"{result}.shift"),
        "shift",
    )
    call.emit(scale_and_shift(call.shape(0), dtype), (x, scale, shift))


ELEMENTWISE: dict[str, Callable[[Call], None]] = {
    **{
        op_type: partial(_unary, op_type.lower())
        for op_type in ("Relu", "Exp", "Log", "Sigmoid", "Tanh", "Sqrt", "Neg", "Abs", "Erf")
    },
    **{op_type: partial(_unary, op_type.lower()) for op_type in ("Floor", "Ceil")},
    **{op_type: partial(_binary, op_type.lower()) for op_type in ("Add", "Sub", "Mul", "Div")},
    "Sum": partial(_variadic, "add"),
    "Max": partial(_variadic, "max"),
    "Min": partial(_variadic, "min"),
    "LeakyRelu": _leaky_relu,
    "Clip": _clip,
    "Cast": _cast,
    "Identity": _identity,
    "Dropout": _dropout,
    "BatchNormalization": _batch_normalization,
}
