"""Names and addresses of the statements of a kernel, and the paths that they stand for.

In: a kernel, and a name or an address.  Out: the path to the statement; or the name or address of
the statement at a path.

A statement without a name has an address: the name of a loop or block around it, or nothing for the
kernel, and positions from there: `i[0]` is the first statement in the loop i, `[2]` the third of
the kernel, `i[0][1]` the second in the then branch of the condition `i[0]`, `i[0].else[1]` that in
its else branch; in a let t, `t[-1]` is the store of its value.  An address is valid until the next
step; `name_statement` gives a statement a name that handles follow.
"""

from __future__ import annotations

import re

from graphflow import effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.places.place_names import name_of, names_inside, unknown_place

_ADDRESS = re.compile(r"([^\[\]]*?)((?:(?:\.else)?\[-?\d+\])+)")
_STEP = re.compile(r"(\.else)?\[(-?\d+)\]")


def path_of(func: tir.PrimFunc, place: str) -> effects.Path:
    """The path to the loop or block `place`, or to the statement at this address.

    ScheduleError where there is none.
    """
    address = _ADDRESS.fullmatch(place) if place.endswith("]") else None
    if address is not None:
        return _addressed(func, place, address)
    ways = (_way_from(stmt, position, place) for position, stmt in enumerate(func.body))
    path = next((way for way in ways if way is not None), None)
    if path is None:
        raise ScheduleError(unknown_place(func, place))
    return path


def _addressed(func: tir.PrimFunc, place: str, address: re.Match[str]) -> effects.Path:
    path = path_of(func, address[1]) if address[1] else ()
    around = effects.statement_at(func, path) if path else None
    body = func.body if around is None else effects.body_below(around, False)
    for otherwise, position in _STEP.findall(address[2]):
        if otherwise:
            if not path:
                raise ScheduleError(f"{place}: a kernel has no else branch")
            path = (*path[:-1], (path[-1][0], True))
            body = effects.body_below(effects.statement_at(func, path), True)
        ahead = _statements_ahead(around)
        if not 0 <= ahead + int(position) < len(body):
            raise ScheduleError(
                f"{func.name} has no statement {place}: there are {len(body) - ahead} in that body"
            )
        path = (*path, (ahead + int(position), False))
        around = body[ahead + int(position)]
        body = effects.body_below(around, False)
    return path


def _statements_ahead(around: tir.Stmt | None) -> int:
    """The statements below `around` in front of `[0]`: a let performs an allocation, `t[-2]`, and
    the store of its value, `t[-1]`."""
    return 2 if isinstance(around, tir.Let) else 0


def place_at(func: tir.PrimFunc, text: str) -> str:
    """The name of the statement at an address, so that a step finds and follows it as by its name.

    The text itself where it is no address, or that of a statement without a name.
    """
    try:
        return name_of(effects.statement_at(func, path_of(func, text))) or text
    except ScheduleError:
        return text


def statement_address(func: tir.PrimFunc, path: effects.Path) -> str:
    """The name of the statement at a path, or its address from the innermost name around it.

    ScheduleError for a statement that a call performs: what calls perform has no address.
    """
    address, body, around = "", func.body, None
    for position, otherwise in path:
        if isinstance(around, tir.Call):
            raise ScheduleError(f"a statement that the call {around.name} performs has no address")
        stmt: tir.Stmt = body[position]
        address = name_of(stmt) or f"{address}[{position - _statements_ahead(around)}]"
        around = stmt
        address += ".else" if otherwise else ""
        body = effects.body_below(stmt, otherwise)
    return address


def _way_from(stmt: tir.Stmt, position: int, place: str) -> effects.Path | None:
    """The path to the place from a statement at a position of its body on; None where it is not
    there, and where a call performs it."""
    path: effects.Path = ()
    while isinstance(stmt, tir.Compound):  # all others have neither a name nor anything inside
        if name_of(stmt) == place:
            return (*path, (position, False))
        step = names_inside(stmt).get(place)
        below = () if step is None else effects.body_below(stmt, step[1])
        if step is None or not below:
            return None
        path = (*path, (position, step[1]))
        position, stmt = step[0], below[step[0]]
    return None


def places_in(func: tir.PrimFunc, place: str) -> tuple[str, ...]:
    """The names or addresses of the statements directly in a loop or block, in program order."""
    path = path_of(func, place)
    found = effects.paths_directly_below(effects.statement_at(func, path), path)
    return tuple(statement_address(func, inner) for inner in found)
