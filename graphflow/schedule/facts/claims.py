"""What the claim of an `Assume` implies for each element that it loads.

In: a claim, a conjunction of comparisons.  Out: for each load in it, the values that satisfy the
claim, as a span or as a fact.  What always holds: the span contains every value of the load for
which the interpreter finds the claim true.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isnan

from graphflow import layout, tir


def claims(claim: tir.Expr) -> Iterator[tuple[tir.Load, layout.Fact]]:
    """Each load of a claim with the fact that follows for it.

    Understood are `==`, `<`, `<=`, `>` and `>=` with a constant, of an element or of its `abs`, and
    conjunctions of these.  `x == undef` means that the element may be read, `x != undef` that
    nothing may access it.  `x == 0.0` holds for both zeros, so no `Constant` follows.  A claim that
    no value satisfies gives no fact; `claimed` tells such a claim.
    """
    for comparison in _conjuncts(claim):
        if isinstance(comparison.left, tir.Load) and isinstance(comparison.right, tir.Undef):
            if comparison.op == "eq":
                yield comparison.left, layout.Undefined()
            elif comparison.op == "ne":
                yield comparison.left, layout.NoAccess()
    for load, span in claimed(claim).items():
        fact = None if span is None else _fact(span, load.dtype)
        if fact is not None:
            yield load, fact


def claimed(claim: tir.Expr) -> dict[tir.Load, layout.Span | None]:
    """For each load that a claim limits, the span of its values; None where no value is left."""
    found: dict[tir.Load, layout.Span | None] = {}
    for comparison in _conjuncts(claim):
        for load, span in _limited(comparison):
            found[load] = common(found.get(load, layout.full_span(load.dtype)), span)
    return found


def common(a: layout.Span | None, b: layout.Span | None) -> layout.Span | None:
    """The intersection of two spans; None where it is empty."""
    if a is None or b is None:
        return None
    lo, hi = max(a.lo, b.lo, key=layout.order_key), min(a.hi, b.hi, key=layout.order_key)
    return (
        layout.Span(lo, hi, a.nan and b.nan)
        if layout.order_key(lo) <= layout.order_key(hi)
        else None
    )


def forbids_access(claim: tir.Expr) -> bool:
    """Whether a claim is that an element may not be accessed."""
    return (
        isinstance(claim, tir.Comparison)
        and claim.op == "ne"
        and isinstance(claim.right, tir.Undef)
    )


def _fact(span: layout.Span, dtype: str) -> layout.Fact | None:
    """The fact that a span is; None where it admits NaN or an infinity."""
    if span.is_point:
        return layout.Constant(tir.Literal(span.lo, dtype))
    if span.nan or span.has_infinity:
        return None
    return layout.Range(span.lo, span.hi)


def _conjuncts(claim: tir.Expr) -> Iterator[tir.Comparison]:
    match claim:
        case tir.Comparison():
            yield claim
        case tir.Binary(op="and"):
            yield from _conjuncts(claim.left)
            yield from _conjuncts(claim.right)
        case _:
            return


def _limited(comparison: tir.Comparison) -> Iterator[tuple[tir.Load, layout.Span | None]]:
    """The load that a comparison with a constant limits, and to which span."""
    left, right, op = comparison.left, comparison.right, comparison.op
    if isinstance(left, tir.Literal):
        left, right, op = right, left, layout.MIRRORED[op]
    if not isinstance(right, tir.Literal) or op == "ne":
        return
    if isinstance(left, tir.Load):
        yield left, _where(op, right)
    elif isinstance(left, tir.Unary) and left.op == "abs" and isinstance(left.operand, tir.Load):
        yield left.operand, _where_abs(op, right)


def _where(op: tir.ComparisonOp, limit: tir.Literal) -> layout.Span | None:
    """The `x` for which `x op limit` is true."""
    value, dtype = limit.value, limit.dtype
    if isnan(value):
        return None
    lo, hi = layout.dtype_limits(dtype)
    if op in ("lt", "le", "eq"):
        hi = _next(limit, -inf) if op == "lt" else _either_zero(limit, 1.0)
    if op in ("gt", "ge", "eq"):
        lo = _next(limit, inf) if op == "gt" else _either_zero(limit, -1.0)
    lowest, highest = layout.dtype_limits(dtype)
    if (op, value) in (("lt", lowest), ("gt", highest)):
        return None
    return layout.Span(lo, hi)


def _next(limit: tir.Literal, towards: float) -> float | int:
    """The first value beyond the limit that a strict comparison admits."""
    if limit.dtype in tir.FLOATS:
        return layout.step(float(limit.value), limit.dtype, towards)
    return int(limit.value) + (1 if towards > 0 else -1)


def _either_zero(limit: tir.Literal, sign: float) -> float | int | bool:
    """The limit; of a float zero the one that lies further out, as both compare alike."""
    if limit.dtype in tir.FLOATS and limit.value == 0:
        return sign * 0.0
    return limit.value


def _where_abs(op: tir.ComparisonOp, limit: tir.Literal) -> layout.Span | None:
    """The `x` for which `abs(x) op limit` is true, for upper limits.

    `abs` of the smallest integer of a signed type is that integer itself, which is below any limit.
    """
    if op not in ("lt", "le", "eq"):
        return layout.full_span(limit.dtype)
    sizes = _where(op, limit)
    lowest = layout.dtype_limits(limit.dtype)[0]
    if sizes is None or lowest == 0:
        return sizes
    if limit.dtype in tir.FLOATS:
        return layout.Span(-sizes.hi, sizes.hi) if sizes.hi >= 0 else None
    if op != "eq":
        return layout.Span(lowest, sizes.hi if sizes.hi >= 0 else lowest)
    if sizes.hi == lowest:
        return sizes
    return layout.Span(-sizes.hi, sizes.hi) if sizes.hi >= 0 else None
