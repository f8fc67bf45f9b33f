"""Spans of the results of unary operators and casts.

In: an operator, and the span of its operand.  Out: a span that contains every possible result.
What always holds: what `spans` states of rounding and of flushed denormals; the span of a
transcendental function allows for the difference between native code and numpy.
"""

from __future__ import annotations

from math import copysign, inf, isinf

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import FLOATING, HALVES, largest
from graphflow.layout import spans
from graphflow.layout.facts import Number, dtype_limits, order_key


def unary_span(op: tir.UnaryOp, x: spans.Span, dtype: str) -> spans.Span:
    """The span of `op(x)`."""
    if op == "bits":
        return spans.full_span(dtype)
    if op in ("neg", "abs", "not"):
        return _unary_span(op, x, dtype)
    return spans.flushed(_unary_span(op, spans.flushed(x, dtype), dtype), dtype)


def _unary_span(op: tir.UnaryOp, x: spans.Span, dtype: str) -> spans.Span:
    match op:
        case "neg":
            if dtype in tir.FLOATS:
                return spans.Span(-x.hi, -x.lo, x.nan)
            return spans.fitted(-x.hi, -x.lo, dtype)
        case "abs":
            return _absolute(x, dtype)
        case "not":
            return _inverted(x, dtype)
        case "floor" | "ceil" | "round":
            if dtype not in tir.FLOATS:
                return x
            return spans.Span(_apply(op, x.lo, dtype), _apply(op, x.hi, dtype), x.nan)
        case "sqrt":
            return _square_root(x, dtype)
        case "sin" | "cos":
            return spans.Span(-1.0, 1.0, x.nan or x.has_infinity)
        case "tan":
            # Between the poles next to zero; numbers beyond may be as large as they like.
            between = x.lo >= -1.5 and x.hi <= 1.5
            return _rising(op, x, dtype) if between else spans.full_span(dtype)
        case "acos":
            return _arc_cosine(x, dtype)
        case "cosh":
            sizes = _absolute(x, dtype)
            return _rising(op, sizes, dtype)
        case "log":
            return _logarithm(x, dtype)
    rises = tir.ELEMENTARY[op].rises
    if rises is not None:
        return _rising_within(op, x, *rises, dtype)
    raise ValueError(f"no interval rule for the operator {op}")


def _apply(op: tir.UnaryOp, value: Number, dtype: str) -> float:
    with np.errstate(all="ignore"):
        return float(tir.UNARY_FUNCTIONS[op](spans.typed(value, dtype)))


def _absolute(x: spans.Span, dtype: str) -> spans.Span:
    if order_key(x.lo) >= order_key(0.0):
        return x
    sizes = (-x.lo, x.hi)
    lo = 0 if dtype not in tir.FLOATS else 0.0
    if order_key(x.hi) < order_key(0.0):
        lo = -x.hi
    hi = max(*sizes, lo, key=order_key)
    return spans.Span(lo, hi, x.nan) if dtype in tir.FLOATS else spans.fitted(lo, hi, dtype)


def _inverted(x: spans.Span, dtype: str) -> spans.Span:
    """Every bit the other one: of a signed integer −x − 1, of an unsigned one its maximum − x."""
    if dtype == "bool":
        return spans.Span(not x.hi, not x.lo)
    ones = dtype_limits(dtype)[1] if dtype in tir.UNSIGNED else -1
    return spans.Span(ones - x.hi, ones - x.lo)


def _square_root(x: spans.Span, dtype: str) -> spans.Span:
    if x.hi < 0:
        return spans.full_span(dtype)
    lo = _apply("sqrt", max(x.lo, -0.0, key=order_key), dtype)
    return spans.Span(lo, _apply("sqrt", x.hi, dtype), x.nan or x.lo < 0)


def _logarithm(x: spans.Span, dtype: str) -> spans.Span:
    if x.hi < 0:
        return spans.full_span(dtype)
    lo = _apply("log", max(x.lo, 0.0), dtype)
    hi = _apply("log", x.hi, dtype)
    return spans.Span(_slackened(lo, dtype, -inf), _slackened(hi, dtype, inf), x.nan or x.lo < 0)


def _slackened(value: float, dtype: str, towards: float) -> float:
    if isinf(value):
        return value
    moved = value + copysign(spans.ABSOLUTE_SLACK + abs(value) * spans.RELATIVE_SLACK, towards)
    return spans.step(float(spans.typed(moved, dtype)), dtype, towards)


_SAFE_EXPONENT = {"float32": 88.0, "float64": 709.0}


def _rising(op: tir.UnaryOp, x: spans.Span, dtype: str) -> spans.Span:
    """The span of an increasing function whose implementation has a bounded relative error.

    The sign of the result is exact.
    """
    lo, hi = _apply(op, x.lo, dtype), _apply(op, x.hi, dtype)
    if tir.ELEMENTARY[op].overflows and x.hi > _SAFE_EXPONENT[dtype]:
        hi = inf
    if op == "sinh" and x.lo < -_SAFE_EXPONENT[dtype]:
        lo = -inf
    return spans.Span(spans.widened(lo, dtype, -inf), spans.widened(hi, dtype, inf), x.nan)


def _rising_within(
    op: tir.UnaryOp, x: spans.Span, low: float, high: float, dtype: str
) -> spans.Span:
    """The span of an increasing function defined from `low` to `high`, and NaN elsewhere."""
    if x.hi < low or x.lo > high:
        return spans.full_span(dtype)
    inside = spans.intersection(x, spans.Span(low, high))
    found = _rising(op, inside, dtype)
    return spans.Span(found.lo, found.hi, x.nan or x.lo < low or x.hi > high)


def _arc_cosine(x: spans.Span, dtype: str) -> spans.Span:
    """The span of acos, which decreases from π at −1 to 0 at 1, and is NaN elsewhere."""
    if x.hi < -1.0 or x.lo > 1.0:
        return spans.full_span(dtype)
    lo, hi = _apply("acos", min(x.hi, 1.0), dtype), _apply("acos", max(x.lo, -1.0), dtype)
    nan = x.nan or x.lo < -1.0 or x.hi > 1.0
    return spans.Span(spans.widened(lo, dtype, -inf), spans.widened(hi, dtype, inf), nan)


def cast_span(x: spans.Span, source: str, target: str) -> spans.Span:
    """The span of `x` converted between dtypes."""
    return spans.flushed(_cast_span(spans.flushed(x, source), target), target)


def _cast_span(x: spans.Span, target: str) -> spans.Span:
    if target == "bool":
        only_zero = not x.nan and x.lo == 0 == x.hi
        return spans.Span(not x.has_zero, not only_zero)
    if target in FLOATING:
        fits = target in (*tir.FLOATS, *HALVES) or max(abs(x.lo), abs(x.hi)) <= largest(target)
        if not fits or (x.nan and target not in (*tir.FLOATS, *HALVES)):
            # What is too large, infinite or NaN becomes what each of these types has for it.
            return spans.full_span(target)
        with np.errstate(all="ignore"):
            return spans.Span(
                float(spans.typed(x.lo, target)), float(spans.typed(x.hi, target)), x.nan
            )
    if x.nan or x.has_infinity:
        return spans.full_span(target)
    return spans.fitted(int(x.lo), int(x.hi), target)
