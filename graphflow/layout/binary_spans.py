"""Spans of the results of binary operators and comparisons, and of what a comparison leaves.

In: an operator, and the spans of its operands.  Out: a span that contains every possible result.
What always holds: what `spans` states of rounding, contraction and flushed denormals.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import copysign, inf, isfinite, isnan

import numpy as np

from graphflow import tir
from graphflow.layout import spans
from graphflow.layout.facts import Number, dtype_limits, order_key


def binary_span(op: tir.BinaryOp, a: spans.Span, b: spans.Span, dtype: str) -> spans.Span:
    """The span of `a op b`."""
    found = spans.flushed(
        _binary_span(op, spans.flushed(a, dtype), spans.flushed(b, dtype), dtype), dtype
    )
    if op in ("max", "min") and dtype in tir.FLOATS:
        return _either_zero(found, (a, b), dtype)
    return found


def _either_zero(
    found: spans.Span, operands: tuple[spans.Span, spans.Span], dtype: str
) -> spans.Span:
    """The span of a maximum or minimum, extended by a second zero if denormals may count as zeros.

    `max` and `min` order −0.0 below +0.0, but a denormal that is flushed may be taken for either.
    """
    tiny = spans.smallest_normal(dtype)
    below = any(-tiny < x.hi and x.lo < 0 for x in operands)
    above = any(x.lo < tiny and x.hi > 0 for x in operands)
    lo = -0.0 if found.lo == 0 and below else found.lo
    hi = 0.0 if found.hi == 0 and above else found.hi
    return spans.Span(lo, hi, found.nan)


def _binary_span(op: tir.BinaryOp, a: spans.Span, b: spans.Span, dtype: str) -> spans.Span:
    match op:
        case "max" | "min":
            pick = max if op == "max" else min
            lo, hi = pick(a.lo, b.lo, key=order_key), pick(a.hi, b.hi, key=order_key)
            return spans.Span(lo, hi, a.nan or b.nan)
        case "and" | "or" | "xor":
            return _bitwise(op, a, b, dtype)
        case "shl" | "shr":
            return spans.Span(0, a.hi) if op == "shr" and a.lo >= 0 else spans.full_span(dtype)
        case "fmod":
            return _remainder(a, b)
        case "pow":
            return _power(a, b, dtype)
        case "add" | "sub" | "mul" | "div":
            rule = _float_span if dtype in tir.FLOATS else _integer_span
            return rule(op, a, b, dtype)
    raise ValueError(f"no interval rule for the operator {op}")


def _bitwise(op: tir.BinaryOp, a: spans.Span, b: spans.Span, dtype: str) -> spans.Span:
    """The span of an operator on single bits, of bools or of integers."""
    if dtype == "bool":
        combine = tir.BINARY_FUNCTIONS[op]
        corners = [bool(combine(bool(p), bool(q))) for p in (a.lo, a.hi) for q in (b.lo, b.hi)]
        return spans.Span(min(corners), max(corners))
    upper = [int(x.hi) for x in (a, b) if x.lo >= 0]
    if op == "and" and upper:
        return spans.Span(0, min(upper))
    if len(upper) < 2:
        return spans.full_span(dtype)
    lo = max(a.lo, b.lo) if op == "or" else 0
    return spans.Span(lo, (1 << max(upper).bit_length()) - 1)


def _integer_span(op: tir.BinaryOp, a: spans.Span, b: spans.Span, dtype: str) -> spans.Span:
    match op:
        case "add":
            return spans.fitted(a.lo + b.lo, a.hi + b.hi, dtype)
        case "sub":
            return spans.fitted(a.lo - b.hi, a.hi - b.lo, dtype)
        case "mul":
            corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
            return spans.fitted(min(corners), max(corners), dtype)
    if b.has_zero:
        return spans.full_span(dtype)
    quotients = [_truncated(int(x), int(y)) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return spans.fitted(min(quotients), max(quotients), dtype)


def _truncated(x: int, y: int) -> int:
    size = abs(x) // abs(y)
    return size if (x < 0) == (y < 0) else -size


def _float_span(op: tir.BinaryOp, a: spans.Span, b: spans.Span, dtype: str) -> spans.Span:
    nan = a.nan or b.nan
    match op:
        case "sub":
            return _float_span("add", a, spans.Span(-b.hi, -b.lo, b.nan), dtype)
        case "add":
            lo = _corner(op, a.lo, b.lo, dtype, -inf)
            hi = _corner(op, a.hi, b.hi, dtype, inf)
            opposite = (a.lo == -inf and b.hi == inf) or (a.hi == inf and b.lo == -inf)
            return spans.Span(-inf if isnan(lo) else lo, inf if isnan(hi) else hi, nan or opposite)
        case "mul":
            nan = nan or (a.has_zero and b.has_infinity) or (b.has_zero and a.has_infinity)
        case "div":
            if b.has_zero or (a.has_infinity and b.has_infinity):
                return spans.Span(-inf, inf, True)
    pairs = [(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    lows = [_corner(op, x, y, dtype, -inf) for x, y in pairs]
    highs = [_corner(op, x, y, dtype, inf) for x, y in pairs]
    return spans.Span(min(lows, key=order_key), max(highs, key=order_key), nan)


_EXACT: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


def _corner(op: tir.BinaryOp, x: Number, y: Number, dtype: str, towards: float) -> float:
    with np.errstate(all="ignore"):
        nearest = float(tir.BINARY_FUNCTIONS[op](spans.typed(x, dtype), spans.typed(y, dtype)))
    if op == "mul" and isnan(nearest):
        # 0·∞ as a corner: next to it stand finite numbers times zero.
        return copysign(0.0, copysign(1.0, x) * copysign(1.0, y))
    if isnan(nearest) or not (isfinite(x) and isfinite(y)):
        return nearest
    return spans.round_towards(_EXACT[op](Fraction(x), Fraction(y)), nearest, dtype, towards)


def _remainder(a: spans.Span, b: spans.Span) -> spans.Span:
    """The span of `fmod`: its magnitude is at most that of either operand, its sign that of `a`."""
    nan = a.nan or b.nan or a.has_infinity or b.has_zero
    most = max(abs(b.lo), abs(b.hi))
    lo = max(a.lo, -most) if order_key(a.lo) < order_key(0.0) else 0.0
    hi = -0.0 if order_key(a.hi) < order_key(0.0) else min(a.hi, most)
    # A remainder of nothing is a zero with the sign of the dividend.
    return spans.Span(lo, hi, nan)


def _power(a: spans.Span, b: spans.Span, dtype: str) -> spans.Span:
    """The span of a power; powers of positive bases are monotone on each side of 1.

    Any other base gives the whole dtype.
    """
    if dtype not in tir.FLOATS or not a.lo > 0 or a.nan or b.nan or b.has_infinity:
        return spans.full_span(dtype)
    if a.has_infinity:
        return spans.Span(0.0, inf)
    with np.errstate(all="ignore"):
        corners = [
            float(spans.typed(x, dtype) ** spans.typed(y, dtype))
            for x in (a.lo, a.hi)
            for y in (b.lo, b.hi)
        ]
    return spans.Span(
        spans.widened(min(corners), dtype, -inf), spans.widened(max(corners), dtype, inf)
    )


def comparison_span(op: tir.ComparisonOp, a: spans.Span, b: spans.Span, dtype: str) -> spans.Span:
    """The span of `a op b`: certainly true, certainly false, or either."""
    return _comparison_span(op, spans.flushed(a, dtype), spans.flushed(b, dtype))


def _comparison_span(op: tir.ComparisonOp, a: spans.Span, b: spans.Span) -> spans.Span:
    match op:
        case "gt" | "ge":
            return _comparison_span("lt" if op == "gt" else "le", b, a)
        case "ne":
            equal = _comparison_span("eq", a, b)
            return spans.Span(not equal.hi, not equal.lo)
    nan = a.nan or b.nan
    match op:
        case "lt":
            return spans.Span(not nan and a.hi < b.lo, not a.lo >= b.hi)
        case "le":
            return spans.Span(not nan and a.hi <= b.lo, not a.lo > b.hi)
        case "eq":
            same = not nan and a.lo == a.hi == b.lo == b.hi
            return spans.Span(same, a.lo <= b.hi and b.lo <= a.hi)
    raise ValueError(f"no interval rule for the comparison {op}")


MIRRORED: dict[tir.ComparisonOp, tir.ComparisonOp] = {
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
    "eq": "eq",
    "ne": "ne",
}
"""`a op b` is `b MIRRORED[op] a`."""

_EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}

_NEGATED: dict[tir.ComparisonOp, tir.ComparisonOp] = {
    "lt": "ge",
    "le": "gt",
    "gt": "le",
    "ge": "lt",
    "eq": "ne",
    "ne": "eq",
}
"""Of numbers; where one is NaN, all but `ne` fail."""


def limited_span(
    op: tir.ComparisonOp, limit: spans.Span, holds: bool, dtype: str, slack: float = 0.0
) -> spans.Span:
    """The span of `x` where `x op limit` holds, or where it fails.

    Zeros of both signs compare equal, and denormals may compare as zeros.  If `x` is computed again
    after the comparison, it may differ from the value that was compared by a few roundings of
    numbers as large as `slack` plus the limit.
    """
    lo, hi = dtype_limits(dtype)
    limit = spans.flushed(limit, dtype)
    truly = op if holds else _NEGATED[op]
    floats = dtype in tir.FLOATS
    nan = floats and (op != "ne") != holds
    if truly in ("lt", "le", "eq") and not limit.nan:
        hi = _beyond(limit.hi, slack, dtype, 1.0) if floats else limit.hi
    if truly in ("gt", "ge", "eq") and not limit.nan:
        lo = _beyond(limit.lo, slack, dtype, -1.0) if floats else limit.lo
    return spans.Span(lo, hi, nan)


def _beyond(limit: float, slack: float, dtype: str, sign: float) -> float:
    """The limit moved outward by the error of a recomputed value, and past the other zero."""
    if slack and isfinite(limit):
        room = 8 * _EPSILON[dtype] * (abs(limit) + slack) + spans.TINY
        return spans.step(float(spans.typed(limit + sign * room, dtype)), dtype, sign * inf)
    return copysign(0.0, sign) if limit == 0 else limit
