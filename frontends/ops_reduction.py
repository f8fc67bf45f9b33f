"""Reductions, softmax, and the index of an extreme element."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from graphflow.frontends.call import NodeCall
from graphflow.frontends.ops_shape import axes_of
from graphflow.kernels.definitions import movement, reduction
from graphflow.kernels.definitions.stages import Shape
from graphflow.tir import PrimFunc


def _reduce(kind: str, axes_input_since: int, call: NodeCall) -> None:
    """If no axes are given all are reduced, or none with noop_with_empty_axes."""
    shape = call.shape(0)
    axes = axes_of(call, axes_input_since)
    keepdims = bool(call.attribute("keepdims", 1))
    unchanged = bool(call.attribute("noop_with_empty_axes", 0))
    if not axes and unchanged:
        if kind not in ("sum", "mean", "max", "min", "prod"):
            # Whether such a node still takes squares or logarithms, implementations disagree on.
            call.refuse("noop_with_empty_axes without axes", "name the axes, or drop the node")
        call.emit(movement.copy(shape, call.dtype()), call.inputs[:1])
        return
    reduced = axes or range(len(shape))
    if kind == "log_sum_exp":
        _emit_kept(call, reduction.log_sum_exp(shape, reduced, call.dtype()), reduced, keepdims)
        return
    call.emit(reduction.reduce(kind, shape, reduced, keepdims, call.dtype()), call.inputs[:1])


def _emit_kept(call: NodeCall, func: PrimFunc, axes: Iterable[int], keepdims: bool) -> None:
    """Add a kernel whose output keeps the reduced axes; without `keepdims` a reshape drops them."""
    if keepdims:
        call.emit(func, call.inputs[:1])
        return
    kept = func.outputs[0]
    gone = {axis % len(kept.shape) for axis in axes}
    name = call.context.unique_tensor_name(f"{call.outputs[0]}.kept")
    call.emit(func, call.inputs[:1], name, "kept")
    shape = tuple(n for axis, n in enumerate(kept.shape) if axis not in gone)
    call.emit(movement.reshape(kept.shape, shape, kept.dtype), (name,))


def _softmax(make: Callable[[Shape, tuple[int, ...], str], PrimFunc], call: NodeCall) -> None:
    """Over one axis since opset 13; before, over all axes from `axis` on together."""
    shape = call.shape(0)
    if call.opset >= 13:
        call.emit(make(shape, (call.attribute("axis", -1),), call.dtype()))
        return
    axis = call.attribute("axis", 1)
    first = axis + len(shape) if axis < 0 else axis
    call.emit(make(shape, tuple(range(first, len(shape))), call.dtype()))


def _arg_reduce(kind: str, call: NodeCall) -> None:
    axis, last = call.attribute("axis", 0), bool(call.attribute("select_last_index", 0))
    keepdims = bool(call.attribute("keepdims", 1))
    _emit_kept(
        call, reduction.arg_reduce(kind, call.shape(0), axis, last, call.dtype()), (axis,), keepdims
    )


REDUCTION: dict[str, Callable[[NodeCall], None]] = {
    "Softmax": partial(_softmax, reduction.softmax),
    "Hardmax": partial(_softmax, reduction.hardmax),
    "LogSoftmax": partial(_softmax, reduction.log_softmax),
    "ArgMax": partial(_arg_reduce, "max"),
    "ArgMin": partial(_arg_reduce, "min"),
    "ReduceSum": partial(_reduce, "sum", 13),
    "ReduceMean": partial(_reduce, "mean", 18),
    "ReduceMax": partial(_reduce, "max", 18),
    "ReduceMin": partial(_reduce, "min", 18),
    "ReduceProd": partial(_reduce, "prod", 18),
    "ReduceL1": partial(_reduce, "l1", 18),
    "ReduceL2": partial(_reduce, "l2", 18),
    "ReduceSumSquare": partial(_reduce, "sum_square", 18),
    "ReduceLogSum": partial(_reduce, "log_sum", 18),
    "ReduceLogSumExp": partial(_reduce, "log_sum_exp", 18),
}
