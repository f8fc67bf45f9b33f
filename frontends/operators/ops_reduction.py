"""Reductions, softmax, and the index of an extreme element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod

import numpy as np

from graphflow.base.dtypes import HALVES
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_like, filled, filled_input
from graphflow.frontends.operators.ops_shape import axes_of
from graphflow.frontends.tensors.derived_sizes import combined, held
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.stages import normalized_axes
from graphflow.tir import FLOATS, PrimFunc, ReduceOp, neutral_literal


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
    if kind == "mean" and call.is_counted(0, normalized_axes(reduced, len(shape))):
        emit_mean(call, call.inputs[0], tuple(reduced), keepdims)
        return
    x = _neutral_behind(call, reduced, kind)
    if kind == "log_sum_exp":
        func = reduction.log_sum_exp(shape, reduced, call.dtype())
        _emit_kept(call, func, (x,), reduced, keepdims)
        return
    call.emit(reduction.reduce(kind, shape, reduced, keepdims, call.dtype()), (x,))


def _neutral_behind(call: NodeCall, axes: Iterable[int], kind: str) -> str:
    """Input 0, with what does not change a reduction of this kind over `axes` in place of elements
    that a run does not give."""
    op = ReduceOp.MAX if kind == "log_sum_exp" else reduction.REDUCTIONS[kind].op
    fill = neutral_literal(op, call.dtype())
    return filled_input(call, 0, normalized_axes(axes, len(call.shape(0))), fill)


def emit_mean(call: NodeCall, x: str, axes: tuple[int, ...], keepdims: bool, part: str = "") -> str:
    """The mean of the tensor `x` over axes of which a run decides an extent: the sum, divided by
    how many there are.  It is the node's output, or the part `part` of it."""
    shape, dtype = call.context.graph.values[x].shape, call.dtype()
    if dtype not in FLOATS:
        call.refuse(f"a mean of {dtype} over an extent of a run", "cast its input to float32")
    reduced, counts = normalized_axes(axes, len(shape)), call.context.counted.get(x, {})
    total = reduction.reduce("sum", shape, axes, keepdims, dtype)
    within = f"{part}." if part else ""
    call.drops_counts = True
    read = filled(
        call, x, neutral_literal(ReduceOp.ADD, dtype), f".{part}" if part else "", reduced
    )
    added = call.emit_part(total, (read,), f"{within}sum")
    known = prod(shape[axis] for axis in reduced if axis not in counts)
    number = call.add_part(np.array(known, np.int64), f"{within}number")
    times = elementwise.binary("mul", (), (), "int64")
    for axis in sorted(counts.keys() & set(reduced)):
        number = call.emit_part(times, (number, counts[axis]), f"{within}number{axis}")
    number = call.emit_part(elementwise.cast((), "int64", dtype), (number,), f"{within}divisor")
    ratio = elementwise.binary("div", total.outputs[0].shape, (), dtype)
    return (
        call.emit_part(ratio, (added, number), part) if part else call.emit(ratio, (added, number))
    )


def _emit_kept(
    call: NodeCall, func: PrimFunc, inputs: Sequence[str], axes: Iterable[int], keepdims: bool
) -> None:
    """Add a kernel whose output keeps the reduced axes; without `keepdims` a reshape drops them."""
    if keepdims:
        call.emit(func, inputs)
        return
    gone = {axis % len(call.shape(0)) for axis in axes}
    kept = call.emit_part(func, inputs, "kept")
    before, dtype = func.outputs[0].shape, func.outputs[0].dtype
    shape = tuple(n for axis, n in enumerate(before) if axis not in gone)
    call.emit(movement.reshape(before, shape, dtype), (kept,))


def _softmax(make: Callable[..., PrimFunc], call: NodeCall) -> None:
    """Over one axis since opset 13; before, over all axes from `axis` on together."""
    shape = call.shape(0)
    axis = call.attribute("axis", -1 if call.opset >= 13 else 1)
    first = axis + len(shape) if axis < 0 else axis
    axes = (axis,) if call.opset >= 13 else tuple(range(first, len(shape)))
    reduced, counts = normalized_axes(axes, len(shape)), call.counts(0)
    counted = [axis for axis in reduced if axis in counts]
    if counted and make is reduction.softmax:
        func = reduction.softmax(shape, axes, call.dtype(), counted)
        names = (call.inputs[0], *(counts[axis] for axis in counted))
        call.emit(func, names, given={0: counted})
        if call.stored_dtype() not in HALVES:
            call.context.filled[call.outputs[0]] = dict.fromkeys(counted, 0.0)
    else:
        # An element of −inf changes neither the largest element nor the sum of the powers.
        call.emit(make(shape, axes, call.dtype()), (_neutral_behind(call, axes, "max"),))
    count_like(call, call.outputs[0], 0)


def _arg_reduce(kind: str, call: NodeCall) -> None:
    axis, last = call.attribute("axis", 0), call.flag("select_last_index")
    keepdims = call.flag("keepdims", True)
    func = reduction.arg_reduce(kind, call.shape(0), axis, last, call.dtype())
    inputs: tuple[str, ...] = (_neutral_behind(call, (axis,), kind),)
    count = call.counts(0).get(call.normalized_axis(axis))
    if last and count is not None:
        # It finds what stands behind only if all elements of a run are equal to that.
        found = call.emit_part(func, inputs, "found")
        end = combined(call.context, "Sub", count, 1)
        assert end is not None
        inputs = found, held(call.context, end)
        func = elementwise.binary("min", func.outputs[0].shape, (), "int64")
    _emit_kept(call, func, inputs, (axis,), keepdims)


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
