"""Quantized sums of a recurrent layer: products of bytes, of the hidden state and the weights.

In: a kernel under construction, and the buffers of its sums.  Out: the kernel with what each step
does for them.  What always holds: sums are exact in int32, and the hidden state of each sequence is
quantized by its own range in each step.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow import tir
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.quantized import scale_of_range, zero_point_of_range
from graphflow.kernels.definitions.recurrent_kernel import (
    LANES,
    TERMS,
    TOTAL,
    RecurrentKernel,
    RecurrentUnit,
)
from graphflow.kernels.definitions.scalar_functions import (
    add,
    clipped,
    converted,
    divide,
    multiply,
    subtract,
)


def sum_bytes(k: RecurrentKernel, sums: Sequence[tir.Buffer], has_zeros: bool) -> None:
    """`sums[g] = input + (Σ (q − zero) · (w − zero of w)) · (step · scale of w)`.

    q are the hidden states as uint8, `step` and `zero` their scale and zero point.  The zero
    points are taken out of the sum of products, which begins with what they contribute:
    `−zero · Σ (w − zero of w) − zero of w · Σ q`.
    """
    width = (4 * k.r.hidden,)
    scales = k.parameter("scales", width)
    weight_sums = k.parameter("weight_sums", width, TOTAL)
    zeros = k.parameter("zeros", width, TOTAL) if has_zeros else None
    codes, step, zero = _quantized_state(k)
    totals = [k.state(f"t{gate}", TOTAL) for gate in range(len(sums))]
    at = (k.batch,)
    coded = None
    if zeros is not None:
        coded = k.number("coded", TOTAL)
        unit = k.fresh("u", k.r.hidden)
        code = converted(tir.Load(codes, (k.batch, unit[0])), TOTAL)
        k.step += (
            tir.Store(coded, at, stages.literal(0, TOTAL)),
            *tir.nest((unit,), (tir.Reduce(tir.ReduceOp.ADD, coded, at, code),)),
        )

    def first(unit: RecurrentUnit, gate: int) -> tir.Expr:
        offset = gate * k.r.hidden
        less = multiply(tir.Load(zero, at), unit.guarded(weight_sums, offset=offset))
        value = subtract(stages.literal(0, TOTAL), less)
        if zeros is None or coded is None:
            return value
        return subtract(value, multiply(tir.Load(coded, at), unit.guarded(zeros, offset=offset)))

    def scaled(unit: RecurrentUnit, gate: int) -> tir.Stmt:
        scale_of_gate = unit.guarded(scales, offset=gate * k.r.hidden)
        factor = multiply(tir.Load(step, at), scale_of_gate)
        product = multiply(converted(unit.load(totals[gate]), k.r.dtype), factor)
        return unit.store(sums[gate], add(k.gate(unit, gate), product))

    k.sum_panels(totals, lambda unit: tir.Load(codes, (k.batch, unit)), start=first, finish=scaled)


def _quantized_state(k: RecurrentKernel) -> tuple[tir.Buffer, tir.Buffer, tir.Buffer]:
    """The hidden states as uint8, and the scale and the zero point, int32, of each sequence."""
    r, at = k.r, (k.batch,)
    codes = k.state("q", "uint8")
    if r.hidden % TERMS:  # what the last group lacks is read too
        unit, loops = k.unit()
        k.starts += tir.nest(loops, (unit.store(codes, stages.literal(0, "uint8")),))
    low, high = _range(k)
    step, middle = k.number("step", r.dtype), k.number("middle", r.dtype)
    zero = k.number("zero", TOTAL)
    least, most, scale, whole = (tir.Load(b, at) for b in (low, high, step, middle))
    var = k.fresh("u", r.hidden)
    quotient = divide(k.h(var[0]), scale)
    bounds = stages.literal(0, r.dtype), stages.literal(255, r.dtype)
    code = converted(clipped(add(tir.Unary("round", quotient), whole), *bounds), "uint8")
    k.step += (
        tir.Store(step, at, scale_of_range(least, most)),
        tir.Store(middle, at, zero_point_of_range(least, scale)),
        tir.Store(zero, at, converted(whole, TOTAL)),
        *tir.nest((var,), (tir.Store(codes, (k.batch, var[0]), code),)),
    )
    return codes, step, zero


def _range(k: RecurrentKernel) -> tuple[tir.Buffer, tir.Buffer]:
    """The least and the largest of 0 and the hidden states of each sequence.

    First those of each lane over the panels, which takes an instruction for a vector.
    """
    at, neutral = (k.batch,), stages.literal(0, k.r.dtype)
    operations = (tir.ReduceOp.MIN, tir.ReduceOp.MAX)
    lanes = [k.allocated(name, (k.r.batch, LANES), k.r.dtype) for name in ("lows", "highs")]
    low, high = ends = k.number("low", k.r.dtype), k.number("high", k.r.dtype)
    lane = k.fresh("u", LANES)
    k.step += tir.nest((lane,), tuple(tir.Store(b, (k.batch, lane[0]), neutral) for b in lanes))
    panel = k.fresh("p", k.r.panels)
    unit, lane = k.lane(panel)
    reduced = (
        tir.Reduce(op, buffer, (k.batch, lane[0]), k.h(unit.unit))
        for op, buffer in zip(operations, lanes, strict=True)
    )
    k.step += tir.nest((panel, lane), tuple(unit.where_inside(stmt) for stmt in reduced))
    for op, buffer, end in zip(operations, lanes, ends, strict=True):
        lane = k.fresh("u", LANES)
        joined = tir.Reduce(op, end, at, tir.Load(buffer, (k.batch, lane[0])))
        k.step += (tir.Store(end, at, neutral), *tir.nest((lane,), (joined,)))
    return low, high
