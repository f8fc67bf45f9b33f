"""Interval arithmetic on the values of one dtype, rounded outward.

In: operators and spans (intervals of numbers, with a mark for NaN).  Out: a span that contains
every possible result.  What always holds: bounds are numbers of the dtype in IEEE's total order
(−0.0 below +0.0); an infinite bound means that the infinity itself may occur; the span of an
integer result that might wrap is the whole range of its dtype.  An inexact bound is rounded
outward, so a span contains the unrounded result too; a product and a sum may therefore be
contracted to one FMA.

Programs can be run with denormals flushed: an operand that is denormal then counts as the zero of
its sign, and so does a denormal result.  Spans contain the results with and without flushing, so a
fact holds for both.  Moves, negation and `abs` keep every bit, so their results may be denormals
whose zero lies in the span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import copysign, inf, isfinite, isinf, isnan, nextafter
from typing import Any

import numpy as np

from graphflow.base.dtypes import FLOATING, HALVES, largest
from graphflow.layout.facts import Number, dtype_limits, order_key
from graphflow.tir import (
    BINARY_FUNCTIONS,
    DTYPES,
    FLOATS,
    UNARY_FUNCTIONS,
    UNSIGNED,
    BinaryOp,
    ComparisonOp,
    UnaryOp,
)

RELATIVE_SLACK = 2.0**-14
"""Relative difference allowed between a native transcendental function and numpy's."""
ABSOLUTE_SLACK = 1e-6
"""Absolute difference allowed where the result may be near zero and the operand is not."""
TINY = 1e-30
"""Below this a native transcendental may give zero."""


@dataclass(frozen=True, slots=True)
class Span:
    """Numbers with `lo <= x <= hi`, and NaN if `nan`."""

    lo: Number
    hi: Number
    nan: bool = False

    @property
    def has_zero(self) -> bool:
        """Whether a zero of either sign may occur."""
        return self.lo <= 0 <= self.hi

    @property
    def has_infinity(self) -> bool:
        """Whether an infinity may occur."""
        return isinf(self.lo) or isinf(self.hi)

    @property
    def is_point(self) -> bool:
        """Whether exactly one number may occur."""
        return not self.nan and order_key(self.lo) == order_key(self.hi)


def whole(dtype: str) -> Span:
    """Every bit pattern of a dtype."""
    lo, hi = dtype_limits(dtype)
    return Span(lo, hi, dtype in FLOATING)


def hull(spans: Iterable[Span]) -> Span:
    """The smallest span that contains all of `spans`."""
    parts = tuple(spans)
    return Span(
        min((s.lo for s in parts), key=order_key),
        max((s.hi for s in parts), key=order_key),
        any(s.nan for s in parts),
    )


def intersection(a: Span, b: Span) -> Span:
    """The numbers in both spans; `a` if there are none, so that a contradiction proves nothing."""
    lo, hi = max(a.lo, b.lo, key=order_key), min(a.hi, b.hi, key=order_key)
    return Span(lo, hi, a.nan and b.nan) if order_key(lo) <= order_key(hi) else a


def smallest_normal(dtype: str) -> float:
    """The smallest positive number of a float dtype that is not denormal."""
    return float(np.finfo(dtype).tiny)


def is_denormal(value: Number, dtype: str) -> bool:
    """Whether a program that flushes denormals may take `value` as zero."""
    return dtype in FLOATS and 0 < abs(value) < smallest_normal(dtype)


def flushed(x: Span, dtype: str) -> Span:
    """`x`, and the zeros that its denormal numbers become in a program that flushes denormals."""
    if dtype not in FLOATS:
        return x
    lo = 0.0 if x.lo > 0 and is_denormal(x.lo, dtype) else x.lo
    hi = -0.0 if x.hi < 0 and is_denormal(x.hi, dtype) else x.hi
    return Span(lo, hi, x.nan)


def _fit(lo: Number, hi: Number, dtype: str) -> Span:
    """The integer span, or all numbers of the dtype if the operation might wrap."""
    low, high = dtype_limits(dtype)
    return Span(lo, hi) if low <= lo and hi <= high else whole(dtype)


def _typed(value: Number, dtype: str) -> Any:
    return np.asarray(value, DTYPES[dtype])[()]


def step(value: float, dtype: str, towards: float) -> float:
    """The neighbour of `value` in a float dtype, in the direction of `towards`."""
    if dtype == "float32":
        with np.errstate(over="ignore"):
            return float(np.nextafter(np.float32(value), np.float32(towards)))
    return nextafter(value, towards)


