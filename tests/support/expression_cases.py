"""Random applications of the primitives on expressions and writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphflow.arith import at_least_zero
from graphflow.schedule import (
    bind_expr,
    eliminate_dead_code,
    inline_assign,
    merge_writes,
    rewrite_expr,
)
from graphflow.schedule.places import find, loops_around, rewrite_around, rewrite_at
from graphflow.tir import (
    Allocate,
    Binary,
    Block,
    Body,
    Buffer,
    Expr,
    For,
    If,
    Literal,
    Load,
    PrimFunc,
    Reduce,
    ReduceOp,
    Select,
    Stmt,
    Store,
    map_body,
    map_expr,
    map_expressions,
    walk_expr,
)
from support.buffer_cases import buffer_kernel
from support.primitive_cases import PrimitiveCase, is_same, literal
from support.random_kernels import Number
from support.statement_places import addressed, places_of

Arguments = tuple[Any, ...] | None


# Kernels ------------------------------------------------------------------------------------------


def twice_kernel(number: Number) -> PrimFunc:
    """A buffer kernel in which many writes are followed by another one, mostly to one element."""

    def change(stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, Store | Reduce) or number(0, 1):
            return stmt
        value = stmt.value if number(0, 1) else Literal(number(0, 3), "int64")
        if number(0, 4) == 0:
            value = Binary("add", Load(stmt.buffer, stmt.indices), value)
        if number(0, 1):
            return stmt, Store(stmt.buffer, stmt.indices, value)
        return stmt, Reduce(ReduceOp.ADD, stmt.buffer, stmt.indices, value)

    func = buffer_kernel(number)
    return replace(func, body=map_body(func.body, change))


def assigned_kernel(number: Number) -> PrimFunc:
    """A buffer kernel in which many stored values are first assigned to a buffer of one element."""
    count = 0

    def change(stmt: Stmt) -> Stmt | Body:
        nonlocal count
        if not isinstance(stmt, Store) or number(0, 2) == 0:
            return stmt
        count += 1
        held = Buffer(f"c{count}", (), "int64")
        again = Binary("add", Load(held, ()), stmt.value) if number(0, 1) else Load(held, ())
        between = (stmt,) if number(0, 2) == 0 else ()
        first = Store(held, (), stmt.value)
        return Allocate(held), first, *between, replace(stmt, value=again)

    func = buffer_kernel(number)
    return replace(func, body=map_body(func.body, change))


# Arguments ----------------------------------------------------------------------------------------


def _writes(func: PrimFunc) -> list[tuple[str, Store | Reduce]]:
    return [
        (place, stmt)
        for place, stmt in addressed(func, Store, Reduce)
        if isinstance(stmt, Store | Reduce)
    ]


def _some_write(func: PrimFunc, number: Number) -> tuple[str, Store | Reduce] | None:
    found = _writes(func)
    return found[number(0, len(found) - 1)] if found else None


def _node(stmt: Store | Reduce, number: Number) -> Expr:
    numbers = [n for n in walk_expr(stmt.value) if n.dtype == stmt.value.dtype]
    nodes = [n for n in numbers if not isinstance(n, Literal)] or [stmt.value]
    return nodes[number(0, len(nodes) - 1)]


def _bound(func: PrimFunc, number: Number) -> Arguments:
    found = _some_write(func, number)
    if found is None:
        return None
    place, stmt = found
    around = loops_around(func, place)
    if around and number(0, 1):
        place = around[number(0, len(around) - 1)].var.name
    return place, _node(stmt, number), "bound", bool(number(0, 1))


def _rewritten(func: PrimFunc, number: Number) -> Arguments:
    found = _some_write(func, number)
    if found is None:
        return None
    place, stmt = found
    old = _node(stmt, number)
    around = loops_around(func, place)
    kind = number(0, 4)
    new: Expr = literal(1, old.dtype)
    if kind < 2 and around:
        new = Select(at_least_zero(around[-1].var), old, literal(7, old.dtype))
    elif kind == 2 and isinstance(old, Binary):
        new = replace(old, left=old.right, right=old.left)
    elif kind == 3:
        new = _node(stmt, number)
    return place, old, new


def _pair(func: PrimFunc, number: Number) -> Arguments:
    places = dict(_writes(func))
    pairs = [(place, after) for place in places if (after := _after(place)) in places]
    return pairs[number(0, len(pairs) - 1)] if pairs else None


def _after(place: str) -> str:
    head, _, position = place.rstrip("]").rpartition("[")
    return f"{head}[{int(position) + 1}]"


def _assignment(func: PrimFunc, number: Number) -> Arguments:
    params = {param.buffer for param in func.params}
    found = [
        place
        for place, stmt in _writes(func)
        if isinstance(stmt, Store) and stmt.buffer not in params
    ]
    return (found[number(0, len(found) - 1)],) if found else None


def _loop_or_condition(func: PrimFunc, number: Number) -> Arguments:
    found = places_of(func, For, If)
    conditions = [place for place in found if isinstance(find(func, place)[0], If)]
    found = conditions or found
    return (found[number(0, len(found) - 1)],) if found else None


# Rewrites without conditions ----------------------------------------------------------------------


def _bind(func: PrimFunc, place: str, expr: Expr, name: str, cse: bool) -> PrimFunc | None:
    bound = Buffer(name, (), expr.dtype)
    head = (Allocate(bound), Store(bound, (), expr))
    if not cse:
        return None

    def use(node: Expr) -> Expr:
        return Load(bound, ()) if node == expr else node

    def change(stmt: Stmt, _: Any) -> Body:
        if isinstance(stmt, For | Block):
            return (replace(stmt, body=(*head, *map_expressions(stmt.body, use))),)
        return (*head, *map_expressions((stmt,), use))

    return rewrite_at(func, place, change)


def _replaced(func: PrimFunc, place: str, old: Expr, new: Expr) -> PrimFunc:
    def change(stmt: Stmt, _: Any) -> Body:
        assert isinstance(stmt, Store | Reduce)
        value = map_expr(stmt.value, lambda node: new if node == old else node)
        return (replace(stmt, value=value),)

    return rewrite_at(func, place, change)


def _merge(func: PrimFunc, first: str, second: str) -> PrimFunc | None:
    places = dict(_writes(func))
    one, other = places[first], places[second]
    if (one.buffer, one.indices) != (other.buffer, other.indices):
        return None
    merged: Stmt = other
    if isinstance(other, Reduce):
        merged = replace(one, value=Binary("add", one.value, other.value))

    def change(body: Body, at: int, _: Any) -> Body:
        return (*body[:at], merged, *body[at + 2 :])

    return rewrite_around(func, first, change)


def _inline(func: PrimFunc, place: str) -> PrimFunc:
    def change(body: Body, at: int, _: Any) -> Body:
        stmt = body[at]
        assert isinstance(stmt, Store)
        held = Load(stmt.buffer, stmt.indices)
        rest = map_expressions(body[at + 1 :], lambda node: stmt.value if node == held else node)
        return (*body[:at], *rest)

    return rewrite_around(func, place, change)


def _eliminated(func: PrimFunc, place: str) -> PrimFunc | None:
    """The kernel without a loop, or with the branch of a condition for which it stays the same."""
    stmt, _ = find(func, place)
    sides: tuple[Body, ...] = (stmt.then, stmt.orelse) if isinstance(stmt, If) else ((),)
    ways = [rewrite_at(func, place, lambda _s, _d, side=side: side) for side in sides]
    return next((way for way in ways if is_same(func, way)), ways[0])


EXPRESSION_CASES = (
    PrimitiveCase(bind_expr, _bound, _bind, buffer_kernel),
    PrimitiveCase(eliminate_dead_code, _loop_or_condition, _eliminated, buffer_kernel),
    PrimitiveCase(inline_assign, _assignment, _inline, assigned_kernel),
    PrimitiveCase(merge_writes, _pair, _merge, twice_kernel),
    PrimitiveCase(rewrite_expr, _rewritten, _replaced, buffer_kernel),
)
