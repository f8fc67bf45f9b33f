"""Retyping of float32 kernels that only move elements to float16 or bfloat16.

In: a kernel that an operator's function made.  These functions see every tensor of float16 or
bfloat16 as float32.  Out: the same kernel on the 16-bit type if it only moves elements, so that
they are neither widened nor rounded; None for a kernel that computes, which needs casts around it.
"""

from __future__ import annotations

from graphflow.base.fields import replace
from graphflow.tir import (
    Expr,
    Literal,
    PrimFunc,
    buffers_of,
    map_expressions,
    rename_buffers,
    type_errors,
    walk,
)

WIDE = "float32"
"""The dtype in which float16 and bfloat16 are computed."""


def moved_as_stored(func: PrimFunc, stored: str) -> PrimFunc | None:
    """`func` on the dtype `stored` instead of float32.

    None if it computes with or compares such elements, or has a constant that `stored` cannot hold.
    """
    wide = [buffer for buffer in buffers_of(func) if buffer.dtype == WIDE]
    exchanged = {buffer: replace(buffer, dtype=stored) for buffer in wide}
    exact = True

    def narrowed(expr: Expr) -> Expr:
        nonlocal exact
        if not isinstance(expr, Literal) or expr.dtype != WIDE:
            return expr
        literal = Literal(expr.value, stored)
        exact = exact and (literal.value == expr.value or expr.value != expr.value)
        return literal

    body = map_expressions(rename_buffers(func.body, exchanged), narrowed)
    params = tuple(
        replace(param, buffer=exchanged.get(param.buffer, param.buffer)) for param in func.params
    )
    if not exact or any(any(type_errors(stmt)) for stmt in walk(body)):
        return None
    return replace(func, params=params, body=body)
