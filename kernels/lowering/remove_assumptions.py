"""Removing `assume` and `undef` from a kernel, which the emitter does not know.

In: a scheduled kernel.  Out: the kernel with defined values only.  What always holds: `undef` is
removed before `assume`, because assumptions say which padding nobody may access; afterwards no
simplification may rest on what they said, because nothing in the kernel says it any more.
"""

from __future__ import annotations

from typing import assert_never, cast

from graphflow import tir
from graphflow.arith import ANYWHERE, Domain, Predicate, negation
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.base.fields import replace
from graphflow.schedule import may_load


def remove_assume(func: tir.PrimFunc) -> tir.PrimFunc:
    """`func` without `assume`, and without loops and blocks that only allocate then."""

    def change(stmt: tir.Stmt) -> tir.Body:
        return () if isinstance(stmt, tir.Assume) or _is_idle(stmt) else (stmt,)

    return func.around(tir.map_body(func.body, change))


def remove_undef(func: tir.PrimFunc) -> tir.PrimFunc:
    """`func` without `undef`: `b[i] = undef` → nothing, `b[i] = select(c, v, undef)` → `b[i] = v`.

    An expression with an undefined operand is undefined, so storing it, or reducing it into an
    element, may leave anything there.  A stored select with an undefined side stores the other side
    in both cases where the loads of that are proven to stay in bounds and away from padding that
    assumptions forbid, and else only under the condition.  VerifyError where a condition depends on
    `undef`.
    """
    if not any(
        _has_undef(expr)
        for stmt in tir.walk(func.body)
        if not isinstance(stmt, tir.Assume)
        for expr in tir.expressions_of(stmt)
    ):
        return func
    lowered = func.around(_Undefined(func).removed(func.body, ANYWHERE))
    return lowered.around(tir.map_body(lowered.body, lambda s: () if _is_idle(s) else (s,)))


def _zero_for_undef(expr: tir.Expr) -> tir.Expr:
    if not isinstance(expr, tir.Undef):
        return expr
    return tir.Literal(tir.DTYPES[expr.dtype].type(0).item(), expr.dtype)


