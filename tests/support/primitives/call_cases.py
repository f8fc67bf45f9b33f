"""Random applications of the primitives on calls, lanes and no-ops."""

from __future__ import annotations

from dataclasses import replace

from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    call_eqv,
    extract_subproc,
    inline,
    mark_unrolled,
    remove_no_op,
    vectorize_loop,
)
from graphflow.schedule import replace as replace_statement
from graphflow.schedule.places.place_names import fresh_name, names_of_places
from support.kernels.random_kernels import Number
from support.primitives.buffer_cases import buffer_kernel
from support.primitives.choices import Arguments, Choices, chosen, on_loop
from support.primitives.loop_cases import LOOP_CASES, one_of
from support.primitives.primitive_cases import PrimitiveCase
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


CALL_CASES = (
    PrimitiveCase(call_eqv, _exchanged, calling_kernel),
    PrimitiveCase(extract_subproc, _extracted, buffer_kernel),
    PrimitiveCase(
        inline,
        lambda func, _: ("inner",) if "inner" in places_of(func) else None,
        calling_kernel,
    ),
    PrimitiveCase(mark_unrolled, chosen(_to_mark), share=0.6),
    PrimitiveCase(
        remove_no_op,
        _write,
        buffer_kernel,
        share=0.5,
    ),
    PrimitiveCase(replace_statement, _instruction, buffer_kernel),
    PrimitiveCase(vectorize_loop, chosen(_to_mark), share=1.2),
)
