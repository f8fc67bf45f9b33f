"""One direction of a recurrent layer: for each sequence a serial loop over the time steps.

In: the extents, and what the operator's attributes say.  Out: a PrimFunc, with the parameters that
`recurrent_kernel` describes.
"""

from __future__ import annotations

from collections.abc import Callable

from graphflow import tir
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.recurrent_bytes import sum_bytes
from graphflow.kernels.definitions.recurrent_kernel import (
    Recurrence,
    RecurrentKernel,
    RecurrentUnit,
)
from graphflow.kernels.definitions.scalar_functions import (
    UNARY_VALUES,
    add,
    multiply,
    subtract,
)

ACTIVATIONS: dict[str, tuple[dict[str, float], Callable[..., tir.Expr]]] = {
    "relu": ({}, UNARY_VALUES["relu"]),
    "tanh": ({}, UNARY_VALUES["tanh"]),
    "sigmoid": ({}, UNARY_VALUES["sigmoid"]),
    "affine": ({"alpha": 1.0, "beta": 0.0}, lambda x, alpha, beta: add(multiply(x, alpha), beta)),
    "leakyrelu": ({"alpha": 0.01}, UNARY_VALUES["leaky_relu"]),
    "thresholdedrelu": ({"alpha": 1.0}, UNARY_VALUES["thresholded_relu"]),
    "scaledtanh": (
        {"alpha": 1.0, "beta": 1.0},
        lambda x, alpha, beta: multiply(tir.Unary("tanh", multiply(x, beta)), alpha),
    ),
    "hardsigmoid": ({"alpha": 0.2, "beta": 0.5}, UNARY_VALUES["hard_sigmoid"]),
    "elu": ({"alpha": 1.0}, UNARY_VALUES["elu"]),
    "softsign": ({}, UNARY_VALUES["softsign"]),
    "softplus": ({}, UNARY_VALUES["softplus"]),
}
"""ONNX's activations of recurrent layers by lower-case name: attributes with their defaults, and
the function."""


def lstm(
    r: Recurrence,
    peepholes: bool = False,
    coupled: bool = False,
    quantized: bool = False,
    zeros: bool = False,
) -> tir.PrimFunc:
    """ONNX's LSTM: parameters gates, weights, h0, c0, then peepholes (3, hidden) and lengths where
    there are any; outputs y (steps, batch, hidden), y_h and y_c (batch, hidden).

    Gates are in ONNX's order, input, output, forget, cell; those of the peepholes input, output,
    forget.  With `coupled` the forget gate is one minus the input gate.  If `quantized`, weights
    are int8, zeros for input units that the last group lacks, and each step quantizes the hidden
    state of each sequence to uint8 by its range.  Before the lengths there are then parameters
    `scales` and `weight_sums`, int32, and with `zeros` the zero points `zeros` of the weights,
    int32: each (4 · hidden).  A weight sum is that of the weights minus the zero point over all
    input units.
    """
    f, g, h = r.activations
    k = RecurrentKernel("lstm", r, 4, quantized)
    c0, cell = k.parameter("c0", (r.batch, r.hidden)), k.state("c")
    held = k.parameter("peepholes", (3, r.hidden)) if peepholes else None
    k.start(cell, c0)
    i, o, forget, update = sums = [k.state(f"z{n}") for n in range(4)]
    if quantized:
        sum_bytes(k, sums, zeros)
    else:
        k.sum_panels(sums, k.h)

    def peeped(at: RecurrentUnit, gate: tir.Buffer, number: int) -> tir.Expr:
        value: tir.Expr = at.load(gate)
        if held is not None:
            value = add(value, multiply(at.guarded(held, number), at.load(cell)))
        return k.clipped(value)

    def finish(at: RecurrentUnit) -> tir.Body:
        forgotten = (
            subtract(stages.literal(1, r.dtype), at.load(i))
            if coupled
            else f(peeped(at, forget, 2))
        )
        kept = multiply(forgotten, at.load(cell))
        grown = add(kept, multiply(at.load(i), at.load(update)))
        return (
            at.store(i, f(peeped(at, i, 0))),
            at.store(update, g(k.clipped(at.load(update)))),
            at.store(cell, k.chosen(at, grown, at.load(cell))),
            at.store(o, multiply(f(peeped(at, o, 1)), h(at.load(cell)))),
            *k.result(at, at.load(o)),
        )

    k.over_units(finish)
    return k.finished([("y_c", cell)])


def gru(r: Recurrence, linear_before_reset: bool = False) -> tir.PrimFunc:
    """ONNX's GRU: parameters gates, weights, h0, then bias (hidden) with `linear_before_reset` and
    lengths where there are any; outputs y and y_h.

    Gates are update, reset, hidden; `bias` is the recurrent one of the last, which the reset gate
    then multiplies too.
    """
    f, g = r.activations
    k = RecurrentKernel("gru", r, 3)
    z, reset, new = (k.state(name) for name in ("z", "r", "n"))
    if linear_before_reset:
        bias, recurrent = k.parameter("bias", (r.hidden,)), k.state("q")
        k.sum_panels(
            [z, reset, recurrent],
            k.h,
            start=lambda at, gate: k.gate(at, gate) if gate < 2 else at.guarded(bias),
        )

        def candidate(at: RecurrentUnit) -> tir.Expr:
            gate = f(k.clipped(at.load(reset)))
            return add(k.gate(at, 2), multiply(gate, at.load(recurrent)))
    else:
        scaled = k.state("s")
        k.sum_panels([z, reset], k.h)
        k.over_units(
            lambda at: (at.store(scaled, multiply(f(k.clipped(at.load(reset))), k.h(at.unit))),)
        )
        k.sum_panels([new], lambda unit: tir.Load(scaled, (k.batch, unit)), first=2)

        def candidate(at: RecurrentUnit) -> tir.Expr:
            return at.load(new)

    def finish(at: RecurrentUnit) -> tir.Body:
        share = at.load(z)
        fresh = multiply(subtract(stages.literal(1, r.dtype), share), at.load(new))
        return (
            at.store(new, g(k.clipped(candidate(at)))),
            at.store(z, f(k.clipped(at.load(z)))),
            at.store(new, add(fresh, multiply(share, k.h(at.unit)))),
            *k.result(at, at.load(new)),
        )

    k.over_units(finish)
    return k.finished()


def rnn(r: Recurrence) -> tir.PrimFunc:
    """ONNX's RNN: parameters gates, weights, h0, then lengths where there are any.

    The outputs are y and y_h.
    """
    (f,) = r.activations
    k = RecurrentKernel("rnn", r, 1)
    total = k.state("z")
    k.sum_panels([total], k.h)
    k.over_units(lambda at: k.result(at, f(k.clipped(at.load(total)))))
    return k.finished()
