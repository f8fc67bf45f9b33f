"""Random applications of the primitives on expressions and writes."""

from graphflow import tir
from graphflow.arith import at_least_zero
from graphflow.base.fields import replace
from graphflow.schedule import (
    bind_expr,
    eliminate_dead_code,
    inline_assign,
    merge_writes,
    rewrite_expr,
)
from graphflow.schedule.places.places import find, loops_around
from support.kernels.random_kernels import Number
from support.primitives.buffer_cases import buffer_kernel
from support.primitives.choices import Arguments, Choices, chosen
from support.primitives.primitive_cases import PrimitiveCase, literal
from support.primitives.refused_kernels import ROW, SQUARE, TEMPORARY, i, j
from support.primitives.statement_places import addressed, places_of

# Kernels ------------------------------------------------------------------------------------------


def twice_kernel(number: Number) -> tir.PrimFunc:
    """A buffer kernel in which many writes are followed by another one, mostly to one element."""

    def change(stmt: tir.Stmt) -> "tir.Stmt | tir.Body":
        if not isinstance(stmt, tir.Store | tir.Reduce) or number(0, 1):
            return stmt
        value = stmt.value if number(0, 1) else tir.Literal(number(0, 3), "int64")
        if number(0, 4) == 0:
            value = tir.Binary("add", tir.Load(stmt.buffer, stmt.indices), value)
        if number(0, 1):
            return stmt, tir.Store(stmt.buffer, stmt.indices, value)
        return stmt, tir.Reduce(tir.ReduceOp.ADD, stmt.buffer, stmt.indices, value)

    func = buffer_kernel(number)
    return replace(func, body=tir.map_body(func.body, change))


def assigned_kernel(number: Number) -> tir.PrimFunc:
    """A buffer kernel in which many stored values are first assigned to a buffer of one element."""
    count = 0

    def change(stmt: tir.Stmt) -> "tir.Stmt | tir.Body":
        nonlocal count
        if not isinstance(stmt, tir.Store) or number(0, 2) == 0:
            return stmt
        count += 1
        held = tir.Buffer(f"c{count}", (), "int64")
        again = (
            tir.Binary("add", tir.Load(held, ()), stmt.value)
            if number(0, 1)
            else tir.Load(held, ())
        )
        between = (stmt,) if number(0, 2) == 0 else ()
        first = tir.Store(held, (), stmt.value)
        return tir.Allocate(held), first, *between, replace(stmt, value=again)

    func = buffer_kernel(number)
    return replace(func, body=tir.map_body(func.body, change))


# Arguments ----------------------------------------------------------------------------------------


def _writes(func: tir.PrimFunc) -> list[tuple[str, tir.Store | tir.Reduce]]:
    return [
        (place, stmt)
        for place, stmt in addressed(func, tir.Store, tir.Reduce)
        if isinstance(stmt, tir.Store | tir.Reduce)
    ]


def _some_write(func: tir.PrimFunc, number: Number) -> tuple[str, tir.Store | tir.Reduce] | None:
    found = _writes(func)
    return found[number(0, len(found) - 1)] if found else None


def _node(stmt: tir.Store | tir.Reduce, number: Number) -> tir.Expr:
    numbers = [n for n in tir.walk_expr(stmt.value) if n.dtype == stmt.value.dtype]
    nodes = [n for n in numbers if not isinstance(n, tir.Literal)] or [stmt.value]
    return nodes[number(0, len(nodes) - 1)]


def _bound(c: Choices) -> Arguments:
    """An expression of a write, there or in a loop around; or all loads of a buffer in a loop."""
    reads = [
        (loop.var.name, name)
        for loop in c.loops()
        for name in dict.fromkeys(a.buffer.name for a in tir.accesses(loop.body))
        if all(
            a.kind is tir.AccessKind.READ for a in tir.accesses(loop.body) if a.buffer.name == name
        )
    ]
    if reads and c.dice.chance(0.5):
        return *c.dice.among(reads), c.name()
    found = _some_write(c.func, c.dice.between)
    if found is None:
        return None
    place, stmt = found
    around = loops_around(c.func, place)
    if around and c.dice.chance(0.5):
        place = c.dice.among(around).var.name
    return place, _node(stmt, c.dice.between), c.name(), c.dice.chance(0.5)


