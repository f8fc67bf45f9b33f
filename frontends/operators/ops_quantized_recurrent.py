"""onnxruntime's DynamicQuantizeLSTM: an LSTM whose products are those of bytes.

The input is quantized to uint8 by its range, and the hidden state of each sequence in each step by
its own.  onnxruntime takes one range for the sequences that a thread computes, so its results for
several sequences depend on the number of threads; where each has a thread, they agree with these.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from graphflow.base.errors import InvalidModel
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import filled_input
from graphflow.frontends.operators.ops_quantized import emit_quantized
from graphflow.frontends.operators.ops_recurrent import (
    GATES,
    LENGTHS,
    RecurrentLayer,
    direction_part,
    emit_recurrent,
)
from graphflow.kernels.definitions import elementwise, quantized
from graphflow.kernels.definitions.data_dependent import compaction
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import selection
from graphflow.kernels.definitions.recurrent_kernel import LANES, TERMS, TOTAL
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.scalar_functions import converted, subtract

W_SCALE, W_ZERO, R_SCALE, R_ZERO = 8, 9, 10, 11
"""Positions of the scales and the zero points of the weights."""

HALF = 128
"""The distance of the unsigned byte from the signed one of the same order."""


def _dynamic_quantize_lstm(call: NodeCall) -> None:
    """Becomes an LSTM whose products are those of bytes."""
    if not all(call.has(position) for position in range(W_SCALE, R_ZERO + 1)):
        raise InvalidModel(f"{call.title} lacks a scale or a zero point of its weights")
    for position in range(3):
        if len(call.shape(position)) != 3:
            raise call.invalid("X, W and R must have three axes")
    for position in (W_SCALE, W_ZERO, R_SCALE, R_ZERO):
        _check_columns(call, position, call.shape(1 if position in (W_SCALE, W_ZERO) else 2))
    emit_recurrent("LSTM", call, _QuantizedLstm(call, *_quantized_input(call)))


def _quantized_input(call: NodeCall) -> tuple[str, str, str]:
    """The input as uint8, its scale and its zero point.

    Steps behind the last one of the longest sequence are left out of the range.
    """
    shape, x = call.shape(0), call.inputs[0]
    ranged = x
    if call.has(LENGTHS):
        lengths = call.shape(LENGTHS)
        func = reduction.reduce("max", lengths, (0,), False, call.dtype(LENGTHS))
        given = filled_input(call, LENGTHS, (0,), 0)
        most = call.emit_part(func, (given,), "longest")
        count = call.emit_part(elementwise.cast((), call.dtype(LENGTHS), "int64"), (most,), "steps")
        x_given = filled_input(call, 0, range(len(shape)), 0.0)
        ranged = call.emit_part(
            compaction.counted_slices(shape, 0, 0.0, "float32"), (x_given, count), "ranged"
        )
    names = [call.part_name(role) for role in ("quantized", "scale", "zero")]
    emit_quantized(call, x, ranged, names)
    return names[0], names[1], names[2]


def _check_columns(call: NodeCall, position: int, shape: tuple[int, ...]) -> None:
    """Refuses a scale or zero point that is neither one of each direction nor of each column."""
    directions, _, width = shape
    given = call.shape(position)
    if given not in ((directions,), (directions, width)) or width % GATES["LSTM"]:
        raise call.invalid(
            f"input {call.inputs[position]} has shape {given}, and weights of shape "
            f"{shape} take {(directions,)} or {(directions, width)}"
        )


class _QuantizedLstm(Struct, frozen=True):
    """The products of a node, whose input is quantized as `x` with the scale and the zero point
    `x_scale` and `x_zero`."""

    call: NodeCall
    x: str
    x_scale: str
    x_zero: str

    @property
    def has_zeros(self) -> bool:
        """Whether the recurrent weights, as int8, have zero points."""
        known, middle = self.call.known(R_ZERO), self._middle
        return known is None or bool((known != middle).any())

    @property
    def _middle(self) -> int:
        """The recurrent weight that is 0 as int8."""
        return HALF if self.call.dtype(2) == "uint8" else 0

    def projected(self, layer: RecurrentLayer, d: int) -> str:
        """The product of the input and the weights of a direction, in float32."""
        call, width = self.call, layer.gates * layer.hidden
        rows, columns = (*layer.rows_shape, layer.features), (layer.features, width)
        shape = (*layer.rows_shape, width)
        func = quantized.shifted(rows, "uint8", (), -1)
        x = call.emit_part(func, (layer.x, self.x_zero), "a")
        w = self._centred(layer, d, 1, W_ZERO)
        total = call.emit_part(linear.matmul(rows, columns, TOTAL), (x, w), "total")
        product = call.emit_part(elementwise.cast(shape, TOTAL, "float32"), (total,), "product")
        scales = self._of_columns(layer, d, W_SCALE)
        func = elementwise.binary("mul", (width,), ())
        factors = call.emit_part(func, (scales, self.x_scale), "factors")
        func = elementwise.binary("mul", shape, (width,))
        return call.emit_part(func, (product, factors), "inputs")

    def panels(self, layer: RecurrentLayer, d: int) -> str:
        """The recurrent weights of a direction in panels."""
        call, gates, hidden = self.call, layer.gates, layer.hidden
        shape = (hidden, gates, hidden)
        name = direction_part(call, 2, d, shape)
        if self._middle:
            func = elementwise.elementwise(
                "signed",
                {"x": (shape, "uint8")},
                lambda x: converted(subtract(converted(x, TOTAL), HALF), "int8"),
                "int8",
            )
            name = call.emit_part(func, (name,), "signed")
        groups, panels = -(-hidden // TERMS), -(-hidden // LANES)
        more = (groups * TERMS - hidden, 0, panels * LANES - hidden)
        if any(more):
            func = selection.pad(shape, (0, 0, 0), more, "constant", 0.0, "int8")
            name = call.emit_part(func, (name,), f"weights{d}")
        name = call.reshaped(name, (groups, TERMS, gates, panels, LANES), "reshape")
        return call.transposed(name, (3, 0, 2, 4, 1), f"weights{d}")

    def further(self, layer: RecurrentLayer, d: int) -> list[str]:
        """The scales of the recurrent weights, their sums, and their zero points if they count."""
        call, hidden, width = self.call, layer.hidden, layer.gates * layer.hidden
        centred = self._centred(layer, d, 2, R_ZERO)
        func = reduction.reduce("sum", (hidden, width), (0,), False, TOTAL)
        names = [self._of_columns(layer, d, R_SCALE), call.emit_part(func, (centred,), "sums")]
        if self.has_zeros:
            zero = self._of_columns(layer, d, R_ZERO)
            middle = call.add_part(np.array(self._middle, call.dtype(2)), "middle")
            func = quantized.shifted((width,), call.dtype(2), (), 0)
            names.append(call.emit_part(func, (zero, middle), "zeros"))
        return names

    def _centred(self, layer: RecurrentLayer, d: int, weights: int, zero: int) -> str:
        """Weights of a direction less their zero points, in int32."""
        call = self.call
        own = call.shape(zero)[1:] or (1,)
        shape = call.shape(weights)[1:]
        func = quantized.shifted(shape, call.dtype(weights), own, -1)
        names = direction_part(call, weights, d, shape), direction_part(call, zero, d, own)
        return call.emit_part(func, names, "b")

    def _of_columns(self, layer: RecurrentLayer, d: int, position: int) -> str:
        """The scale or zero point of each column of the weights of a direction."""
        call, width = self.call, layer.gates * layer.hidden
        own = call.shape(position)[1:] or (1,)
        name = direction_part(call, position, d, own)
        func = selection.expand(own, (width,), call.dtype(position))
        return name if own == (width,) else call.emit_part(func, (name,), "columns")


OPERATORS: Emitters = {"com.microsoft.DynamicQuantizeLSTM": _dynamic_quantize_lstm}
