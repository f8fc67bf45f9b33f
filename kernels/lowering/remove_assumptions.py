"""Removing `assume` and `undef` from a kernel, which the emitter does not know.

In: a scheduled kernel.  Out: the kernel with defined values only.  What always holds: afterwards no
simplification may rest on what assumptions said, because nothing in the kernel says it any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never, cast

from graphflow.arith import ANYWHERE, Domain, Predicate, conjunction, negation, prove, within
from graphflow.base.errors import VerifyError
from graphflow.tir import (
    DTYPES,
    Allocate,
    Assume,
    Binary,
    Block,
    Body,
    Call,
    Cast,
    Comparison,
    Expr,
    For,
    If,
    IndexValue,
    Let,
    Literal,
    Load,
    NamedWindow,
    PrimFunc,
    Reduce,
    Select,
    Stmt,
    Store,
    Unary,
    Undef,
    children,
    condition_text,
    expressions_of,
    is_predicate,
    map_body,
    map_expr,
    performed,
    to_text,
    walk,
    walk_expr,
    with_performed,
)


def remove_assume(func: PrimFunc) -> PrimFunc:
    """`func` without `assume`, and without loops and blocks that only allocate then."""

    def change(stmt: Stmt) -> Body:
        return () if isinstance(stmt, Assume) or _is_idle(stmt) else (stmt,)

    return _replaced(func, map_body(func.body, change))


def remove_undef(func: PrimFunc) -> PrimFunc:
    """`func` without `undef`: `b[i] = undef` → nothing, `b[i] = select(c, v, undef)` → `b[i] = v`.

    An expression with an undefined operand is undefined, so storing it, or reducing it into an
    element, may leave anything there.  A stored select with an undefined side stores the other side
    in both cases where the loads of that are proven to stay in bounds, and else only under the
    condition.  VerifyError where a condition depends on `undef`.
    """
    if not any(_has_undef(expr) for stmt in walk(func.body) for expr in expressions_of(stmt)):
        return func
    lowered = _replaced(func, _Undefined(func).removed(func.body, ANYWHERE))
    return _replaced(lowered, map_body(lowered.body, lambda s: () if _is_idle(s) else (s,)))


def _zero_for_undef(expr: Expr) -> Expr:
    if not isinstance(expr, Undef):
        return expr
    return Literal(DTYPES[expr.dtype].type(0).item(), expr.dtype)


class _Undefined:
    """Removes `undef` from the statements of one kernel."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func

    def removed(self, body: Body, domain: Domain) -> Body:
        """`body` without `undef`, for the points of `domain`."""
        out: list[Stmt] = []
        for stmt in body:
            out += self.statement(stmt, domain)
        return tuple(out)

    def statement(self, stmt: Stmt, domain: Domain) -> Body:
        match stmt:
            case For():
                inside = domain.inside(stmt.var, stmt.start, stmt.stop)
                return (replace(stmt, body=self.removed(stmt.body, inside)),)
            case Block():
                return (replace(stmt, body=self.removed(stmt.body, domain)),)
            case Call():
                return (with_performed(stmt, self.removed(performed(stmt), domain)),)
            case If():
                return (self.branch(stmt, domain),)
            case Let():
                # One value for all uses of the name, which may be any: a zero.
                value = map_expr(stmt.value, _zero_for_undef)
                return (replace(stmt, value=value, body=self.removed(stmt.body, domain)),)
            case NamedWindow():
                return (replace(stmt, body=self.removed(stmt.body, domain)),)
            case Store() | Reduce():
                return self.written(stmt, domain)
            case _:
                return (stmt,)

    def branch(self, stmt: If, domain: Domain) -> If:
        """A condition with both bodies defined; VerifyError where it depends on `undef` itself."""
        here = there = domain
        if is_predicate(stmt.condition):
            predicate = cast(Predicate, stmt.condition)
            here, there = domain.given(predicate), domain.given(negation(predicate))
        elif _has_undef(cast(Expr, stmt.condition)):
            raise VerifyError(
                f"{self.func.name}: what runs depends on undef, in "
                f"`if {condition_text(stmt.condition)}`; a condition needs a defined value\nin\n"
                f"{to_text(self.func)}"
            )
        then, orelse = self.removed(stmt.then, here), self.removed(stmt.orelse, there)
        return replace(stmt, then=then, orelse=orelse)

    def written(self, stmt: Store | Reduce, domain: Domain) -> Body:
        """A store or update of a defined value; nothing where its value is undefined."""
        value = self.defined(stmt.value, domain)
        if value is None:
            return ()
        if not _has_undef(value):
            return (stmt if value is stmt.value else replace(stmt, value=value),)
        # The defined side may be out of bounds elsewhere, so the select becomes a condition.
        select = _outermost_select(value)
        then, orelse = (
            replace(stmt, value=map_expr(value, lambda e, side=side: side if e == select else e))  # type: ignore[misc]
            for side in (select.if_true, select.if_false)
        )
        return self.statement(If(select.condition, (then,), (orelse,)), domain)

    def defined(self, expr: Expr, domain: Domain) -> Expr | None:
        """`expr` with fewer `undef`s in it; None where its value is undefined."""
        match expr:
            case Undef():
                return None
            case Select():
                return self.select(expr, domain)
            case Unary() | Cast():
                operand = self.defined(expr.operand, domain)
                return None if operand is None else replace(expr, operand=operand)
            case Binary() | Comparison():
                left, right = (self.defined(side, domain) for side in (expr.left, expr.right))
                if left is None or right is None:
                    return None
                return replace(expr, left=left, right=right)
            case Literal() | Load() | IndexValue():
                return expr
        assert_never(expr)

    def select(self, expr: Select, domain: Domain) -> Expr | None:
        """A select without its undefined side where the other side may be evaluated instead."""
        condition, here, there = expr.condition, domain, domain
        if is_predicate(condition):
            predicate = cast(Predicate, condition)
            here, there = domain.given(predicate), domain.given(negation(predicate))
        else:
            chosen = self.defined(cast(Expr, condition), domain)
            if chosen is None:
                return None
            condition = chosen
        if_true, if_false = self.defined(expr.if_true, here), self.defined(expr.if_false, there)
        if if_true is None and if_false is None:
            return None
        for side in (if_true, if_false):
            if None in (if_true, if_false) and side is not None and _loads_inside(side, domain):
                return side
        undefined = Undef(expr.dtype)
        return Select(condition, if_true or undefined, if_false or undefined)


