"""Maxima of what is above zero: in two instructions for each vector, of numbers of both signs.

In: a kernel, and its buffers that hold magnitudes.  Out: the kernel in which the maxima of heights
|x < 0 ? 0 : x| in registers have a second buffer beside them, and these buffers.

    before:  h[v] = max(h[v], |x < 0 ? 0 : x|)
    after:   h[v] = max(h[v], x) as integers; n[v] = max(n[v], bits of x)

A comparison and an absolute value are taken out of each vector, the former of which competes with
multiply-adds.  As signed integers the bits of floats that are not below zero, NaN among them, are
in order, and above those with a sign.  As unsigned ones those with a sign are the greatest: these
are no numbers where they are above the bits of −∞.  What is read of h is as before, bit for bit:

    n > bits of −∞ ? NaN : n has a sign and h < 0 ? 0 : h

What always holds: of h nothing else is changed; it is −∞ where nothing was reduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import inf, nan

from graphflow import tir
from graphflow.base.fields import replace

BITS = "uint32"
SIGN = 1 << 31
LOWEST = SIGN | 0xFF << 23
"""The bits of −0 and of −∞."""


def above_zero(value: tir.Expr) -> tir.Expr | None:
    """The x of `x < 0 ? 0 : x`; None for other expressions."""
    match value:
        case tir.Select(
            tir.Comparison("lt", x, tir.Literal() as bound), tir.Literal() as zero, other
        ) if bound.value == 0 == zero.value and other == x:
            return x
        case _:
            return None


def height_of(value: tir.Expr) -> tir.Expr | None:
    """The x of `|x < 0 ? 0 : x|`; None for other expressions."""
    return above_zero(value.operand) if isinstance(value, tir.Unary) and value.op == "abs" else None


def with_signs_beside(
    func: tir.PrimFunc, magnitudes: Set[tir.Buffer]
) -> tuple[tir.PrimFunc, Mapping[tir.Buffer, tir.Buffer]]:
    """`func` with the greatest bits of what maxima of heights are reduced of, and the buffers that
    hold them, by those of the maxima."""
    names = {buffer.name for buffer in tir.buffers_of(func)}
    beside: dict[tir.Buffer, tir.Buffer] = {}
    for buffer in _heights(func, magnitudes):
        name = f"{buffer.name}_signs"
        while name in names:
            name += "_"
        names.add(name)
        beside[buffer] = replace(buffer, name=name, dtype=BITS)
    if not beside:
        return func, beside

    def read(expr: tir.Expr) -> tir.Expr:
        if not isinstance(expr, tir.Load) or expr.buffer not in beside:
            return expr
        signs = tir.Load(beside[expr.buffer], expr.indices)
        zero = tir.Literal(0.0, expr.dtype)
        below = tir.Select(tir.Comparison("lt", expr, zero), zero, expr)
        signed = tir.Comparison("ge", signs, tir.Literal(SIGN, BITS))
        strange = tir.Comparison("gt", signs, tir.Literal(LOWEST, BITS))
        known = tir.Select(signed, below, expr)
        return tir.Select(strange, tir.Literal(nan, expr.dtype), known)

    def followed(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        match stmt:
            case tir.Allocate(buffer) if buffer in beside:
                return stmt, tir.Allocate(beside[buffer])
            case tir.Store(buffer, indices) if buffer in beside:
                return stmt, tir.Store(beside[buffer], indices, tir.Literal(0, BITS))
            case tir.Reduce(op, buffer, indices, value) if buffer in beside:
                x = height_of(value)
                assert x is not None, f"{buffer.name} has maxima of heights alone"
                return stmt, tir.Reduce(op, beside[buffer], indices, tir.Unary("bits", x))
            case _:
                return stmt

    body = tir.map_body(tir.map_expressions(func.body, read), followed)
    return replace(func, body=body), beside


def _heights(func: tir.PrimFunc, magnitudes: Set[tir.Buffer]) -> list[tir.Buffer]:
    """The buffers in registers that hold −∞ and maxima of heights alone."""
    others = {
        write.buffer
        for write in tir.writes_in(func.body)
        if write.buffer in magnitudes and not _begins_or_raises(write)
    }
    allocated = dict.fromkeys(s.buffer for s in tir.walk(func.body) if isinstance(s, tir.Allocate))
    found = magnitudes - others
    return [buffer for buffer in allocated if buffer in found and buffer.scope == "register"]


def _begins_or_raises(write: tir.Store | tir.Reduce) -> bool:
    """Whether a write to a buffer of magnitudes stores −∞, or the maximum with a height."""
    if isinstance(write, tir.Store):
        return isinstance(write.value, tir.Literal) and write.value.value == -inf
    return height_of(write.value) is not None
