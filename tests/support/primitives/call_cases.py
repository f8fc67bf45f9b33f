"""Random applications of the primitives on calls, lanes and no-ops."""

from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule import (
    Rewrite,
    Schedule,
    call_eqv,
    extract_subproc,
    inline,
    mark_unrolled,
    remove_no_op,
    transform_layout,
    vectorize_loop,
    write_config,
)
from graphflow.schedule import replace as replace_statement
from graphflow.schedule.places.place_names import fresh_name, names_of_places
from support.kernels.random_kernels import Number
from support.primitives.buffer_cases import buffer_kernel
from support.primitives.choices import Arguments, Choices, chosen, on_loop
from support.primitives.loop_cases import LOOP_CASES, one_of
from support.primitives.primitive_cases import PrimitiveCase
from support.primitives.refused_kernels import ACT, PLAIN
from support.primitives.statement_places import places_of


def _extracted(func: tir.PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func, tir.For, tir.Block), number)
    return place and (place, "inner")


def calling_kernel(number: Number) -> tir.PrimFunc:
    """A buffer kernel of which one loop is a kernel that it calls."""
    func = buffer_kernel(number)
    arguments = _extracted(func, number)
    return extract_subproc(func, *arguments).func if arguments else func


def _to_mark(c: Choices) -> Arguments:
    """A loop, mostly an innermost one that allocates nothing."""
    inner = [
        loop.var.name
        for loop in c.loops()
        if not any(isinstance(stmt, tir.For | tir.Allocate) for stmt in tir.walk(loop.body))
    ]
    return (c.dice.among(inner),) if inner and c.dice.chance(0.6) else on_loop(c)


def _write(func: tir.PrimFunc, number: Number) -> Arguments:
    """A write, or no place: all of them."""
    place = one_of(places_of(func, tir.Store, tir.Reduce), number)
    return (place,) if place and number(0, 2) else ()


# Calls of other kernels ---------------------------------------------------------------------------


def _exchanged(func: tir.PrimFunc, number: Number) -> Arguments:
    """The call and a schedule of what it calls, at times of another kernel."""
    call = _call(func)
    if call is None:
        return None
    definition = call.definition
    if number(0, 5) == 0:
        definition = _with_other_numbers(definition)
    schedule = Schedule.of(definition)
    for _ in range(number(1, 4)):
        case = LOOP_CASES[number(0, len(LOOP_CASES) - 1)]
        arguments = case.arguments(schedule.func, number)
        if arguments is not None:
            schedule = schedule.attempt(case.primitive, *arguments)
    return call.name, schedule


def _call(func: tir.PrimFunc) -> tir.Call | None:
    return next((stmt for stmt in tir.walk(func.body) if isinstance(stmt, tir.Call)), None)


def _call_of(func: tir.PrimFunc, name: str) -> tir.Call:
    return next(
        stmt for stmt in tir.walk(func.body) if isinstance(stmt, tir.Call) and stmt.name == name
    )


