"""Names of the places of a kernel: loops (their variables'), blocks, calls and buffers.

In: a kernel or a body.  Out: the names in it, whether a name is free, fresh names, and copies of a
body under fresh names.  What always holds: names are unique in a kernel, and stay so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace

Holding: TypeAlias = tir.Block | tir.Call | tir.For | tir.If | tir.Let | tir.NamedWindow
"""Statements with bodies below them."""


def name_of(stmt: tir.Stmt) -> str | None:
    """The name of a loop (its variable's), block, call, let or window; None for others."""
    match stmt:
        case tir.For():
            return stmt.var.name
        case tir.Block() | tir.Call():
            return stmt.name
        case tir.Let() | tir.NamedWindow():
            return stmt.buffer.name
        case _:
            return None


def unknown_place(func: tir.PrimFunc, place: str) -> str:
    """The message that a kernel has no loop or block `place`, with the names that it has."""
    names = [name for name in (name_of(stmt) for stmt in tir.walk(func.body)) if name]
    return f"{func.name} has no loop or block {place}; it has {', '.join(names) or 'none'}"


def declared_names(body: tir.Body) -> tuple[str, ...]:
    """The names of loops, blocks and allocated buffers in `body`, in program order."""
    found: list[str] = []
    for stmt in body:
        found += _names_from(stmt)
    return tuple(found)


@tir.kept_by_node
def names_inside(stmt: Holding) -> dict[str, tuple[int, bool]]:
    """The names in the bodies below a statement, in program order.

    With the step to each: the position of the statement directly below that has it as its own or
    inside, and whether that one is in the else branch.
    """
    found: dict[str, tuple[int, bool]] = {}
    for branch, body in enumerate(tir.sub_bodies(stmt)):
        for position, below in enumerate(body):
            here = dict.fromkeys(_names_from(below), (position, branch > 0))
            # Of equal names, which what calls perform may have, the first one counts.
            found.update(here if found.keys().isdisjoint(here) else {**here, **found})
    return found


def _names_from(stmt: tir.Stmt) -> list[str]:
    """A statement's own name as `declared_names` has it, then the names inside."""
    if isinstance(stmt, tir.Compound):
        own = None if isinstance(stmt, tir.Let) else name_of(stmt)
        return [*names_inside(stmt)] if own is None else [own, *names_inside(stmt)]
    return [stmt.buffer.name] if isinstance(stmt, tir.Allocate) else []


def has_name(stmt: tir.Stmt, name: str) -> bool:
    """Whether `name` is a statement's own, or that of a loop, block or allocated buffer in it."""
    if isinstance(stmt, tir.Compound):
        return name_of(stmt) == name or name in names_inside(stmt)
    return isinstance(stmt, tir.Allocate) and stmt.buffer.name == name


def names_of_places(func: tir.PrimFunc) -> tuple[str, ...]:
    """Every name that can be a place: of loops, blocks and buffers, parameters included."""
    return (*(p.buffer.name for p in func.params), *declared_names(func.body))


def has_place(func: tir.PrimFunc, name: str) -> bool:
    """Whether `name` is among the `names_of_places` of a kernel."""
    return any(p.buffer.name == name for p in func.params) or any(
        has_name(stmt, name) for stmt in func.body
    )


def require_fresh(func: tir.PrimFunc, *names: str) -> None:
    """ScheduleError where a name is used in `func` already, or twice among `names`."""
    wanted = set(names)
    taken = wanted & {p.buffer.name for p in func.params}
    taken |= wanted & {var.name for var in func.scalars}  # a loop of that name would hide it
    for stmt in func.body:
        taken |= {name for name in wanted if has_name(stmt, name)}
    clash = [name for name in names if name in taken]
    if clash or len(set(names)) != len(names):
        raise ScheduleError(f"{func.name} uses the name {(clash or list(names))[0]} already")


def require_names(*names: str) -> None:
    """ScheduleError for what is no name: identifiers, with dots between them."""
    odd = [name for name in names if not all(map(tir.is_identifier, name.split(".")))]
    if odd:
        raise ScheduleError(f"{odd[0]!r} is no name: it takes identifiers, with dots between them")


def fresh_name(wanted: str, is_taken: Callable[[str], bool]) -> str:
    """`wanted`, or where that is taken, `wanted_2`, `wanted_3` and so on."""
    name, number = wanted, 1
    while is_taken(name):
        number += 1
        name = f"{wanted}_{number}"
    return name


def fresh_names(taken: Collection[str], wanted: Iterable[str]) -> dict[str, str]:
    """For each wanted name a fresh one, neither `taken` nor given to another."""
    used = set(taken)
    found: dict[str, str] = {}
    for name in wanted:
        found[name] = fresh_name(name, used.__contains__)
        used.add(found[name])
    return found


def stage_names(func: tir.PrimFunc, block: str, rank: int, *taken: str) -> tuple[str, ...]:
    """Fresh names for a new block, wanted as `block`, and for its `rank` loops, called after it.

    They avoid the names in `taken` besides those of the kernel.
    """
    wanted = (block, *(f"{block}_{axis}" for axis in range(rank)))
    return tuple(fresh_names({*taken, *names_of_places(func)}, wanted).values())


def fresh_copy(
    body: tir.Body, suffix: str, taken: Collection[str]
) -> tuple[tir.Body, dict[str, str]]:
    """A copy of `body` under fresh names, and the new name by each old one.

    The names of loops, blocks and allocated buffers get the suffix, and a number behind it where
    that name is `taken`.
    """
    old = declared_names(body)
    fresh = fresh_names(taken, (name + suffix for name in old))
    names = {name: fresh[name + suffix] for name in old}
    return rename_places(body, names), names


def rename_places(body: tir.Body, names: Mapping[str, str]) -> tir.Body:
    """`body` with its loops, blocks and allocated buffers renamed as given."""
    buffers = {
        stmt.buffer: replace(stmt.buffer, name=names[stmt.buffer.name])
        for stmt in tir.walk(body)
        if isinstance(stmt, tir.Allocate | tir.NamedWindow) and stmt.buffer.name in names
    }
    values: dict[arith.Var, arith.IndexExpr] = {
        stmt.var: arith.Var(names[stmt.var.name])
        for stmt in tir.walk(body)
        if isinstance(stmt, tir.For) and stmt.var.name in names
    }

    def renamed(stmt: tir.Stmt) -> tir.Stmt:
        match stmt:
            case tir.For() if stmt.var in values:
                return replace(stmt, var=arith.Var(names[stmt.var.name]))
            case tir.Block() | tir.Call() if stmt.name in names:
                return replace(stmt, name=names[stmt.name])
            case _:
                return stmt

    copy = tir.map_as_written(tir.substitute_body(body, values), renamed)
    return tir.rename_buffers(copy, buffers)
