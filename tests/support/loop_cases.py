"""Random applications of the primitives on loops, statements and scopes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphflow.arith import IndexExpr, const
from graphflow.schedule import cut_loop, reorder_loops
from graphflow.schedule.places import fresh_copy
from graphflow.tir import Body, For, PrimFunc, loops_of, map_body
from support.primitive_cases import PrimitiveCase
from support.random_kernels import Number


def some_loop(func: PrimFunc, number: Number) -> For | None:
    """One of the loops of a kernel."""
    loops = list(loops_of(func.body))
    return loops[number(0, len(loops) - 1)] if loops else None


def with_loop(func: PrimFunc, loop: str, change: Any) -> PrimFunc:
    """The kernel with one loop replaced by what `change` gives for it."""
    return replace(
        func,
        body=map_body(
            func.body, lambda s: change(s) if isinstance(s, For) and s.var.name == loop else s
        ),
    )


def renamed(body: Body, suffix: str) -> Body:
    """A copy in which each name of a loop, block or buffer ends in `suffix`."""
    return fresh_copy(body, suffix, ())[0]


def _perfect_pair(func: PrimFunc, number: Number) -> tuple[Any, ...] | None:
    pairs = [
        (loop.var.name, loop.body[0].var.name)
        for loop in loops_of(func.body)
        if len(loop.body) == 1 and isinstance(loop.body[0], For)
    ]
    if not pairs:
        return None
    outer, inner = pairs[number(0, len(pairs) - 1)]
    return ((inner, outer),)


def _reordered(func: PrimFunc, order: tuple[str, str]) -> PrimFunc:
    def change(outer: For) -> For:
        (inner,) = outer.body
        assert isinstance(inner, For)
        return replace(inner, body=(replace(outer, body=inner.body),))

    return with_loop(func, order[1], change)


def _cut_point(func: PrimFunc, number: Number) -> tuple[Any, ...] | None:
    loop = some_loop(func, number)
    return loop and (loop.var.name, number(-1, 5), "_b")


def _cut(func: PrimFunc, loop: str, point: Any, suffix: str) -> PrimFunc:
    def change(stmt: For) -> Body:
        (copy,) = renamed((stmt,), suffix)
        assert isinstance(copy, For)
        at = point if isinstance(point, IndexExpr) else const(point)
        return replace(stmt, stop=at), replace(copy, start=at)

    return with_loop(func, loop, change)


LOOP_CASES = (
    PrimitiveCase(reorder_loops, _perfect_pair, _reordered),
    PrimitiveCase(cut_loop, _cut_point, _cut),
)
