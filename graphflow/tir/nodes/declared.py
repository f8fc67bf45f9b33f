"""What a kernel uses that is declared outside of it: definitions, memories, configuration state.

In: a kernel.  Out: the definitions that it calls, the memories of its buffers, and the fields of
configuration state that it reads and writes, each once, in program order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.nodes.memory_space import MemorySpace


def definitions_in(body: stmts.Body) -> tuple[stmts.PrimFunc, ...]:
    """The kernels that `body` calls, each once, after those that it calls itself."""
    found: dict[stmts.PrimFunc, None] = {}
    for stmt in _statements(body):
        if isinstance(stmt, stmts.Call) and stmt.definition not in found:
            found.update(dict.fromkeys(definitions_in(stmt.definition.body)))
            found[stmt.definition] = None
    return tuple(found)


def fields_of(func: stmts.PrimFunc) -> tuple[exprs.Buffer, ...]:
    """The fields of configuration state that a kernel uses, itself or by what it calls."""
    funcs = (*definitions_in(func.body), func)
    buffers = (buffer for one in funcs for buffer in _accessed(one.body))
    return tuple(dict.fromkeys(buffer for buffer in buffers if buffer.is_field))


def memories_of(func: stmts.PrimFunc) -> tuple[MemorySpace, ...]:
    """The memories of the buffers that a kernel has or allocates, and of those that it calls."""
    found: dict[MemorySpace, None] = {}
    for one in (*definitions_in(func.body), func):
        allocated = (s.buffer for s in _statements(one.body) if isinstance(s, stmts.Allocate))
        for buffer in (*(p.buffer for p in one.params), *allocated):
            if isinstance(buffer.scope, MemorySpace):
                found[buffer.scope] = None
    return tuple(found)


def _statements(body: stmts.Body) -> Iterator[stmts.Stmt]:
    """Every statement, without what calls perform."""
    left = list(reversed(body))
    while left:
        stmt = left.pop()
        yield stmt
        match stmt:
            case stmts.For() | stmts.Block() | stmts.Let() | stmts.NamedWindow():
                left += reversed(stmt.body)
            case stmts.If():
                left += (*reversed(stmt.orelse), *reversed(stmt.then))
            case _:
                pass


def _accessed(body: stmts.Body) -> Iterator[exprs.Buffer]:
    for stmt in _statements(body):
        own: tuple[exprs.Condition, ...] = ()
        match stmt:
            case stmts.Store() | stmts.Reduce() | stmts.Let():
                own = (stmt.value,)
            case stmts.If():
                own = (stmt.condition,)
            case stmts.Assume():
                own = (stmt.unless, stmt.claim)
            case _:
                pass
        for expr in own:
            if not exprs.is_predicate(expr):
                nodes = exprs.walk_expr(cast(exprs.Expr, expr))
                yield from (node.buffer for node in nodes if isinstance(node, exprs.Load))
        if isinstance(stmt, stmts.Store | stmts.Reduce):
            yield stmt.buffer