def round_towards(exact: Fraction, nearest: float, dtype: str, towards: float) -> float:
    """`exact` rounded towards an infinity, where `nearest` is one of its two neighbours."""
    if isinf(nearest):
        return nearest if nearest == towards else step(nearest, dtype, towards)
    off = Fraction(nearest) - exact
    inward = off > 0 if towards < 0 else off < 0
    return step(nearest, dtype, towards) if inward else nearest


# Unary operators --------------------------------------------------------------------------------


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
            return _fit(-x.hi, -x.lo, dtype)
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
        case "exp" | "sigmoid" | "tanh" | "erf" | "sinh" | "asinh" | "atan":
            return _rising(op, x, dtype)
        case "sin" | "cos":
            return Span(-1.0, 1.0, x.nan or x.has_infinity)
        case "tan":
            # Between the poles next to zero; numbers beyond may be as large as they like.
            between = x.lo >= -1.5 and x.hi <= 1.5
            return _rising(op, x, dtype) if between else whole(dtype)
        case "asin" | "atanh":
            return _rising_within(op, x, -1.0, 1.0, dtype)
        case "acosh":
            return _rising_within(op, x, 1.0, inf, dtype)
        case "acos":
            return _arc_cosine(x, dtype)
        case "cosh":
            sizes = _absolute(x, dtype)
            return _rising(op, sizes, dtype)
        case "log":
            return _logarithm(x, dtype)
    raise ValueError(f"no interval rule for the operator {op}")


def _apply(op: UnaryOp, value: Number, dtype: str) -> float:
    with np.errstate(all="ignore"):
        return float(UNARY_FUNCTIONS[op](_typed(value, dtype)))


def _absolute(x: Span, dtype: str) -> Span:
    if order_key(x.lo) >= order_key(0.0):
        return x
    sizes = (-x.lo, x.hi)
    lo = 0 if dtype not in FLOATS else 0.0
    if order_key(x.hi) < order_key(0.0):
        lo = -x.hi
    hi = max(*sizes, lo, key=order_key)
    return Span(lo, hi, x.nan) if dtype in FLOATS else _fit(lo, hi, dtype)


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
    return step(float(_typed(moved, dtype)), dtype, towards)


_SAFE_EXPONENT = {"float32": 88.0, "float64": 709.0}
_EXPONENTIAL = ("exp", "sinh", "cosh")
"""Functions that overflow beyond the safe exponent; where exactly depends on who computes them."""


def _rising(op: UnaryOp, x: Span, dtype: str) -> Span:
    """The span of an increasing function whose implementation has a bounded relative error.

    The sign of the result is exact.
    """
    lo, hi = _apply(op, x.lo, dtype), _apply(op, x.hi, dtype)
    if op in _EXPONENTIAL and x.hi > _SAFE_EXPONENT[dtype]:
        hi = inf
    if op == "sinh" and x.lo < -_SAFE_EXPONENT[dtype]:
        lo = -inf
    return Span(_widened(lo, dtype, -inf), _widened(hi, dtype, inf), x.nan)


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
    return Span(_widened(lo, dtype, -inf), _widened(hi, dtype, inf), nan)


def _widened(value: float, dtype: str, towards: float) -> float:
    """A bound moved outward by the slack, never across zero."""
    rising = towards > 0
    if isinf(value):
        # Where numpy overflows, a native function may still be finite.
        return value if rising else step(value, dtype, towards) * (1 - RELATIVE_SLACK)
    positive = copysign(1.0, value) > 0
    if positive == rising:
        size = max(abs(value) * (1 + RELATIVE_SLACK), TINY)
        return step(float(_typed(copysign(size, value), dtype)), dtype, towards)
    if abs(value) < TINY:
        return copysign(0.0, value)
    return step(float(_typed(value * (1 - RELATIVE_SLACK), dtype)), dtype, towards)


# Binary operators -------------------------------------------------------------------------------


def binary_span(op: BinaryOp, a: Span, b: Span, dtype: str) -> Span:
    """The span of `a op b`."""
    found = flushed(_binary_span(op, flushed(a, dtype), flushed(b, dtype), dtype), dtype)
    if op in ("max", "min") and dtype in FLOATS:
        return _either_zero(found, (a, b), dtype)
    return found


