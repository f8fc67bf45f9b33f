"""Normalization operators.

Only their first output is built; a model that reads another output is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from graphflow.base.errors import InvalidModel, TrainingOnly
from graphflow.frontends.call import NodeCall
from graphflow.frontends.protos import dtype_name
from graphflow.kernels.definitions import elementwise, normalization, reduction


def _batch_normalization(call: NodeCall) -> None:
    """One multiply-add for each channel; factor and summand are folded to constants."""
    call.attribute("momentum")
    if call.attribute("training_mode", 0):
        raise TrainingOnly(f"{call.title}: training_mode is 1; export the model for inference")
    if not call.attribute("spatial", 1):
        call.refuse("spatial is 0", "convert the model to opset 9 or later")
    call.refuse_outputs_from(1)
    x, gamma, beta, mean, variance = call.inputs
    context, dtype, result = call.context, call.dtype(), call.outputs[0]
    channels = call.extent(1)
    scale = call.emit(
        elementwise.normalization_scale((channels,), call.attribute("epsilon", 1e-5), dtype),
        (gamma, variance),
        context.unique_tensor_name(f"{result}.scale"),
        "scale",
    )
    shift = call.emit(
        elementwise.normalization_shift(channels, dtype),
        (beta, mean, scale),
        context.unique_tensor_name(f"{result}.shift"),
        "shift",
    )
    call.emit(elementwise.scale_and_shift(call.shape(0), dtype), (x, scale, shift))


def _instance_normalization(call: NodeCall) -> None:
    shape = call.shape(0)
    if len(shape) < 2:
        raise InvalidModel(f"{call.title}: its input is {list(shape)}, without an axis of channels")
    func = normalization.group_normalization(
        shape,
        shape[1],
        call.extent(1),
        epsilon=call.attribute("epsilon", 1e-5),
        dtype=call.dtype(),
        name="instance_normalization",
    )
    call.emit(func)


def _group_normalization(call: NodeCall) -> None:
    # The dtype of the statistics: at least that of the input is what kernels compute in anyway.
    call.attribute("stash_type")
    func = normalization.group_normalization(
        call.shape(0),
        call.required("num_groups"),
        call.extent(1),
        epsilon=call.attribute("epsilon", 1e-5),
        dtype=call.dtype(),
    )
    call.emit(func)


def _layer_normalization(call: NodeCall) -> None:
    stashed = dtype_name(call.attribute("stash_type", onnx.TensorProto.FLOAT))
    axis, epsilon = call.attribute("axis", -1), call.attribute("epsilon", 1e-5)
    func = normalization.layer_normalization(
        call.shape(0),
        axis,
        call.shape(1),
        call.shape(2) if call.has(2) else None,
        epsilon=epsilon,
        dtype=call.dtype(),
    )
    call.emit(func, call.given_inputs)
    if any(name in call.context.read for name in call.outputs[1:]):
        _emit_statistics(call, axis, epsilon, stashed)
        return
    call.refuse_outputs_from(1)


def _emit_statistics(call: NodeCall, axis: int, epsilon: float, stashed: str) -> None:
    """Emits the optional outputs: the mean over all axes from `axis` on, and 1 / standard
    deviation."""
    shape, dtype = call.shape(0), call.dtype()
    first = axis + len(shape) if axis < 0 else axis
    axes = range(first, len(shape))
    x = call.inputs[0]
    average = reduction.reduce("mean", shape, axes, True, dtype)
    kept = average.outputs[0].shape
    mean = call.emit_part(average, (x,), "mean")
    centered = call.emit_part(elementwise.binary("sub", shape, kept, dtype), (x, mean), "centered")
    squares = call.emit_part(elementwise.unary("square", shape, dtype), (centered,), "squares")
    variance = call.emit_part(average, (squares,), "variance")
    one = call.add_part(np.ones(kept, dtype), "one")
    inverse = call.emit_part(
        elementwise.normalization_scale(kept, epsilon, dtype), (one, variance), "inverse_deviation"
    )
    for name, source, part in zip(
        call.outputs[1:], (mean, inverse), ("Mean", "InvStdDev"), strict=False
    ):
        if name:
            call.emit(elementwise.cast(kept, dtype, stashed), (source,), name, part)


def _lrn(call: NodeCall) -> None:
    func = normalization.local_response_normalization(
        call.shape(0),
        call.required("size"),
        alpha=call.attribute("alpha", 1e-4),
        beta=call.attribute("beta", 0.75),
        bias=call.attribute("bias", 1.0),
        dtype=call.dtype(),
    )
    call.emit(func)


def _lp_normalization(call: NodeCall) -> None:
    axis, p = call.attribute("axis", -1), call.attribute("p", 2)
    call.emit(normalization.lp_normalization(call.shape(0), axis, p, call.dtype()))


NORMALIZATION: dict[str, Callable[[NodeCall], None]] = {
    "BatchNormalization": _batch_normalization,
    "InstanceNormalization": _instance_normalization,
    "GroupNormalization": _group_normalization,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "LRN": _lrn,
}
