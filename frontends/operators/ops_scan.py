"""Operators whose results depend on element positions: cumulative sums and products, triangles,
identity matrices.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_like, filled_input, sizes_in
from graphflow.frontends.protos.protos import check_dtype, dtype_name
from graphflow.frontends.protos.steps import only_element
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import scan
from graphflow.tir import DTYPES, ReduceOp, neutral_literal


def _cumulative(op: ReduceOp, call: NodeCall) -> None:
    axis = int(only_element(call.title, call.constant(1, "axis"), "its axis"))
    exclusive, reverse = map(call.flag, ("exclusive", "reverse"))
    func = scan.cumulative(op, call.shape(0), axis, exclusive, reverse, call.dtype())
    fill = neutral_literal(op, call.dtype())  # in a reverse sum, what is behind comes first
    source = filled_input(call, 0, (call.normalized_axis(axis),), fill)
    call.emit(func, (source,), given={0: call.counts(0)})  # rows beside the axis stay apart
    count_like(call, call.outputs[0], 0)


def _trilu(call: NodeCall) -> None:
    """The diagonal may be known at compile time, or may be an input of the kernel."""
    shape, dtype, upper = call.shape(0), call.dtype(), call.flag("upper", True)
    known, sizes = call.known(1), sizes_in(call, 1)
    if sizes:
        func, inputs = scan.triangle(shape, upper, None, dtype), (call.inputs[0], sizes[0])
    elif not call.has(1) or known is not None:
        diagonal = 0 if known is None else int(only_element(call.title, known, "its diagonal"))
        func, inputs = scan.triangle(shape, upper, diagonal, dtype), call.inputs[:1]
    else:
        func = scan.triangle(shape, upper, None, dtype)
        inputs = (call.inputs[0], call.reshaped(call.inputs[1], (), "k"))
    # An element is kept or not by its indices, which are the same in all extents.
    call.emit(func, inputs, given={0: call.counts(0)})
    count_like(call, call.outputs[0], 0)


def _eye_like(call: NodeCall) -> None:
    shape, wanted = call.shape(0), call.attribute("dtype")
    if len(shape) != 2:
        raise call.invalid(f"its input has shape {shape}, not two axes")
    dtype = call.dtype() if wanted is None else dtype_name(wanted)
    check_dtype(f"{call.title}: dtype", dtype)
    diagonal = int(call.attribute("k", 0))
    if not call.counts(0):
        call.emit_constant(np.eye(*shape, k=diagonal, dtype=DTYPES[dtype]))
        return
    # Elements depend on their indices alone.
    name = call.emit_part(movement.fill(shape, 1, dtype), (), "ones")
    upper, lower = (scan.triangle(shape, side, diagonal, dtype) for side in (True, False))
    name = call.emit_part(upper, (name,), "upper")
    call.emit(lower, (name,))
    count_like(call, call.outputs[0], 0)


OPERATORS: Emitters = {
    "CumProd": partial(_cumulative, ReduceOp.MUL),
    "CumSum": partial(_cumulative, ReduceOp.ADD),
    "EyeLike": _eye_like,
    "Trilu": _trilu,
}
