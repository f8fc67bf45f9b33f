"""Normalization operators.

Only their first output is built; a model that reads another output is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from msgspec import Struct

from graphflow.base.errors import TrainingOnly
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_like, filled_input
from graphflow.frontends.nodes.forwarded import REQUIRED, forwarded
from graphflow.frontends.operators.ops_reduction import emit_mean
from graphflow.frontends.protos.protos import dtype_name
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import normalization, reduction
from graphflow.tir import BinaryOp


def _batch_normalization(call: NodeCall) -> None:
    """One multiply-add for each channel; factor and summand are folded to constants."""
    momentum = call.attribute("momentum", 0.9)
    if call.attribute("training_mode", 0):
        _emit_trained(call, momentum)
        return
    if not call.attribute("spatial", 1):
        call.refuse("spatial is 0", "convert the model to opset 9 or later")
    call.refuse_further_outputs()
    x, gamma, beta, mean, variance = call.inputs
    dtype, channels = call.dtype(), call.extent(1)
    func = elementwise.normalization_scale((channels,), call.attribute("epsilon", 1e-5), dtype)
    scale = call.emit_part(func, (gamma, variance), "scale")
    func = elementwise.normalization_shift(channels, dtype)
    shift = call.emit_part(func, (beta, mean, scale), "shift")
    call.emit(elementwise.scale_and_shift(call.shape(0), dtype), (x, scale, shift))


def _emit_trained(call: NodeCall, momentum: float) -> None:
    """The first output is normalized with the batch's own mean and variance; the others are mixed
    of these and the earlier ones."""
    if len(call.outputs) > 3 or call.opset < 14:
        raise TrainingOnly(f"{call.title}: it is of opset {call.opset}; export it for inference")
    x, gamma, beta, *earlier = call.inputs
    shape, dtype, channels = call.shape(0), call.dtype(), (call.extent(1),)
    if call.is_counted(0, range(len(shape))):
        raise call.extents_lost((x,), "the batch's mean is over all elements")
    axes, kept = (0, *range(2, len(shape))), (*channels, *(1 for _ in shape[2:]))
    mean = call.emit_part(reduction.reduce("mean", shape, axes, False, dtype), (x,), "mean")
    aligned = call.reshaped(mean, kept, "aligned")
    centered = call.emit_part(
        elementwise.binary("sub", shape, kept, dtype), (x, aligned), "centered"
    )
    squares = call.emit_part(elementwise.unary("square", shape, dtype), (centered,), "squares")
    func = reduction.reduce("mean", shape, axes, False, dtype)
    variance = call.emit_part(func, (squares,), "variance")
    func = elementwise.normalization_scale(channels, call.attribute("epsilon", 1e-5), dtype)
    scale = call.emit_part(func, (gamma, variance), "scale")
    shift = call.emit_part(
        elementwise.normalization_shift(call.extent(1), dtype), (beta, mean, scale), "shift"
    )
    call.emit(elementwise.scale_and_shift(shape, dtype), (x, scale, shift))
    for output, before, now in zip(call.outputs[1:], earlier, (mean, variance), strict=False):
        if output:
            func = elementwise.mixed(channels, momentum, dtype)
            call.emit(func, (before, now), output, f"running.{output}")


def _instance_normalization(call: NodeCall) -> None:
    shape = call.shape(0)
    if len(shape) < 2:
        raise call.invalid(f"its input is {list(shape)}, without an axis of channels")
    _emit_groups(call, shape[1], "instance_normalization")


def _group_normalization(call: NodeCall) -> None:
    # The dtype of the statistics: at least that of the input is what kernels compute in anyway.
    call.attribute("stash_type")
    _emit_groups(call, call.required("num_groups"), "group_normalization")


def _emit_groups(call: NodeCall, groups: int, name: str) -> None:
    shape, epsilon = call.shape(0), call.attribute("epsilon", 1e-5)
    func = normalization.group_normalization(
        shape, groups, call.extent(1), epsilon=epsilon, dtype=call.dtype(), name=name
    )
    if call.is_counted(0, range(2, len(shape))):
        _emit_counted_groups(call, groups, epsilon)
        return
    call.emit(func)


def _emit_counted_groups(call: NodeCall, groups: int, epsilon: float) -> None:
    """The same by kernels of its steps, where a run decides over how many elements a group is."""
    shape, dtype, parameters = call.shape(0), call.dtype(), call.extent(1)
    grouped = (shape[0], groups, shape[1] // groups, *shape[2:])
    x = call.reshaped(call.inputs[0], grouped, "grouped", dtype)
    steps = _normalized(call, x, range(2, len(grouped)), epsilon)
    each = (groups, parameters // groups, *(1 for _ in shape[2:]))
    scale, shift = (call.reshaped(call.inputs[k], each, f"parameter{k}", dtype) for k in (1, 2))
    result = _scaled(call, steps.result, scale, shift)
    call.emit(movement.reshape(grouped, shape, dtype), (result,))


class _Steps(Struct, frozen=True):
    """The tensors of a normalization: what it gives, the mean, and 1 / standard deviation."""

    result: str
    mean: str
    factor: str


def _normalized(call: NodeCall, x: str, axes: Iterable[int], epsilon: float) -> _Steps:
    """A tensor normalized over axes of which a run decides an extent, by a kernel for each step."""
    shape, dtype, reduced = call.context.graph.values[x].shape, call.dtype(), tuple(axes)
    kept = tuple(1 if axis in reduced else n for axis, n in enumerate(shape))
    mean = emit_mean(call, x, reduced, True, "mean")
    less = elementwise.binary("sub", shape, kept, dtype)
    centered = call.emit_part(less, (x, mean), "centered")
    squares = call.emit_part(elementwise.unary("square", shape, dtype), (centered,), "squares")
    variance = emit_mean(call, squares, reduced, True, "variance")
    func = elementwise.inverse_deviation(kept, epsilon, dtype)
    factor = call.emit_part(func, (variance,), "factor")
    times = elementwise.binary("mul", shape, kept, dtype)
    return _Steps(call.emit_part(times, (centered, factor), "normalized"), mean, factor)


def _scaled(call: NodeCall, x: str, scale: str, shift: str | None) -> str:
    """A part of the node: the tensor `x` times a scale, plus a shift, both broadcast to it."""
    values, dtype = call.context.graph.values, call.dtype()
    combines: tuple[tuple[str | None, BinaryOp], ...] = ((scale, "mul"), (shift, "add"))
    for name, op in combines:
        if name is not None:
            func = elementwise.binary(op, values[x].shape, values[name].shape, dtype)
            x = call.emit_part(func, (x, name), op)
    return x


def _layer_normalization(call: NodeCall) -> None:
    stashed = dtype_name(call.attribute("stash_type", onnx.TensorProto.FLOAT))
    axis, epsilon = call.attribute("axis", -1), call.attribute("epsilon", 1e-5)
    shape, dtype = call.shape(0), call.dtype()
    func = normalization.layer_normalization(
        shape, axis, call.shape(1), call.optional_shape(2), epsilon=epsilon, dtype=dtype
    )
    reads_statistics = any(name in call.context.read for name in call.outputs[1:])
    if not reads_statistics:
        call.refuse_further_outputs()
    axes = range(axis % len(shape), len(shape))
    if call.is_counted(0, axes):
        steps = _normalized(call, call.widened(call.inputs[0]), axes, epsilon)
        shift = call.inputs[2] if call.has(2) else None
        result = _scaled(call, steps.result, call.inputs[1], shift)
        call.emit(movement.copy(shape, dtype), (result,))
        if reads_statistics:
            _emit_statistics(call, steps.mean, steps.factor, stashed)
        return
    call.emit(func, call.given_inputs)
    if reads_statistics:
        mean, inverse = _statistics(call, axes, epsilon)
        _emit_statistics(call, mean, inverse, stashed)


def _root_mean_square_normalization(call: NodeCall) -> None:
    """In the element type of the input; the output has that of the scale."""
    call.attribute("stash_type")
    axis, epsilon = call.attribute("axis", -1), call.attribute("epsilon", 1e-5)
    shape, (dtype, other) = call.shape(0), (call.dtype(0), call.dtype(1))
    x, scale = call.inputs
    if other != dtype:
        scale = call.emit_part(elementwise.cast(call.shape(1), other, dtype), (scale,), "scale")
    axes = range(axis % len(shape), len(shape))
    if call.is_counted(0, axes):
        x = call.widened(x)
        squares = call.emit_part(elementwise.unary("square", shape, dtype), (x,), "squares")
        mean = emit_mean(call, squares, tuple(axes), True, "mean")
        kept = call.context.graph.values[mean].shape
        func = elementwise.inverse_deviation(kept, epsilon, dtype)
        factor = call.emit_part(func, (mean,), "factor")
        times = elementwise.binary("mul", shape, kept, dtype)
        result = _scaled(call, call.emit_part(times, (x, factor), "normalized"), scale, None)
    else:
        func = normalization.root_mean_square_normalization(
            shape, axis, call.shape(1), epsilon=epsilon, dtype=dtype
        )
        if other == dtype:
            call.emit(func, (x, scale))
            return
        result = call.emit_part(func, (x, scale), "normalized")
    as_scale = (
        movement.copy(shape, dtype) if other == dtype else elementwise.cast(shape, dtype, other)
    )
    call.emit(as_scale, (result,))


def _statistics(call: NodeCall, axes: range, epsilon: float) -> tuple[str, str]:
    """The mean over some axes, and 1 / standard deviation."""
    shape, dtype, x = call.shape(0), call.dtype(), call.inputs[0]
    average = reduction.reduce("mean", shape, axes, True, dtype)
    kept = average.outputs[0].shape
    mean = call.emit_part(average, (x,), "mean")
    centered = call.emit_part(elementwise.binary("sub", shape, kept, dtype), (x, mean), "centered")
    squares = call.emit_part(elementwise.unary("square", shape, dtype), (centered,), "squares")
    variance = call.emit_part(average, (squares,), "variance")
    func = elementwise.inverse_deviation(kept, epsilon, dtype)
    return mean, call.emit_part(func, (variance,), "inverse_deviation")


def _emit_statistics(call: NodeCall, mean: str, inverse: str, stashed: str) -> None:
    """The optional outputs of a layer normalization."""
    outputs = ((mean, "Mean"), (inverse, "InvStdDev"))
    for name, (source, part) in zip(call.outputs[1:], outputs, strict=False):
        if name:
            shape = call.context.graph.values[source].shape
            call.emit(elementwise.cast(shape, call.dtype(), stashed), (source,), name, part)


def _lp_normalization(call: NodeCall) -> None:
    axis = call.normalized_axis(int(call.attribute("axis", -1)))
    func = normalization.lp_normalization(
        call.shape(0), axis, int(call.attribute("p", 2)), call.dtype()
    )
    call.emit(func, (filled_input(call, 0, (axis,), 0),))
    count_like(call, call.outputs[0], 0)


OPERATORS: Emitters = {
    "BatchNormalization": _batch_normalization,
    "InstanceNormalization": _instance_normalization,
    "GroupNormalization": _group_normalization,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _root_mean_square_normalization,
    "LpNormalization": _lp_normalization,
    "LRN": forwarded(
        normalization.local_response_normalization,
        size=("size", REQUIRED),
        alpha=("alpha", 1e-4),
        beta=("beta", 0.75),
        bias=("bias", 1.0),
    ),
}
