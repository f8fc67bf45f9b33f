"""Elementwise operators: each function turns one ONNX node into one elementwise kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from graphflow.base.errors import TrainingOnly
from graphflow.frontends.nodes.call import Emitter, Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_like
from graphflow.frontends.nodes.forwarded import forwarded
from graphflow.frontends.protos.protos import check_dtype, dtype_name
from graphflow.graph import Array
from graphflow.kernels.definitions import elementwise, scalar_functions
from graphflow.kernels.definitions.movements import movement
from graphflow.tir import FLOATS, BinaryOp, ComparisonOp, Expr


def _unary(op: str) -> Emitter:
    return forwarded(partial(elementwise.unary, op))


def _binary(op: BinaryOp | ComparisonOp) -> Emitter:
    return forwarded(partial(elementwise.binary, op), 2)


def _variadic(op: BinaryOp | Literal["mean"], call: NodeCall) -> None:
    count, dtype = len(call.inputs), call.dtype()
    for position in range(count):
        call.shape(position)  # refuses what is no tensor
    partial_op: BinaryOp = "add" if op == "mean" else op
    call.emit_tree(
        lambda shapes: elementwise.variadic(partial_op, shapes, dtype),
        lambda shapes: elementwise.variadic(op, shapes, dtype, count),
    )


def _clip(call: NodeCall) -> None:
    """The bounds are attributes before opset 11, optional scalar inputs since."""
    bounds: list[float | tuple[int, ...] | None] = []
    inputs = [call.inputs[0]]
    for position, name in enumerate(("min", "max"), start=1):
        known = call.known(position)
        if call.opset < 11:
            bounds.append(call.attribute(name))
        elif known is not None and known.size == 1:
            bounds.append(known.reshape(()).item())
        else:
            bounds.append(call.optional_shape(position))
            inputs += call.inputs[position : position + 1] if call.has(position) else ()
    call.emit(elementwise.clip(call.shape(0), bounds[0], bounds[1], call.dtype()), inputs)


def _cast(call: NodeCall) -> None:
    _emit_cast(call, dtype_name(call.required("to")))


def _cast_like(call: NodeCall) -> None:
    """Of the second input nothing but the type matters."""
    call.drops_counts = True
    _emit_cast(call, call.stored_dtype(1))


def _emit_cast(call: NodeCall, target: str) -> None:
    # The rounding mode speaks of float8_e8m0 only, which `check_dtype` refuses.
    call.attribute("round_mode")
    check_dtype(f"{call.title}: target", target)
    saturate = call.flag("saturate", True)
    if call.stored_dtype() == target:
        call.emit(movement.copy(call.shape(0), call.dtype()), call.inputs[:1])
        return
    call.emit(elementwise.cast(call.shape(0), call.dtype(), target, saturate), call.inputs[:1])


def _identity(call: NodeCall) -> None:
    call.emit(movement.copy(call.shape(0), call.dtype()), call.inputs[:1])


def _dropout(call: NodeCall) -> None:
    """At inference a copy of the input, and a mask that is all true.

    The mask is bool since opset 10, and of the input's dtype before.  Training mode is the same if
    the ratio is known to be 0.
    """
    ratio: Array | float = call.attribute("ratio", 0.5)
    call.attribute("seed")
    if call.opset >= 12:
        known = call.known(1)
        ratio = ratio if known is None else known
    trains = call.has(2) and bool(call.constant(2, "training_mode").any())
    if trains and call.has(1):
        ratio = call.constant(1, "ratio")
    if trains and np.any(ratio):
        raise TrainingOnly(f"{call.title}: training_mode is true; export the model for inference")
    shape = call.shape(0)
    call.emit(movement.copy(shape, call.dtype()), call.inputs[:1])
    if call.outputs[1:] and call.outputs[1] in call.context.read:
        mask = movement.fill(shape, True, "bool" if call.opset >= 10 else call.dtype())
        call.emit(mask, (), call.outputs[1], "mask")
        count_like(call, call.outputs[1], 0)
        return
    call.refuse_further_outputs()


def _activation(op: str, defaults: dict[str, float], call: NodeCall) -> None:
    # Attributes are float32, and so are their defaults: 0.2 left out is 0.2 stated.
    attributes = {name: float(np.float32(call.attribute(name, n))) for name, n in defaults.items()}
    call.emit(elementwise.unary(op, call.shape(0), call.dtype(), attributes))


def _gelu(call: NodeCall) -> None:
    exact = call.choice("approximate", ("none", "tanh"), "none") == "none"
    _unary("gelu" if exact else "gelu_tanh")(call)


def _pow(call: NodeCall) -> None:
    """Squares and cubes with a known exponent become products, which vectorize."""
    shape, dtype, exponent = call.shape(0), call.dtype(), call.known(1)
    if exponent is not None and exponent.size == 1 and exponent.ndim <= len(shape):
        product = {2: "square", 3: "cube"}.get(exponent.reshape(()).item())
        if product is not None:
            call.emit(elementwise.unary(product, shape, dtype), call.inputs[:1])
            return
    call.emit(elementwise.power(shape, call.shape(1), dtype, call.dtype(1)))


def _bit_shift(call: NodeCall) -> None:
    left = call.choice("direction", ("LEFT", "RIGHT")) == "LEFT"
    _binary("shl" if left else "shr")(call)


def _is_nan(call: NodeCall) -> None:
    _emit_predicate(call, "is_nan", scalar_functions.is_nan)


def _is_infinite(call: NodeCall) -> None:
    negative, positive = (bool(call.attribute(f"detect_{s}", 1)) for s in ("negative", "positive"))
    holds = partial(scalar_functions.is_infinite, negative=negative, positive=positive)
    _emit_predicate(call, "is_inf", holds)


def _emit_predicate(call: NodeCall, name: str, holds: Callable[[Expr], Expr]) -> None:
    """Nothing is computed in 8-bit floats, so they are first cast to float32, which is exact."""
    shape, dtype, source = call.shape(0), call.dtype(), call.inputs[0]
    if dtype not in FLOATS:
        source = call.emit_part(elementwise.cast(shape, dtype, "float32"), (source,), "float32")
        dtype = "float32"
    call.emit(elementwise.predicate(name, shape, dtype, holds), (source,))


_OF_TWO: dict[str, BinaryOp | ComparisonOp] = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "And": "and",
    "Or": "or",
    "Xor": "ne",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
}
_PLAIN = (
    "Relu", "Exp", "Log", "Sigmoid", "Tanh", "Sqrt", "Neg", "Abs", "Erf", "Floor", "Ceil", "Round",
    "Softplus", "Softsign", "Mish", "Reciprocal", "Sign", "Not",
    "Sin", "Cos", "Tan", "Asin", "Acos", "Atan",
    "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
)  # fmt: skip
_ACTIVATIONS = {
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": ("hard_swish", {}),
    "Elu": ("elu", {"alpha": 1.0}),
    "Selu": ("selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Celu": ("celu", {"alpha": 1.0}),
    "Swish": ("swish", {"alpha": 1.0}),
    "Shrink": ("shrink", {"lambd": 0.5, "bias": 0.0}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}

OPERATORS: Emitters = {
    **{op_type: _unary(op_type.lower()) for op_type in _PLAIN},
    **{op_type: partial(_activation, *rest) for op_type, rest in _ACTIVATIONS.items()},
    **{op_type: _binary(op) for op_type, op in _OF_TWO.items()},
    "Sum": partial(_variadic, "add"),
    "Mean": partial(_variadic, "mean"),
    "Max": partial(_variadic, "max"),
    "Min": partial(_variadic, "min"),
    "BitShift": _bit_shift,
    "BitwiseNot": _unary("not"),
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Dropout": _dropout,
    "Gelu": _gelu,
    "Identity": _identity,
    "IsInf": _is_infinite,
    "IsNaN": _is_nan,
    "Mod": forwarded(elementwise.modulo, 2, truncated=("fmod", False)),
    "Pow": _pow,
    "PRelu": forwarded(elementwise.prelu, 2),
    "Where": forwarded(elementwise.where, 3, dtype_of=1),
}
