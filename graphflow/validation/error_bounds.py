"""Error bounds: how far the result of a correct kernel may be from that of its definition.

In: a definition.  Out: the same definition with a second buffer, of float64, for each buffer whose
elements may be rounded differently.  It holds the bound of each element's error, to first order.

Differences are allowed as docs/semantics.md says: sums in another order, a multiplication and an
addition contracted, elementary functions that are not correctly rounded.  An operation that is
exact on the numbers at hand adds nothing to a bound, so inputs that keep sums of products exact
leave no tolerance at all.  Where rounding decides between two values (a comparison, a step of
`floor`), the bound is infinite, or one step.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import cast

from graphflow.base.dtypes import CARRIERS, HALVES, STORED
from graphflow.tir import (
    DTYPES,
    FLOATS,
    Allocate,
    Binary,
    Body,
    Buffer,
    Cast,
    Comparison,
    Condition,
    Expr,
    IndexValue,
    Literal,
    Load,
    Param,
    PrimFunc,
    Reduce,
    ReduceOp,
    Role,
    Select,
    Stmt,
    Store,
    Unary,
    Undef,
    is_predicate,
    map_body,
    writes_in,
)

WIDE = "float64"
MARGIN = 4.0
"""The factor between bounds and tolerances: a sum in another order rounds other partial sums."""

UNIT = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance from 1.0 to the next number: twice the rounding error of one operation."""

SMALLEST = {
    "float32": 2.0**-125, "float64": 2.0**-1021, "float16": 2.0**-24, "bfloat16": 2.0**-125,
}  # fmt: skip
"""Results below this may have lost all digits: `sigmoid`, for example, by an overflow inside it."""


def with_errors(func: PrimFunc) -> tuple[PrimFunc, dict[Buffer, Buffer]]:
    """`func` with error bounds as further outputs, and the buffer of bounds of each buffer that has
    one.

    A buffer without bounds is the same in every correct kernel, except for the signs of zeros in
    sums.
    """
    names = {p.buffer.name for p in func.params}
    bounds: dict[Buffer, Buffer] = {}
    size = -1
    while size != len(bounds):
        size = len(bounds)
        for stmt in writes_in(func.body):
            if stmt.buffer not in bounds and _may_differ(stmt, bounds):
                bounds[stmt.buffer] = replace(
                    stmt.buffer, name=f"{stmt.buffer.name}.error", dtype=WIDE
                )
    writer = _Errors(bounds)
    body = map_body(func.body, writer.statements)
    params = [Param(bounds[b], Role.OUTPUT) for b in func.outputs if b in bounds]
    assert not names & {p.buffer.name for p in params}
    return replace(func, params=(*func.params, *params), body=body), bounds


def _may_differ(stmt: Store | Reduce, bounds: dict[Buffer, Buffer]) -> bool:
    sums = isinstance(stmt, Reduce) and stmt.op in (ReduceOp.ADD, ReduceOp.MUL)
    inexact = sums and stmt.buffer.dtype in FLOATS
    return inexact or _Errors(bounds).of(stmt.value) is not None


