"""Interval bounds of index expressions, and the simplifications that follow from them.

An interval is `(lowest, highest)`, both included, None where unbounded.  All functions take time
linear in the size of the expression; questions that intervals cannot decide go to `sets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import gcd
from typing import TypeAlias, assert_never

from graphflow.arith import index_expr, predicates

Interval: TypeAlias = "tuple[int | None, int | None]"
Ranges: TypeAlias = Mapping[index_expr.Var, Interval]


def _scale(interval: Interval, k: int) -> Interval:
    low, high = interval if k > 0 else (interval[1], interval[0])
    return (None if low is None else low * k, None if high is None else high * k)


def bounds(expr: index_expr.IndexExpr, ranges: Ranges) -> Interval:
    """The smallest interval that interval arithmetic proves `expr` to stay in."""
    match expr:
        case index_expr.Const():
            return expr.value, expr.value
        case index_expr.Var():
            return ranges.get(expr, (None, None))
        case index_expr.Sum():
            low: int | None = expr.constant
            high: int | None = expr.constant
            for atom, k in expr.terms:
                a, b = _scale(bounds(atom, ranges), k)
                low = None if low is None or a is None else low + a
                high = None if high is None or b is None else high + b
            return low, high
        case index_expr.FloorDiv():
            low, high = bounds(expr.numerator, ranges)
            c = expr.divisor
            return (None if low is None else low // c, None if high is None else high // c)
        case index_expr.FloorMod():
            low, high = bounds(expr.numerator, ranges)
            c = expr.divisor
            if low is not None and high is not None and low // c == high // c:
                return low % c, high % c
            return 0, c - 1
        case index_expr.Extremum():
            return _extremum_bounds(expr, ranges)
    raise TypeError(f"not an index expression: {expr!r}")


def _extremum_bounds(expr: index_expr.Extremum, ranges: Ranges) -> Interval:
    (a_low, a_high), (b_low, b_high) = (bounds(operand, ranges) for operand in expr.operands)
    lows = [value for value in (a_low, b_low) if value is not None]
    highs = [value for value in (a_high, b_high) if value is not None]
    if expr.kind == "min":
        return (min(lows) if len(lows) == 2 else None, min(highs) if highs else None)
    return (max(lows) if lows else None, max(highs) if len(highs) == 2 else None)


WORD = 2**63 - 1
"""The largest index that native code computes with: its indices are signed words of 64 bits."""


def largest_part(expr: index_expr.IndexExpr, ranges: Ranges) -> int | None:
    """A bound of the magnitude of `expr` and of all that is computed on the way to it.

    That is, in whatever order its sums are added up, factors and divisors included; None where a
    variable has no range.
    """
    match expr:
        case index_expr.Const():
            return abs(expr.value)
        case index_expr.Var():
            return _magnitude(bounds(expr, ranges))
        case index_expr.Sum():
            return _largest_in_sum(expr, ranges)
        case index_expr.FloorDiv() | index_expr.FloorMod():
            inside = largest_part(expr.numerator, ranges)
            return None if inside is None else max(inside, expr.divisor)
        case index_expr.Extremum():
            a, b = (largest_part(operand, ranges) for operand in expr.operands)
            return None if a is None or b is None else max(a, b)
    raise TypeError(f"not an index expression: {expr!r}")


def _largest_in_sum(expr: index_expr.Sum, ranges: Ranges) -> int | None:
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


def simplify_index(expr: index_expr.IndexExpr, ranges: Ranges) -> index_expr.IndexExpr:
    """`expr` with the fewest terms that these ranges permit; floors and mods keep constants."""
    if isinstance(expr, index_expr.Const):
        return expr
    if isinstance(expr, index_expr.Var):
        low, high = bounds(expr, ranges)
        return index_expr.const(low) if low is not None and low == high else expr
    return _simplified(
        expr, tuple([(v, ranges[v]) for v in index_expr.variables(expr) if v in ranges])
    )


@lru_cache(maxsize=1 << 13)
def _simplified(
    expr: index_expr.IndexExpr, known: tuple[tuple[index_expr.Var, Interval], ...]
) -> index_expr.IndexExpr:
    # Kept, because layouts of the same shapes are compared again and again.
    ranges = dict(known)
    match expr:
        case index_expr.Sum():
            simplified = [(simplify_index(atom, ranges), k) for atom, k in expr.terms]
            if all(new is old for (new, _), (old, _) in zip(simplified, expr.terms, strict=True)):
                return expr  # sums are in normal form
            return index_expr.weighted((*simplified, (index_expr.const(1), expr.constant)))
        case index_expr.FloorDiv():
            return _simplify_floor(simplify_index(expr.numerator, ranges), expr.divisor, ranges)
        case index_expr.FloorMod():
            return _simplify_mod(simplify_index(expr.numerator, ranges), expr.divisor, ranges)
        case index_expr.Extremum():
            a, b = (simplify_index(operand, ranges) for operand in expr.operands)
            low, high = bounds(a - b, ranges)
            if high is not None and high <= 0:
                return a if expr.kind == "min" else b
            if low is not None and low >= 0:
                return b if expr.kind == "min" else a
            return index_expr.minimum(a, b) if expr.kind == "min" else index_expr.maximum(a, b)
    raise TypeError(f"not an index expression: {expr!r}")


def _simplify_floor(
    numerator: index_expr.IndexExpr, c: int, ranges: Ranges
) -> index_expr.IndexExpr:
    low, high = bounds(numerator, ranges)
    if low is not None and high is not None and low // c == high // c:
        return index_expr.const(low // c)
    whole, rest = _split_multiples(numerator, c, ranges)
    if rest is not None:
        return whole
    parts = _small_rest(numerator, c, ranges)
    if parts is None:
        return index_expr.floor_div(numerator, c)
    step, whole, _ = parts
    return simplify_index(index_expr.floor_div(whole, c // step), ranges)


def _small_rest(
    numerator: index_expr.IndexExpr, c: int, ranges: Ranges
) -> tuple[int, index_expr.IndexExpr, index_expr.IndexExpr] | None:
    """`numerator = g·a + r` with `0 <= r < g` as (g, a, r), for the largest such divisor g of c."""
    terms, constant = index_expr.terms_of(numerator)
    steps: set[int] = set()  # divisors that c has in common with one term or with several
    for _, k in terms:
        steps |= {gcd(c, k), *(gcd(step, k) for step in steps)}
    for step in sorted(steps, reverse=True):
        rest = index_expr.linear([(atom, k) for atom, k in terms if k % step], constant)
        low, high = bounds(rest, ranges)
        if step > 1 and low is not None and high is not None and low // step == high // step:
            shift = low // step
            whole = index_expr.linear(
                [(atom, k // step) for atom, k in terms if k % step == 0], shift
            )
            return step, whole, rest - shift * step
    return None


def _simplify_mod(numerator: index_expr.IndexExpr, c: int, ranges: Ranges) -> index_expr.IndexExpr:
    low, high = bounds(numerator, ranges)
    if low is not None and high is not None and low // c == high // c:
        return numerator - (low // c) * c
    _, rest = _split_multiples(numerator, c, ranges)
    if rest is not None:
        return rest
    parts = _small_rest(numerator, c, ranges)
    if parts is None:
        return index_expr.floor_mod(numerator, c)
    step, whole, rest = parts
    return simplify_index(index_expr.floor_mod(whole, c // step), ranges) * step + rest


def _split_multiples(
    numerator: index_expr.IndexExpr, c: int, ranges: Ranges
) -> tuple[index_expr.IndexExpr, index_expr.IndexExpr | None]:
    """`numerator = c·whole + rest` with `0 <= rest < c`, where the coefficients show it."""
    terms, constant = index_expr.terms_of(numerator)
    whole = [(atom, k // c) for atom, k in terms if k % c == 0]
    rest = index_expr.linear([(atom, k) for atom, k in terms if k % c], constant)
    low, high = bounds(rest, ranges)
    if low is None or high is None or low // c != high // c:
        return index_expr.const(0), None
    shift = low // c
    return index_expr.linear(whole, shift), rest - shift * c


def simplify_predicate(predicate: predicates.Predicate, ranges: Ranges) -> predicates.Predicate:
    """`predicate` with what these ranges decide taken out."""
    match predicate:
        case predicates.Truth():
            return predicate
        case predicates.AtLeastZero():
            expr = simplify_index(predicate.expr, ranges)
            low, high = bounds(expr, ranges)
            if low is not None and low >= 0:
                return predicates.TRUE
            return (
                predicates.FALSE
                if high is not None and high < 0
                else predicates.at_least_zero(expr)
            )
        case predicates.IsZero():
            expr = simplify_index(predicate.expr, ranges)
            low, high = bounds(expr, ranges)
            if (low is not None and low > 0) or (high is not None and high < 0):
                return predicates.FALSE
            return predicates.equal(expr, 0)
        case predicates.Not():
            return predicates.negation(simplify_predicate(predicate.member, ranges))
        case predicates.And():
            return predicates.conjunction(simplify_predicate(m, ranges) for m in predicate.members)
        case predicates.Or():
            return predicates.disjunction(simplify_predicate(m, ranges) for m in predicate.members)
    assert_never(predicate)
