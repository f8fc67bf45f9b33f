"""Abstract interpretation of scalar expressions over facts, forward and backward.

Forward: an expression, and the fact of each load in it → the fact of its value.  Backward: a fact
that the value must have → constants for one load that give it.  What always holds: if each load has
a value within its fact, the value of the expression is within the result; a constant result has
exactly the interpreter's bits, and is not claimed where the contraction of a product and a sum to
an FMA, or the flushing of denormals, could give other bits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, isnan
from typing import TypeAlias, assert_never, cast

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.layout.binary_spans import MIRRORED, binary_span, comparison_span, limited_span
from graphflow.layout.constant_folding import fold_binary, fold_cast, fold_unary
from graphflow.layout.facts import Constant, Fact, NoAccess, Range, Undefined, dtype_limits
from graphflow.layout.spans import Span, full_span, hull, intersection, is_denormal
from graphflow.layout.unary_spans import cast_span, unary_span

FactOfLoad: TypeAlias = Callable[[tir.Load], Fact]
Decide: TypeAlias = Callable[[arith.Predicate], "bool | None"]


class AbstractValue(Struct, frozen=True):
    """The abstract value of an expression: a span, the literal if it is constant, and two marks.

    With `poison` the value may be undefined; with `forbidden` it depends on memory that must not be
    read.
    """

    span: Span
    literal: tir.Literal | None = None
    poison: bool = False
    forbidden: bool = False


def undecided(predicate: arith.Predicate) -> bool | None:
    """The value of a constant predicate, else None: a `decide` that knows no ranges."""
    return predicate.value if isinstance(predicate, arith.Truth) else None


def value_fact(
    expr: tir.Expr,
    fact_of_load: FactOfLoad,
    decide: Decide = undecided,
    ranges: arith.Ranges | None = None,
) -> Fact:
    """The fact of `expr`; `decide` answers index predicates, `ranges` bound index variables.

    A load of a NoAccess region on a side that may be taken makes the result NoAccess; an
    expression of `undef` is Undefined, whatever is done to it.
    """
    return _as_fact(KernelEvaluator(fact_of_load, decide, ranges or {}).value(expr))


def _as_fact(value: AbstractValue) -> Fact:
    if value.forbidden:
        return NoAccess()
    if value.poison:
        return Undefined()
    if value.literal is not None:
        return Constant(value.literal)
    span = value.span
    if span.nan or span.has_infinity or span.lo > span.hi:
        return Undefined()  # an empty span is that of an index which nothing reaches
    return Range(span.lo, span.hi)


def value_of_fact(fact: Fact, dtype: str) -> AbstractValue:
    match fact:
        case Constant():
            return _of_literal(fact.literal)
        case Range():
            return _marked(Span(fact.lo, fact.hi), dtype, None)
        case Undefined():
            return AbstractValue(full_span(dtype))
        case NoAccess():
            return AbstractValue(full_span(dtype), forbidden=True)
    assert_never(fact)


def _of_literal(literal: tir.Literal) -> AbstractValue:
    if isnan(literal.value):
        return AbstractValue(full_span(literal.dtype), literal)
    return AbstractValue(Span(literal.value, literal.value), literal)


class KernelEvaluator(Struct, frozen=True):
    """Evaluates expressions; `within` are spans of subexpressions that conditions imply."""

    fact_of_load: FactOfLoad
    decide: Decide
    ranges: arith.Ranges
    within: tuple[tuple[tir.Expr, Span], ...] = ()

    def value(self, expr: tir.Expr) -> AbstractValue:
        found = self.unlimited(expr)
        for limited, span in self.within:
            if limited == expr and found.literal is None and not found.poison:
                found = _marked(intersection(found.span, span), expr.dtype, None, found)
        return found

    def unlimited(self, expr: tir.Expr) -> AbstractValue:
        match expr:
            case tir.Literal():
                return _of_literal(expr)
            case tir.Load():
                return value_of_fact(self.fact_of_load(expr), expr.dtype)
            case tir.IndexValue():
                lo, hi = arith.bounds(expr.index, self.ranges)
                low, high = dtype_limits("int64")
                span = Span(low if lo is None else lo, high if hi is None else hi)
                return AbstractValue(cast_span(span, "int64", expr.dtype))
            case tir.Undef():
                return AbstractValue(full_span(expr.dtype), poison=True)
            case tir.Unary():
                return self.unary(expr)
            case tir.Binary():
                return self.binary(expr)
            case tir.Comparison():
                a, b = self.value(expr.left), self.value(expr.right)
                span = comparison_span(expr.op, a.span, b.span, expr.left.dtype)
                return _marked(span, "bool", None, a, b)
            case tir.Cast():
                x = self.value(expr.operand)
                source = expr.operand.dtype
                literal = fold_cast(x.literal, expr.dtype) if x.literal else None
                literal = _unflushed(literal, x.literal)
                return _marked(cast_span(x.span, source, expr.dtype), expr.dtype, literal, x)
            case tir.Select():
                return self.select(expr)
        assert_never(expr)

    def unary(self, expr: tir.Unary) -> AbstractValue:
        x = self.value(expr.operand)
        literal = fold_unary(expr.op, x.literal) if x.literal else None
        if expr.op not in ("neg", "abs"):
            literal = _unflushed(literal, x.literal)
        span = unary_span(expr.op, x.span, expr.dtype)
        return _marked(span, expr.dtype, literal, x)

    def binary(self, expr: tir.Binary) -> AbstractValue:
        a, b = self.value(expr.left), self.value(expr.right)
        span = binary_span(expr.op, a.span, b.span, expr.dtype)
        literal = None
        if a.literal and b.literal and not self.contracts(expr, a, b):
            literal = _unflushed(fold_binary(expr.op, a.literal, b.literal), a.literal, b.literal)
        elif expr.op == "pow" and b.literal and b.literal.value == 0:
            literal = tir.Literal(1, expr.dtype)
        product = expr.op == "mul" and expr.dtype in tir.FLOATS
        if literal is not None and not product and not isnan(literal.value):
            span = Span(literal.value, literal.value)
        return _marked(span, expr.dtype, literal, a, b)

    def contracts(self, expr: tir.Binary, a: AbstractValue, b: AbstractValue) -> bool:
        """Whether an FMA could give a sum other bits than two roundings do.

        A product's span contains the unrounded product; it is a point where that was exact.
        """
        if expr.op not in ("add", "sub") or expr.dtype not in tir.FLOATS:
            return False
        sides = ((expr.left, a), (expr.right, b))
        return any(_is_product(side) and not value.span.is_point for side, value in sides)

    def select(self, expr: tir.Select) -> AbstractValue:
        taken, condition = self.condition(expr.condition)
        sides = [
            self.given(expr.condition, possible).value(side)
            for side, possible in ((expr.if_true, True), (expr.if_false, False))
            if taken in (None, possible)
        ]
        literal = sides[0].literal
        if any(side.literal != literal for side in sides):
            literal = None
        return _marked(hull(side.span for side in sides), expr.dtype, literal, *condition, *sides)

    def given(self, condition: tir.Condition, holds: bool) -> KernelEvaluator:
        """What is known where a condition holds, or where it fails."""
        if not isinstance(condition, tir.Comparison):
            return self
        found = dict(self.within)
        sides = ((condition.left, condition.right), (condition.right, condition.left))
        for (side, other), op in zip(sides, (condition.op, MIRRORED[condition.op]), strict=True):
            slack = self.recomputed(side)
            if slack is None:
                continue
            limit = self.value(other).span
            span = limited_span(op, limit, holds, side.dtype, slack)
            found[side] = intersection(found.get(side, full_span(side.dtype)), span)
        return replace(self, within=tuple(found.items()))

    def recomputed(self, expr: tir.Expr) -> float | None:
        """A bound on the difference between two computations of `expr`; None if none is known.

        One computation may contract a product and a sum to an FMA and the other may not, so an
        expression that is compared and then computed again need not have the same value.
        """
        if not any(_may_contract(node) for node in tir.walk_expr(expr)):
            return 0.0
        match expr:
            case tir.Binary(left=left, right=right) if _may_contract(expr):
                if not any(
                    _may_contract(node) for node in (*tir.walk_expr(left), *tir.walk_expr(right))
                ):
                    addends = [self.value(s).span for s in (left, right) if not _is_product(s)]
                    sizes = [max(abs(span.lo), abs(span.hi)) for span in addends]
                    return sizes[0] if len(sizes) == 1 and isfinite(sizes[0]) else None
        return None

    def condition(self, condition: tir.Condition) -> tuple[bool | None, tuple[AbstractValue, ...]]:
        if tir.is_predicate(condition):
            return self.decide(cast(arith.Predicate, condition)), ()
        value = self.value(cast(tir.Expr, condition))
        certain = value.span.is_point and not value.poison
        return bool(value.span.lo) if certain else None, (value,)


def _marked(
    span: Span, dtype: str, literal: tir.Literal | None, *operands: AbstractValue
) -> AbstractValue:
    poison = any(x.poison for x in operands)
    if literal is None and span.is_point:
        literal = tir.Literal(span.lo, dtype)
    return AbstractValue(
        span, None if poison else literal, poison, any(x.forbidden for x in operands)
    )


def _unflushed(literal: tir.Literal | None, *operands: tir.Literal | None) -> tir.Literal | None:
    """A folded constant, or None if a program that flushes denormals may compute another value."""
    involved = [x for x in (literal, *operands) if x is not None]
    return None if any(is_denormal(x.value, x.dtype) for x in involved) else literal


def _may_contract(expr: tir.Expr) -> bool:
    if not (
        isinstance(expr, tir.Binary) and expr.op in ("add", "sub") and expr.dtype in tir.FLOATS
    ):
        return False
    return _is_product(expr.left) or _is_product(expr.right)


def _is_product(expr: tir.Expr) -> bool:
    while isinstance(expr, tir.Unary) and expr.op == "neg":
        expr = expr.operand
    return isinstance(expr, tir.Binary) and expr.op == "mul"
