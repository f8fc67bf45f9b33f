"""Operators whose results depend on element positions: cumulative sums and products, triangles,
identity matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from graphflow.base.errors import InvalidModel
from graphflow.frontends.call import NodeCall
from graphflow.frontends.protos import check_dtype, dtype_name
from graphflow.frontends.steps import only_element
from graphflow.kernels.definitions import movement, scan
from graphflow.tir import DTYPES, ReduceOp


def _cumulative(op: ReduceOp, call: NodeCall) -> None:
    axis = int(only_element(call.title, call.constant(1, "axis"), "its axis"))
    exclusive, reverse = (bool(call.attribute(name, 0)) for name in ("exclusive", "reverse"))
    func = scan.cumulative(op, call.shape(0), axis, exclusive, reverse, call.dtype())
    call.emit(func, call.inputs[:1])


def _trilu(call: NodeCall) -> None:
    """The diagonal may be known at compile time, or may be an input of the kernel."""
    shape, dtype, upper = call.shape(0), call.dtype(), bool(call.attribute("upper", 1))
    known = call.known(1)
    if not call.has(1) or known is not None:
        diagonal = 0 if known is None else int(only_element(call.title, known, "its diagonal"))
        call.emit(scan.triangle(shape, upper, diagonal, dtype), call.inputs[:1])
        return
    name = call.inputs[1]
    if call.shape(1):
        name = call.context.unique_tensor_name(f"{call.outputs[0]}.k")
        call.emit(movement.reshape(call.shape(1), (), "int64"), call.inputs[1:2], name, "k")
    call.emit(scan.triangle(shape, upper, None, dtype), (call.inputs[0], name))


def _eye_like(call: NodeCall) -> None:
    shape, wanted = call.shape(0), call.attribute("dtype")
    if len(shape) != 2:
        raise InvalidModel(f"{call.title}: its input has shape {shape}, not two axes")
    dtype = call.dtype() if wanted is None else dtype_name(wanted)
    check_dtype(f"{call.title}: dtype", dtype)
    call.emit_constant(np.eye(*shape, k=int(call.attribute("k", 0)), dtype=DTYPES[dtype]))


SCAN: dict[str, Callable[[NodeCall], None]] = {
    "CumProd": partial(_cumulative, ReduceOp.MUL),
    "CumSum": partial(_cumulative, ReduceOp.ADD),
    "EyeLike": _eye_like,
    "Trilu": _trilu,
}
