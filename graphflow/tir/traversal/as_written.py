"""Rewriting of kernels as they are written: calls and named windows are left whole.

In: a body, and a change of its statements, expressions, indices or buffers.  Out: the body with the
change made in every statement that is written in it; of a call, only the arguments change, and the
statements in a named window access its name.  What always holds: a rewrite that changes nothing
returns the same object, so that results cached for it (`kept_by_node`) stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import assert_never, cast

from msgspec import Struct

from graphflow.arith import IndexExpr, Predicate, Var, kept_by_node, substitute, substitute_in
from graphflow.base.fields import replace
from graphflow.tir.nodes import exprs, stmts


def map_as_written(
    body: stmts.Body, change: Callable[[stmts.Stmt], stmts.Stmt | stmts.Body]
) -> stmts.Body:
    """`body` rebuilt from the leaves up; `change` may give one statement, several or none.

    The statements of a let are changed together with its allocation and its store; where they are
    no let any more, a block takes its place (`with_let_statements`).
    """
    # Two inner functions that call each other would be a cycle: what they refer to, most of a
    # kernel, would stay in memory until the collector of garbage finds it.
    below = partial(map_as_written, change=change)
    return mapped_each(body, partial(mapped_below, change=below), change)


def mapped_each(
    body: stmts.Body,
    below: Callable[[stmts.Stmt], stmts.Stmt],
    change: Callable[[stmts.Stmt], stmts.Stmt | stmts.Body],
) -> stmts.Body:
    """`body` with `change` applied to what `below` gives for each statement directly in it."""
    out: list[stmts.Stmt] = []
    same = True
    for stmt in body:
        changed = change(below(stmt))
        if changed is stmt:
            out.append(stmt)
            continue
        found = changed if isinstance(changed, tuple) else (changed,)
        same = same and len(found) == 1 and found[0] is stmt
        out += found
    return body if same else tuple(out)


def mapped_below(stmt: stmts.Stmt, change: Callable[[stmts.Body], stmts.Body]) -> stmts.Stmt:
    """`stmt` with the bodies that are written in it changed."""
    match stmt:
        case stmts.Store() | stmts.Reduce():  # first, as most statements are
            return stmt
        case stmts.For() | stmts.Block():
            return stmt.around(change(stmt.body))
        case stmts.NamedWindow():
            body = change(stmt.body)
            return stmt if body is stmt.body else replace(stmt, body=body)
        case stmts.If():
            then, orelse = change(stmt.then), change(stmt.orelse)
            if then is stmt.then and orelse is stmt.orelse:
                return stmt
            return stmts.If(stmt.condition, then, orelse, stmt.mark)
        case stmts.Let():
            return with_let_statements(stmt, change(let_statements(stmt)))
        case stmts.Call() | stmts.Allocate() | stmts.Assume():
            return stmt
    assert_never(stmt)


# Lets ---------------------------------------------------------------------------------------------


@kept_by_node
def let_statements(let: stmts.Let) -> stmts.Body:
    """The statements that a let stands for: it allocates its buffer, stores the value, and runs its
    body."""
    return (stmts.Allocate(let.buffer), stmts.Store(let.buffer, (), let.value), *let.body)


def with_let_statements(let: stmts.Let, body: stmts.Body) -> stmts.Let | stmts.Block:
    """The let that stands for `body`; else a block of it with the let's name and `.let` behind
    it."""
    if body is let_statements(let):
        return let
    match body:
        case (stmts.Allocate(buffer), stmts.Store() as store, *rest) if store.buffer == buffer:
            plain = not buffer.shape and buffer.scope == "register"
            same_type = store.value.dtype == buffer.dtype
            used = any(node == exprs.Load(buffer, ()) for node in exprs.walk_expr(store.value))
            if plain and same_type and not used and not _writes(tuple(rest), buffer):
                return stmts.Let(buffer, store.value, tuple(rest))
        case _:
            pass
    return stmts.Block(f"{let.buffer.name}.let", body)


def _writes(body: stmts.Body, buffer: exprs.Buffer) -> bool:
    """Whether a statement in `body` writes `buffer`, through calls and named windows too."""
    return any(_stmt_writes(stmt, buffer) for stmt in body)


def _stmt_writes(stmt: stmts.Stmt, buffer: exprs.Buffer) -> bool:
    match stmt:
        case stmts.Store() | stmts.Reduce():
            return stmt.buffer == buffer
        case stmts.For() | stmts.Block():
            return _writes(stmt.body, buffer)
        case stmts.If():
            return _writes(stmt.then, buffer) or _writes(stmt.orelse, buffer)
        case stmts.Let():
            return _writes(let_statements(stmt), buffer)
        case stmts.NamedWindow():
            behind = stmt.window.buffer == buffer
            return _writes(stmt.body, buffer) or (behind and _writes(stmt.body, stmt.buffer))
        case stmts.Call():
            definition = stmt.definition
            handed = zip(definition.params, stmt.windows, strict=True)
            return any(w.buffer == buffer and _writes(definition.body, p.buffer) for p, w in handed)
        case stmts.Allocate() | stmts.Assume():
            return False
    assert_never(stmt)


def statements_as_written(body: stmts.Body) -> Iterator[stmts.Stmt]:
    """The statements that are written in `body`, those of a let in its place, parents before
    children."""
    for stmt in body:
        yield stmt
        match stmt:
            case stmts.For() | stmts.Block() | stmts.NamedWindow():
                yield from statements_as_written(stmt.body)
            case stmts.If():
                yield from statements_as_written((*stmt.then, *stmt.orelse))
            case stmts.Let():
                yield from statements_as_written(let_statements(stmt))
            case stmts.Call() | stmts.Store() | stmts.Reduce() | stmts.Allocate() | stmts.Assume():
                pass


# Expressions and indices --------------------------------------------------------------------------


def map_expressions_as_written(
    body: stmts.Body, change: Callable[[exprs.Expr], exprs.Expr]
) -> stmts.Body:
    """`body` with `change` applied to every scalar expression node that is written in it."""
    return map_as_written(body, lambda stmt: expressions_changed(stmt, change))


def expressions_changed(stmt: stmts.Stmt, change: Callable[[exprs.Expr], exprs.Expr]) -> stmts.Stmt:
    """`stmt` with `change` applied to each node of its own expressions, not of those below it."""
    match stmt:
        case stmts.Store() | stmts.Reduce():
            value = exprs.map_expr(stmt.value, change)
            return stmt if value is stmt.value else stmt.of(stmt.indices, value)
        case stmts.If():
            condition = exprs.map_condition(stmt.condition, change)
            return stmt if condition is stmt.condition else replace(stmt, condition=condition)
        case stmts.Assume():
            unless = exprs.map_condition(stmt.unless, change)
            claim = exprs.map_expr(stmt.claim, change)
            if unless is stmt.unless and claim is stmt.claim:
                return stmt
            return replace(stmt, unless=unless, claim=claim)
        case (
            stmts.For()
            | stmts.Allocate()
            | stmts.Block()
            | stmts.Call()
            | stmts.Let()
            | stmts.NamedWindow()
        ):
            return stmt
    assert_never(stmt)


def map_indices(
    body: stmts.Body,
    on_index: Callable[[IndexExpr], IndexExpr],
    on_predicate: Callable[[Predicate], Predicate],
) -> stmts.Body:
    """`body` with every index expression and every index predicate rewritten.

    Those of a call are its arguments, not those in its definition.
    """
    change = _IndexChange(on_index, on_predicate)
    return map_as_written(body, lambda stmt: change.stmt(expressions_changed(stmt, change.expr)))


class _IndexChange(Struct, frozen=True):
    """A change of index expressions and predicates, applied to what has them."""

    index: Callable[[IndexExpr], IndexExpr]
    predicate: Callable[[Predicate], Predicate]

    def indices(self, indices: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
        new = tuple(self.index(i) for i in indices)
        return indices if all(a is b for a, b in zip(new, indices, strict=True)) else new

    def condition(self, condition: exprs.Condition) -> exprs.Condition:
        if not exprs.is_predicate(condition):
            return condition
        return self.predicate(cast(Predicate, condition))

    def window(self, window: stmts.BufferWindow) -> stmts.BufferWindow:
        starts = self.indices(window.starts)
        return window if starts is window.starts else replace(window, starts=starts)

    def expr(self, expr: exprs.Expr) -> exprs.Expr:
        """`expr` with its own indices changed, those of its operands not."""
        match expr:
            case exprs.Load():
                indices = self.indices(expr.indices)
                return expr if indices is expr.indices else exprs.Load(expr.buffer, indices)
            case exprs.IndexValue():
                index = self.index(expr.index)
                return expr if index is expr.index else exprs.IndexValue(index, expr.dtype)
            case exprs.Select():
                condition = self.condition(expr.condition)
                return expr if condition is expr.condition else replace(expr, condition=condition)
            case _:
                return expr

    def stmt(self, stmt: stmts.Stmt) -> stmts.Stmt:
        """`stmt` with its own indices changed, those of its expressions and bodies not."""
        match stmt:
            case stmts.Store() | stmts.Reduce():
                indices = self.indices(stmt.indices)
                return stmt if indices is stmt.indices else stmt.of(indices, stmt.value)
            case stmts.For():
                start, stop = self.index(stmt.start), self.index(stmt.stop)
                if start is stmt.start and stop is stmt.stop:
                    return stmt
                return stmts.For(stmt.var, start, stop, stmt.kind, stmt.body)
            case stmts.If():
                condition = self.condition(stmt.condition)
                return stmt if condition is stmt.condition else replace(stmt, condition=condition)
            case stmts.Assume():
                unless = self.condition(stmt.unless)
                return stmt if unless is stmt.unless else replace(stmt, unless=unless)
            case stmts.Call():
                return self.arguments(stmt)
            case stmts.NamedWindow():
                window = self.window(stmt.window)
                return stmt if window is stmt.window else replace(stmt, window=window)
            case stmts.Allocate() | stmts.Block() | stmts.Let():
                return stmt
        assert_never(stmt)

    def arguments(self, call: stmts.Call) -> stmts.Call:
        windows = tuple(self.window(w) for w in call.windows)
        scalars = self.indices(call.scalars)
        same = all(a is b for a, b in zip(windows, call.windows, strict=True))
        if same and scalars is call.scalars:
            return call
        return replace(call, windows=windows, scalars=scalars)


def substitute_body(body: stmts.Body, values: Mapping[Var, IndexExpr]) -> stmts.Body:
    """`body` with variables replaced by index expressions; loops over them are left alone."""
    return map_indices(body, lambda e: substitute(e, values), lambda p: substitute_in(p, values))


def rename_buffers(body: stmts.Body, buffers: Mapping[exprs.Buffer, exprs.Buffer]) -> stmts.Body:
    """`body` with each buffer exchanged for another of the same rank."""
    if not buffers:
        return body
    buffers = dict(buffers)
    for named in _named_windows(body):
        # A name has the type and scope of the buffer behind it.
        behind = buffers.get(named.window.buffer)
        if behind is not None:
            name = buffers.get(named.buffer, named.buffer)
            buffers[named.buffer] = replace(name, dtype=behind.dtype, scope=behind.scope)

    def on_expr(expr: exprs.Expr) -> exprs.Expr:
        if isinstance(expr, exprs.Load) and expr.buffer in buffers:
            return exprs.Load(buffers[expr.buffer], expr.indices)
        return expr

    def on_stmt(stmt: stmts.Stmt) -> stmts.Stmt:
        if isinstance(stmt, stmts.Store | stmts.Reduce | stmts.Allocate) and stmt.buffer in buffers:
            return replace(stmt, buffer=buffers[stmt.buffer])
        if isinstance(stmt, stmts.NamedWindow):
            behind = buffers.get(stmt.window.buffer, stmt.window.buffer)
            if behind is stmt.window.buffer and stmt.buffer not in buffers:
                return stmt
            name = buffers.get(stmt.buffer, stmt.buffer)
            return replace(stmt, buffer=name, window=replace(stmt.window, buffer=behind))
        if isinstance(stmt, stmts.Call):
            windows = tuple(
                replace(w, buffer=buffers[w.buffer]) if w.buffer in buffers else w
                for w in stmt.windows
            )
            return stmt if windows == stmt.windows else replace(stmt, windows=windows)
        return stmt

    return map_as_written(body, lambda stmt: on_stmt(expressions_changed(stmt, on_expr)))


def _named_windows(body: stmts.Body) -> Iterator[stmts.NamedWindow]:
    """The named windows that are written in `body`, outer before inner."""
    for stmt in body:
        if isinstance(stmt, stmts.Block):
            yield from _windows_of(stmt)
        else:
            written = statements_as_written((stmt,))
            yield from (one for one in written if isinstance(one, stmts.NamedWindow))


@kept_by_node
def _windows_of(block: stmts.Block) -> tuple[stmts.NamedWindow, ...]:
    return tuple(_named_windows(block.body))
