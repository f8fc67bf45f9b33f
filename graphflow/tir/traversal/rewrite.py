"""Rewriting of kernels through what their calls and named windows perform.

In: a body, and a change of its statements, expressions or accesses.  Out: the body with the change
made in the statements that calls, lets and named windows perform too; where these are no instance
of the call, let or window any more, a block takes its place.  What always holds: a rewrite that
changes nothing returns the same object, so that results cached for it (`kept_by_node`) stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import assert_never

from graphflow.arith import IndexExpr, const
from graphflow.base.fields import replace
from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.traversal import as_written, visit
from graphflow.tir.traversal.performed import performed
from graphflow.tir.traversal.unify import NotUnifiable, unify


def map_body(
    body: stmts.Body, change: Callable[[stmts.Stmt], stmts.Stmt | stmts.Body]
) -> stmts.Body:
    """`body` rebuilt from the leaves up; `change` may give one statement, several or none.

    What a call performs is mapped too, and matched with its definition again; where it is no
    instance of that any more, a block with the call's name takes its place; lets and named windows
    likewise.
    """
    below = partial(map_body, change=change)
    return as_written.mapped_each(body, partial(_mapped_below, change=below), change)


def _mapped_below(stmt: stmts.Stmt, change: Callable[[stmts.Body], stmts.Body]) -> stmts.Stmt:
    """`stmt` with the bodies that are written in it, or that it performs, changed."""
    match stmt:
        case stmts.Call() | stmts.NamedWindow():
            return with_performed(stmt, change(performed(stmt)))
        case _:
            return as_written.mapped_below(stmt, change)


def map_expressions(body: stmts.Body, change: Callable[[exprs.Expr], exprs.Expr]) -> stmts.Body:
    """`body` with `change` applied to every scalar expression node in it; calls as `map_body`."""
    return map_body(body, lambda stmt: as_written.expressions_changed(stmt, change))


def with_performed(
    stmt: stmts.Call | stmts.Let | stmts.NamedWindow, body: stmts.Body
) -> stmts.Call | stmts.Let | stmts.NamedWindow | stmts.Block:
    """The let, the same named window, or the call of the same definition, that performs `body`;
    else a block of it.

    The block has the name of the call or window, or that of the let with `.let` behind it.
    """
    if body is performed(stmt):
        return stmt
    match stmt:
        case stmts.Let():
            return as_written.with_let_statements(stmt, body)
        case stmts.Call():
            return _as_call(stmt, body)
        case stmts.NamedWindow():
            return _as_window(stmt, body)
    assert_never(stmt)


def _as_call(call: stmts.Call, body: stmts.Body) -> stmts.Call | stmts.Block:
    try:
        new = unify(call.definition, body, call.name)
    except NotUnifiable:
        return stmts.Block(call.name, body)
    return new if performed(new) == body else stmts.Block(call.name, body)


def _as_window(named: stmts.NamedWindow, body: stmts.Body) -> stmts.NamedWindow | stmts.Block:
    """The elements that the old body accessed by the name are accessed by it in `body` too."""
    found: dict[exprs.Load, tuple[IndexExpr, ...]] = {}
    for site in _accessed(named.body):
        if site.buffer == named.buffer:
            place = named.window.place(site.indices)
            found[exprs.Load(named.window.buffer, place)] = site.indices

    def on_expr(expr: exprs.Expr) -> exprs.Expr:
        if isinstance(expr, exprs.Load) and expr in found:
            return exprs.Load(named.buffer, found[expr])
        return expr

    def on_stmt(stmt: stmts.Stmt) -> stmts.Stmt:
        if isinstance(stmt, stmts.Store | stmts.Reduce):
            indices = found.get(exprs.Load(stmt.buffer, stmt.indices))
            if indices is not None:
                return replace(stmt, buffer=named.buffer, indices=indices)
        return stmt

    inner = as_written.map_expressions_as_written(body, on_expr)
    new = replace(named, body=as_written.map_as_written(inner, on_stmt))
    is_used = any(access.buffer == named.buffer for access in _accessed(new.body))
    return new if is_used and performed(new) == body else stmts.Block(named.buffer.name, body)


def _accessed(body: stmts.Body) -> Iterator[exprs.Load]:
    """The elements that statements access, as loads, in calls and named windows too."""
    yield from visit.loads_in(body)
    for write in visit.writes_in(body):
        yield exprs.Load(write.buffer, write.indices)


def redirect_accesses(
    body: stmts.Body,
    old: exprs.Buffer,
    new: exprs.Buffer,
    place: Callable[[tuple[IndexExpr, ...]], tuple[IndexExpr, ...]],
) -> stmts.Body:
    """`body` with each access to `old` made an access to `new`, at the indices that `place` gives
    for its own.  Allocations stay as they are."""

    def on_expr(expr: exprs.Expr) -> exprs.Expr:
        if isinstance(expr, exprs.Load) and expr.buffer == old:
            return exprs.Load(new, place(expr.indices))
        return expr

    def on_stmt(stmt: stmts.Stmt) -> stmts.Stmt:
        if isinstance(stmt, stmts.Store | stmts.Reduce) and stmt.buffer == old:
            return replace(stmt, buffer=new, indices=place(stmt.indices))
        if isinstance(stmt, stmts.Call) and any(w.buffer == old for w in stmt.windows):
            # Both halves at once: a call that has only its loads redirected is no instance.
            below = redirect_accesses(performed(stmt), old, new, place)
            return with_performed(stmt, below)
        if isinstance(stmt, stmts.NamedWindow) and stmt.window.buffer == old:
            below = redirect_accesses(performed(stmt), old, new, place)
            return _redirected_window(stmt, new, place, below)
        return stmt

    return as_written.map_as_written(
        body, lambda stmt: on_stmt(as_written.expressions_changed(stmt, on_expr))
    )


def _redirected_window(
    named: stmts.NamedWindow,
    new: exprs.Buffer,
    place: Callable[[tuple[IndexExpr, ...]], tuple[IndexExpr, ...]],
    below: stmts.Body,
) -> stmts.NamedWindow | stmts.Block:
    """A window of the old buffer as one of the new, where `place` moves all its elements alike;
    else a block that performs `below`."""
    rank = len(named.buffer.shape)
    starts = place(named.window.place((const(0),) * rank))
    kept: list[int] = []
    for axis in range(rank):
        unit = tuple(const(int(k == axis)) for k in range(rank))
        moved = zip(place(named.window.place(unit)), starts, strict=True)
        kept += [k for k, (a, b) in enumerate(moved) if a is not b]
    sides = zip(named.buffer.shape, (new.shape[axis] for axis in kept), strict=False)
    fits = len(kept) == rank and kept == sorted(set(kept)) and all(n <= m for n, m in sides)
    if fits:  # a smaller buffer may hold what is accessed, and not the whole window
        inner = replace(named.buffer, dtype=new.dtype, scope=new.scope)
        body = as_written.rename_buffers(named.body, {named.buffer: inner})
        found = stmts.NamedWindow(inner, stmts.BufferWindow(new, starts, tuple(kept)), body)
        if performed(found) == below:
            return found
    return stmts.Block(named.buffer.name, below)


def with_serial_loops(
    func: stmts.PrimFunc, kinds: Container[stmts.LoopKind] = tuple(stmts.LoopKind)
) -> stmts.PrimFunc:
    """`func` with all loops of these kinds made serial, which computes the same."""

    def change(stmt: stmts.Stmt) -> stmts.Stmt:
        if (
            isinstance(stmt, stmts.For)
            and stmt.kind is not stmts.LoopKind.SERIAL
            and stmt.kind in kinds
        ):
            return replace(stmt, kind=stmts.LoopKind.SERIAL)
        return stmt

    return func.around(map_body(func.body, change))
