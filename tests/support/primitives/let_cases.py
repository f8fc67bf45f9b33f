"""Random applications of the primitives on lets."""

from typing import Any

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.schedule import bind_let, inline_let, lift_lets, lift_scope
from graphflow.schedule.places.places import loops_around
from support.kernels.random_kernels import Number
from support.primitives.buffer_cases import buffer_kernel
from support.primitives.choices import Arguments
from support.primitives.primitive_cases import PrimitiveCase
from support.primitives.statement_places import addressed

# Kernels ------------------------------------------------------------------------------------------


def let_kernel(number: Number) -> tir.PrimFunc:
    """A buffer kernel in which lets name what many stores store, and conditions on that."""
    count = 0

    def named(value: tir.Expr, use: Any) -> tir.Let:
        nonlocal count
        count += 1
        buffer = tir.Buffer(f"l{count}", (), value.dtype, "register")
        return tir.Let(buffer, value, use(tir.Load(buffer, ())))

    def change(stmt: tir.Stmt) -> "tir.Stmt | tir.Body":
        if not isinstance(stmt, tir.Store) or number(0, 2) == 0:
            return stmt
        loads = [node for node in tir.walk_expr(stmt.value) if isinstance(node, tir.Load)]
        value = loads[number(0, len(loads) - 1)] if loads and number(0, 1) else stmt.value

        def stored(held: tir.Expr) -> tir.Body:
            (new,) = tir.map_expressions((stmt,), lambda node: held if node == value else node)
            assert isinstance(new, tir.Store)
            if number(0, 1):
                return (new,)
            small = tir.Comparison("lt", held, tir.Literal(3, "int64"))
            if number(0, 1):
                return (
                    named(small, lambda c: (replace(new, value=tir.Select(c, new.value, held)),)),
                )
            return (named(small, lambda c: (tir.If(c, (new,), (replace(new, value=held),)),)),)

        return named(value, stored)

    func = buffer_kernel(number)
    return replace(func, body=tir.map_body(func.body, change))


# Arguments ----------------------------------------------------------------------------------------


def _bound(func: tir.PrimFunc, number: Number) -> Arguments:
    stores = [
        (place, stmt) for place, stmt in addressed(func, tir.Store) if isinstance(stmt, tir.Store)
    ]
    if not stores:
        return None
    place, stmt = stores[number(0, len(stores) - 1)]
    nodes = [n for n in tir.walk_expr(stmt.value) if not isinstance(n, tir.Literal)] or [stmt.value]
    around = loops_around(func, place)
    if around and number(0, 1):
        place = around[number(0, len(around) - 1)].var.name
    return place, nodes[number(0, len(nodes) - 1)], "bound"


def _lets(func: tir.PrimFunc) -> list[str]:
    return [stmt.buffer.name for stmt in tir.walk(func.body) if isinstance(stmt, tir.Let)]


def _let(func: tir.PrimFunc, number: Number) -> Arguments:
    lets = _lets(func)
    return (lets[number(0, len(lets) - 1)],) if lets else None


def _loop_with_lets(func: tir.PrimFunc, number: Number) -> Arguments:
    loops = [
        loop.var.name
        for loop in tir.walk(func.body)
        if isinstance(loop, tir.For) and any(isinstance(s, tir.Let) for s in tir.walk(loop.body))
    ]
    return (loops[number(0, len(loops) - 1)], bool(number(0, 1))) if loops else None


LET_CASES = (
    PrimitiveCase(bind_let, _bound, buffer_kernel)
    .on("for i in serial(0, 4):\n    y[i] = x[0]", "i", "x[3]", "c")
    .refuses("found", r"x\[3\] does not stand in i")
    .on("for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[i] = x[j]", "i", "x", "c")
    .refuses("scope", r"x\[j\] changes with j inside i")
    .on("for i in serial(0, 4):\n    t = alloc(i32[1])\n    t[0] = x[i]\n    y[i] = t[0]")
    .given("i", "t", "c")
    .refuses("scope", "t is allocated inside i")
    .on("for i in serial(0, 4):\n    y[i] = x[i]\n    y[i + 8] = y[i] + i32(1)", "i", "y", "c")
    .refuses("unchanged", r"y\[i\] is the same at each use in i")
    .on("for i in serial(0, 4):\n    if i >= 1:\n        y[i] = x[i - 1]", "i", "x", "c")
    .refuses("memory", r"x\[i - 1\] is in bounds at each point of .*"),
    PrimitiveCase(inline_let, _let, let_kernel)
    .on("y[0] = x[3]\nwith let(y[0]) as t:\n    y[0] = x[1]\n    y[1] = t[()]", "t")
    .refuses("unchanged", r"y\[0\] is the same at each use of t")
    .on("for i in serial(0, 4):\n    y[i] = x[i]", "i")
    .refuses("let", "i is no let"),
    PrimitiveCase(lift_lets, _loop_with_lets, let_kernel),
    PrimitiveCase(lift_scope, _let, let_kernel, "of lets"),
)
