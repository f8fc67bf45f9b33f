"""Removing `assume` and `undef`: after this no simplification may rest on what they said."""

from __future__ import annotations

from dataclasses import replace

from graphflow.errors import VerifyError
from graphflow.tir import (
    Assume,
    Block,
    Body,
    For,
    If,
    PrimFunc,
    Stmt,
    Store,
    Undef,
    expressions_of,
    map_body,
    walk,
    walk_expr,
)


def remove_assume(func: PrimFunc) -> PrimFunc:
    """`func` without any `assume`, and without the loops and blocks that held nothing else."""

    def change(stmt: Stmt) -> Body:
        return () if isinstance(stmt, Assume) or _is_empty(stmt) else (stmt,)

    return _replaced(func, map_body(func.body, change))


def remove_undef(func: PrimFunc) -> PrimFunc:
    """`func` without stores of `undef`, which permit leaving anything; checks none is left."""

    def change(stmt: Stmt) -> Body:
        stores_undef = isinstance(stmt, Store) and isinstance(stmt.value, Undef)
        return () if stores_undef or _is_empty(stmt) else (stmt,)

    lowered = _replaced(func, map_body(func.body, change))
    for stmt in walk(lowered.body):
        for expr in expressions_of(stmt):
            if any(isinstance(node, Undef) for node in walk_expr(expr)):
                raise VerifyError(
                    f"{func.name}: undef is used in a computed value, {stmt}; a kernel may store "
                    "undef as it is, and nothing else"
                )
    return lowered


def _is_empty(stmt: Stmt) -> bool:
    match stmt:
        case For() | Block():
            return not stmt.body
        case If():
            return not stmt.then and not stmt.orelse
        case _:
            return False


def _replaced(func: PrimFunc, body: Body) -> PrimFunc:
    return func if body is func.body else replace(func, body=body)
