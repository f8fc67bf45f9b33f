"""Selections among rounded numbers, as selections among the numbers before rounding.

In: an expression that selects among an element that was rounded to a type of 16 bits, and numbers
of that type.  Out: an expression of the element as it was, whose value, rounded, is the same bit
for bit; None where there is none.

    before:  h = f16(v); u = f32(h); y = select(u < 0, 0, select(u > 6, 6, u))
    after:   f16(y) = f16(select(v < -2⁻²⁵, 0, select(v > 6, 6, v)))

What always holds: rounding to nearest is monotone, odd, and keeps signs and NaN.  So it commutes
with minima, maxima, negation and absolute values, and the numbers that round to one below a bound
are those below the least number that does not: a comparison of the rounded element is one of the
element with that threshold.  Orders of bounds and zeros are those of comparisons, by value.
"""

from __future__ import annotations

import operator
from functools import lru_cache

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import DTYPES
from graphflow.graph.rounded.roundings import KEEPING, is_unchanged

WIDE = "float32"

COMPARED = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip

_INFINITE = 0x7F800000
"""The bits of the largest float32, infinity: numbers are in the order of their bits below it."""


def before_rounding(expr: tir.Expr, element: tir.Load, dtype: str) -> tir.Expr | None:
    """`expr`, of which `element` is a number rounded to `dtype`, for the number before that."""
    match expr:
        case tir.Load():
            return expr if expr == element else None
        case tir.Literal():
            number = np.asarray(expr.value, DTYPES[WIDE])
            return expr if expr.dtype == WIDE and is_unchanged(number, dtype) else None
        case tir.Unary(op=op) if op in KEEPING:
            operand = before_rounding(expr.operand, element, dtype)
            return None if operand is None else tir.Unary(op, operand)
        case tir.Binary(op=op) if op in KEEPING:
            left = before_rounding(expr.left, element, dtype)
            right = before_rounding(expr.right, element, dtype)
            return None if left is None or right is None else tir.Binary(op, left, right)
        case tir.Select(condition=tir.Comparison() as condition):
            kept = _returns_bound(expr, condition, element)
            compared = condition if kept else _compared(condition, element, dtype)
            if_true = before_rounding(expr.if_true, element, dtype)
            if_false = before_rounding(expr.if_false, element, dtype)
            if compared is None or if_true is None or if_false is None:
                return None
            return tir.Select(compared, if_true, if_false)
        case _:
            return None


def _returns_bound(select: tir.Select, condition: tir.Comparison, element: tir.Load) -> bool:
    """Whether a selection compares an element with a bound, and returns the bound where the
    comparison holds and where the element is the bound.

    Then elements that round to the bound give it on either side.  Processors select minima and
    maxima so with one instruction.  Not for zeros, as elements below zero round to −0.
    """
    bound = condition.right
    if condition.left != element or not isinstance(bound, tir.Literal) or not bound.value:
        return False
    return select.if_true == bound and _at(select.if_false, element, bound) == bound


def _at(expr: tir.Expr, element: tir.Load, number: tir.Literal) -> tir.Literal | None:
    """What selections among an element and numbers return for an element that is `number`; None
    for other expressions."""
    match expr:
        case tir.Literal():
            return expr
        case tir.Load():
            return number if expr == element else None
        case tir.Select(condition=tir.Comparison(op=op, left=left, right=right)):
            compared = _at(left, element, number), _at(right, element, number)
            if compared[0] is None or compared[1] is None:
                return None
            holds = COMPARED[op](compared[0].value, compared[1].value)
            return _at(expr.if_true if holds else expr.if_false, element, number)
        case _:
            return None


def _compared(condition: tir.Comparison, element: tir.Load, dtype: str) -> tir.Comparison | None:
    """A comparison of a rounded element with a number, for the element before that."""
    match condition:
        case tir.Comparison(left=tir.Load() as load, right=tir.Literal() as bound):
            if load != element or bound.dtype != WIDE or np.isnan(bound.value):
                return None
            threshold = _threshold(condition.op, float(bound.value), dtype)
            if threshold is None:
                return None
            return tir.Comparison(condition.op, load, tir.Literal(threshold, WIDE))
        case _:
            return None


@lru_cache(maxsize=256)
def _threshold(op: str, bound: float, dtype: str) -> float | None:
    """The number t for which `x op t` says whether `x`, rounded, is `op` the bound.

    `<` and `≥` compare with the least number that rounds to none below the bound, `>` and `≤` with
    the largest that rounds to none above it.  So where denormals count as zero, and t is one, the
    comparison is that with zero.
    """
    match op:
        case "lt" | "ge":
            return _least_not_below(bound, dtype)
        case "gt" | "le":
            largest = _least_not_below(-bound, dtype)
            return None if largest is None else -largest
        case _:
            return None


def _least_not_below(bound: float, dtype: str) -> float | None:
    """The least float32 that rounds to a number of `dtype` of at least `bound`."""
    low, high = -_INFINITE, _INFINITE
    if _rounded(low, dtype) >= bound or not _rounded(high, dtype) >= bound:
        return None  # all numbers, or none
    while high - low > 1:
        middle = (low + high) // 2
        if _rounded(middle, dtype) >= bound:
            high = middle
        else:
            low = middle
    return _number(high)


def _number(place: int) -> float:
    """The float32 at a place in the order of all, 0 at zero."""
    size = float(np.asarray(abs(place), np.uint32).view(np.float32))
    return size if place >= 0 else -size


def _rounded(place: int, dtype: str) -> float:
    with np.errstate(over="ignore"):
        return float(np.asarray(_number(place), np.float32).astype(DTYPES[dtype]))