def _outermost_select(expr: Expr) -> Select:
    """A select with `undef` in it that is evaluated whenever `expr` is."""
    if isinstance(expr, Select):
        return expr
    return next(_outermost_select(child) for child in children(expr) if _has_undef(child))


def _loads_inside(expr: Expr, domain: Domain) -> bool:
    """Whether every load of `expr` stays in its buffer wherever in `domain` it is evaluated."""
    for node in walk_expr(expr):
        if isinstance(node, Load):
            sides = zip(node.indices, node.buffer.shape, strict=True)
            if not prove(conjunction(within(e, 0, n) for e, n in sides), domain).proven:
                return False
    return True


def _has_undef(expr: Expr) -> bool:
    return any(isinstance(node, Undef) for node in walk_expr(expr))


def _is_idle(stmt: Stmt) -> bool:
    """Whether a statement holds nothing but buffers of its own."""
    match stmt:
        case For() | Block():
            return _only_allocates(stmt.body)
        case If():
            return _only_allocates(stmt.then) and _only_allocates(stmt.orelse)
        case _:
            return False


def _only_allocates(body: Body) -> bool:
    return all(isinstance(stmt, Allocate) for stmt in body)


def _replaced(func: PrimFunc, body: Body) -> PrimFunc:
    return func if body is func.body else replace(func, body=body)