class _Undefined:
    """Removes `undef` from the statements of one kernel."""

    def __init__(self, func: tir.PrimFunc) -> None:
        self.func = func

    def removed(self, body: tir.Body, domain: Domain) -> tir.Body:
        """`body` without `undef`, for the points of `domain`."""
        out: list[tir.Stmt] = []
        for stmt in body:
            out += self.statement(stmt, domain)
        return tuple(out)

    def statement(self, stmt: tir.Stmt, domain: Domain) -> tir.Body:
        match stmt:
            case tir.For():
                inside = domain.inside(stmt.var, stmt.start, stmt.stop)
                return (replace(stmt, body=self.removed(stmt.body, inside)),)
            case tir.Block():
                return (replace(stmt, body=self.removed(stmt.body, domain)),)
            case tir.Call():
                return (tir.with_performed(stmt, self.removed(tir.performed(stmt), domain)),)
            case tir.If():
                return (self.branch(stmt, domain),)
            case tir.Let():
                # One value for all uses of the name, which may be any: a zero.
                value = tir.map_expr(stmt.value, _zero_for_undef)
                return (replace(stmt, value=value, body=self.removed(stmt.body, domain)),)
            case tir.NamedWindow():
                return (replace(stmt, body=self.removed(stmt.body, domain)),)
            case tir.Store() | tir.Reduce():
                return self.written(stmt, domain)
            case _:
                return (stmt,)

    def branch(self, stmt: tir.If, domain: Domain) -> tir.If:
        """A condition with both bodies defined; VerifyError where it depends on `undef` itself."""
        here = there = domain
        if tir.is_predicate(stmt.condition):
            predicate = cast(Predicate, stmt.condition)
            here, there = domain.given(predicate), domain.given(negation(predicate))
        elif _has_undef(cast(tir.Expr, stmt.condition)):
            raise VerifyError(
                f"{self.func.name}: what runs depends on undef, in "
                f"`if {tir.condition_text(stmt.condition)}`; a condition needs a defined value\n"
                f"in\n{tir.to_text(self.func)}"
            )
        then, orelse = self.removed(stmt.then, here), self.removed(stmt.orelse, there)
        return replace(stmt, then=then, orelse=orelse)

    def written(self, stmt: tir.Store | tir.Reduce, domain: Domain) -> tir.Body:
        """A store or update of a defined value; nothing where its value is undefined."""
        value = self.defined(stmt.value, domain)
        if value is None:
            return ()
        if not _has_undef(value):
            return (stmt if value is stmt.value else replace(stmt, value=value),)
        # The defined side may be out of bounds elsewhere, so the select becomes a condition.
        select = _outermost_select(value)
        then, orelse = (
            replace(stmt, value=tir.exchanged(value, select, side))
            for side in (select.if_true, select.if_false)
        )
        return self.statement(tir.If(select.condition, (then,), (orelse,)), domain)

    def defined(self, expr: tir.Expr, domain: Domain) -> tir.Expr | None:
        """`expr` with fewer `undef`s in it; None where its value is undefined."""
        match expr:
            case tir.Undef():
                return None
            case tir.Select():
                return self.select(expr, domain)
            case tir.Unary() | tir.Cast():
                operand = self.defined(expr.operand, domain)
                return None if operand is None else replace(expr, operand=operand)
            case tir.Binary() | tir.Comparison():
                left, right = (self.defined(side, domain) for side in (expr.left, expr.right))
                if left is None or right is None:
                    return None
                return replace(expr, left=left, right=right)
            case tir.Literal() | tir.Load() | tir.IndexValue():
                return expr
        assert_never(expr)

    def select(self, expr: tir.Select, domain: Domain) -> tir.Expr | None:
        """A select without its undefined side where the other side may be evaluated instead."""
        condition, here, there = expr.condition, domain, domain
        if tir.is_predicate(condition):
            predicate = cast(Predicate, condition)
            here, there = domain.given(predicate), domain.given(negation(predicate))
        else:
            chosen = self.defined(cast(tir.Expr, condition), domain)
            if chosen is None:
                return None
            condition = chosen
        if_true, if_false = self.defined(expr.if_true, here), self.defined(expr.if_false, there)
        if if_true is None and if_false is None:
            return None
        for side in (if_true, if_false):
            if None in (if_true, if_false) and side is not None and self.may_be_read(side, domain):
                return side
        undefined = tir.Undef(expr.dtype)
        return tir.Select(condition, if_true or undefined, if_false or undefined)

    def may_be_read(self, expr: tir.Expr, domain: Domain) -> bool:
        """Whether all that `expr` loads may be loaded wherever in `domain` it is evaluated."""
        loads = (node for node in tir.walk_expr(expr) if isinstance(node, tir.Load))
        try:
            for load in loads:
                access = tir.Access(load.buffer, load.indices, domain, tir.AccessKind.READ, True)
                may_load(self.func, access, "a load is in bounds")
        except ScheduleError:
            return False
        return True


def _outermost_select(expr: tir.Expr) -> tir.Select:
    """A select with `undef` in it that is evaluated whenever `expr` is."""
    if isinstance(expr, tir.Select):
        return expr
    return next(_outermost_select(child) for child in tir.children(expr) if _has_undef(child))


def _has_undef(expr: tir.Expr) -> bool:
    return any(isinstance(node, tir.Undef) for node in tir.walk_expr(expr))


def _is_idle(stmt: tir.Stmt) -> bool:
    """Whether a statement holds nothing but buffers of its own."""
    match stmt:
        case tir.For() | tir.Block():
            return _only_allocates(stmt.body)
        case tir.If():
            return _only_allocates(stmt.then) and _only_allocates(stmt.orelse)
        case _:
            return False


def _only_allocates(body: tir.Body) -> bool:
    return all(isinstance(stmt, tir.Allocate) for stmt in body)
