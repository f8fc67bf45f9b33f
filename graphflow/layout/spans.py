"""Spans: intervals of the numbers of one dtype, with a mark for NaN, and their outward rounding.

In: numbers, spans.  Out: a span that contains them; `unary_spans` and `binary_spans` give those of
operators, which contain every possible result.  What always holds: bounds are numbers of the dtype
in IEEE's total order (−0.0 below +0.0); an infinite bound means that the infinity itself may occur;
the span of an integer result that might wrap is the whole range of its dtype.  An inexact bound is
rounded outward, so a span contains the unrounded result too; a product and a sum may therefore be
contracted to one FMA.

Programs can be run with denormals flushed: an operand that is denormal then counts as the zero of
its sign, and so does a denormal result.  Spans contain the results with and without flushing, so a
fact holds for both.  Moves, negation and `abs` keep every bit, so their results may be denormals
whose zero lies in the span.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import copysign, isinf, nextafter
from typing import Any

import numpy as np
from msgspec import Struct

from graphflow import tir
from graphflow.base.dtypes import FLOATING
from graphflow.layout.facts import Number, dtype_limits, order_key

RELATIVE_SLACK = 2.0**-14
"""Relative difference allowed between a native transcendental function and numpy's."""

ABSOLUTE_SLACK = 1e-6
"""Absolute difference allowed where the result may be near zero and the operand is not."""

TINY = 1e-30
"""Below this a native transcendental may give zero."""


class Span(Struct, frozen=True):
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


def full_span(dtype: str) -> Span:
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
    return dtype in tir.FLOATS and 0 < abs(value) < smallest_normal(dtype)


def flushed(x: Span, dtype: str) -> Span:
    """`x`, and the zeros that its denormal numbers become in a program that flushes denormals."""
    if dtype not in tir.FLOATS:
        return x
    lo = 0.0 if x.lo > 0 and is_denormal(x.lo, dtype) else x.lo
    hi = -0.0 if x.hi < 0 and is_denormal(x.hi, dtype) else x.hi
    return Span(lo, hi, x.nan)


def fitted(lo: Number, hi: Number, dtype: str) -> Span:
    """The integer span, or all numbers of the dtype if the operation might wrap."""
    low, high = dtype_limits(dtype)
    return Span(lo, hi) if low <= lo and hi <= high else full_span(dtype)


def typed(value: Number, dtype: str) -> Any:
    return np.asarray(value, tir.DTYPES[dtype])[()]


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


def widened(value: float, dtype: str, towards: float) -> float:
    """A bound moved outward by the slack, never across zero."""
    rising = towards > 0
    if isinf(value):
        # Where numpy overflows, a native function may still be finite.
        return value if rising else step(value, dtype, towards) * (1 - RELATIVE_SLACK)
    positive = copysign(1.0, value) > 0
    if positive == rising:
        size = max(abs(value) * (1 + RELATIVE_SLACK), TINY)
        return step(float(typed(copysign(size, value), dtype)), dtype, towards)
    if abs(value) < TINY:
        return copysign(0.0, value)
    return step(float(typed(value * (1 - RELATIVE_SLACK), dtype)), dtype, towards)