def _rewritten(func: tir.PrimFunc, number: Number) -> Arguments:
    found = _some_write(func, number)
    if found is None:
        return None
    place, stmt = found
    old = _node(stmt, number)
    around = loops_around(func, place)
    kind = number(0, 4)
    new: tir.Expr = literal(1, old.dtype)
    if kind < 2 and around:
        new = tir.Select(at_least_zero(around[-1].var), old, literal(7, old.dtype))
    elif kind == 2 and isinstance(old, tir.Binary):
        new = replace(old, left=old.right, right=old.left)
    elif kind == 3:
        new = _node(stmt, number)
    return place, old, new


def _pair(func: tir.PrimFunc, number: Number) -> Arguments:
    places = dict(_writes(func))
    pairs = [(place, after) for place in places if (after := _after(place)) in places]
    return pairs[number(0, len(pairs) - 1)] if pairs else None


def _after(place: str) -> str:
    head, _, position = place.rstrip("]").rpartition("[")
    return f"{head}[{int(position) + 1}]"


def _assignment(func: tir.PrimFunc, number: Number) -> Arguments:
    params = {param.buffer for param in func.params}
    found = [
        place
        for place, stmt in _writes(func)
        if isinstance(stmt, tir.Store) and stmt.buffer not in params
    ]
    return (found[number(0, len(found) - 1)],) if found else None


def _loop_or_condition(func: tir.PrimFunc, number: Number) -> Arguments:
    """A place, or none: wherever something is dead."""
    found = places_of(func, tir.For, tir.If)
    conditions = [place for place in found if isinstance(find(func, place)[0], tir.If)]
    found = conditions or found
    return (found[number(0, len(found) - 1)],) if found and number(0, 1) else ()


# What is refused ----------------------------------------------------------------------------------


def times_zero(func: tir.PrimFunc) -> tir.Binary:
    """Zero times an element that is not always there."""
    return tir.Binary("mul", tir.Literal(0, "int32"), tir.Load(func.inputs[0], (i + 4,)))