def _either_zero(found: Span, operands: tuple[Span, Span], dtype: str) -> Span:
    """The span of a maximum or minimum, extended by a second zero if denormals may count as zeros.

    `max` and `min` order −0.0 below +0.0, but a denormal that is flushed may be taken for either.
    """
    tiny = smallest_normal(dtype)
    below = any(-tiny < x.hi and x.lo < 0 for x in operands)
    above = any(x.lo < tiny and x.hi > 0 for x in operands)
    lo = -0.0 if found.lo == 0 and below else found.lo
    hi = 0.0 if found.hi == 0 and above else found.hi
    return Span(lo, hi, found.nan)


def _binary_span(op: BinaryOp, a: Span, b: Span, dtype: str) -> Span:
    match op:
        case "max" | "min":
            pick = max if op == "max" else min
            lo, hi = pick(a.lo, b.lo, key=order_key), pick(a.hi, b.hi, key=order_key)
            return Span(lo, hi, a.nan or b.nan)
        case "and" | "or" | "xor":
            return _bitwise(op, a, b, dtype)
        case "shl" | "shr":
            return Span(0, a.hi) if op == "shr" and a.lo >= 0 else whole(dtype)
        case "fmod":
            return _remainder(a, b)
        case "pow":
            return _power(a, b, dtype)
        case "add" | "sub" | "mul" | "div":
            rule = _float_span if dtype in FLOATS else _integer_span
            return rule(op, a, b, dtype)
    raise ValueError(f"no interval rule for the operator {op}")


def _bitwise(op: BinaryOp, a: Span, b: Span, dtype: str) -> Span:
    """The span of an operator on single bits, of bools or of integers."""
    if dtype == "bool":
        combine = BINARY_FUNCTIONS[op]
        corners = [bool(combine(bool(p), bool(q))) for p in (a.lo, a.hi) for q in (b.lo, b.hi)]
        return Span(min(corners), max(corners))
    upper = [int(x.hi) for x in (a, b) if x.lo >= 0]
    if op == "and" and upper:
        return Span(0, min(upper))
    if len(upper) < 2:
        return whole(dtype)
    lo = max(a.lo, b.lo) if op == "or" else 0
    return Span(lo, (1 << max(upper).bit_length()) - 1)


