"""Matrix products, reductions and softmax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from graphflow.frontends.call import Call
from graphflow.frontends.ops_shape import axes_of
from graphflow.kernels.definitions import copy, gemm, matmul, reduce, softmax


def _gemm(call: Call) -> None:
    func = gemm(
        call.shape(0),
        call.shape(1),
        call.shape(2) if call.has(2) else None,
        alpha=call.attribute("alpha", 1.0),
        beta=call.attribute("beta", 1.0),
        transpose_a=bool(call.attribute("transA", 0)),
        transpose_b=bool(call.attribute("transB", 0)),
        dtype=call.dtype(),
    )
    call.emit(func, [name for name in call.inputs if name])


def _matmul(call: Call) -> None:
    call.emit(matmul(call.shape(0), call.shape(1), call.dtype()))


def _reduce(kind: str, axes_input_since: int, call: Call) -> None:
    """No axes mean all of them, unless noop_with_empty_axes says none."""
    shape = call.shape(0)
    axes = axes_of(call, axes_input_since)
    keepdims = bool(call.attribute("keepdims", 1))
    unchanged = bool(call.attribute("noop_with_empty_axes", 0))
    if not axes and unchanged:
        call.emit(copy(shape, call.dtype()), call.inputs[:1])
        return
    func = reduce(kind, shape, axes or range(len(shape)), keepdims, call.dtype())
    call.emit(func, call.inputs[:1])


def _softmax(call: Call) -> None:
    """One axis since opset 13; before, all axes from `axis` on together."""
    shape = call.shape(0)
    if call.opset >= 13:
        call.emit(softmax(shape, (call.attribute("axis", -1),), call.dtype()))
        return
    axis = call.attribute("axis", 1)
    first = axis + len(shape) if axis < 0 else axis
    call.emit(softmax(shape, range(first, len(shape)), call.dtype()))


LINEAR: dict[str, Callable[[Call], None]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Softmax": _softmax,
    "ReduceSum": partial(_reduce, "sum", 13),
    "ReduceMean": partial(_reduce, "mean", 18),
    "ReduceMax": partial(_reduce, "max", 18),
    "ReduceMin": partial(_reduce, "min", 18),
    "ReduceProd": partial(_reduce, "prod", 18),
}
