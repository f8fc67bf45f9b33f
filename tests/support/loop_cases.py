"""Random applications of the primitives on loops, statements and scopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from graphflow.arith import (
    TRUE,
    IndexExpr,
    Var,
    as_index,
    const,
    equal,
    floor_div,
    floor_mod,
    less_than,
)
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
from graphflow.schedule.addresses import address_of, path_of, statement_at
from graphflow.schedule.place_names import fresh_copy, place_names
from graphflow.schedule.places import loops_around, rewrite_around
from graphflow.tir import (
    Allocate,
    Binary,
    Block,
    Body,
    Comparison,
    Condition,
    For,
    If,
    Load,
    LoopKind,
    PrimFunc,
    Stmt,
    expr_text,
    expressions_of,
    loops_of,
    map_expressions,
    substitute_body,
    walk_expr,
)
from support.effect_kernels import each_path
from support.primitive_cases import PrimitiveCase, effect_kernel, literal
from support.random_kernels import Number, random_predicate
from support.statement_places import places_of

Arguments: TypeAlias = "tuple[Any, ...] | None"


def neighbours(func: PrimFunc) -> list[tuple[str, str]]:
    """The places of all pairs of statements that follow each other."""
    paths = dict(each_path(func.body))
    nexts = ((path, (*path[:-1], (path[-1][0] + 1, False))) for path in paths)
    return [(address_of(func, a), address_of(func, b)) for a, b in nexts if b in paths]


def at(func: PrimFunc, place: str) -> Any:
    return statement_at(func, path_of(func, place))


def one_of(places: Sequence[Any], number: Number) -> Any:
    return places[number(0, len(places) - 1)] if places else None


def edited(func: PrimFunc, place: str, change: Callable[[Any], Body], count: int = 1) -> PrimFunc:
    """The kernel with `count` statements from a place on replaced."""

    def around(body: Body, position: int, _: object) -> Body:
        new = change(body[position])
        return (*body[:position], *new, *body[position + count :])

    return rewrite_around(func, place, around)


def copied(func: PrimFunc, body: Body, suffix: str) -> Body:
    return fresh_copy(body, suffix, place_names(func))[0]


def loop_places(func: PrimFunc, number: Number) -> str | None:
    return cast("str | None", one_of(places_of(func, For), number))


def serial(name: str, stop: Any, body: Body) -> For:
    return For(Var(name), const(0), as_index(stop), LoopKind.SERIAL, body)


# -- pairs of loops


def _perfect_pair(func: PrimFunc, number: Number) -> tuple[str, str] | None:
    pairs = [
        (loop.var.name, loop.body[0].var.name)
        for loop in loops_of(func.body)
        if len(loop.body) == 1 and isinstance(loop.body[0], For)
    ]
    return cast("tuple[str, str] | None", one_of(pairs, number))


def _to_reorder(func: PrimFunc, number: Number) -> Arguments:
    pair = _perfect_pair(func, number)
    return pair and (pair[::-1],)


def _reordered(func: PrimFunc, order: tuple[str, str]) -> PrimFunc:
    inner = at(func, order[0])
    return edited(
        func, order[1], lambda outer: (replace(inner, body=(replace(outer, body=inner.body),)),)
    )


def _to_multiply(func: PrimFunc, number: Number) -> Arguments:
    pair = _perfect_pair(func, number)
    return pair and (*pair, "k")


def _multiplied(func: PrimFunc, outer: str, inner: str, name: str) -> PrimFunc | None:
    one, other = at(func, outer), at(func, inner)
    if not other.extent:
        return None
    first = one.start + floor_div(Var(name), other.extent)
    body = substitute_body(
        other.body, {one.var: first, other.var: other.start + floor_mod(Var(name), other.extent)}
    )
    new = serial(name, (one.stop - one.start) * other.extent, body)
    return edited(func, outer, lambda _: (new,))


# -- single loops


def _to_divide(func: PrimFunc, number: Number) -> Arguments:
    loop = loop_places(func, number)
    tail = one_of(("perfect", "guard", "cut", "cut_and_guard"), number)
    return loop and (loop, number(1, 3), ("io", "ii"), tail)


def _divided(
    func: PrimFunc, loop: str, factor: int, names: tuple[str, str], tail: str
) -> PrimFunc | None:
    stmt = at(func, loop)
    extent = stmt.stop - stmt.start
    io, ii = Var(names[0]), Var(names[1])
    body = substitute_body(stmt.body, {stmt.var: stmt.start + factor * io + ii})
    if tail != "perfect":
        body = (If(less_than(factor * io + ii, extent), body),)
    blocks = floor_div(extent, factor) if tail == "perfect" else 5
    return edited(
        func, loop, lambda _: (serial(names[0], blocks, (serial(names[1], factor, body),)),)
    )


def _to_recompute(func: PrimFunc, number: Number) -> Arguments:
    loop = loop_places(func, number)
    return loop and (loop, number(1, 2), number(1, 2), ("io", "ii"))


def _recomputed(
    func: PrimFunc, loop: str, count: int, step: int, names: tuple[str, str]
) -> PrimFunc | None:
    stmt = at(func, loop)
    if stmt.extent is None or count * step > stmt.extent:
        return None
    index = stmt.start + step * Var(names[0]) + Var(names[1])
    body = substitute_body(stmt.body, {stmt.var: index})
    inner = serial(names[1], step + stmt.extent - count * step, body)
    return edited(func, loop, lambda _: (serial(names[0], count, (inner,)),))


def _point(func: PrimFunc, loop: str, number: Number) -> IndexExpr | int:
    """A number, or a variable around a loop plus one."""
    around = loops_around(func, loop)
    if around and number(0, 2) == 0:
        return cast(For, one_of(around, number)).var + number(-1, 2)
    return number(-1, 4)


def _to_cut(func: PrimFunc, number: Number) -> Arguments:
    loop = loop_places(func, number)
    return loop and (loop, _point(func, loop, number), "_b")


def _cut(func: PrimFunc, loop: str, point: Any, suffix: str) -> PrimFunc:
    def change(stmt: For) -> Body:
        (copy,) = cast("tuple[For]", copied(func, (stmt,), suffix))
        return replace(stmt, stop=as_index(point)), replace(copy, start=as_index(point))

    return edited(func, loop, change)


def _to_shift(func: PrimFunc, number: Number) -> Arguments:
    loop = loop_places(func, number)
    return loop and (loop, _point(func, loop, number))


def _shifted(func: PrimFunc, loop: str, start: Any) -> PrimFunc | None:
    def change(stmt: For) -> Body:
        move = stmt.start - start
        body = substitute_body(stmt.body, {stmt.var: stmt.var + move})
        return (replace(stmt, start=as_index(start), stop=stmt.stop - move, body=body),)

    if isinstance(start, int) and start < 0:
        return None  # not a matter of what it computes
    return edited(func, loop, change)


def _kernel_to_join(number: Number) -> PrimFunc:
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


def _to_join(func: PrimFunc, number: Number) -> Arguments:
    return one_of([p for p in neighbours(func) if f"{p[0]}_b" == p[1]], number)


def _joined(func: PrimFunc, loop: str, second: str) -> PrimFunc:
    stop = at(func, second).stop
    return edited(func, loop, lambda s: (replace(s, stop=stop),), 2)


def _to_fission(func: PrimFunc, number: Number) -> Arguments:
    loops = [loop for loop in loops_of(func.body) if len(loop.body) > 1]
    loop = one_of(loops, number)
    return loop and (loop.var.name, number(1, len(loop.body) - 1), "_b")


def _parted(func: PrimFunc, loop: str, position: int, suffix: str) -> PrimFunc:
    def change(stmt: For) -> Body:
        var = Var(loop + suffix)
        second = substitute_body(stmt.body[position:], {stmt.var: var})
        return replace(stmt, body=stmt.body[:position]), replace(stmt, var=var, body=second)

    return edited(func, loop, change)


def _with_loop(number: Number) -> PrimFunc:
    """A kernel in which some statement is in one loop more."""
    func = effect_kernel(number)
    place = one_of(places_of(func), number)
    stop = number(0, 5) and number(1, 3)
    return edited(func, place, lambda s: (serial("r", stop, (s,)),)) if place else func


def _to_remove(func: PrimFunc, _: Number) -> Arguments:
    return ("r",) if "r" in place_names(func) else None


def _without_loop(func: PrimFunc, loop: str) -> PrimFunc:
    return edited(func, loop, lambda s: s.body)


def _to_add(func: PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func), number)
    return place and (place, "r", number(0, 3), number(0, 3) == 0)


def _repeated(func: PrimFunc, place: str, name: str, extent: int, guard: bool) -> PrimFunc:
    def change(stmt: Stmt) -> Body:
        return (serial(name, extent, (If(equal(Var(name), 0), (stmt,)),) if guard else (stmt,)),)

    return edited(func, place, change)


def _to_unroll(func: PrimFunc, number: Number) -> Arguments:
    loop = loop_places(func, number)
    return loop and (loop,)


def _unrolled(func: PrimFunc, loop: str) -> PrimFunc | None:
    stmt = at(func, loop)
    if not stmt.extent:
        return None  # nothing would be left, which is for dead code
    pieces: list[Stmt] = []
    for k in range(stmt.extent):
        piece = fresh_copy(stmt.body, f"_u{k}", place_names(func))[0]
        pieces += substitute_body(piece, {stmt.var: stmt.start + k})
    return edited(func, loop, lambda _: tuple(pieces))


# -- statements


def _two_statements(func: PrimFunc, number: Number) -> Arguments:
    return one_of(neighbours(func), number)


def _exchanged(func: PrimFunc, first: str, second: str) -> PrimFunc:
    other = at(func, second)
    return edited(func, first, lambda s: (other, s), 2)


def _expression(func: PrimFunc, number: Number) -> Arguments:
    found = [
        (place, expr_text(node))
        for place in places_of(func)
        for expr in expressions_of(at(func, place))
        for node in walk_expr(expr)
        if isinstance(node, Binary)
    ]
    return one_of(found, number)


def _commuted(func: PrimFunc, place: str, text: str) -> PrimFunc:
    def change(node: Any) -> Any:
        return Binary(node.op, node.right, node.left) if expr_text(node) == text else node

    return edited(func, place, lambda s: map_expressions((s,), change))


def _some_statement(func: PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func), number)
    return place and (place, "named")


def _named(func: PrimFunc, place: str, name: str) -> PrimFunc:
    return edited(func, place, lambda s: (Block(name, (s,)),))


# -- scopes


def _condition(func: PrimFunc, place: str, number: Number, outside: int = 0) -> Condition:
    """A condition on loops or on data; with `outside` it may read one element outside of x."""
    around = [loop.var for loop in loops_around(func, place)]
    if not func.inputs and not around:
        return TRUE
    if not func.inputs or (around and number(0, 2)):
        return random_predicate(number, around, 1)
    x = func.inputs[0]
    load = Load(x, tuple(const(number(0, extent - 1 + outside)) for extent in x.shape))
    return Comparison("eq" if x.dtype == "bool" else "lt", load, literal(number(0, 4), x.dtype))


def _to_specialize(func: PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func), number)
    count = number(1, 2)
    return place and (place, tuple(_condition(func, place, number, 1) for _ in range(count)))


def _specialized(func: PrimFunc, place: str, conditions: tuple[Condition, ...]) -> PrimFunc:
    def change(stmt: Stmt) -> Body:
        body: Body = copied(func, (stmt,), "_e")
        for k, condition in enumerate(reversed(conditions)):
            body = (If(condition, copied(func, (stmt,), f"_t{k}"), body),)
        return body

    return edited(func, place, change)


def _kernel_to_fuse(number: Number) -> PrimFunc:
    """A kernel with a loop that is parted into two, unless the first one would allocate memory."""
    func = effect_kernel(number)
    arguments = _to_fission(func, number)
    if arguments is None:
        return func
    loop, position, _ = arguments
    if any(isinstance(stmt, Allocate) for stmt in at(func, loop).body[:position]):
        return func
    return _parted(func, *arguments)


def _loops_to_fuse(func: PrimFunc, number: Number) -> Arguments:
    pairs = [
        pair
        for pair in neighbours(func)
        if isinstance(at(func, pair[0]), For) and isinstance(at(func, pair[1]), For)
    ]
    return one_of(pairs, number)


def _fused(func: PrimFunc, first: str, second: str) -> PrimFunc | None:
    a, b = at(func, first), at(func, second)
    if (a.start, a.stop) != (b.start, b.stop):
        return None
    body = (*a.body, *substitute_body(b.body, {b.var: a.var}))
    return edited(func, first, lambda s: (replace(s, body=body),), 2)


def kernel_with_conditions(number: Number) -> PrimFunc:
    """A kernel in which two neighbours are under the same condition, or nearly so."""
    func = effect_kernel(number)
    pair = one_of(neighbours(func), number)
    if pair is None or isinstance(at(func, pair[0]), Allocate):
        return func
    condition = _condition(func, pair[0], number)
    other = condition if number(0, 3) else _condition(func, pair[0], number)
    second = at(func, pair[1])
    if isinstance(second, Allocate):
        return func
    return edited(func, pair[0], lambda s: (If(condition, (s,)), If(other, (second,))), 2)


def _conditions_to_fuse(func: PrimFunc, number: Number) -> Arguments:
    pairs = [
        pair
        for pair in neighbours(func)
        if isinstance(at(func, pair[0]), If) and isinstance(at(func, pair[1]), If)
    ]
    return one_of(pairs, number)


def _conditions_fused(func: PrimFunc, first: str, second: str) -> PrimFunc:
    a, b = at(func, first), at(func, second)
    both = If(a.condition, (*a.then, *b.then), (*a.orelse, *b.orelse))
    return edited(func, first, lambda _: (both,), 2)


def _kernel_to_lift(number: Number) -> PrimFunc:
    """A kernel in which some statement is under a condition more."""
    func = effect_kernel(number)
    place = one_of(places_of(func), number)
    if place is None:
        return func
    condition = _condition(func, place, number)
    orelse = copied(func, (at(func, place),), "_o") if number(0, 1) else ()
    return edited(func, place, lambda s: (If(condition, (s,), orelse),))


def _to_lift(func: PrimFunc, number: Number) -> Arguments:
    places = [
        place
        for place in places_of(func, For, If)
        if len(path_of(func, place)) > 1 and not isinstance(_above(func, place)[1], Block)
    ]
    place = one_of(places, number)
    return place and (place,)


def _above(func: PrimFunc, place: str) -> tuple[str, Any, bool]:
    *outer, (position, otherwise), _ = path_of(func, place)
    path = (*outer, (position, False))
    return address_of(func, path), statement_at(func, path), otherwise


def _lifted(func: PrimFunc, place: str) -> PrimFunc | None:
    where, parent, otherwise = _above(func, place)
    stmt = at(func, place)
    body = parent.body if isinstance(parent, For) else parent.orelse if otherwise else parent.then
    if len(body) != 1:
        return None
    match parent, stmt:
        case For(), For():
            return _reordered(func, (stmt.var.name, parent.var.name))
        case For(), If():
            other: Body = (replace(parent, body=stmt.orelse),) if stmt.orelse else ()
            first = (replace(parent, body=stmt.then),)
            new: Stmt = If(stmt.condition, first, copied(func, other, "_o"))
        case If(), For() if not parent.orelse:
            new = replace(stmt, body=(If(parent.condition, stmt.body),))
        case If(), If() if not parent.orelse:
            sides = [
                (If(parent.condition, side),) if side else () for side in (stmt.then, stmt.orelse)
            ]
            new = If(stmt.condition, sides[0], sides[1])
        case _:
            return None
    return edited(func, where, lambda _: (new,))


LOOP_CASES = (
    PrimitiveCase(add_loop, _to_add, _repeated),
    PrimitiveCase(commute_expr, _expression, _commuted),
    PrimitiveCase(cut_loop, _to_cut, _cut),
    PrimitiveCase(divide_loop, _to_divide, _divided),
    PrimitiveCase(divide_with_recompute, _to_recompute, _recomputed),
    PrimitiveCase(fission, _to_fission, _parted),
    PrimitiveCase(
        fuse, _conditions_to_fuse, _conditions_fused, kernel_with_conditions, "of conditions"
    ),
    PrimitiveCase(fuse, _loops_to_fuse, _fused, _kernel_to_fuse, "of loops"),
    PrimitiveCase(join_loops, _to_join, _joined, _kernel_to_join),
    PrimitiveCase(lift_scope, _to_lift, _lifted, _kernel_to_lift),
    PrimitiveCase(mult_loops, _to_multiply, _multiplied),
    PrimitiveCase(name_statement, _some_statement, _named),
    PrimitiveCase(remove_loop, _to_remove, _without_loop, _with_loop),
    PrimitiveCase(reorder_loops, _to_reorder, _reordered),
    PrimitiveCase(reorder_stmts, _two_statements, _exchanged),
    PrimitiveCase(shift_loop, _to_shift, _shifted),
    PrimitiveCase(specialize, _to_specialize, _specialized),
    PrimitiveCase(unroll_loop, _to_unroll, _unrolled),
)
