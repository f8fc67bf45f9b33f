"""Reductions, softmax, and the index of an extreme element."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from graphflow.frontends.operators.call import Emitters, NodeCall
from graphflow.frontends.operators.ops_shape import axes_of
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.stages import Shape
from graphflow.tir import PrimFunc


def _reduce(kind: str, axes_input_since: int, call: NodeCall) -> None:
    """If no axes are given all are reduced, or none with noop_with_empty_axes."""
    shape = call.shape(0)
    axes = axes_of(call, axes_input_since)
    keepdims = call.flag("keepdims", True)
    unchanged = call.flag("noop_with_empty_axes")
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
    gone = {axis % len(call.shape(0)) for axis in axes}
    kept = call.emit_part(func, call.inputs[:1], "kept")
    before, dtype = func.outputs[0].shape, func.outputs[0].dtype
    shape = tuple(n for axis, n in enumerate(before) if axis not in gone)
    call.emit(movement.reshape(before, shape, dtype), (kept,))


def _softmax(make: Callable[[Shape, tuple[int, ...], str], PrimFunc], call: NodeCall) -> None:
    """Over one axis since opset 13; before, over all axes from `axis` on together."""
    shape = call.shape(0)
    axis = call.attribute("axis", -1 if call.opset >= 13 else 1)
    first = axis + len(shape) if axis < 0 else axis
    axes = (axis,) if call.opset >= 13 else tuple(range(first, len(shape)))
    call.emit(make(shape, axes, call.dtype()))


def _arg_reduce(kind: str, call: NodeCall) -> None:
    axis, last = call.attribute("axis", 0), call.flag("select_last_index")
    keepdims = call.flag("keepdims", True)
    _emit_kept(
        call, reduction.arg_reduce(kind, call.shape(0), axis, last, call.dtype()), (axis,), keepdims
    )


_KINDS = {
    "Mean": "mean", "Max": "max", "Min": "min", "Prod": "prod", "L1": "l1", "L2": "l2",
    "SumSquare": "sum_square", "LogSum": "log_sum", "LogSumExp": "log_sum_exp",
}  # fmt: skip
"""The reductions whose axes are an input since opset 18."""

OPERATORS: Emitters = {
    "Softmax": partial(_softmax, reduction.softmax),
    "Hardmax": partial(_softmax, reduction.hardmax),
    "LogSoftmax": partial(_softmax, reduction.log_softmax),
    "ArgMax": partial(_arg_reduce, "max"),
    "ArgMin": partial(_arg_reduce, "min"),
    "ReduceSum": partial(_reduce, "sum", 13),
    **{f"Reduce{name}": partial(_reduce, kind, 18) for name, kind in _KINDS.items()},
}
