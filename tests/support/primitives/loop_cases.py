"""Random applications of the primitives on loops, statements and scopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from graphflow import arith, tir
from graphflow.effects import statement_at
from graphflow.schedule import (
    add_loop,
    commute_expr,
    cut_loop,
    divide_loop,
    divide_with_recompute,
    fission,
    fuse,
    join_loops,
    lift_scope,
    mult_loops,
    name_statement,
    remove_loop,
    reorder_loops,
    reorder_stmts,
    shift_loop,
    specialize,
    unroll_loop,
)
from graphflow.schedule.places.addresses import path_of, statement_address
from graphflow.schedule.places.place_names import fresh_copy, names_of_places
from graphflow.schedule.places.places import loops_around, rewrite_around
from support.kernels.effect_kernels import each_path
from support.kernels.random_kernels import Number, random_predicate
from support.primitives.choices import Arguments, Choices, chosen
from support.primitives.primitive_cases import PrimitiveCase, effect_kernel, literal
from support.primitives.statement_places import places_of


def neighbours(func: tir.PrimFunc) -> list[tuple[str, str]]:
    """The places of all pairs of statements that follow each other."""
    paths = dict(each_path(func.body))
    nexts = ((path, (*path[:-1], (path[-1][0] + 1, False))) for path in paths)
    return [
        (statement_address(func, a), statement_address(func, b)) for a, b in nexts if b in paths
    ]


def at(func: tir.PrimFunc, place: str) -> Any:
    return statement_at(func, path_of(func, place))


def one_of(places: Sequence[Any], number: Number) -> Any:
    return places[number(0, len(places) - 1)] if places else None


def edited(
    func: tir.PrimFunc, place: str, change: Callable[[Any], tir.Body], count: int = 1
) -> tir.PrimFunc:
    """The kernel with `count` statements from a place on replaced."""

    def around(body: tir.Body, position: int, _: object) -> tir.Body:
        new = change(body[position])
        return (*body[:position], *new, *body[position + count :])

    return rewrite_around(func, place, around)


def copied(func: tir.PrimFunc, body: tir.Body, suffix: str) -> tir.Body:
    return fresh_copy(body, suffix, names_of_places(func))[0]


def loop_places(func: tir.PrimFunc, number: Number) -> str | None:
    return cast("str | None", one_of(places_of(func, tir.For), number))


def serial(name: str, stop: Any, body: tir.Body) -> tir.For:
    return tir.For(arith.Var(name), arith.const(0), arith.as_index(stop), tir.LoopKind.SERIAL, body)


# -- pairs of loops


def _to_reorder(c: Choices) -> Arguments:
    pair = c.pair()
    if not pair:
        return None
    inner = next(loop for loop in c.loops() if loop.var.name == pair[1])
    third = inner.body[0] if len(inner.body) == 1 else None
    if isinstance(third, tir.For) and c.dice.chance(0.3):
        return (tuple(c.dice.shuffled([*pair, third.var.name])),)
    return (pair[::-1],)


def _to_multiply(c: Choices) -> Arguments:
    pair = c.pair()
    return pair and (*pair, c.name())


# -- single loops


def _to_divide(c: Choices) -> Arguments:
    loop = c.loop()
    if loop is None:
        return None
    tail = c.dice.among(("perfect", "guard", "guard", "cut", "cut_and_guard"))
    factors = [f for f in range(2, 9) if tail != "perfect" or (loop.extent or 1) % f == 0]
    if c.dice.chance(0.1):
        factors = [1, 2, 3]
    return loop.var.name, c.dice.among(factors or [1]), (c.name(), c.name()), tail


def _to_recompute(func: tir.PrimFunc, number: Number) -> Arguments:
    loop = loop_places(func, number)
    return loop and (loop, number(1, 2), number(1, 2), ("io", "ii"))


def _around(c: Choices, loop: tir.For) -> arith.IndexExpr | None:
    """At times a variable around a loop, plus a number."""
    if c.dice.chance(0.7) or loop.var.name not in places_of(c.func, tir.For):
        return None
    around = loops_around(c.func, loop.var.name)
    if not around:
        return None
    return cast(tir.For, c.dice.among(around)).var + c.dice.between(-1, 2)


def _to_cut(c: Choices) -> Arguments:
    loop = c.loop()
    if loop is None:
        return None
    start = arith.constant_value(loop.start) or 0
    most = max(loop.extent or 3, 0)  # its stop may be below its start
    point = _around(c, loop) or start + c.dice.between(-1 if c.dice.chance(0.1) else 0, most)
    return loop.var.name, point, c.suffix()


def _cut(func: tir.PrimFunc, loop: str, point: Any, suffix: str) -> tir.PrimFunc:
    def change(stmt: tir.For) -> tir.Body:
        (copy,) = cast("tuple[tir.For]", copied(func, (stmt,), suffix))
        return replace(stmt, stop=arith.as_index(point)), replace(copy, start=arith.as_index(point))

    return edited(func, loop, change)


def _to_shift(c: Choices) -> Arguments:
    loop = c.loop()
    return loop and (loop.var.name, _around(c, loop) or c.dice.between(-1, 5))


def _kernel_to_join(number: Number) -> tir.PrimFunc:
    """A kernel with a loop that is cut into two, not always where they meet."""
    func = effect_kernel(number)
    loop = loop_places(func, number)
    if loop is None:
        return func
    stmt = at(func, loop)
    func = _cut(func, loop, stmt.start + number(-1, stmt.extent or 2), "_b")
    if number(0, 3):
        return func
    return edited(func, f"{loop}_b", lambda s: (replace(s, start=s.start + number(-1, 1)),))


def _to_join(func: tir.PrimFunc, number: Number) -> Arguments:
    return one_of([p for p in neighbours(func) if f"{p[0]}_b" == p[1]], number)


def _to_fission(c: Choices) -> Arguments:
    loops = [loop for loop in c.loops() if len(loop.body) > 1]
    if not loops:
        return None
    loop = c.dice.among(loops)
    depth = c.dice.weighted({1: 3, 2: 1})
    return loop.var.name, c.dice.between(1, len(loop.body) - 1), c.suffix(), depth


def _parted(
    func: tir.PrimFunc, loop: str, position: int, suffix: str, depth: int = 1
) -> tir.PrimFunc | None:
    if depth > 1:
        return None

    def change(stmt: tir.For) -> tir.Body:
        var = arith.Var(loop + suffix)
        second = tir.substitute_body(stmt.body[position:], {stmt.var: var})
        return replace(stmt, body=stmt.body[:position]), replace(stmt, var=var, body=second)

    return edited(func, loop, change)


def _with_loop(number: Number) -> tir.PrimFunc:
    """A kernel in which some statement is in one loop more."""
    func = effect_kernel(number)
    place = one_of(places_of(func), number)
    stop = number(0, 5) and number(1, 3)
    return edited(func, place, lambda s: (serial("r", stop, (s,)),)) if place else func


def _to_remove(func: tir.PrimFunc, _: Number) -> Arguments:
    return ("r",) if "r" in names_of_places(func) else None


def _to_add(func: tir.PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func), number)
    return place and (place, "r", number(0, 3), number(0, 3) == 0)


def _to_unroll(func: tir.PrimFunc, number: Number) -> Arguments:
    loop = loop_places(func, number)
    return loop and (loop,)


# -- statements


def _two_statements(func: tir.PrimFunc, number: Number) -> Arguments:
    return one_of(neighbours(func), number)


def _expression(func: tir.PrimFunc, number: Number) -> Arguments:
    found = [
        (place, tir.expr_text(node))
        for place in places_of(func)
        for expr in tir.expressions_of(at(func, place))
        for node in tir.walk_expr(expr)
        if isinstance(node, tir.Binary)
    ]
    return one_of(found, number)


def _some_statement(func: tir.PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func), number)
    return place and (place, "named")


# -- scopes


def _condition(func: tir.PrimFunc, place: str, number: Number, outside: int = 0) -> tir.Condition:
    """A condition on loops or on data; with `outside` it may read one element outside of x."""
    around = [loop.var for loop in loops_around(func, place)]
    if not func.inputs and not around:
        return arith.TRUE
    if not func.inputs or (around and number(0, 2)):
        return random_predicate(number, around, 1)
    x = func.inputs[0]
    load = tir.Load(x, tuple(arith.const(number(0, extent - 1 + outside)) for extent in x.shape))
    return tir.Comparison("eq" if x.dtype == "bool" else "lt", load, literal(number(0, 4), x.dtype))


def _to_specialize(func: tir.PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func), number)
    count = number(1, 2)
    return place and (place, tuple(_condition(func, place, number, 1) for _ in range(count)))


def _kernel_to_fuse(number: Number) -> tir.PrimFunc:
    """A kernel with a loop that is parted into two, unless the first one would allocate memory."""
    func = effect_kernel(number)
    arguments = chosen(_to_fission)(func, number)
    if arguments is None:
        return func
    loop, position, suffix, _ = arguments
    if any(isinstance(stmt, tir.Allocate) for stmt in at(func, loop).body[:position]):
        return func
    return _parted(func, loop, position, suffix) or func


def _to_fuse(c: Choices) -> Arguments:
    return c.neighbours(tir.For if c.dice.chance(0.6) else tir.Block) or c.neighbours(tir.For)


def kernel_with_conditions(number: Number) -> tir.PrimFunc:
    """A kernel in which two neighbours are under the same condition, or nearly so."""
    func = effect_kernel(number)
    pair = one_of(neighbours(func), number)
    if pair is None or isinstance(at(func, pair[0]), tir.Allocate):
        return func
    condition = _condition(func, pair[0], number)
    other = condition if number(0, 3) else _condition(func, pair[0], number)
    second = at(func, pair[1])
    if isinstance(second, tir.Allocate):
        return func
    return edited(func, pair[0], lambda s: (tir.If(condition, (s,)), tir.If(other, (second,))), 2)


def _conditions_to_fuse(func: tir.PrimFunc, number: Number) -> Arguments:
    pairs = [
        pair
        for pair in neighbours(func)
        if isinstance(at(func, pair[0]), tir.If) and isinstance(at(func, pair[1]), tir.If)
    ]
    return one_of(pairs, number)


def _kernel_to_lift(number: Number) -> tir.PrimFunc:
    """A kernel in which some statement is under a condition more."""
    func = effect_kernel(number)
    place = one_of(places_of(func), number)
    if place is None:
        return func
    condition = _condition(func, place, number)
    orelse = copied(func, (at(func, place),), "_o") if number(0, 1) else ()
    return edited(func, place, lambda s: (tir.If(condition, (s,), orelse),))


def _to_lift(func: tir.PrimFunc, number: Number) -> Arguments:
    places = [
        place
        for place in places_of(func, tir.For, tir.If)
        if len(path_of(func, place)) > 1 and not isinstance(_above(func, place)[1], tir.Block)
    ]
    place = one_of(places, number)
    return place and (place,)


def _above(func: tir.PrimFunc, place: str) -> tuple[str, Any, bool]:
    *outer, (position, otherwise), _ = path_of(func, place)
    path = (*outer, (position, False))
    return statement_address(func, path), statement_at(func, path), otherwise


LOOP_CASES = (
    PrimitiveCase(add_loop, _to_add),
    PrimitiveCase(commute_expr, _expression),
    PrimitiveCase(cut_loop, chosen(_to_cut), share=1),
    PrimitiveCase(divide_loop, chosen(_to_divide), share=3),
    PrimitiveCase(divide_with_recompute, _to_recompute, least=1 / 5),
    PrimitiveCase(fission, chosen(_to_fission), share=2),
    PrimitiveCase(fuse, _conditions_to_fuse, kernel_with_conditions, "of conditions"),
    PrimitiveCase(fuse, chosen(_to_fuse), _kernel_to_fuse, "of loops", share=1.5),
    PrimitiveCase(join_loops, _to_join, _kernel_to_join),
    PrimitiveCase(lift_scope, _to_lift, _kernel_to_lift, least=1 / 4),
    PrimitiveCase(mult_loops, chosen(_to_multiply), share=1.5),
    PrimitiveCase(name_statement, _some_statement),
    PrimitiveCase(remove_loop, _to_remove, _with_loop),
    PrimitiveCase(reorder_loops, chosen(_to_reorder), share=2.5),
    PrimitiveCase(reorder_stmts, _two_statements),
    PrimitiveCase(shift_loop, chosen(_to_shift), share=1.5),
    PrimitiveCase(specialize, _to_specialize),
    PrimitiveCase(unroll_loop, _to_unroll),
)
