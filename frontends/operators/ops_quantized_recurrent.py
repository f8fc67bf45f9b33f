"""onnxruntime's DynamicQuantizeLSTM: an LSTM whose products are those of integers.

The input is quantized to uint8 by its range, and the hidden state of each sequence in each step by
its own.  onnxruntime takes one range for the sequences that a thread computes, so its results for
several sequences depend on the number of threads; where each has a thread, they agree with these.
"""

from __future__ import annotations

import numpy as np

from graphflow.base.errors import InvalidModel
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.operators.ops_quantized import emit_quantized
from graphflow.frontends.operators.ops_recurrent import GATES, LENGTHS, PEEPHOLES, emit_recurrent
from graphflow.kernels.definitions import elementwise, quantized
from graphflow.kernels.definitions.data_dependent import compaction
from graphflow.kernels.definitions.movements import selection
from graphflow.kernels.definitions.reductions import reduction

W_SCALE, R_SCALE = 8, 10
"""Positions of the scales of the weights; each zero point comes behind its scale."""


def _dynamic_quantize_lstm(call: NodeCall) -> None:
    """Becomes an LSTM on whole numbers, with weights transposed to ONNX's order."""
    if not all(call.has(position) for position in range(W_SCALE, R_SCALE + 2)):
        raise InvalidModel(f"{call.title} lacks a scale or a zero point of its weights")
    for position in range(3):
        if len(call.shape(position)) != 3:
            raise call.invalid("X, W and R must have three axes")
    x, x_scale = _centred_input(call)
    weights = [_centred_weights(call, position, zero) for position, zero in ((1, 9), (2, 11))]
    factors, scales = _scales(call, 1, W_SCALE), _scales(call, 2, R_SCALE)
    shape = call.context.graph.values[factors].shape
    factors = call.emit_part(elementwise.binary("mul", shape, ()), (factors, x_scale), "factors")
    call.inputs = (x, *weights, *call.inputs[3 : PEEPHOLES + 1], factors, scales)
    emit_recurrent("LSTM", call, quantized=True)


def _centred_input(call: NodeCall) -> tuple[str, str]:
    """The input, quantized, minus its zero point, as float32; and its scale.

    Steps behind the last one of the longest sequence are left out of the range.
    """
    shape, x = call.shape(0), call.inputs[0]
    ranged = x
    if call.has(LENGTHS):
        lengths = call.shape(LENGTHS)
        func = reduction.reduce("max", lengths, (0,), False, call.dtype(LENGTHS))
        most = call.emit_part(func, (call.inputs[LENGTHS],), "longest")
        count = call.emit_part(elementwise.cast((), call.dtype(LENGTHS), "int64"), (most,), "steps")
        ranged = call.emit_part(
            compaction.counted_slices(shape, 0, 0.0, "float32"), (x, count), "ranged"
        )
    names = [call.part_name(role) for role in ("quantized", "scale", "zero")]
    emit_quantized(call, x, ranged, names)
    one = call.add_part(np.array(1, np.float32), "one")
    func = quantized.dequantize(shape, "uint8", (), zero_shape=())
    return call.emit_part(func, (names[0], one, names[2]), "centred"), names[1]


def _centred_weights(call: NodeCall, position: int, zero: int) -> str:
    """Weights (directions, inputs, gates · hidden) minus their zero points, as float32 in ONNX's
    order."""
    shape = call.shape(position)
    name, own = _over_columns(call, zero, shape)
    one = call.add_part(np.array(1, np.float32), "one")
    func = quantized.dequantize(shape, call.dtype(position), (), zero_shape=own, axis=0)
    whole = call.emit_part(func, (call.inputs[position], one, name), "whole")
    return call.transposed(whole, (0, 2, 1), "turned")


def _scales(call: NodeCall, weights: int, position: int) -> str:
    """The scales of weights as (directions, gates · hidden)."""
    directions, _, width = call.shape(weights)
    name, own = _over_columns(call, position, call.shape(weights))
    func = selection.expand(own, (directions, 1, width))
    return call.reshaped(call.emit_part(func, (name,), "scales"), (directions, width), "scales")


def _over_columns(
    call: NodeCall, position: int, shape: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """A scale or zero point of each direction, or of each of its columns, with a further axis for
    the rows; and its shape."""
    directions, _, width = shape
    given = call.shape(position)
    if given not in ((directions,), (directions, width)) or width % GATES["LSTM"]:
        raise call.invalid(
            f"input {call.inputs[position]} has shape {given}, and weights of shape "
            f"{shape} take {(directions,)} or {(directions, width)}"
        )
    wanted = (directions, 1, width if len(given) == 2 else 1)
    return call.reshaped(call.inputs[position], wanted, "columns"), wanted


OPERATORS: Emitters = {"com.microsoft.DynamicQuantizeLSTM": _dynamic_quantize_lstm}
