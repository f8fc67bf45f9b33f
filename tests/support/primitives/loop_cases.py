"""Random applications of the primitives on loops, statements and scopes."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from graphflow import arith, tir
from graphflow.arith import const
from graphflow.base.fields import replace
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
from support.primitives.refused_kernels import PLAIN, ROW, SQUARE, TEMPORARY, i
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


# What is refused ----------------------------------------------------------------------------------

TRIANGLE = "for i in serial(0, 4):\n    for j in {}(0, i{}):\n        y[4*i + j] = x[4*i + j]"
NOT_PERFECT = (
    "for i in serial(0, 4):\n    y[i] = x[i]\n    for j in serial(0, 4):\n        y[4*i + j] = x[j]"
)
PAIR = "for i in serial(0, 16):\n    {}\nfor j in serial(0, 16):\n    {}"


def reading(func: tir.PrimFunc, index: Any) -> tir.Comparison:
    """The condition that an element of x is below one."""
    return tir.Comparison("lt", tir.Load(func.inputs[0], (index,)), tir.Literal(1, "int32"))


LOOP_CASES = (
    PrimitiveCase(add_loop, _to_add)
    .on(ROW.format("y[i] = x[i]"), "i[0]", "r", i)
    .refuses("1", "i is positive", r"i=\d+")
    .on(ROW.format("y[0] += x[i]"), "i[0]", "r", 2)
    .refuses(
        "2",
        "the body of r is idempotent",
        r"what y\[0\] at i=\d+, r=\d+ holds is read by y\[0\] at i'=\d+, r'=\d+",
    )
    .on(TEMPORARY + "y[0] = t[0]", "[0]", "r", 2)
    .refuses("3", r"\[0\] is an allocation, which would end with the loop")
    .on("for i in vectorized(0, 4):\n    y[i] = x[i]", "i[0]", "r", 2)
    .refuses("3", r"i\[0\] stands inside i, whose iterations are lanes")
    .on("t = alloc(i32[4])\nfor i in vectorized(0, 4):\n    t[i] = x[i]\n    y[i] = t[i]")
    .given("i", "i", 2)
    .refuses("", "uses the name i already")
    .on(ROW.format("y[i] = x[n]"), "i", "n", 2, params="x: i32[16], y: out[i32[16]], n: index")
    .refuses("", "k uses the name n already"),
    PrimitiveCase(commute_expr, _expression)
    .on(ROW.format("y[i] = x[i] + x[0]"), "i[0]", "x[i] + x[1]")
    .refuses("1", r"x\[i\] \+ x\[1\] does not stand in i\[0\]")
    .on(ROW.format("y[i] = x[i] - x[0]"), "i[0]", "x[i] - x[0]")
    .refuses("2", r"the operands of x\[i\] - x\[0\] do not commute"),
    PrimitiveCase(cut_loop, chosen(_to_cut), share=1)
    .on(ROW.format("y[i] = x[i]"), "i", 17, "_b")
    .refuses("1", "17 lies between the bounds of i")
    .on(PLAIN, "j", i + 2, "_b")
    .refuses("1", r"i \+ 2 lies between the bounds of j", r"i=\d+")
    .on(SQUARE.format("serial", "vectorized", "y[4*i + j] = x[4*i + j]"), "j", i, "_b")
    .refuses("2", r"the loop j runs over \(0, i\), not a constant extent")
    .on(
        "for i in serial(0, 14):\n    y[i] = x[i] + x[i]\nfor j in serial(14, 16):\n    y[j] = x[j]"
    )
    .given("j", 13, "_e")
    .refuses("", "13 lies between the bounds of j does not hold")
    .on("for i in serial(0, 4):\n    for j in serial(i, 4):\n        y[4*i + j] = x[j]")
    .given("j", 2, "_e")
    .refuses("", "2 lies between the bounds of j does not hold"),
    PrimitiveCase(divide_loop, chosen(_to_divide), share=3)
    .on(PLAIN, "i", 0, ("a", "b"))
    .refuses("1", r"cannot divide by 0 with tail guard; tails are \('perfect', 'guard',")
    .given("i", 3, ("a", "b"), "perfect")
    .refuses("2", "perfect needs a factor that divides 4, and 3 does not")
    .on(TRIANGLE.format("serial", " + 1"), "j", 2, ("a", "b"), "perfect")
    .refuses("2", r"2 divides the extent i \+ 1", r"i=\d+")
    .on(TRIANGLE.format("unrolled", " + 1"), "j", 2, ("a", "b"), "guard")
    .refuses("3", r"the loop j runs over \(0, i \+ 1\), not a constant extent")
    .on(
        "for i in serial(0, 14):\n    y[i] = x[i] + x[i]\nfor j in serial(14, 16):\n    y[j] = x[j]"
    )
    .given("i", 4, ("io", "ii"), "round")
    .refuses("", "tails are"),
    PrimitiveCase(divide_with_recompute, _to_recompute, least=1 / 5)
    .on(PLAIN, "i", 3, 2, ("a", "b"))
    .refuses("1", "3 blocks of step 2 are more than the 4 of i")
    .on(ROW.format("y[0] += x[i]"), "i", 3, 4, ("a", "b"))
    .refuses("2", "the iterations of i are independent", r"i=\d+, i'=\d+")
    .on(ROW.replace("serial", "parallel").format("y[i] = x[i]"), "i", 3, 4, ("a", "b"))
    .refuses("3", "i is parallel, and two blocks store the same elements"),
    PrimitiveCase(fission, chosen(_to_fission), share=2)
    .on(PLAIN, "i", 0, "_b")
    .refuses("1", "position 0 leaves one side of i empty")
    .on(ROW.format("t = alloc(i32[1])\n    t[0] = x[i]\n    y[i] = t[0]"), "i", 2, "_b")
    .refuses("2", "the second part uses t, which the first allocates")
    .on(TEMPORARY + "for i in serial(0, 15):\n    t[i] = i32(1)\n    y[i] = t[i + 1]", "i", 1, "_b")
    .refuses("3", "the parts of i are independent across iterations", r"i=\d+, i'=\d+")
    .on("for i in serial(0, 16):\n    y[i] = x[i]\n    y[i] = x[i]", "i", 1, "_s", 2)
    .refuses("", "i has no loop around it to split as well")
    .on("for i in serial(1, 16):\n    y[i] = y[i - 1] + x[i]\n    y[i] *= x[i]", "i", 1, "_u")
    .refuses("", "the parts of i are independent across iterations")
    .on(
        "for z in serial(0, 16):\n    y[z] = x[z]\nfor i in serial(0, 16):\n    if i < 9:\n"
        "        t = alloc(i32[()])\n        t[()] = x[i]\n        y[i] = t[()] + t[()]"
    )
    .given("i", 2, "_u")
    .refuses("", "leaves one side of i empty")
    .on(
        "for i in serial(0, 4):\n    if i < 9:\n        t = alloc(i32[4])\n"
        "        for j in serial(0, 4):\n            t[j] = x[4*i + j]\n"
        "            y[4*i + j] = t[j]"
    )
    .given("j", 1, "_u", 2)
    .refuses("", "the second part uses t, which the first allocates")
    .on(
        "for i in serial(0, 4):\n    if data(x[i] < i32(3)):\n"
        "        for j in serial(0, 4):\n            y[4*i + j] = x[j]\n"
        "            y[4*i + j] += x[i]\n    else:\n        y[4*i] = x[i]"
    )
    .given("j", 1, "_u", 2)
    .refuses("", "a data condition or an else branch holds both parts")
    .on('with block("b"):\n    for i in serial(0, 16):\n        y[i] = x[i]', "i", 1, "_u")
    .refuses("", "position 1 leaves one side of i empty")
    .given("b", 1, "_u")
    .refuses("", "b is a block, and a loop is needed"),
    PrimitiveCase(fuse, _conditions_to_fuse, kernel_with_conditions, "of conditions")
    .on(
        "for i in serial(0, 4):\n    y[i] = x[i]\n"
        "y[15] = x[0]\nfor k in serial(0, 4):\n    y[k + 4] = x[k]"
    )
    .given("i", "k")
    .refuses("1", "k does not follow as a loop or block of the same kind")
    .on("for i in serial(0, 4):\n    y[i] = x[i]\nfor k in serial(0, 5):\n    y[k + 4] = x[k]")
    .given("i", "k")
    .refuses("2", "i and k have equal bounds")
    .on(ROW.format("if i < 3:\n        y[i] = x[i]\n    if i < 5:\n        y[i] = x[0]"))
    .given("i[0]", "i[1]")
    .refuses("2", "i < 3 and i < 5 are equivalent", r"i=\d+")
    .on("t = alloc(i32[16])\n" + PAIR.format("t[i] = x[i]", "y[j] = t[15 - j]"), "i", "j")
    .refuses("3", "no iteration of j needs a later one of i", r"i=\d+, i'=\d+")
    .on(
        "t = alloc(i32[16])\nt[0] = x[0]\n"
        + PAIR.replace("serial(0", "parallel(1").format("t[i] = x[i]", "y[j] = t[j - 1]")
    )
    .given("i", "j")
    .refuses("4", "the iterations of i are independent", r"i=\d+, i'=\d+"),
    PrimitiveCase(fuse, chosen(_to_fuse), _kernel_to_fuse, "of loops", share=1.5),
    PrimitiveCase(join_loops, _to_join, _kernel_to_join)
    .on(
        "for i in serial(0, 4):\n    y[i] = x[i]\n"
        "y[15] = x[0]\nfor k in serial(4, 8):\n    y[k] = x[k]"
    )
    .given("i", "k")
    .refuses("1", "k does not follow i directly")
    .on("for i in serial(0, 4):\n    y[i] = x[i]\nfor k in serial(4, 8):\n    y[k] = x[0]")
    .given("i", "k")
    .refuses("2", "the bodies of i and k are not identical: they differ from statement 0")
    .on(
        "for a in serial(0, 4):\n    for i in serial(0, a):\n"
        "        y[i] = x[i]\n    for k in serial(2, 8):\n        y[k] = x[k]"
    )
    .given("i", "k")
    .refuses("3", "k starts where i stops", r"a=\d+")
    .on("for i in serial(0, 4):\n    y[i] = x[i]\nfor k in unrolled(4, 8):\n    y[k] = x[k]")
    .given("i", "k")
    .refuses("4", "i is serial and k is unrolled")
    .on(
        "for i in parallel(0, 4):\n    y[i % 4] = x[i]\n"
        "for k in parallel(4, 8):\n    y[k % 4] = x[k]"
    )
    .given("i", "k")
    .refuses("4", "the iterations of i are independent", r"i=\d+, i'=\d+")
    .on(
        "for i in serial(0, 4):\n    y[i] = x[i]\nfor j in serial(4, 8):\n    y[j] = x[j]\n"
        "    y[j] = x[j]"
    )
    .given("i", "j")
    .refuses("", "they differ in their numb")
    .on("for i in serial(0, 4):\n    y[i] = x[i]\nfor j in serial(5, 8):\n    y[j] = x[j]")
    .given("i", "j")
    .refuses("", "j starts where i stops does not hold")
    .on("for i in serial(0, 4):\n    y[i] = x[i]\nfor j in serial(4, 3):\n    y[j] = x[j]")
    .given("i", "j")
    .refuses("", "j starts where i stops does not hold"),
    PrimitiveCase(lift_scope, _to_lift, _kernel_to_lift, least=1 / 4)
    .on(NOT_PERFECT, "j")
    .refuses("1", "j is not the only statement in the body of i")
    .on(ROW.format("if i < 3:\n        y[i] = x[i]"), "i[0]")
    .refuses("2", "i < 3 depends on i")
    .on(TEMPORARY + ROW.format("if data(t[3] < i32(1)):\n        t[i] = i32(2)") + "\ny[0] = t[0]")
    .given("i[0]")
    .refuses("2", r"no iteration of i writes what data\(t\[3\] < i32\(1\)\) reads", r"i'=\d+")
    .on(ROW.format("if i < 12:\n        if data(x[i + 4] < i32(1)):\n            y[i] = x[i]"))
    .given("i[0][0]")
    .refuses("3", r"what data\(x\[i \+ 4\] < i32\(1\)\) reads exists", r"i=\d+")
    .on(
        "for i in serial(0, 4):\n    with y[0:4] as v:\n        v[0] = x[i]\n"
        "        with let(v[0]) as t:\n            y[i + 4] = t[()]"
    )
    .given("t")
    .refuses("", r"unchanged: y\[0\] is the same in front of v")
    .on("for i in serial(0, 4):\n    with let(y[0]) as t:\n        y[i] = x[i] + t[()]", "t")
    .refuses("", r"unchanged: y\[0\] is the same in front of i")
    .on("if data(x[0] < i32(3)):\n    y[0] = x[1]\n    with let(y[0]) as t:\n        y[1] = t[()]")
    .given("t")
    .refuses("", r"unchanged: y\[0\] is the same in front of \[0\]")
    .on(
        "for i in serial(0, 4):\n    if i >= 1:\n        with let(x[i - 1]) as t:\n"
        "            y[i] = t[()]"
    )
    .given("t")
    .refuses("", r"memory: x\[i - 1\] is in bounds")
    .on(ROW.format("y[i] = x[i]"), "i")
    .refuses("", "nothing is around i")
    .on(ROW.format("if data(x[i] < i32(3)):\n        y[i] = x[i]"), "i[0]")
    .refuses("", "depends on i")
    .on(
        "for j in serial(0, 4):\n    if j < 3:\n        for i in serial(0, 4):\n"
        "            y[i] = x[i]\n    else:\n        y[j] = x[j]"
    )
    .given("i")
    .refuses("", r"j\[0\] has an else branch")
    .on("for j in serial(0, 4):\n    for i in serial(j, 4):\n        y[i] = x[i]", "i")
    .refuses("", "bounds of i depend on j")
    .on('for j in serial(0, 4):\n    with block("b"):\n        if j < 2:\n            y[j] = x[j]')
    .given("b[0]")
    .refuses("", r"b and b\[0\] are not both loops, conditions or lets"),
    PrimitiveCase(mult_loops, chosen(_to_multiply), share=1.5)
    .on(NOT_PERFECT, "i", "j", "k")
    .refuses("1", "j must be the only statement in the body of i")
    .on(TRIANGLE.format("serial", " + 1"), "i", "j", "k")
    .refuses("2", r"the loop j runs over \(0, i \+ 1\), not a constant extent")
    .on(SQUARE.format("parallel", "serial", "y[4*i] += x[4*i + j]"), "i", "j", "k")
    .refuses("3", "the iterations of k are independent", r"k=\d+, k'=\d+")
    .on("for i in serial(0, 4):\n    for j in serial(0, 0):\n        y[i] = x[i + j]")
    .given("i", "j", "k")
    .refuses("", "the loop j never runs, so i and it are no single loop"),
    PrimitiveCase(name_statement, _some_statement)
    .on("t = alloc(i32[1])\nfor i in serial(0, 16):\n    t[0] = x[i]\n    y[i] = t[0]", "[0]", "b")
    .refuses("", "is an allocation, which would end with the block")
    .given("i[0]", "i")
    .refuses("", "uses the name i already"),
    PrimitiveCase(remove_loop, _to_remove, _with_loop)
    .on(ROW.format("y[i] = x[0]"), "i")
    .refuses("1", "the body of i depends on i")
    .on(ROW.format("y[0] += x[0]"), "i")
    .refuses(
        "2",
        "the body of i is idempotent",
        r"what y\[0\] at i=\d+ holds is read by y\[0\] at i'=\d+",
    )
    .on("for i in serial(0, 4):\n    for r in serial(0, i):\n        y[i] = x[i]", "r")
    .refuses("3", "r runs at least once", r"i=\d+"),
    PrimitiveCase(reorder_loops, chosen(_to_reorder), share=2.5)
    .on(NOT_PERFECT, ("j", "i"))
    .refuses("1", "j, i are not a perfect nest: see the body of i")
    .on(TRIANGLE.format("serial", " + 1"), ("j", "i"))
    .refuses("2", "the bounds of j depend on i")
    .on(SQUARE.format("serial", "serial", "y[i + j] = x[4*i + j]"), ("j", "i"))
    .refuses("3", "i and j commute", r"i=\d+, j=\d+, i'=\d+, j'=\d+")
    .on(SQUARE.format("serial", "vectorized", "y[4*i + j] = x[4*i + j]"), ("j", "i"))
    .refuses("4", "one of i and j runs as lanes; reorder before that")
    .on(SQUARE.format("serial", "parallel", "y[i + j] += x[4*i + j]"), ("j", "i"))
    .refuses("4", "the iterations of j are independent", r"j=\d+, i=\d+, j'=\d+, i'=\d+"),
    PrimitiveCase(reorder_stmts, _two_statements)
    .on("y[0] = x[0]\ny[1] = x[1]\ny[2] = x[2]", "[0]", "[2]")
    .refuses("1", r"\[2\] does not follow \[0\] directly")
    .on(ROW.format("y[i % 8] = x[0]\n    y[3] = x[i]"), "i[0]", "i[1]")
    .refuses("2", r"i\[0\] and i\[1\] commute", r"i=\d+")
    .on(TEMPORARY + "y[0] = t[0]", "[0]", "z")
    .refuses("3", r"\[0\] allocates t, which z uses"),
    PrimitiveCase(shift_loop, chosen(_to_shift), share=1.5)
    .on(PLAIN, "j", i - 1)
    .refuses("1", "the new start i - 1 of j is not negative", r"i=\d+"),
    PrimitiveCase(specialize, _to_specialize)
    .on(PLAIN)
    .given(by=lambda f: specialize(f, "j", [reading(f, i + 13)]))
    .refuses("1", r"what data\(x\[i \+ 13\] < i32\(1\)\) reads exists", r"i=\d+")
    .given(by=lambda f: specialize(f, "i", [reading(f, i)]))
    .refuses("1", r"data\(x\[i\] < i32\(1\)\) uses i, and no loop around the place binds it")
    .on(TEMPORARY + "y[0] = t[0]")
    .given(by=lambda f: specialize(f, "[0]", [reading(f, const(0))]))
    .refuses("2", r"\[0\] is an allocation, which would end with the branch"),
    PrimitiveCase(unroll_loop, _to_unroll)
    .on(TRIANGLE.format("serial", " + 1"), "j")
    .refuses("1", r"the loop j runs over \(0, i \+ 1\), not a constant extent")
    .on("for i in serial(0, 0):\n    y[i] = x[i]", "i")
    .refuses("2", r"i never runs: \(0, 0\) is empty")
    .on("for i in serial(0, 20000):\n    y[0] = x[0]", "i")
    .refuses("3", "size: i written out has 20,000 statements, and 10,000 is most"),
)
