"""Paths to the statements of a kernel, and addresses of those that have no name.

In: a kernel, and a name or an address.  Out: the path to the statement, the statement with the
domain around it, or the kernel with the body around it replaced.

A statement without a name has an address: the name of a loop or block around it, or nothing for the
kernel, and positions from there: `i[0]` is the first statement in the loop i, `[2]` the third of
the kernel, `i[0][1]` the second in the then branch of the condition `i[0]`, `i[0].else[1]` that in
its else branch; in a let t, `t[-1]` is the store of its value.  An address is valid until the next
step; `name_statement` gives a statement a name that handles follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.places.place_names import name_of, names_inside, unknown_place

_ADDRESS = re.compile(r"([^\[\]]*?)((?:(?:\.else)?\[-?\d+\])+)")
_STEP = re.compile(r"(\.else)?\[(-?\d+)\]")
Change = Callable[[tir.Body, int, arith.Domain], tir.Body]
"""The new body, from the old one, the position of the place in it, and the domain around it."""


def rewrite_path(func: tir.PrimFunc, path: effects.Path, change: Change) -> tir.PrimFunc:
    """`func` with the body around the statement at a path replaced by what `change` gives."""
    body = _rewrite(func.body, path, change, arith.ANYWHERE)
    return func if body is func.body else replace(func, body=body)


def exchange_path(
    func: tir.PrimFunc, path: effects.Path, new: tir.Body, count: int = 1
) -> tir.PrimFunc:
    """`func` with `count` statements, from the one at a path on, replaced by others."""
    return rewrite_path(func, path, lambda body, k, _d: (*body[:k], *new, *body[k + count :]))


def _rewrite(body: tir.Body, path: effects.Path, change: Change, domain: arith.Domain) -> tir.Body:
    (position, otherwise), *further = path
    domain = _before(body, position, domain)
    if not further:
        return change(body, position, domain)
    stmt = body[position]
    old = body_below(stmt, otherwise)
    new = _rewrite(old, tuple(further), change, _inside(stmt, otherwise, domain))
    if new is old:
        return body
    return (*body[:position], with_body_below(stmt, otherwise, new), *body[position + 1 :])


def body_below(stmt: tir.Stmt, otherwise: bool) -> tir.Body:
    """The statements directly below one, or in its else branch; those of a let or named window as
    it performs them."""
    match stmt:
        case tir.For() | tir.Block():
            return stmt.body
        case tir.Let() | tir.NamedWindow():
            return tir.performed(stmt)
        case tir.If():
            return stmt.orelse if otherwise else stmt.then
        case _:
            return ()


def _inside(stmt: tir.Stmt, otherwise: bool, domain: arith.Domain) -> arith.Domain:
    """The domain in a body below `stmt`, from that around it."""
    match stmt:
        case tir.For():
            return domain.inside(stmt.var, stmt.start, stmt.stop)
        case tir.If() if tir.is_predicate(stmt.condition):
            condition: arith.Predicate = stmt.condition  # type: ignore[assignment]
            return domain.given(arith.negation(condition) if otherwise else condition)
        case _:
            return domain


def with_body_below(stmt: tir.Stmt, otherwise: bool, body: tir.Body) -> tir.Stmt:
    """The statement with other statements in place of `body_below`."""
    match stmt:
        case tir.For() | tir.Block():
            return stmt.around(body)
        case tir.Let() | tir.NamedWindow():
            return tir.with_performed(stmt, body)
        case tir.If():
            return replace(stmt, orelse=body) if otherwise else replace(stmt, then=body)
        case _:
            raise AssertionError("nothing is below any other statement")


def path_of(func: tir.PrimFunc, place: str) -> effects.Path:
    """The path to the loop or block `place`, or to the statement at this address.

    ScheduleError where there is none.
    """
    address = _ADDRESS.fullmatch(place) if place.endswith("]") else None
    if address is not None:
        return _addressed(func, place, address)
    path = _way(func.body, place)
    if path is None:
        raise ScheduleError(unknown_place(func, place))
    return path


def _addressed(func: tir.PrimFunc, place: str, address: re.Match[str]) -> effects.Path:
    path = path_of(func, address[1]) if address[1] else ()
    around = statement_at(func, path) if path else None
    body = func.body if around is None else body_below(around, False)
    for otherwise, position in _STEP.findall(address[2]):
        if otherwise:
            if not path:
                raise ScheduleError(f"{place}: a kernel has no else branch")
            path = (*path[:-1], (path[-1][0], True))
            body = body_below(statement_at(func, path), True)
        ahead = _statements_ahead(around)
        if not 0 <= ahead + int(position) < len(body):
            raise ScheduleError(
                f"{func.name} has no statement {place}: there are {len(body) - ahead} in that body"
            )
        path = (*path, (ahead + int(position), False))
        around = body[ahead + int(position)]
        body = body_below(around, False)
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
        return name_of(statement_at(func, path_of(func, text))) or text
    except ScheduleError:
        return text


def statement_at(func: tir.PrimFunc, path: effects.Path) -> tir.Stmt:
    """The statement at a path."""
    body = func.body
    for position, otherwise in path[:-1]:
        body = body_below(body[position], otherwise)
    return body[path[-1][0]]


def address_of(func: tir.PrimFunc, path: effects.Path) -> str:
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
        body = body_below(stmt, otherwise)
    return address


def _way(body: tir.Body, place: str) -> effects.Path | None:
    for position, stmt in enumerate(body):
        if not isinstance(stmt, tir.Kept):
            continue  # it has neither a name nor anything inside
        if name_of(stmt) == place:
            return ((position, False),)
        if place not in names_inside(stmt):
            continue
        for otherwise in (False, True) if isinstance(stmt, tir.If) else (False,):
            further = _way(body_below(stmt, otherwise), place)
            if further is not None:
                return ((position, otherwise), *further)
    return None


def declared_around(func: tir.PrimFunc, path: effects.Path) -> tuple[set[tir.Buffer], set[str]]:
    """The buffers that a statement at a path may name, and the names of the variables."""
    buffers = {param.buffer for param in func.params}
    names = {var.name for var in func.scalars}
    body = func.body
    for depth, (position, otherwise) in enumerate(path, 1):
        buffers |= {stmt.buffer for stmt in body[:position] if isinstance(stmt, tir.Allocate)}
        if depth < len(path):
            around = body[position]
            names |= {around.var.name} if isinstance(around, tir.For) else set()
            body = body_below(around, otherwise)
    return buffers, names


def domain_at(func: tir.PrimFunc, path: effects.Path) -> arith.Domain:
    """The domain around the statement at a path: loops and conditions on indices."""
    body, domain = func.body, arith.ANYWHERE
    for position, otherwise in path[:-1]:
        domain = _inside(body[position], otherwise, _before(body, position, domain))
        body = body_below(body[position], otherwise)
    return _before(body, path[-1][0], domain)


def _before(body: tir.Body, position: int, domain: arith.Domain) -> arith.Domain:
    """The domain at a position of a body, from that around it."""
    for stmt in body[:position]:
        if isinstance(stmt, tir.Assume):
            domain = tir.after(stmt, domain)
    return domain


def paths_directly_below(stmt: tir.Stmt, path: effects.Path) -> list[effects.Path]:
    """The paths of the statements directly below one, in program order."""
    match stmt:
        case tir.For() | tir.Block() | tir.Let() | tir.NamedWindow():
            bodies = [(tir.sub_bodies(stmt)[0], False)]
        case tir.If():
            bodies = [(stmt.then, False), (stmt.orelse, True)]
        case _:
            bodies = []
    return [
        (*path[:-1], (path[-1][0], otherwise), (position, False))
        for body, otherwise in bodies
        for position in range(len(body))
    ]


def places_in(func: tir.PrimFunc, place: str) -> tuple[str, ...]:
    """The names or addresses of the statements directly in a loop or block, in program order."""
    path = path_of(func, place)
    found = paths_directly_below(statement_at(func, path), path)
    return tuple(address_of(func, inner) for inner in found)


def paths_below(stmt: tir.Stmt, path: effects.Path) -> list[effects.Path]:
    """The paths of a statement and all in it, in program order."""
    found = [path]
    for inner in paths_directly_below(stmt, path):
        position, otherwise = inner[-1][0], inner[-2][1]
        body = stmt.orelse if isinstance(stmt, tir.If) and otherwise else tir.sub_bodies(stmt)[0]
        found += paths_below(body[position], inner)
    return found