def _integer_span(op: BinaryOp, a: Span, b: Span, dtype: str) -> Span:
    match op:
        case "add":
            return _fit(a.lo + b.lo, a.hi + b.hi, dtype)
        case "sub":
            return _fit(a.lo - b.hi, a.hi - b.lo, dtype)
        case "mul":
            corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
            return _fit(min(corners), max(corners), dtype)
    if b.has_zero:
        return whole(dtype)
    quotients = [_truncated(int(x), int(y)) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return _fit(min(quotients), max(quotients), dtype)


def _truncated(x: int, y: int) -> int:
    size = abs(x) // abs(y)
    return size if (x < 0) == (y < 0) else -size


def _float_span(op: BinaryOp, a: Span, b: Span, dtype: str) -> Span:
    nan = a.nan or b.nan
    match op:
        case "sub":
            return _float_span("add", a, Span(-b.hi, -b.lo, b.nan), dtype)
        case "add":
            lo = _corner(op, a.lo, b.lo, dtype, -inf)
            hi = _corner(op, a.hi, b.hi, dtype, inf)
            opposite = (a.lo == -inf and b.hi == inf) or (a.hi == inf and b.lo == -inf)
            return Span(-inf if isnan(lo) else lo, inf if isnan(hi) else hi, nan or opposite)
        case "mul":
            nan = nan or (a.has_zero and b.has_infinity) or (b.has_zero and a.has_infinity)
        case "div":
            if b.has_zero or (a.has_infinity and b.has_infinity):
                return Span(-inf, inf, True)
    pairs = [(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    lows = [_corner(op, x, y, dtype, -inf) for x, y in pairs]
    highs = [_corner(op, x, y, dtype, inf) for x, y in pairs]
    return Span(min(lows, key=order_key), max(highs, key=order_key), nan)


_EXACT: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


def _corner(op: BinaryOp, x: Number, y: Number, dtype: str, towards: float) -> float:
    with np.errstate(all="ignore"):
        nearest = float(BINARY_FUNCTIONS[op](_typed(x, dtype), _typed(y, dtype)))
    if op == "mul" and isnan(nearest):
        # 0·∞ as a corner: next to it stand finite numbers times zero.
        return copysign(0.0, copysign(1.0, x) * copysign(1.0, y))
    if isnan(nearest) or not (isfinite(x) and isfinite(y)):
        return nearest
    return round_towards(_EXACT[op](Fraction(x), Fraction(y)), nearest, dtype, towards)


def _remainder(a: Span, b: Span) -> Span:
    """The span of `fmod`: its magnitude is at most that of either operand, its sign that of `a`."""
    nan = a.nan or b.nan or a.has_infinity or b.has_zero
    most = max(abs(b.lo), abs(b.hi))
    lo = max(a.lo, -most) if order_key(a.lo) < order_key(0.0) else 0.0
    hi = -0.0 if order_key(a.hi) < order_key(0.0) else min(a.hi, most)
    # A remainder of nothing is a zero with the sign of the dividend.
    return Span(lo, hi, nan)


def _power(a: Span, b: Span, dtype: str) -> Span:
    """The span of a power; powers of positive bases are monotone on each side of 1.

    Any other base gives the whole dtype.
    """
    if dtype not in FLOATS or not a.lo > 0 or a.nan or b.nan or b.has_infinity:
        return whole(dtype)
    if a.has_infinity:
        return Span(0.0, inf)
    with np.errstate(all="ignore"):
        corners = [
            float(_typed(x, dtype) ** _typed(y, dtype)) for x in (a.lo, a.hi) for y in (b.lo, b.hi)
        ]
    return Span(_widened(min(corners), dtype, -inf), _widened(max(corners), dtype, inf))


# Conversions and comparisons --------------------------------------------------------------------


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
            return Span(float(_typed(x.lo, target)), float(_typed(x.hi, target)), x.nan)
    if x.nan or x.has_infinity:
        return whole(target)
    return _fit(int(x.lo), int(x.hi), target)


def comparison_span(op: ComparisonOp, a: Span, b: Span, dtype: str) -> Span:
    """The span of `a op b`: certainly true, certainly false, or either."""
    return _comparison_span(op, flushed(a, dtype), flushed(b, dtype))


def _comparison_span(op: ComparisonOp, a: Span, b: Span) -> Span:
    match op:
        case "gt" | "ge":
            return _comparison_span("lt" if op == "gt" else "le", b, a)
        case "ne":
            equal = _comparison_span("eq", a, b)
            return Span(not equal.hi, not equal.lo)
    nan = a.nan or b.nan
    match op:
        case "lt":
            return Span(not nan and a.hi < b.lo, not a.lo >= b.hi)
        case "le":
            return Span(not nan and a.hi <= b.lo, not a.lo > b.hi)
        case "eq":
            same = not nan and a.lo == a.hi == b.lo == b.hi
            return Span(same, a.lo <= b.hi and b.lo <= a.hi)
    raise ValueError(f"no interval rule for the comparison {op}")


MIRRORED: dict[ComparisonOp, ComparisonOp] = {
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
    "eq": "eq",
    "ne": "ne",
}
"""`a op b` is `b MIRRORED[op] a`."""

_EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}

_NEGATED: dict[ComparisonOp, ComparisonOp] = {
    "lt": "ge",
    "le": "gt",
    "gt": "le",
    "ge": "lt",
    "eq": "ne",
    "ne": "eq",
}
"""Of numbers; where one is NaN, all but `ne` fail."""


def limited_span(
    op: ComparisonOp, limit: Span, holds: bool, dtype: str, slack: float = 0.0
) -> Span:
    """The span of `x` where `x op limit` holds, or where it fails.

    Zeros of both signs compare equal, and denormals may compare as zeros.  If `x` is computed again
    after the comparison, it may differ from the value that was compared by a few roundings of
    numbers as large as `slack` plus the limit.
    """
    lo, hi = dtype_limits(dtype)
    limit = flushed(limit, dtype)
    truly = op if holds else _NEGATED[op]
    floats = dtype in FLOATS
    nan = floats and (op != "ne") != holds
    if truly in ("lt", "le", "eq") and not limit.nan:
        hi = _beyond(limit.hi, slack, dtype, 1.0) if floats else limit.hi
    if truly in ("gt", "ge", "eq") and not limit.nan:
        lo = _beyond(limit.lo, slack, dtype, -1.0) if floats else limit.lo
    return Span(lo, hi, nan)


def _beyond(limit: float, slack: float, dtype: str, sign: float) -> float:
    """The limit moved outward by the error of a recomputed value, and past the other zero."""
    if slack and isfinite(limit):
        room = 8 * _EPSILON[dtype] * (abs(limit) + slack) + TINY
        return step(float(_typed(limit + sign * room, dtype)), dtype, sign * inf)
    return copysign(0.0, sign) if limit == 0 else limit
