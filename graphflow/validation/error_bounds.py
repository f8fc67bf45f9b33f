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

from functools import reduce
from typing import cast

from graphflow import tir
from graphflow.base.dtypes import CARRIERS, HALVES, STORED
from graphflow.base.fields import replace

WIDE = "float64"
MARGIN = 4.0
"""The factor between bounds and tolerances: a sum in another order rounds other partial sums."""

UNIT = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance from 1.0 to the next number: twice the rounding error of one operation."""

SMALLEST = {
    "float32": 2.0**-125, "float64": 2.0**-1021, "float16": 2.0**-24, "bfloat16": 2.0**-125,
}  # fmt: skip
"""Results below this may have lost all digits: `sigmoid`, for example, by an overflow inside it."""


def with_errors(func: tir.PrimFunc) -> tuple[tir.PrimFunc, dict[tir.Buffer, tir.Buffer]]:
    """`func` with error bounds as further outputs, and the buffer of bounds of each buffer that has
    one.

    A buffer without bounds is the same in every correct kernel, except for the signs of zeros in
    sums.
    """
    names = {p.buffer.name for p in func.params}
    bounds: dict[tir.Buffer, tir.Buffer] = {}
    size = -1
    while size != len(bounds):
        size = len(bounds)
        for stmt in tir.writes_in(func.body):
            if stmt.buffer not in bounds and _may_differ(stmt, bounds):
                bounds[stmt.buffer] = replace(
                    stmt.buffer, name=f"{stmt.buffer.name}.error", dtype=WIDE
                )
    writer = _Errors(bounds)
    body = tir.map_body(func.body, writer.statements)
    params = [tir.Param(bounds[b], tir.Role.OUTPUT) for b in func.outputs if b in bounds]
    assert not names & {p.buffer.name for p in params}
    return replace(func, params=(*func.params, *params), body=body), bounds


def _may_differ(stmt: tir.Store | tir.Reduce, bounds: dict[tir.Buffer, tir.Buffer]) -> bool:
    sums = isinstance(stmt, tir.Reduce) and stmt.op in (tir.ReduceOp.ADD, tir.ReduceOp.MUL)
    inexact = sums and stmt.buffer.dtype in tir.FLOATS
    return inexact or _Errors(bounds).of(stmt.value) is not None


class _Errors:
    """Expressions for error bounds; None is a bound of zero."""

    def __init__(self, bounds: dict[tir.Buffer, tir.Buffer]) -> None:
        self.bounds = bounds

    def statements(self, stmt: tir.Stmt) -> tir.Body:
        """A statement, and the statement that stores the error bound of its result."""
        match stmt:
            case tir.Allocate() if stmt.buffer in self.bounds:
                return stmt, tir.Allocate(self.bounds[stmt.buffer])
            case tir.Store() if stmt.buffer in self.bounds:
                error = self.of(stmt.value)
                return (
                    tir.Store(
                        self.bounds[stmt.buffer], stmt.indices, ZERO if error is None else error
                    ),
                    stmt,
                )
            case tir.Reduce() if stmt.buffer in self.bounds:
                return self.reduced(stmt), stmt
            case _:
                return (stmt,)

    def reduced(self, stmt: tir.Reduce) -> tir.Store:
        """The bound after one more term; terms may be in any order, so each rounding counts in
        full."""
        held = self.bounds[stmt.buffer]
        known, error = tir.Load(held, stmt.indices), self.of(stmt.value)
        before = tir.Load(stmt.buffer, stmt.indices)
        if stmt.op.selects:
            after: tir.Expr = known if error is None else tir.Binary("max", known, error)
        elif stmt.buffer.dtype not in tir.FLOATS:
            after = _sum(known, error) or ZERO
        else:
            term = stmt.value
            joined = tir.Binary(stmt.op.value, before, term)
            rounded = self._rounding(joined)
            magnitude = joined if stmt.op is tir.ReduceOp.MUL else None
            size = _size(joined) if magnitude else tir.Binary("add", _size(before), _size(term))
            share = tir.Binary("mul", tir.Literal(UNIT[stmt.buffer.dtype], WIDE), size)
            exact = tir.Comparison("eq", rounded, ZERO)
            if stmt.op is tir.ReduceOp.MUL:
                spread = _sum(_times(_size(before), error), _times(_size(term), known))
            else:
                spread = _sum(known, error)
            after = _sum(spread, tir.Select(exact, ZERO, share)) or ZERO
        return tir.Store(held, stmt.indices, after)

    def of(self, expr: tir.Expr) -> tir.Expr | None:
        """The error bound of `expr`."""
        match expr:
            case tir.Literal() | tir.IndexValue() | tir.Undef():
                return None
            case tir.Load():
                bound = self.bounds.get(expr.buffer)
                return None if bound is None else tir.Load(bound, expr.indices)
            case tir.Unary():
                return self._unary(expr)
            case tir.Binary():
                return self._binary(expr)
            case tir.Comparison():
                return self._comparison(expr)
            case tir.Select():
                return self._select(expr)
            case tir.Cast():
                return self._cast(expr)
        raise TypeError(f"not an expression: {expr!r}")

    def _unary(self, expr: tir.Unary) -> tir.Expr | None:
        error = self.of(expr.operand)
        match expr.op:
            case "neg" | "abs" | "not":
                return error
            case "bits":
                return _infinite(error)
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
            case op if tir.ELEMENTARY[op].gentle:
                return _sum(error, error, self._ulp(expr))
            case _:
                return _sum(_infinite(error), self._ulp(expr))

    def _binary(self, expr: tir.Binary) -> tir.Expr | None:
        left, right = self.of(expr.left), self.of(expr.right)
        if expr.op in ("max", "min"):
            if left is None or right is None:
                return right if left is None else left
            return tir.Binary("max", left, right)
        if expr.dtype not in tir.FLOATS:
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

    def _power(
        self, expr: tir.Binary, base: tir.Expr | None, exponent: tir.Expr | None
    ) -> tir.Expr | None:
        """|xʸ| · (|y| · dx / |x| + |log x| · dy)."""
        parts: list[tir.Expr | None] = []
        if base is not None:
            parts.append(_times(_size(expr.right), _over(base, _least(expr.left, base))))
        if exponent is not None:
            logarithm = tir.Unary("log", _size(expr.left))
            parts.append(_times(tir.Unary("abs", logarithm), exponent))
        return _times(_size(expr), _sum(*parts))

    def _comparison(self, expr: tir.Comparison) -> tir.Expr | None:
        """Infinite if the operands are nearer to each other than their error bounds."""
        error = _sum(self.of(expr.left), self.of(expr.right))
        if error is None:
            return None
        distance = tir.Unary("abs", tir.Binary("sub", _wide(expr.left), _wide(expr.right)))
        near = tir.Comparison("le", distance, tir.Binary("mul", tir.Literal(MARGIN, WIDE), error))
        return tir.Select(
            tir.Binary("and", near, tir.Comparison("gt", error, ZERO)), INFINITE, ZERO
        )

    def _select(self, expr: tir.Select) -> tir.Expr | None:
        if_true, if_false = self.of(expr.if_true), self.of(expr.if_false)
        chosen: tir.Expr | None = None
        if if_true is not None or if_false is not None:
            chosen = tir.Select(expr.condition, if_true or ZERO, if_false or ZERO)
        doubt = self._condition(expr.condition)
        return chosen if doubt is None else _sum(chosen, doubt)

    def _condition(self, condition: tir.Condition) -> tir.Expr | None:
        return None if tir.is_predicate(condition) else self.of(cast(tir.Expr, condition))

    def _cast(self, expr: tir.Cast) -> tir.Expr | None:
        error = self.of(expr.operand)
        if error is None:
            return None
        if expr.dtype in UNIT:
            return _sum(error, self._ulp(expr))
        return _infinite(error) if expr.dtype in ("bool", *STORED) else _stepped(error)

    def _ulp(self, expr: tir.Expr) -> tir.Expr:
        """The rounding error of an operation that is not correctly rounded, or has inexact
        operands."""
        unit, smallest = (
            tir.Literal(UNIT[expr.dtype], WIDE),
            tir.Literal(SMALLEST[expr.dtype], WIDE),
        )
        return tir.Binary("add", tir.Binary("mul", unit, _size(expr)), smallest)

    def _rounding(self, expr: tir.Binary) -> tir.Expr:
        """The rounding error of `+`, `−` or `·`: zero if the result is exact."""
        if expr.dtype == WIDE:
            return tir.Binary("mul", tir.Literal(UNIT[WIDE], WIDE), _size(expr))
        exact, rounded = tir.Binary(expr.op, _wide(expr.left), _wide(expr.right)), _wide(expr)
        distance = tir.Unary("abs", tir.Binary("sub", exact, rounded))
        return tir.Select(
            tir.Comparison("eq", exact, rounded), ZERO, distance
        )  # of infinities, too


def _steepness(expr: tir.Unary) -> tir.Expr:
    """Twice an upper bound of a function's derivative, from its value y: 1 + |y|, for tan 1 +
    y²."""
    size = _size(expr)
    grown = tir.Binary("mul", size, size) if expr.op == "tan" else size
    return tir.Binary(
        "mul", tir.Literal(2.0, WIDE), tir.Binary("add", tir.Literal(1.0, WIDE), grown)
    )


def _flatness(expr: tir.Unary, error: tir.Expr | None) -> tir.Expr:
    """A lower bound of 1 / derivative, or zero: 1 − x² for atanh, else √|1 − x²|."""
    one = tir.Literal(1.0, WIDE)
    if expr.op == "acosh":
        x = _least(expr.operand, error)
        distance = tir.Binary("sub", tir.Binary("mul", x, x), one)
    else:
        x = _sum(_size(expr.operand), error) or ZERO
        distance = tir.Binary("sub", one, tir.Binary("mul", x, x))
    distance = tir.Binary("max", distance, ZERO)
    return distance if expr.op == "atanh" else tir.Unary("sqrt", distance)


ZERO = tir.Literal(0.0, WIDE)
INFINITE = tir.Literal(float("inf"), WIDE)


def _wide(expr: tir.Expr) -> tir.Expr:
    if expr.dtype == WIDE:
        return expr
    carriers = CARRIERS.get(expr.dtype, (WIDE,))
    return tir.Cast(expr if WIDE in carriers else tir.Cast(expr, carriers[0]), WIDE)


def _size(expr: tir.Expr) -> tir.Expr:
    return tir.Unary("abs", _wide(expr))


def _sum(*parts: tir.Expr | None) -> tir.Expr | None:
    present = [part for part in parts if part is not None]
    return reduce(lambda a, b: tir.Binary("add", a, b), present) if present else None


def _times(factor: tir.Expr, error: tir.Expr | None) -> tir.Expr | None:
    """`factor · error`; zero for an error of zero, even if the factor is infinite."""
    if error is None:
        return None
    return tir.Select(tir.Comparison("eq", error, ZERO), ZERO, tir.Binary("mul", factor, error))


def _over(error: tir.Expr | None, size: tir.Expr) -> tir.Expr | None:
    """`error / size`; zero for an error of zero, even if the size is zero."""
    if error is None:
        return None
    return tir.Select(tir.Comparison("eq", error, ZERO), ZERO, tir.Binary("div", error, size))


def _least(expr: tir.Expr, error: tir.Expr | None) -> tir.Expr:
    """A lower bound of the magnitude of `expr`."""
    if error is None:
        return _size(expr)
    return tir.Binary("max", tir.Binary("sub", _size(expr), error), ZERO)


def _stepped(error: tir.Expr | None) -> tir.Expr | None:
    """The bound of a value that is rounded to whole numbers: inexact operands may give the next
    one."""
    if error is None:
        return None
    more = tir.Binary("add", error, tir.Literal(1.0, WIDE))
    return tir.Select(tir.Comparison("gt", error, ZERO), more, ZERO)


def _infinite(error: tir.Expr | None) -> tir.Expr | None:
    """The bound of a value that is no float: unknown, hence infinite, if it is inexact at all."""
    if error is None:
        return None
    return tir.Select(tir.Comparison("gt", error, ZERO), INFINITE, ZERO)


assert set(UNIT) == set(SMALLEST) == {*tir.FLOATS, *HALVES} <= set(tir.DTYPES)
