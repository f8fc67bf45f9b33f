"""Interval bounds of index expressions, and the simplifications that follow from them.

An interval is `(lowest, highest)`, both included, None where unbounded.  All functions take time
linear in the size of the expression; questions that intervals cannot decide go to `sets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import gcd
from typing import TypeAlias, assert_never

from graphflow.arith.index_expr import (
    Const,
    Extremum,
    FloorDiv,
    FloorMod,
    IndexExpr,
    Sum,
    Var,
    const,
    floor_div,
    floor_mod,
    linear,
    maximum,
    minimum,
    terms_of,
    variables,
    weighted,
)
from graphflow.arith.predicate import (
    FALSE,
    TRUE,
    And,
    AtLeastZero,
    IsZero,
    Not,
    Or,
    Predicate,
    Truth,
    at_least_zero,
    conjunction,
    disjunction,
    equal,
    negation,
)

Interval: TypeAlias = "tuple[int | None, int | None]"
Ranges: TypeAlias = Mapping[Var, Interval]


def _scale(interval: Interval, k: int) -> Interval:
    low, high = interval if k > 0 else (interval[1], interval[0])
    return (None if low is None else low * k, None if high is None else high * k)


def bounds(expr: IndexExpr, ranges: Ranges) -> Interval:
    """The smallest interval that interval arithmetic proves `expr` to stay in."""
    match expr:
        case Const():
            return expr.value, expr.value
        case Var():
            return ranges.get(expr, (None, None))
        case Sum():
            low: int | None = expr.constant
            high: int | None = expr.constant
            for atom, k in expr.terms:
                a, b = _scale(bounds(atom, ranges), k)
                low = None if low is None or a is None else low + a
                high = None if high is None or b is None else high + b
            return low, high
        case FloorDiv():
            low, high = bounds(expr.numerator, ranges)
            c = expr.divisor
            return (None if low is None else low // c, None if high is None else high // c)
        case FloorMod():
            low, high = bounds(expr.numerator, ranges)
            c = expr.divisor
            if low is not None and high is not None and low // c == high // c:
                return low % c, high % c
            return 0, c - 1
        case Extremum():
            return _extremum_bounds(expr, ranges)
    raise TypeError(f"not an index expression: {expr!r}")


def _extremum_bounds(expr: Extremum, ranges: Ranges) -> Interval:
    (a_low, a_high), (b_low, b_high) = (bounds(operand, ranges) for operand in expr.operands)
    lows = [value for value in (a_low, b_low) if value is not None]
    highs = [value for value in (a_high, b_high) if value is not None]
    if expr.kind == "min":
        return (min(lows) if len(lows) == 2 else None, min(highs) if highs else None)
    return (max(lows) if lows else None, max(highs) if len(highs) == 2 else None)


WORD = 2**63 - 1
"""The largest index that native code computes with: its indices are signed words of 64 bits."""


def largest_part(expr: IndexExpr, ranges: Ranges) -> int | None:
    """A bound of the magnitude of `expr` and of all that is computed on the way to it.

    That is, in whatever order its sums are added up, factors and divisors included; None where a
    variable has no range.
    """
    match expr:
        case Const():
            return abs(expr.value)
        case Var():
            return _magnitude(bounds(expr, ranges))
        case Sum():
            return _largest_in_sum(expr, ranges)
        case FloorDiv() | FloorMod():
            inside = largest_part(expr.numerator, ranges)
            return None if inside is None else max(inside, expr.divisor)
        case Extremum():
            a, b = (largest_part(operand, ranges) for operand in expr.operands)
            return None if a is None or b is None else max(a, b)
    raise TypeError(f"not an index expression: {expr!r}")


def _largest_in_sum(expr: Sum, ranges: Ranges) -> int | None:
    """Whatever is added up first, a partial sum is at most that of all positive ends."""
    low, high, most = min(expr.constant, 0), max(expr.constant, 0), 0
    for atom, k in expr.terms:
        a, b = _scale(bounds(atom, ranges), k)
        part = largest_part(atom, ranges)
        if a is None or b is None or part is None:
            return None
        low, high, most = low + min(a, 0), high + max(b, 0), max(most, part, abs(k))
    return max(-low, high, most)


def _magnitude(interval: Interval) -> int | None:
    low, high = interval
    return None if low is None or high is None else max(abs(low), abs(high))


def simplify(expr: IndexExpr, ranges: Ranges) -> IndexExpr:
    """`expr` with the fewest terms that these ranges permit; floors and mods keep constants."""
    if isinstance(expr, Const):
        return expr
    if isinstance(expr, Var):
        return _pinned(expr, ranges)
    return _simplified(expr, tuple([(v, ranges[v]) for v in variables(expr) if v in ranges]))


@lru_cache(maxsize=1 << 13)
def _simplified(expr: IndexExpr, known: tuple[tuple[Var, Interval], ...]) -> IndexExpr:
    # Kept, because layouts of the same shapes are compared again and again.
    ranges = dict(known)
    match expr:
        case Sum():
            simplified = [(simplify(atom, ranges), k) for atom, k in expr.terms]
            if all(new is old for (new, _), (old, _) in zip(simplified, expr.terms, strict=True)):
                return expr  # sums are in normal form
            return weighted((*simplified, (const(1), expr.constant)))
        case FloorDiv():
            return _simplify_floor(simplify(expr.numerator, ranges), expr.divisor, ranges)
        case FloorMod():
            return _simplify_mod(simplify(expr.numerator, ranges), expr.divisor, ranges)
        case Extremum():
            return _simplify_extremum(expr, ranges)
    raise TypeError(f"not an index expression: {expr!r}")


def _pinned(expr: IndexExpr, ranges: Ranges) -> IndexExpr:
    low, high = bounds(expr, ranges)
    return const(low) if low is not None and low == high else expr


def _simplify_floor(numerator: IndexExpr, c: int, ranges: Ranges) -> IndexExpr:
    low, high = bounds(numerator, ranges)
    if low is not None and high is not None and low // c == high // c:
        return const(low // c)
    whole, rest = _split_multiples(numerator, c, ranges)
    if rest is not None:
        return whole
    parts = _small_rest(numerator, c, ranges)
    if parts is None:
        return floor_div(numerator, c)
    step, whole, _ = parts
    return simplify(floor_div(whole, c // step), ranges)


def _small_rest(
    numerator: IndexExpr, c: int, ranges: Ranges
) -> tuple[int, IndexExpr, IndexExpr] | None:
    """`numerator = g·a + r` with `0 <= r < g` as (g, a, r), for the largest such divisor g of c."""
    terms, constant = terms_of(numerator)
    for step in sorted({gcd(c, k) for _, k in terms}, reverse=True):
        rest = linear([(atom, k) for atom, k in terms if k % step], constant)
        low, high = bounds(rest, ranges)
        if step > 1 and low is not None and high is not None and low // step == high // step:
            shift = low // step
            whole = linear([(atom, k // step) for atom, k in terms if k % step == 0], shift)
            return step, whole, rest - shift * step
    return None


def _simplify_mod(numerator: IndexExpr, c: int, ranges: Ranges) -> IndexExpr:
    low, high = bounds(numerator, ranges)
    if low is not None and high is not None and low // c == high // c:
        return numerator - (low // c) * c
    _, rest = _split_multiples(numerator, c, ranges)
    if rest is not None:
        return rest
    parts = _small_rest(numerator, c, ranges)
    if parts is None:
        return floor_mod(numerator, c)
    step, whole, rest = parts
    return simplify(floor_mod(whole, c // step), ranges) * step + rest


def _split_multiples(
    numerator: IndexExpr, c: int, ranges: Ranges
) -> tuple[IndexExpr, IndexExpr | None]:
    """`numerator = c·whole + rest` with `0 <= rest < c`, where the coefficients show it."""
    terms, constant = terms_of(numerator)
    whole = [(atom, k // c) for atom, k in terms if k % c == 0]
    rest = linear([(atom, k) for atom, k in terms if k % c], constant)
    low, high = bounds(rest, ranges)
    if low is None or high is None or low // c != high // c:
        return const(0), None
    shift = low // c
    return linear(whole, shift), rest - shift * c


def _simplify_extremum(expr: Extremum, ranges: Ranges) -> IndexExpr:
    a, b = (simplify(operand, ranges) for operand in expr.operands)
    low, high = bounds(a - b, ranges)
    if high is not None and high <= 0:
        return a if expr.kind == "min" else b
    if low is not None and low >= 0:
        return b if expr.kind == "min" else a
    return minimum(a, b) if expr.kind == "min" else maximum(a, b)


def simplify_predicate(predicate: Predicate, ranges: Ranges) -> Predicate:
    """`predicate` with what these ranges decide taken out."""
    match predicate:
        case Truth():
            return predicate
        case AtLeastZero():
            expr = simplify(predicate.expr, ranges)
            low, high = bounds(expr, ranges)
            if low is not None and low >= 0:
                return TRUE
            return FALSE if high is not None and high < 0 else at_least_zero(expr)
        case IsZero():
            expr = simplify(predicate.expr, ranges)
            low, high = bounds(expr, ranges)
            if (low is not None and low > 0) or (high is not None and high < 0):
                return FALSE
            return equal(expr, 0)
        case Not():
            return negation(simplify_predicate(predicate.member, ranges))
        case And():
            return conjunction(simplify_predicate(m, ranges) for m in predicate.members)
        case Or():
            return disjunction(simplify_predicate(m, ranges) for m in predicate.members)
    assert_never(predicate)
