"""Random applications of the primitives on calls, lanes and no-ops.

To extract and to inline never changes what a kernel computes, so that the rewrite without
conditions is the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
from graphflow.schedule.place_names import fresh_name, place_names
from graphflow.tir import (
    Allocate,
    Block,
    Call,
    Expr,
    For,
    Literal,
    LoopKind,
    PrimFunc,
    Reduce,
    Stmt,
    Store,
    loops_of,
    map_body,
    map_expressions,
    walk,
)
from support.buffer_cases import buffer_kernel
from support.loop_cases import LOOP_CASES, Arguments, at, edited, one_of
from support.primitive_cases import PrimitiveCase
from support.random_kernels import Number
from support.statement_places import places_of


def _extracted(func: PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func, For, Block), number)
    return place and (place, "inner")


def calling_kernel(number: Number) -> PrimFunc:
    """A buffer kernel of which one loop is a kernel that it calls."""
    func = buffer_kernel(number)
    arguments = _extracted(func, number)
    return extract_subproc(func, *arguments).func if arguments else func


def _innermost(func: PrimFunc, number: Number) -> Arguments:
    inner = [
        loop.var.name
        for loop in loops_of(func.body)
        if not any(isinstance(stmt, For | Allocate) for stmt in walk(loop.body))
    ]
    return (one_of(inner, number),) if inner else None


def _marked(kind: LoopKind) -> Callable[[PrimFunc, str], PrimFunc | None]:
    def rewrite(func: PrimFunc, loop: str) -> PrimFunc | None:
        if at(func, loop).extent is None:
            return None
        return edited(func, loop, lambda stmt: (replace(stmt, kind=kind),))

    return rewrite


def _write(func: PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func, Store, Reduce), number)
    return place and (place,)


# Calls of other kernels ---------------------------------------------------------------------------


def _exchanged(func: PrimFunc, number: Number) -> Arguments:
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


def _call(func: PrimFunc) -> Call | None:
    return next((stmt for stmt in walk(func.body) if isinstance(stmt, Call)), None)


def _call_of(func: PrimFunc, name: str) -> Call:
    return next(stmt for stmt in walk(func.body) if isinstance(stmt, Call) and stmt.name == name)


def _with_other_numbers(func: PrimFunc) -> PrimFunc:
    """The kernel with two in place of each zero that it stores or adds."""

    def change(expr: Expr) -> Expr:
        zero = isinstance(expr, Literal) and expr.dtype == "int64" and expr.value == 0
        return Literal(2, "int64") if zero else expr

    return replace(func, body=map_expressions(func.body, change))


def _called_instead(func: PrimFunc, call: str, schedule: Schedule) -> PrimFunc | None:
    old = at(func, call)
    new = replace(schedule.func, name=old.definition.name)
    if new.params != old.definition.params:
        return None
    return edited(func, call, lambda s: (replace(s, definition=new),))


def _instruction(func: PrimFunc, number: Number) -> Arguments:
    """A statement with a definition of it, at times with other numbers or with lanes."""
    place = one_of(places_of(func, For, Block), number)
    name = fresh_name("part", lambda n: any(n in place for place in place_names(func)))
    try:
        call = _call_of(extract_subproc(func, place or "", name).func, name)
    except ScheduleError:
        return None
    definition = call.definition
    if number(0, 3) == 0:
        definition = _with_other_numbers(definition)
    loops = list(loops_of(definition.body))
    if loops and number(0, 2) == 0:
        definition = vectorized(definition, loops[-1])
    return place, definition


def vectorized(func: PrimFunc, loop: For) -> PrimFunc:
    """The kernel with a loop as lanes."""

    def change(stmt: Stmt) -> Stmt:
        return replace(stmt, kind=LoopKind.VECTORIZED) if stmt == loop else stmt

    return replace(func, body=map_body(func.body, change))


def _as_call(func: PrimFunc, place: str, definition: PrimFunc) -> PrimFunc:
    func = extract_subproc(func, place, definition.name).func
    return edited(func, definition.name, lambda s: (replace(s, definition=definition),))


CALL_CASES = (
    PrimitiveCase(call_eqv, _exchanged, _called_instead, calling_kernel),
    PrimitiveCase(extract_subproc, _extracted, lambda func, *_: func, buffer_kernel),
    PrimitiveCase(
        inline,
        lambda func, _: ("inner",) if "inner" in places_of(func) else None,
        lambda func, *_: func,
        calling_kernel,
    ),
    PrimitiveCase(mark_unrolled, _innermost, _marked(LoopKind.UNROLLED)),
    PrimitiveCase(
        remove_no_op, _write, lambda func, place: edited(func, place, lambda _: ()), buffer_kernel
    ),
    PrimitiveCase(replace_statement, _instruction, _as_call, buffer_kernel),
    PrimitiveCase(vectorize_loop, _innermost, _marked(LoopKind.VECTORIZED)),
)
