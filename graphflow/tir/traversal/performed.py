"""What lets, named windows and calls perform.

In: such a statement.  Out: the statements that it stands for, on the buffers that are behind its
names and parameters.  What always holds: the statements are computed once for each object, so that
analyses can cache results on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from graphflow.arith import IndexExpr, Var, kept_by_node
from graphflow.base.fields import replace
from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.traversal import as_written


def performed(stmt: stmts.Call | stmts.Let | stmts.NamedWindow) -> stmts.Body:
    """The statements that a let, a named window or a call performs.

    A let allocates its buffer, stores the value, and runs its body.  A named window runs its body
    on the buffer behind the name.  A call runs the body of its definition with the arguments put
    in; loops, blocks, calls and allocated buffers in it are named `call.name` of the definition.
    """
    match stmt:
        case stmts.Let():
            return as_written.let_statements(stmt)
        case stmts.NamedWindow():
            return _performed_by_window(stmt)
        case stmts.Call():
            return _performed_by_call(stmt)
    assert_never(stmt)


@kept_by_node
def _performed_by_window(named: stmts.NamedWindow) -> stmts.Body:
    return through_windows(named.body, {named.buffer: named.window})


@kept_by_node
def _performed_by_call(call: stmts.Call) -> stmts.Body:
    func = call.definition
    values: dict[Var, IndexExpr] = dict(zip(func.scalars, call.scalars, strict=True))
    buffers: dict[exprs.Buffer, exprs.Buffer] = {}
    for stmt in as_written.statements_as_written(func.body):
        match stmt:
            case stmts.For():
                values[stmt.var] = Var(f"{call.name}.{stmt.var.name}")
            case stmts.Allocate() | stmts.NamedWindow():
                named = replace(stmt.buffer, name=f"{call.name}.{stmt.buffer.name}")
                buffers[stmt.buffer] = named
            case _:
                pass

    def on_stmt(stmt: stmts.Stmt) -> stmts.Stmt:
        match stmt:
            case stmts.For():
                return replace(stmt, var=Var(f"{call.name}.{stmt.var.name}"))
            case stmts.Block() | stmts.Call():
                return replace(stmt, name=f"{call.name}.{stmt.name}")
            case _:
                return stmt

    body = as_written.rename_buffers(as_written.substitute_body(func.body, values), buffers)
    windows = {p.buffer: w for p, w in zip(func.params, call.windows, strict=True)}
    return through_windows(as_written.map_as_written(body, on_stmt), windows)


def through_windows(
    body: stmts.Body, windows: Mapping[exprs.Buffer, stmts.BufferWindow]
) -> stmts.Body:
    """`body` with each access to a buffer in `windows` made an access to the buffer behind that
    window; calls and named windows in it get windows of that buffer."""

    def on_expr(expr: exprs.Expr) -> exprs.Expr:
        if isinstance(expr, exprs.Load) and expr.buffer in windows:
            window = windows[expr.buffer]
            return exprs.Load(window.buffer, window.place(expr.indices))
        return expr

    def on_stmt(stmt: stmts.Stmt) -> stmts.Stmt:
        match stmt:
            case stmts.Store() | stmts.Reduce() if stmt.buffer in windows:
                window = windows[stmt.buffer]
                return replace(stmt, buffer=window.buffer, indices=window.place(stmt.indices))
            case stmts.Call():
                found = tuple(_inside(w, windows) for w in stmt.windows)
                same = all(a is b for a, b in zip(found, stmt.windows, strict=True))
                return stmt if same else replace(stmt, windows=found)
            case stmts.NamedWindow() if stmt.window.buffer in windows:
                found_window = _inside(stmt.window, windows)
                behind = found_window.buffer
                # A name has the type and scope of the buffer behind it.
                name = replace(stmt.buffer, dtype=behind.dtype, scope=behind.scope)
                inner = as_written.rename_buffers(stmt.body, {stmt.buffer: name})
                return stmts.NamedWindow(name, found_window, inner)
            case _:
                return stmt

    return as_written.map_as_written(as_written.map_expressions_as_written(body, on_expr), on_stmt)


def _inside(
    inner: stmts.BufferWindow, windows: Mapping[exprs.Buffer, stmts.BufferWindow]
) -> stmts.BufferWindow:
    """The window `inner` of a buffer, as a window of the buffer that is behind that one."""
    outer = windows.get(inner.buffer)
    if outer is None:
        return inner
    kept_axes = tuple(outer.kept[axis] for axis in inner.kept)
    return stmts.BufferWindow(outer.buffer, outer.place(inner.starts), kept_axes)


def without_calls(func: stmts.PrimFunc) -> stmts.PrimFunc:
    """`func` with a block of the same name in place of each call, which does the same."""

    def change(stmt: stmts.Stmt) -> stmts.Stmt:
        if not isinstance(stmt, stmts.Call):
            return stmt
        body = as_written.map_as_written(performed(stmt), change)
        return stmts.Block(stmt.name, body)

    return func.around(as_written.map_as_written(func.body, change))
