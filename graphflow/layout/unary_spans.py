"""Spans of the results of unary operators and casts.

In: an operator, and the span of its operand.  Out: a span that contains every possible result.
What always holds: what `spans` states of rounding and of flushed denormals; the span of a
transcendental function allows for the difference between native code and numpy.
"""

from __future__ import annotations

from math import copysign, inf, isinf

import numpy as np

from graphflow.base.dtypes import FLOATING, HALVES, largest
from graphflow.layout.facts import Number, dtype_limits, order_key
from graphflow.layout.spans import (
    ABSOLUTE_SLACK,
    RELATIVE_SLACK,
    Span,
    fitted,
    flushed,
    intersection,
    step,
    typed,
    whole,
    widened,
)
from graphflow.tir import ELEMENTARY, FLOATS, UNARY_FUNCTIONS, UNSIGNED, UnaryOp


def unary_span(op: UnaryOp, x: Span, dtype: str) -> Span:
    """The span of `op(x)`."""
    if op in ("neg", "abs", "not"):
        return _unary_span(op, x, dtype)
    return flushed(_unary_span(op, flushed(x, dtype), dtype), dtype)


def _unary_span(op: UnaryOp, x: Span, dtype: str) -> Span:
    match op:
        case "neg":
            if dtype in FLOATS:
                return Span(-x.hi, -x.lo, x.nan)
            return fitted(-x.hi, -x.lo, dtype)
        case "abs":
            return _absolute(x, dtype)
        case "not":
            return _inverted(x, dtype)
        case "floor" | "ceil" | "round":
            if dtype not in FLOATS:
                return x
            return Span(_apply(op, x.lo, dtype), _apply(op, x.hi, dtype), x.nan)
        case "sqrt":
            return _square_root(x, dtype)
        case "sin" | "cos":
            return Span(-1.0, 1.0, x.nan or x.has_infinity)
        case "tan":
            # Between the poles next to zero; numbers beyond may be as large as they like.
            between = x.lo >= -1.5 and x.hi <= 1.5
            return _rising(op, x, dtype) if between else whole(dtype)
        case "acos":
            return _arc_cosine(x, dtype)
        case "cosh":
            sizes = _absolute(x, dtype)
            return _rising(op, sizes, dtype)
        case "log":
            return _logarithm(x, dtype)
    rises = ELEMENTARY[op].rises
    if rises is not None:
        return _rising_within(op, x, *rises, dtype)
    raise ValueError(f"no interval rule for the operator {op}")


def _apply(op: UnaryOp, value: Number, dtype: str) -> float:
    with np.errstate(all="ignore"):
        return float(UNARY_FUNCTIONS[op](typed(value, dtype)))


def _absolute(x: Span, dtype: str) -> Span:
    if order_key(x.lo) >= order_key(0.0):
        return x
    sizes = (-x.lo, x.hi)
    lo = 0 if dtype not in FLOATS else 0.0
    if order_key(x.hi) < order_key(0.0):
        lo = -x.hi
    hi = max(*sizes, lo, key=order_key)
    return Span(lo, hi, x.nan) if dtype in FLOATS else fitted(lo, hi, dtype)


def _inverted(x: Span, dtype: str) -> Span:
    """Every bit the other one: of a signed integer −x − 1, of an unsigned one its maximum − x."""
    if dtype == "bool":
        return Span(not x.hi, not x.lo)
    ones = dtype_limits(dtype)[1] if dtype in UNSIGNED else -1
    return Span(ones - x.hi, ones - x.lo)


def _square_root(x: Span, dtype: str) -> Span:
    if x.hi < 0:
        return whole(dtype)
    lo = _apply("sqrt", max(x.lo, -0.0, key=order_key), dtype)
    return Span(lo, _apply("sqrt", x.hi, dtype), x.nan or x.lo < 0)


def _logarithm(x: Span, dtype: str) -> Span:
    if x.hi < 0:
        return whole(dtype)
    lo = _apply("log", max(x.lo, 0.0), dtype)
    hi = _apply("log", x.hi, dtype)
    return Span(_slackened(lo, dtype, -inf), _slackened(hi, dtype, inf), x.nan or x.lo < 0)


def _slackened(value: float, dtype: str, towards: float) -> float:
    if isinf(value):
        return value
    moved = value + copysign(ABSOLUTE_SLACK + abs(value) * RELATIVE_SLACK, towards)
    return step(float(typed(moved, dtype)), dtype, towards)


_SAFE_EXPONENT = {"float32": 88.0, "float64": 709.0}


def _rising(op: UnaryOp, x: Span, dtype: str) -> Span:
    """The span of an increasing function whose implementation has a bounded relative error.

    The sign of the result is exact.
    """
    lo, hi = _apply(op, x.lo, dtype), _apply(op, x.hi, dtype)
    if ELEMENTARY[op].overflows and x.hi > _SAFE_EXPONENT[dtype]:
        hi = inf
    if op == "sinh" and x.lo < -_SAFE_EXPONENT[dtype]:
        lo = -inf
    return Span(widened(lo, dtype, -inf), widened(hi, dtype, inf), x.nan)


def _rising_within(op: UnaryOp, x: Span, low: float, high: float, dtype: str) -> Span:
    """The span of an increasing function defined from `low` to `high`, and NaN elsewhere."""
    if x.hi < low or x.lo > high:
        return whole(dtype)
    inside = intersection(x, Span(low, high))
    found = _rising(op, inside, dtype)
    return Span(found.lo, found.hi, x.nan or x.lo < low or x.hi > high)


def _arc_cosine(x: Span, dtype: str) -> Span:
    """The span of acos, which decreases from π at −1 to 0 at 1, and is NaN elsewhere."""
    if x.hi < -1.0 or x.lo > 1.0:
        return whole(dtype)
    lo, hi = _apply("acos", min(x.hi, 1.0), dtype), _apply("acos", max(x.lo, -1.0), dtype)
    nan = x.nan or x.lo < -1.0 or x.hi > 1.0
    return Span(widened(lo, dtype, -inf), widened(hi, dtype, inf), nan)


def cast_span(x: Span, source: str, target: str) -> Span:
    """The span of `x` converted between dtypes."""
    return flushed(_cast_span(flushed(x, source), target), target)


def _cast_span(x: Span, target: str) -> Span:
    if target == "bool":
        only_zero = not x.nan and x.lo == 0 == x.hi
        return Span(not x.has_zero, not only_zero)
    if target in FLOATING:
        fits = target in (*FLOATS, *HALVES) or max(abs(x.lo), abs(x.hi)) <= largest(target)
        if not fits or (x.nan and target not in (*FLOATS, *HALVES)):
            # What is too large, infinite or NaN becomes what each of these types has for it.
            return whole(target)
        with np.errstate(all="ignore"):
            return Span(float(typed(x.lo, target)), float(typed(x.hi, target)), x.nan)
    if x.nan or x.has_infinity:
        return whole(target)
    return fitted(int(x.lo), int(x.hi), target)