def _with_other_numbers(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with two in place of each zero that it stores or adds."""

    def change(expr: tir.Expr) -> tir.Expr:
        zero = isinstance(expr, tir.Literal) and expr.dtype == "int64" and expr.value == 0
        return tir.Literal(2, "int64") if zero else expr

    return replace(func, body=tir.map_expressions(func.body, change))


def _instruction(func: tir.PrimFunc, number: Number) -> Arguments:
    """A statement with a definition of it, at times with other numbers or with lanes."""
    place = one_of(places_of(func, tir.For, tir.Block), number)
    name = fresh_name("part", lambda n: any(n in place for place in names_of_places(func)))
    try:
        call = _call_of(extract_subproc(func, place or "", name).func, name)
    except ScheduleError:
        return None
    definition = call.definition
    if number(0, 3) == 0:
        definition = _with_other_numbers(definition)
    loops = list(tir.loops_of(definition.body))
    if loops and number(0, 2) == 0:
        definition = vectorized(definition, loops[-1])
    return place, definition


def vectorized(func: tir.PrimFunc, loop: tir.For) -> tir.PrimFunc:
    """The kernel with a loop as lanes."""

    def change(stmt: tir.Stmt) -> tir.Stmt:
        return replace(stmt, kind=tir.LoopKind.VECTORIZED) if stmt == loop else stmt

    return replace(func, body=tir.map_body(func.body, change))


# What is refused ----------------------------------------------------------------------------------

FOUR = "for i in serial(0, 4):\n    y[i] = x[i]"
COPY = tir.parse(
    "@primfunc\ndef copy(c: out[i32[4]], a: i32[4]):\n"
    "    for l in vectorized(0, 4):\n        c[l] = a[l]\n"
)
SERIAL = tir.parse(
    "@primfunc\ndef copy(c: out[i32[4]], a: i32[4]):\n"
    "    for l in serial(0, 4):\n        c[l] = a[l]\n"
)
LESS = tir.parse(
    "@primfunc\ndef copy(c: out[i32[4]], a: i32[4]):\n"
    "    for l in serial(0, 3):\n        c[l] = a[l]\n"
)
LEAVE = tir.parse(
    "mode = config(act=i32)\n\n@primfunc\ndef leave(to: out[i32[4]], a: i32[4]):\n"
    "    for l in serial(0, 4):\n"
    "        to[l] = select(data(mode.act == i32(1)), max(a[l], i32(0)), a[l])\n"
)


def exchanged(func: tir.PrimFunc, definition: tir.PrimFunc, schedule: Schedule) -> Rewrite:
    """The call of a definition in place of the loop i exchanged by a schedule."""
    return call_eqv(replace_statement(func, "i", definition).func, "copy", schedule)


def with_state() -> tir.PrimFunc:
    """A call of a kernel, and a reader of a field behind it."""
    return tir.parse(
        "mode = config(act=i32)\n\n@primfunc\ndef k(x: i32[16], y: out[i32[16]]):\n"
        "    mode.act = i32(4)\n    for i in serial(0, 4):\n"
        "        y[i] = x[i]\n    y[5] = mode.act\n"
    )


CALL_CASES = (
    PrimitiveCase(call_eqv, _exchanged, calling_kernel)
    .on(FOUR)
    .given(by=lambda f: exchanged(f, SERIAL, Schedule.of(LESS)))
    .refuses("1", "copy calls copy, which is neither the definition nor the result of")
    .given(
        by=lambda f: exchanged(
            f, SERIAL, Schedule.of(SERIAL).apply(transform_layout, "a", lambda k: (k // 2, k % 2))
        )
    )
    .refuses("2", "copy and copy do not have the same parameters")
    .on("y[0] = x[0]\nfor i in serial(0, 4):\n    y[i + 1] = y[i]")
    .given(by=lambda f: exchanged(f, SERIAL, Schedule.of(SERIAL).apply(vectorize_loop, "l")))
    .refuses("3", "copy gets y twice and writes it; the schedule was proven for")
    .on(FOUR.replace("4", "3"))
    .given(by=lambda f: exchanged(f, LESS, Schedule.of(LESS).apply(lambda _: Rewrite(SERIAL))))
    .refuses("4", "copy writes an element of c that copy does not write for sure", r"\{ B\[3\] \}")
    .on("for o in vectorized(0, 4):\n    for i in serial(0, 4):\n        y[4*o + i] = x[i]")
    .given(by=lambda f: exchanged(f, SERIAL, Schedule.of(SERIAL).apply(vectorize_loop, "l")))
    .refuses("5", "copy stands inside o, whose iterations are lanes")
    .on(with_state)
    .given(by=lambda f: exchanged(f, SERIAL, Schedule.of(SERIAL).apply(write_config, "l", ACT, 1)))
    .refuses(
        "6",
        r"state: nothing behind copy reads mode\.act",
        r"mode\.act at \(\) is read by mode\.act at \(\)",
    ),
    PrimitiveCase(extract_subproc, _extracted, buffer_kernel)
    .on("for i in parallel(0, 4):\n    y[i] = x[i]", "i", "part")
    .refuses("1", "i holds a parallel loop; make it serial first")
    .on(PLAIN, "i", "a.b")
    .refuses("", "'a.b' has a dot")
    .on(
        "t.a = alloc(i32[16])\nt_a = alloc(i32[16])\nfor i in serial(0, 16):\n"
        "    t.a[i] = x[i]\n    t_a[i] = t.a[i]\n    y[i] = t_a[i]"
    )
    .given("i", "inner")
    .refuses("", "two buffers in inner would get one name")
    .on(
        "for i.a in serial(0, 4):\n    for i_a in serial(0, 4):\n"
        "        for k in serial(0, 1):\n            y[4*i.a + i_a] = x[4*i.a + i_a]"
    )
    .given("k", "inner")
    .refuses("", "two variables in inner would get one name"),
    PrimitiveCase(
        inline, lambda func, _: ("inner",) if "inner" in places_of(func) else None, calling_kernel
    ),
    PrimitiveCase(mark_unrolled, chosen(_to_mark), share=0.6),
    PrimitiveCase(remove_no_op, _write, buffer_kernel, share=0.5),
    PrimitiveCase(replace_statement, _instruction, buffer_kernel)
    .on(FOUR.replace("x[i]", "x[0]"), "i", COPY)
    .refuses("1", r"i does not unify with copy: copy has `a\[l\]` where the statement has")
    .on("for i in serial(0, 4):\n    y[i + 1] = y[i]", "i", COPY)
    .refuses("2", r"the iterations of copy\.l are independent", r"copy\.l=\d+, copy\.l'=\d+")
    .on("for o in vectorized(0, 4):\n    for i in serial(0, 4):\n        y[4*o + i] = x[i]")
    .given("i", COPY)
    .refuses("2", "i stands inside o, whose iterations are lanes")
    .on("for i in serial(0, 4):\n    y[i] = max(x[i], i32(0))", "i", LEAVE)
    .refuses("3", r"state: leave does this where mode\.act is 1, and at i mode\.act is not"),
    PrimitiveCase(vectorize_loop, chosen(_to_mark), share=1.2),
)