class _Errors:
    """Expressions for error bounds; None is a bound of zero."""

    def __init__(self, bounds: dict[Buffer, Buffer]) -> None:
        self.bounds = bounds

    def statements(self, stmt: Stmt) -> Body:
        """A statement, and the statement that stores the error bound of its result."""
        match stmt:
            case Allocate() if stmt.buffer in self.bounds:
                return stmt, Allocate(self.bounds[stmt.buffer])
            case Store() if stmt.buffer in self.bounds:
                error = self.of(stmt.value)
                return (
                    Store(self.bounds[stmt.buffer], stmt.indices, ZERO if error is None else error),
                    stmt,
                )
            case Reduce() if stmt.buffer in self.bounds:
                return self.reduced(stmt), stmt
            case _:
                return (stmt,)

    def reduced(self, stmt: Reduce) -> Store:
        """The bound after one more term; terms may be in any order, so each rounding counts in
        full."""
        held = self.bounds[stmt.buffer]
        known, error = Load(held, stmt.indices), self.of(stmt.value)
        before = Load(stmt.buffer, stmt.indices)
        if stmt.op in (ReduceOp.MIN, ReduceOp.MAX):
            after: Expr = known if error is None else Binary("max", known, error)
        elif stmt.buffer.dtype not in FLOATS:
            after = _sum(known, error) or ZERO
        else:
            term = stmt.value
            joined = Binary(stmt.op.value, before, term)
            rounded = self._rounding(joined)
            magnitude = joined if stmt.op is ReduceOp.MUL else None
            size = _size(joined) if magnitude else Binary("add", _size(before), _size(term))
            share = Binary("mul", Literal(UNIT[stmt.buffer.dtype], WIDE), size)
            exact = Comparison("eq", rounded, ZERO)
            if stmt.op is ReduceOp.MUL:
                spread = _sum(_times(_size(before), error), _times(_size(term), known))
            else:
                spread = _sum(known, error)
            after = _sum(spread, Select(exact, ZERO, share)) or ZERO
        return Store(held, stmt.indices, after)

    def of(self, expr: Expr) -> Expr | None:
        """The error bound of `expr`."""
        match expr:
            case Literal() | IndexValue() | Undef():
                return None
            case Load():
                bound = self.bounds.get(expr.buffer)
                return None if bound is None else Load(bound, expr.indices)
            case Unary():
                return self._unary(expr)
            case Binary():
                return self._binary(expr)
            case Comparison():
                return self._comparison(expr)
            case Select():
                return self._select(expr)
            case Cast():
                return self._cast(expr)
        raise TypeError(f"not an expression: {expr!r}")

    def _unary(self, expr: Unary) -> Expr | None:
        error = self.of(expr.operand)
        match expr.op:
            case "neg" | "abs" | "not":
                return error
            case "floor" | "ceil" | "round":
                return _stepped(error)
            case "sqrt":
                slope = _over(error, _size(expr))
                return None if slope is None else _sum(slope, self._ulp(expr))
            case "exp":
                return _sum(_times(_size(expr), error), _times(_size(expr), error), self._ulp(expr))
            case "log":
                return _sum(_over(error, _least(expr.operand, error)), self._ulp(expr))
            case "sinh" | "cosh" | "tan":
                return _sum(_times(_steepness(expr), error), self._ulp(expr))
            case "asin" | "acos" | "acosh" | "atanh":
                return _sum(_over(error, _flatness(expr, error)), self._ulp(expr))
            case _:  # tanh, sigmoid, erf, sin, cos, atan and asinh, which rise by less than 2
                return _sum(error, error, self._ulp(expr))

    def _binary(self, expr: Binary) -> Expr | None:
        left, right = self.of(expr.left), self.of(expr.right)
        if expr.op in ("max", "min"):
            return _largest(left, right)
        if expr.dtype not in FLOATS:
            return _infinite(_sum(left, right))
        spread = _sum(left, right)
        match expr.op:
            case "add" | "sub":
                return _sum(spread, self._rounding(expr))
            case "mul":
                spread = _sum(_times(_size(expr.right), left), _times(_size(expr.left), right))
                return _sum(spread, self._rounding(expr))
            case "fmod":  # exact, but for a quotient that an inexact operand takes to the next one
                return _infinite(spread)
            case "div":
                if spread is None:  # exactly rounded on both sides, as the square root is
                    return None
                grown = _sum(left, _times(_size(expr), right))
                return _sum(_over(grown, _least(expr.right, right)), self._ulp(expr))
            case _:
                return _sum(self._power(expr, left, right), self._ulp(expr))

    def _power(self, expr: Binary, base: Expr | None, exponent: Expr | None) -> Expr | None:
        """|xʸ| · (|y| · dx / |x| + |log x| · dy)."""
        parts: list[Expr | None] = []
        if base is not None:
            parts.append(_times(_size(expr.right), _over(base, _least(expr.left, base))))
        if exponent is not None:
            logarithm = Unary("log", _size(expr.left))
            parts.append(_times(Unary("abs", logarithm), exponent))
        return _times(_size(expr), _sum(*parts))

    def _comparison(self, expr: Comparison) -> Expr | None:
        """Infinite if the operands are nearer to each other than their error bounds."""
        error = _sum(self.of(expr.left), self.of(expr.right))
        if error is None:
            return None
        distance = Unary("abs", Binary("sub", _wide(expr.left), _wide(expr.right)))
        near = Comparison("le", distance, Binary("mul", Literal(MARGIN, WIDE), error))
        return Select(Binary("and", near, Comparison("gt", error, ZERO)), INFINITE, ZERO)

    def _select(self, expr: Select) -> Expr | None:
        if_true, if_false = self.of(expr.if_true), self.of(expr.if_false)
        chosen: Expr | None = None
        if if_true is not None or if_false is not None:
            chosen = Select(expr.condition, if_true or ZERO, if_false or ZERO)
        doubt = self._condition(expr.condition)
        return chosen if doubt is None else _sum(chosen, doubt)

    def _condition(self, condition: Condition) -> Expr | None:
        return None if is_predicate(condition) else self.of(cast(Expr, condition))

    def _cast(self, expr: Cast) -> Expr | None:
        error = self.of(expr.operand)
        if error is None:
            return None
        if expr.dtype in UNIT:
            return _sum(error, self._ulp(expr))
        return _infinite(error) if expr.dtype in ("bool", *STORED) else _stepped(error)

    def _ulp(self, expr: Expr) -> Expr:
        """The rounding error of an operation that is not correctly rounded, or has inexact
        operands."""
        unit, smallest = Literal(UNIT[expr.dtype], WIDE), Literal(SMALLEST[expr.dtype], WIDE)
        return Binary("add", Binary("mul", unit, _size(expr)), smallest)

    def _rounding(self, expr: Binary) -> Expr:
        """The rounding error of `+`, `−` or `·`: zero if the result is exact."""
        if expr.dtype == WIDE:
            return Binary("mul", Literal(UNIT[WIDE], WIDE), _size(expr))
        exact, rounded = Binary(expr.op, _wide(expr.left), _wide(expr.right)), _wide(expr)
        distance = Unary("abs", Binary("sub", exact, rounded))
        return Select(Comparison("eq", exact, rounded), ZERO, distance)  # of infinities, too


