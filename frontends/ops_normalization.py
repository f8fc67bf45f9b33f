"""Normalizations; those of optional outputs are built for the first output only."""

from __future__ import annotations

from collections.abc import Callable

from graphflow.frontends.call import Call
from graphflow.kernels.definitions import (
    group_normalization,
    layer_normalization,
    local_response_normalization,
    normalization_scale,
    normalization_shift,
    scale_and_shift,
)


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


def _instance_normalization(call: Call) -> None:
    shape = call.shape(0)
    func = group_normalization(
        shape,
        shape[1],
        call.shape(1)[0],
        epsilon=call.attribute("epsilon", 1e-5),
        dtype=call.dtype(),
        name="instance_normalization",
    )
    call.emit(func)


def _group_normalization(call: Call) -> None:
    # The dtype of the statistics: at least that of the input is what kernels compute in anyway.
    call.attribute("stash_type")
    func = group_normalization(
        call.shape(0),
        call.required("num_groups"),
        call.shape(1)[0],
        epsilon=call.attribute("epsilon", 1e-5),
        dtype=call.dtype(),
    )
    call.emit(func)


def _layer_normalization(call: Call) -> None:
    call.attribute("stash_type")
    call.refuse_outputs_from(1)
    func = layer_normalization(
        call.shape(0),
        call.attribute("axis", -1),
        call.shape(1),
        call.shape(2) if call.has(2) else None,
        epsilon=call.attribute("epsilon", 1e-5),
        dtype=call.dtype(),
    )
    call.emit(func, [name for name in call.inputs if name])


def _lrn(call: Call) -> None:
    func = local_response_normalization(
        call.shape(0),
        call.required("size"),
        alpha=call.attribute("alpha", 1e-4),
        beta=call.attribute("beta", 0.75),
        bias=call.attribute("bias", 1.0),
        dtype=call.dtype(),
    )
    call.emit(func)


NORMALIZATION: dict[str, Callable[[Call], None]] = {
    "BatchNormalization": _batch_normalization,
    "InstanceNormalization": _instance_normalization,
    "GroupNormalization": _group_normalization,
    "LayerNormalization": _layer_normalization,
    "LRN": _lrn,
}
