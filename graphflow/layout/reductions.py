"""The fact that holds for the result of a reduction.

In: the operator, the fact of the initial value, the reduced expression, and bounds on the number of
iterations.  Out: a fact that holds for any number of iterations within the bounds, whatever the
order in which the values are combined.
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from graphflow import tir
from graphflow.layout.evaluator import Decide, FactOfLoad, value_fact
from graphflow.layout.facts import (
    Constant,
    Fact,
    NoAccess,
    Number,
    Range,
    Undefined,
    join,
    order_key,
)

FIXPOINT_STEPS = 4
"""Joins without a fixpoint after which the fact is derived from the number of iterations."""


def reduction_fact(
    op: tir.ReduceOp,
    start: Fact,
    value: tir.Expr,
    fact_of_load: FactOfLoad,
    decide: Decide,
    least: int,
    most: int | None,
) -> Fact:
    """The fact of `start ⊕ value ⊕ value …`, with `least` to `most` values (None: no known bound).

    If `least` is 0, the result may be `start`.
    """
    if most == 0:
        return start
    accumulator = tir.Load(tir.Buffer("accumulator", (), value.dtype), ())
    combined = tir.Binary(op.value, accumulator, value)
    loaded: dict[tir.Load, Fact] = {}

    def fact_of_term(load: tir.Load) -> Fact:
        # What is taken in is the same in each step, only the accumulator grows.
        if load not in loaded:
            loaded[load] = fact_of_load(load)
        return loaded[load]

    def once(fact: Fact) -> Fact:
        def known(load: tir.Load) -> Fact:
            return fact if load == accumulator else fact_of_term(load)

        return value_fact(combined, known, decide)

    current = once(start) if least else join(start, once(start))
    for _ in range(FIXPOINT_STEPS):
        grown = join(current, once(current))
        if grown == current:
            return current
        current = grown
    taken = value_fact(value, fact_of_term, decide)
    if isinstance(taken, NoAccess):
        return taken
    if op is tir.ReduceOp.ADD and most is not None:
        return _sum(start, taken, least, most, value.dtype)
    return Undefined()


def _ends(fact: Fact) -> tuple[Number, Number] | None:
    if isinstance(fact, Range):
        return fact.lo, fact.hi
    if isinstance(fact, Constant) and isfinite(fact.literal.value):
        return fact.literal.value, fact.literal.value
    return None


def _sum(start: Fact, taken: Fact, least: int, most: int, dtype: str) -> Fact:
    """Bounds of a sum of `least` to `most` values, rounded in any order (Higham's γ)."""
    first, each = _ends(start), _ends(taken)
    if first is None or each is None:
        return Undefined()
    lo = first[0] + each[0] * (most if each[0] < 0 else least)
    hi = first[1] + each[1] * (most if each[1] > 0 else least)
    if dtype not in tir.FLOATS:
        info = np.iinfo(dtype)
        return Range(lo, hi) if info.min <= lo and hi <= info.max else Undefined()
    limits = np.finfo(dtype)
    rounding = (most + 2) * float(limits.eps)
    if rounding > 0.5:
        return Undefined()
    size = max(map(abs, first)) + most * max(map(abs, each))
    # Each term and each partial sum may be a denormal that counts as zero.
    vanishing = (2 * most + 2) * float(limits.tiny)
    error = size * 2 * rounding + vanishing
    if not size + error < float(limits.max):
        return Undefined()
    high = _rounded(hi + error, dtype, np.inf)
    # A sum of numbers that are not negative is off by a factor only, and not below zero.
    if first[0] >= 0 and each[0] >= 0:
        low = lo * (1 - 2 * rounding) - vanishing
        if low > float(limits.tiny):
            return Range(_rounded(low, dtype, -np.inf), high)
        # Only zeros that are all negative add up to a negative one.
        negative = order_key(first[0]) < order_key(0.0) and order_key(each[0]) < order_key(0.0)
        return Range(-0.0 if negative else 0.0, high)
    return Range(_rounded(lo - error, dtype, -np.inf), high)


def _rounded(value: float, dtype: str, towards: float) -> float:
    kind = np.dtype(dtype).type
    return float(np.nextafter(kind(value), kind(towards)))
