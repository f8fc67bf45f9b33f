"""Traversal of kernels.

In: a body or a kernel.  Out: its statements, loops, buffers, loads, writes and calls, in program
order.  What always holds: calls, lets and named windows are traversed as what they perform
(`performed`), so that a traversal finds every access with the buffer that it reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never, cast

from graphflow.arith import kept_by_node
from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.traversal.performed import performed


def sub_bodies(stmt: stmts.Stmt) -> tuple[stmts.Body, ...]:
    """The bodies directly below `stmt`."""
    match stmt:
        case stmts.Store() | stmts.Reduce():  # first, as most statements are
            return ()
        case stmts.For() | stmts.Block():
            return (stmt.body,)
        case stmts.If():
            return (stmt.then, stmt.orelse)
        case stmts.Call() | stmts.Let() | stmts.NamedWindow():
            return (performed(stmt),)
        case stmts.Allocate() | stmts.Assume():
            return ()
    assert_never(stmt)


def walk(body: stmts.Body) -> Iterator[stmts.Stmt]:
    """Every statement, parents before children, in program order."""
    left = list(reversed(body))
    while left:
        stmt = left.pop()
        yield stmt
        if isinstance(stmt, stmts.Compound):  # nothing is below any other statement
            for below in reversed(sub_bodies(stmt)):
                left += reversed(below)


def expressions_of(stmt: stmts.Stmt) -> tuple[exprs.Expr, ...]:
    """The scalar expressions that stand in `stmt` itself, not in the bodies below it."""
    match stmt:
        case stmts.Store() | stmts.Reduce():
            return (stmt.value,)
        case stmts.If():
            return () if exprs.is_predicate(stmt.condition) else (cast(exprs.Expr, stmt.condition),)
        case stmts.Assume():
            head = () if exprs.is_predicate(stmt.unless) else (cast(exprs.Expr, stmt.unless),)
            return (*head, stmt.claim)
        case (
            stmts.For()
            | stmts.Allocate()
            | stmts.Block()
            | stmts.Call()
            | stmts.Let()
            | stmts.NamedWindow()
        ):
            return ()
    assert_never(stmt)


def loads_in(body: stmts.Body) -> Iterator[exprs.Load]:
    """Every load in `body`, in program order; those of `Assume` too."""
    for stmt in walk(body):
        for expr in expressions_of(stmt):
            yield from (node for node in exprs.walk_expr(expr) if isinstance(node, exprs.Load))


def writes_in(body: stmts.Body) -> Iterator[stmts.Store | stmts.Reduce]:
    """Every store and reduction in `body`, in program order."""
    for stmt in walk(body):
        if isinstance(stmt, stmts.Store | stmts.Reduce):
            yield stmt


def windows_in(body: stmts.Body) -> Iterator[stmts.BufferWindow]:
    """The windows that calls in `body` take, in program order; also of calls that perform nothing
    with them."""
    return (
        window for stmt in walk(body) if isinstance(stmt, stmts.Call) for window in stmt.windows
    )


@kept_by_node
def mentioned(block: stmts.Block) -> frozenset[exprs.Buffer]:
    """The buffers that a block reads, writes, allocates or assumes something of."""
    named = (
        s.buffer
        for s in walk(block.body)
        if isinstance(s, stmts.Store | stmts.Reduce | stmts.Allocate)
    )
    return frozenset((*named, *(load.buffer for load in loads_in(block.body))))


def buffers_of(func: stmts.PrimFunc) -> tuple[exprs.Buffer, ...]:
    """Parameters, then allocated buffers, in program order."""
    allocated = (buffer for stmt in func.body for buffer in _allocated_in(stmt))
    return tuple(dict.fromkeys((*(p.buffer for p in func.params), *allocated)))


def _allocated_in(stmt: stmts.Stmt) -> tuple[exprs.Buffer, ...]:
    return _of_block(stmt) if isinstance(stmt, stmts.Block) else _allocated((stmt,))


def _allocated(body: stmts.Body) -> tuple[exprs.Buffer, ...]:
    return tuple(s.buffer for s in walk(body) if isinstance(s, stmts.Allocate))


@kept_by_node
def _of_block(block: stmts.Block) -> tuple[exprs.Buffer, ...]:
    return _allocated(block.body)


def loops_of(body: stmts.Body) -> Iterator[stmts.For]:
    """Every loop in `body`, outer before inner."""
    return (stmt for stmt in walk(body) if isinstance(stmt, stmts.For))


def nest_of(body: stmts.Body) -> tuple[tuple[stmts.For, ...], stmts.Body]:
    """The loops each of which is all of the body around it, the outermost first, and what stands in
    the last; no loops and the body itself where it is no loop alone."""
    nest: list[stmts.For] = []
    while len(body) == 1 and isinstance(only := body[0], stmts.For):
        nest.append(only)
        body = only.body
    return tuple(nest), body


def calls_in(body: stmts.Body) -> tuple[stmts.Call, ...]:
    """The calls in `body`, in program order, without those that other calls make."""
    found: list[stmts.Call] = []
    for stmt in body:
        if isinstance(stmt, stmts.Call):
            found.append(stmt)
        elif isinstance(stmt, stmts.Compound):
            found += _calls_below(stmt)
    return tuple(found)


@kept_by_node
def _calls_below(
    stmt: stmts.For | stmts.If | stmts.Block | stmts.Let | stmts.NamedWindow,
) -> tuple[stmts.Call, ...]:
    return tuple(call for below in sub_bodies(stmt) for call in calls_in(below))