def _steepness(expr: Unary) -> Expr:
    """Twice an upper bound of a function's derivative, from its value y: 1 + |y|, for tan 1 +
    y²."""
    size = _size(expr)
    grown = Binary("mul", size, size) if expr.op == "tan" else size
    return Binary("mul", Literal(2.0, WIDE), Binary("add", Literal(1.0, WIDE), grown))


def _flatness(expr: Unary, error: Expr | None) -> Expr:
    """A lower bound of 1 / derivative, or zero: 1 − x² for atanh, else √|1 − x²|."""
    one = Literal(1.0, WIDE)
    if expr.op == "acosh":
        x = _least(expr.operand, error)
        distance = Binary("sub", Binary("mul", x, x), one)
    else:
        x = _sum(_size(expr.operand), error) or ZERO
        distance = Binary("sub", one, Binary("mul", x, x))
    distance = Binary("max", distance, ZERO)
    return distance if expr.op == "atanh" else Unary("sqrt", distance)


ZERO = Literal(0.0, WIDE)
INFINITE = Literal(float("inf"), WIDE)


def _wide(expr: Expr) -> Expr:
    if expr.dtype == WIDE:
        return expr
    carriers = CARRIERS.get(expr.dtype, (WIDE,))
    return Cast(expr if WIDE in carriers else Cast(expr, carriers[0]), WIDE)


def _size(expr: Expr) -> Expr:
    return Unary("abs", _wide(expr))


def _sum(*parts: Expr | None) -> Expr | None:
    present = [part for part in parts if part is not None]
    return reduce(lambda a, b: Binary("add", a, b), present) if present else None


def _times(factor: Expr, error: Expr | None) -> Expr | None:
    """`factor · error`; zero for an error of zero, even if the factor is infinite."""
    if error is None:
        return None
    return Select(Comparison("eq", error, ZERO), ZERO, Binary("mul", factor, error))


def _over(error: Expr | None, size: Expr) -> Expr | None:
    """`error / size`; zero for an error of zero, even if the size is zero."""
    if error is None:
        return None
    return Select(Comparison("eq", error, ZERO), ZERO, Binary("div", error, size))


def _largest(left: Expr | None, right: Expr | None) -> Expr | None:
    if left is None or right is None:
        return right if left is None else left
    return Binary("max", left, right)


def _least(expr: Expr, error: Expr | None) -> Expr:
    """A lower bound of the magnitude of `expr`."""
    if error is None:
        return _size(expr)
    return Binary("max", Binary("sub", _size(expr), error), ZERO)


def _stepped(error: Expr | None) -> Expr | None:
    """The bound of a value that is rounded to whole numbers: inexact operands may give the next
    one."""
    if error is None:
        return None
    more = Binary("add", error, Literal(1.0, WIDE))
    return Select(Comparison("gt", error, ZERO), more, ZERO)


def _infinite(error: Expr | None) -> Expr | None:
    """The bound of a value that is no float: unknown, hence infinite, if it is inexact at all."""
    if error is None:
        return None
    return Select(Comparison("gt", error, ZERO), INFINITE, ZERO)


assert set(UNIT) == set(SMALLEST) == {*FLOATS, *HALVES} <= set(DTYPES)