EXPRESSION_CASES = (
    PrimitiveCase(bind_expr, chosen(_bound), buffer_kernel, share=1)
    .on(ROW.format("y[i] = x[i]"), "i", "x[0]", "b")
    .refuses("found", r"x\[0\] does not stand in i")
    .on('with block("b"):\n    for i in serial(0, 16):\n        y[i] = x[i]', "b", "x[i]", "c")
    .refuses("scope", r"x\[i\] changes with i inside b")
    .on(TEMPORARY + "for i in serial(0, 4):\n    t[0] = x[i]\n    y[i] = t[3 - i]")
    .given("i", "t[-i + 3]", "b")
    .refuses("unchanged", r"t\[-i \+ 3\] is the same at each use in i", r"i=\d+")
    .on(ROW.format("if i < 12:\n        y[i] = x[i + 4]"), "i", "x[i + 4]", "b")
    .refuses("memory", r"x\[i \+ 4\] is in bounds at each point of 0 <= i < 16", r"i=\d+")
    .on(ROW.replace("serial", "vectorized").format("y[i] = x[i]"), "i[0]", "x[i]", "b")
    .refuses("lanes", "the iterations of i are lanes")
    .on("for i in serial(0, 15):\n    y[i] = x[i] + x[i + 1]", "i", "x", "b")
    .refuses("found", r"x stands for x\[i\] and x\[i \+ 1\] in i")
    .on("for i in serial(0, 15):\n    y[i] = i32(1)", "i", "x", "b")
    .refuses("found", "x does not stand in i")
    .on("for i in serial(0, 15):\n    for j in serial(0, i - 9):\n        y[j] = x[i + 8]")
    .given("i", "x", "b")
    .refuses("memory", r"x\[i \+ 8\] is in bound")
    .on("for i in serial(0, 15):\n    if data(x[i + 8] < i32(3)):\n        y[i] = i32(1)")
    .given("i", "x", "b")
    .refuses("memory", r"x\[i \+ 8\] is in bound")
    .on("for i in serial(0, 4):\n    t = alloc(i32[1])\n    t[0] = x[i]\n    y[i] = t[0]")
    .given("i", "t", "b")
    .refuses("scope", "t is allocated inside i")
    .on("for i in serial(0, 4):\n    assume(unless(False), x[i] == i32(0))\n    y[i] = x[i]")
    .given("i", "x", "b")
    .refuses("scope", "i assumes something of what"),
    PrimitiveCase(eliminate_dead_code, _loop_or_condition, buffer_kernel, share=1)
    .on(ROW.format("y[i] = x[i]"), "i")
    .refuses("runs", "i never runs")
    .on(ROW.format("if i < 12:\n        y[i] = x[i]"), "i[0]")
    .refuses(
        "decided",
        r"the condition of i\[0\] is not always the same",
        r"i=\d+, and its negation: i >= \d+ for \d+ <= i < \d+ \(a point: fails at i=\d+",
    )
    .on("for i in serial(0, 4):\n    if i < 3:\n        y[i] = x[i]\n    y[i + 4] = x[i]", "i[1]")
    .refuses("decided", r"nothing in i\[1\] is dead"),
    PrimitiveCase(inline_assign, _assignment, assigned_kernel)
    .on(ROW.format("y[i] = x[i]"), "i[0]")
    .refuses("store", r"i\[0\] is no store to a buffer that is allocated here")
    .on(ROW.format("t = alloc(i32[16])\n    t[3] = x[i]\n    y[i] = t[i]"), "i[1]")
    .refuses("element", r"t\[i\] is t\[3\]", r"i=\d+")
    .on(ROW.format("t = alloc(i32[1])\n    t[0] = x[i]\n    t[0] = x[0]\n    y[i] = t[0]"), "i[1]")
    .refuses("written", r"t\[0\] is not written before its use", r"i=\d+")
    .on(
        TEMPORARY
        + ROW.format("u = alloc(i32[1])\n    u[0] = t[3]\n    t[i] = x[0]\n    y[i] = u[0]")
    )
    .given("i[1]")
    .refuses("unchanged", r"the value of u\[0\] is the same at each use", r"i=\d+")
    .on("t = alloc(i32[1])\n" + ROW.format("t[0] = x[i]\n    y[i] = t[0]") + "\ny[0] = t[0]")
    .given("i[0]")
    .refuses("unread", r"t\[0\]", r"t\[0\] at i=\d+ is read by t\[0\] at \(\)")
    .on(
        "t = alloc(i32[2])\nfor i in serial(0, 2):\n    t[i] = x[i]\n"
        "    for k in serial(i, i + 1):\n        y[k] = t[0]\n    if i < 1:\n"
        "        y[i + 2] = t[0]"
    )
    .given("i[0]")
    .refuses("", "element: ")
    .on("t = alloc(i32[1])\nt[0] = x[0]\nassume(unless(False), t[0] == i32(0))\ny[0] = x[0]", "[1]")
    .refuses("element", "t is in an assumption behind"),
    PrimitiveCase(merge_writes, _pair, twice_kernel)
    .on("y[0] = x[0]\ny[1] = x[1]\ny[0] = x[2]", "[0]", "[2]")
    .refuses("neighbours", r"\[2\] does not follow \[0\] directly")
    .on(ROW.format("y[i] = x[i]\n    y[15 - i] = x[0]"), "i[0]", "i[1]")
    .refuses("destination", r"y\[i\] and y\[-i \+ 15\] are one", r"i=\d+")
    .on(ROW.format("y[i] += x[i]\n    reduce_max(y[i], x[0])"), "i[0]", "i[1]")
    .refuses("operator", "add and max are two")
    .on(ROW.format("y[i] = x[i]\n    y[i] = y[i] + x[0]"), "i[0]", "i[1]")
    .refuses("reads", r"the second value does not read y\[i\]")
    .on("for i in serial(0, 4):\n    y[i] = x[i]\nfor j in serial(0, 4):\n    y[j] = x[j]")
    .given("i", "j")
    .refuses("neighbours", "i and j are not two writes")
    .on(
        "t = alloc(i32[4])\nfor i in serial(0, 4):\n    t[i] = x[i]\n    y[i] = x[i]\n"
        "    y[i] += t[i]"
    )
    .given("i[0]", "i[1]")
    .refuses("destination", r"t\[i\] and y\[i\] are of two buffers"),
    PrimitiveCase(rewrite_expr, _rewritten, buffer_kernel)
    .on(ROW.format("y[i] = x[i]"), "i[0]", "x[0]", tir.Literal(1, "int32"))
    .refuses("found", r"x\[0\] does not stand in i\[0\]")
    .given("i[0]", "x[i]", tir.Literal(1, "int64"))
    .refuses("type", r"x\[i\] is int32, the other int64")
    .given("i[0]", i, i + j)
    .refuses("scope", "no loop around .* binds j")
    .on(SQUARE.format("serial", "serial", "y[4*i + j] = x[j]"), "j[0]", 4 * i + j, 4 * j + i)
    .refuses("equal", r"4\*i \+ j and 4\*j \+ i", r"i=\d+, j=\d+")
    .on(ROW.format("y[i] = i32(0)"))
    .given(by=lambda f: rewrite_expr(f, "i[0]", "i32(0)", times_zero(f)))
    .refuses("memory", r"what i32\(0\) \* x\[i \+ 4\] loads is in bounds", r"i=\d+"),
)
