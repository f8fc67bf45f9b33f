"""Rewriting of kernels as they are written: calls and named windows are left whole.

In: a body, and a change of its statements, expressions, indices or buffers.  Out: the body with the
change made in every statement that is written in it; of a call, only the arguments change, and the
statements in a named window access its name.  What always holds: a rewrite that changes nothing
returns the same object, so that results cached for it (`kept`) stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import assert_never, cast

from graphflow.arith import IndexExpr, Predicate, Var, substitute, substitute_in
from graphflow.tir.nodes.expr import (
    Buffer,
    Condition,
    Expr,
    IndexValue,
    Load,
    Select,
    is_predicate,
    map_condition,
    map_expr,
    walk_expr,
)
from graphflow.tir.nodes.kept import kept
from graphflow.tir.nodes.stmt import (
    Allocate,
    Assume,
    Block,
    Body,
    BufferWindow,
    Call,
    For,
    If,
    Let,
    NamedWindow,
    Reduce,
    Stmt,
    Store,
)


def map_as_written(body: Body, change: Callable[[Stmt], Stmt | Body]) -> Body:
    """`body` rebuilt from the leaves up; `change` may give one statement, several or none.

    The statements of a let are changed together with its allocation and its store; where they are
    no let any more, a block takes its place (`with_let_statements`).
    """

    def below(inner: Body) -> Body:
        return mapped_each(inner, of, change)

    def of(stmt: Stmt) -> Stmt:
        return mapped_below(stmt, below)

    return below(body)


def mapped_each(
    body: Body, below: Callable[[Stmt], Stmt], change: Callable[[Stmt], Stmt | Body]
) -> Body:
    """`body` with `change` applied to what `below` gives for each statement directly in it."""
    out: list[Stmt] = []
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


def mapped_below(stmt: Stmt, change: Callable[[Body], Body]) -> Stmt:
    """`stmt` with the bodies that are written in it changed."""
    match stmt:
        case Store() | Reduce():  # first, as most statements are
            return stmt
        case For() | Block():
            body = change(stmt.body)
            return stmt if body is stmt.body else stmt.around(body)
        case NamedWindow():
            body = change(stmt.body)
            return stmt if body is stmt.body else replace(stmt, body=body)
        case If():
            then, orelse = change(stmt.then), change(stmt.orelse)
            if then is stmt.then and orelse is stmt.orelse:
                return stmt
            return replace(stmt, then=then, orelse=orelse)
        case Let():
            return with_let_statements(stmt, change(let_statements(stmt)))
        case Call() | Allocate() | Assume():
            return stmt
    assert_never(stmt)


# Lets ---------------------------------------------------------------------------------------------


@kept
def let_statements(let: Let) -> Body:
    """The statements that a let stands for: it allocates its buffer, stores the value, and runs its
    body."""
    return (Allocate(let.buffer), Store(let.buffer, (), let.value), *let.body)


def with_let_statements(let: Let, body: Body) -> Let | Block:
    """The let that stands for `body`; else a block of it with the let's name and `.let` behind
    it."""
    if body is let_statements(let):
        return let
    match body:
        case (Allocate(buffer), Store() as store, *rest) if store.buffer == buffer:
            plain = not buffer.shape and buffer.scope == "register"
            same_type = store.value.dtype == buffer.dtype
            used = any(node == Load(buffer, ()) for node in walk_expr(store.value))
            if plain and same_type and not used and not _writes(tuple(rest), buffer):
                return Let(buffer, store.value, tuple(rest))
        case _:
            pass
    return Block(f"{let.buffer.name}.let", body)


def _writes(body: Body, buffer: Buffer) -> bool:
    """Whether a statement in `body` writes `buffer`, through calls and named windows too."""
    return any(_stmt_writes(stmt, buffer) for stmt in body)


def _stmt_writes(stmt: Stmt, buffer: Buffer) -> bool:
    match stmt:
        case Store() | Reduce():
            return stmt.buffer == buffer
        case For() | Block():
            return _writes(stmt.body, buffer)
        case If():
            return _writes(stmt.then, buffer) or _writes(stmt.orelse, buffer)
        case Let():
            return _writes(let_statements(stmt), buffer)
        case NamedWindow():
            behind = stmt.window.buffer == buffer
            return _writes(stmt.body, buffer) or (behind and _writes(stmt.body, stmt.buffer))
        case Call():
            definition = stmt.definition
            handed = zip(definition.params, stmt.windows, strict=True)
            return any(w.buffer == buffer and _writes(definition.body, p.buffer) for p, w in handed)
        case Allocate() | Assume():
            return False
    assert_never(stmt)


def statements_as_written(body: Body) -> Iterator[Stmt]:
    """The statements that are written in `body`, those of a let in its place, parents before
    children."""
    for stmt in body:
        yield stmt
        match stmt:
            case For() | Block() | NamedWindow():
                yield from statements_as_written(stmt.body)
            case If():
                yield from statements_as_written((*stmt.then, *stmt.orelse))
            case Let():
                yield from statements_as_written(let_statements(stmt))
            case Call() | Store() | Reduce() | Allocate() | Assume():
                pass


# Expressions and indices --------------------------------------------------------------------------


def map_expressions_as_written(body: Body, change: Callable[[Expr], Expr]) -> Body:
    """`body` with `change` applied to every scalar expression node that is written in it."""
    return map_as_written(body, lambda stmt: expressions_changed(stmt, change))


def expressions_changed(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """`stmt` with `change` applied to each node of its own expressions, not of those below it."""
    match stmt:
        case Store() | Reduce():
            value = map_expr(stmt.value, change)
            return stmt if value is stmt.value else replace(stmt, value=value)
        case If():
            condition = map_condition(stmt.condition, change)
            return stmt if condition is stmt.condition else replace(stmt, condition=condition)
        case Assume():
            unless = map_condition(stmt.unless, change)
            claim = map_expr(stmt.claim, change)
            if unless is stmt.unless and claim is stmt.claim:
                return stmt
            return replace(stmt, unless=unless, claim=claim)
        case For() | Allocate() | Block() | Call() | Let() | NamedWindow():
            return stmt
    assert_never(stmt)


def map_indices(
    body: Body,
    on_index: Callable[[IndexExpr], IndexExpr],
    on_predicate: Callable[[Predicate], Predicate],
) -> Body:
    """`body` with every index expression and every index predicate rewritten.

    Those of a call are its arguments, not those in its definition.
    """
    change = _IndexChange(on_index, on_predicate)
    return map_as_written(map_expressions_as_written(body, change.expr), change.stmt)


@dataclass(frozen=True, slots=True)
class _IndexChange:
    """A change of index expressions and predicates, applied to what has them."""

    index: Callable[[IndexExpr], IndexExpr]
    predicate: Callable[[Predicate], Predicate]

    def indices(self, indices: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
        new = tuple(self.index(i) for i in indices)
        return indices if all(a is b for a, b in zip(new, indices, strict=True)) else new

    def condition(self, condition: Condition) -> Condition:
        if not is_predicate(condition):
            return condition
        return self.predicate(cast(Predicate, condition))

    def window(self, window: BufferWindow) -> BufferWindow:
        starts = self.indices(window.starts)
        return window if starts is window.starts else replace(window, starts=starts)

    def expr(self, expr: Expr) -> Expr:
        """`expr` with its own indices changed, those of its operands not."""
        match expr:
            case Load():
                indices = self.indices(expr.indices)
                return expr if indices is expr.indices else Load(expr.buffer, indices)
            case IndexValue():
                index = self.index(expr.index)
                return expr if index is expr.index else IndexValue(index, expr.dtype)
            case Select():
                condition = self.condition(expr.condition)
                return expr if condition is expr.condition else replace(expr, condition=condition)
            case _:
                return expr

    def stmt(self, stmt: Stmt) -> Stmt:
        """`stmt` with its own indices changed, those of its expressions and bodies not."""
        match stmt:
            case Store() | Reduce():
                indices = self.indices(stmt.indices)
                return stmt if indices is stmt.indices else replace(stmt, indices=indices)
            case For():
                start, stop = self.index(stmt.start), self.index(stmt.stop)
                if start is stmt.start and stop is stmt.stop:
                    return stmt
                return replace(stmt, start=start, stop=stop)
            case If():
                condition = self.condition(stmt.condition)
                return stmt if condition is stmt.condition else replace(stmt, condition=condition)
            case Assume():
                unless = self.condition(stmt.unless)
                return stmt if unless is stmt.unless else replace(stmt, unless=unless)
            case Call():
                return self.arguments(stmt)
            case NamedWindow():
                window = self.window(stmt.window)
                return stmt if window is stmt.window else replace(stmt, window=window)
            case Allocate() | Block() | Let():
                return stmt
        assert_never(stmt)

    def arguments(self, call: Call) -> Call:
        windows = tuple(self.window(w) for w in call.windows)
        scalars = self.indices(call.scalars)
        same = all(a is b for a, b in zip(windows, call.windows, strict=True))
        if same and scalars is call.scalars:
            return call
        return replace(call, windows=windows, scalars=scalars)


def substitute_body(body: Body, values: Mapping[Var, IndexExpr]) -> Body:
    """`body` with variables replaced by index expressions; loops over them are left alone."""
    return map_indices(body, lambda e: substitute(e, values), lambda p: substitute_in(p, values))


def rename_buffers(body: Body, buffers: Mapping[Buffer, Buffer]) -> Body:
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

    def on_expr(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer in buffers:
            return Load(buffers[expr.buffer], expr.indices)
        return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Reduce | Allocate) and stmt.buffer in buffers:
            return replace(stmt, buffer=buffers[stmt.buffer])
        if isinstance(stmt, NamedWindow):
            behind = buffers.get(stmt.window.buffer, stmt.window.buffer)
            if behind is stmt.window.buffer and stmt.buffer not in buffers:
                return stmt
            name = buffers.get(stmt.buffer, stmt.buffer)
            return replace(stmt, buffer=name, window=replace(stmt.window, buffer=behind))
        if isinstance(stmt, Call):
            windows = tuple(
                replace(w, buffer=buffers[w.buffer]) if w.buffer in buffers else w
                for w in stmt.windows
            )
            return stmt if windows == stmt.windows else replace(stmt, windows=windows)
        return stmt

    return map_as_written(map_expressions_as_written(body, on_expr), on_stmt)


def _named_windows(body: Body) -> Iterator[NamedWindow]:
    """The named windows that are written in `body`, outer before inner."""
    for stmt in body:
        if isinstance(stmt, Block):
            yield from _windows_of(stmt)
        else:
            written = statements_as_written((stmt,))
            yield from (one for one in written if isinstance(one, NamedWindow))


@kept
def _windows_of(block: Block) -> tuple[NamedWindow, ...]:
    return tuple(_named_windows(block.body))
