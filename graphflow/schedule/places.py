"""Places of a kernel (loops, blocks, buffers) by name: finding, replacing and copying them.

In: a kernel and a name.  Out: the statement with its domain, the kernel with it replaced, or a copy
of a body under fresh names.  What always holds: names are unique in a kernel, and stay so.

A statement without a name has an address: the name of a loop or block around it, or nothing for the
kernel, and positions from there: `i[0]` is the first statement in the loop i, `[2]` the third of
the kernel, `i[0][1]` the second in the then branch of the condition `i[0]`, `i[0].else[1]` that in
its else branch; in a let t, `t[-1]` is the store of its value.  An address is valid until the next
step; `name_statement` gives a statement a name that handles follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from graphflow.arith import (
    ANYWHERE,
    Domain,
    IndexExpr,
    IndexLike,
    Predicate,
    Var,
    as_index,
    negation,
    variables,
)
from graphflow.base.errors import ScheduleError
from graphflow.effects import Path
from graphflow.tir import (
    Allocate,
    Assume,
    Block,
    Body,
    Buffer,
    Call,
    For,
    If,
    Let,
    LoopKind,
    NamedWindow,
    PrimFunc,
    Stmt,
    after,
    buffers_of,
    is_identifier,
    is_predicate,
    kept,
    loops_of,
    map_body,
    performed,
    rename_buffers,
    sub_bodies,
    substitute_body,
    walk,
    with_performed,
)

_ADDRESS = re.compile(r"([^\[\]]*?)((?:(?:\.else)?\[-?\d+\])+)")
_STEP = re.compile(r"(\.else)?\[(-?\d+)\]")

Change = Callable[[Body, int, Domain], Body]
"""The new body, from the old one, the position of the place in it, and the domain around it."""


def name_of(stmt: Stmt) -> str | None:
    """The name of a loop (its variable's), block, call, let or window; None for others."""
    match stmt:
        case For():
            return stmt.var.name
        case Block() | Call():
            return stmt.name
        case Let() | NamedWindow():
            return stmt.buffer.name
        case _:
            return None


def rewrite_around(func: PrimFunc, place: str, change: Change) -> PrimFunc:
    """`func` with the body around the statement at `place` replaced by what `change` gives."""
    return rewrite_path(func, path_of(func, place), change)


def rewrite_path(func: PrimFunc, path: Path, change: Change) -> PrimFunc:
    """`func` with the body around the statement at a path replaced by what `change` gives."""
    body = _rewrite(func.body, path, change, ANYWHERE)
    return func if body is func.body else replace(func, body=body)


def rewrite_at(func: PrimFunc, place: str, change: Callable[[Stmt, Domain], Body]) -> PrimFunc:
    """`func` with the statement at `place` replaced by what `change` gives."""

    def around(body: Body, position: int, domain: Domain) -> Body:
        new = change(body[position], domain)
        if len(new) == 1 and new[0] is body[position]:
            return body
        return (*body[:position], *new, *body[position + 1 :])

    return rewrite_around(func, place, around)


def _rewrite(body: Body, path: Path, change: Change, domain: Domain) -> Body:
    (position, otherwise), *further = path
    domain = _before(body, position, domain)
    if not further:
        return change(body, position, domain)
    stmt = body[position]
    old = _below(stmt, otherwise)
    new = _rewrite(old, tuple(further), change, _inside(stmt, otherwise, domain))
    if new is old:
        return body
    return (*body[:position], _with(stmt, otherwise, new), *body[position + 1 :])


def _below(stmt: Stmt, otherwise: bool) -> Body:
    match stmt:
        case For() | Block():
            return stmt.body
        case Let() | NamedWindow():
            return performed(stmt)
        case If():
            return stmt.orelse if otherwise else stmt.then
        case _:
            return ()


def _inside(stmt: Stmt, otherwise: bool, domain: Domain) -> Domain:
    """The domain in a body below `stmt`, from that around it."""
    match stmt:
        case For():
            return domain.inside(stmt.var, stmt.start, stmt.stop)
        case If() if is_predicate(stmt.condition):
            condition: Predicate = stmt.condition  # type: ignore[assignment]
            return domain.given(negation(condition) if otherwise else condition)
        case _:
            return domain


def _with(stmt: Stmt, otherwise: bool, body: Body) -> Stmt:
    match stmt:
        case For() | Block():
            return replace(stmt, body=body)
        case Let() | NamedWindow():
            return with_performed(stmt, body)
        case If():
            return replace(stmt, orelse=body) if otherwise else replace(stmt, then=body)
        case _:
            raise AssertionError("nothing is below any other statement")


def path_of(func: PrimFunc, place: str) -> Path:
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


def _addressed(func: PrimFunc, place: str, address: re.Match[str]) -> Path:
    path = path_of(func, address[1]) if address[1] else ()
    around = statement_at(func, path) if path else None
    body = func.body if around is None else _below(around, False)
    for otherwise, position in _STEP.findall(address[2]):
        if otherwise:
            if not path:
                raise ScheduleError(f"{place}: a kernel has no else branch")
            path = (*path[:-1], (path[-1][0], True))
            body = _below(statement_at(func, path), True)
        ahead = _statements_ahead(around)
        if not 0 <= ahead + int(position) < len(body):
            raise ScheduleError(
                f"{func.name} has no statement {place}: there are {len(body) - ahead} in that body"
            )
        path = (*path, (ahead + int(position), False))
        around = body[ahead + int(position)]
        body = _below(around, False)
    return path


def _statements_ahead(around: Stmt | None) -> int:
    """The statements below `around` in front of `[0]`: a let performs an allocation, `t[-2]`, and
    the store of its value, `t[-1]`."""
    return 2 if isinstance(around, Let) else 0


def statement_at(func: PrimFunc, path: Path) -> Stmt:
    """The statement at a path."""
    body = func.body
    for position, otherwise in path[:-1]:
        body = _below(body[position], otherwise)
    return body[path[-1][0]]


def address_of(func: PrimFunc, path: Path) -> str:
    """The name of the statement at a path, or its address from the innermost name around it."""
    address, body, around = "", func.body, None
    for position, otherwise in path:
        stmt: Stmt = body[position]
        address = name_of(stmt) or f"{address}[{position - _statements_ahead(around)}]"
        around = stmt
        address += ".else" if otherwise else ""
        body = _below(stmt, otherwise)
    return address


def loops_around(func: PrimFunc, place: str) -> tuple[For, ...]:
    """The loops around a statement, from the outermost in."""
    path = path_of(func, place)
    stmts = (statement_at(func, path[:depth]) for depth in range(1, len(path)))
    return tuple(stmt for stmt in stmts if isinstance(stmt, For))


def _way(body: Body, place: str) -> Path | None:
    for position, stmt in enumerate(body):
        if isinstance(stmt, Block) and stmt.name != place and place not in _names_inside(stmt):
            continue  # first what most statements of a wide kernel are
        if name_of(stmt) == place:
            return ((position, False),)
        for otherwise in (False, True) if isinstance(stmt, If) else (False,):
            further = _way(_below(stmt, otherwise), place)
            if further is not None:
                return ((position, otherwise), *further)
    return None


def find(func: PrimFunc, place: str) -> tuple[Stmt, Domain]:
    """The statement at `place`, and the domain around it; ScheduleError where there is none."""
    path = path_of(func, place)
    return statement_at(func, path), domain_at(func, path)


def domain_at(func: PrimFunc, path: Path) -> Domain:
    """The domain around the statement at a path: loops and conditions on indices."""
    body, domain = func.body, ANYWHERE
    for position, otherwise in path[:-1]:
        domain = _inside(body[position], otherwise, _before(body, position, domain))
        body = _below(body[position], otherwise)
    return _before(body, path[-1][0], domain)


def _before(body: Body, position: int, domain: Domain) -> Domain:
    """The domain at a position of a body, from that around it."""
    for stmt in body[:position]:
        if isinstance(stmt, Assume):
            domain = after(stmt, domain)
    return domain


def paths_directly_below(stmt: Stmt, path: Path) -> list[Path]:
    """The paths of the statements directly below one, in program order."""
    match stmt:
        case For() | Block() | Let() | NamedWindow():
            bodies = [(sub_bodies(stmt)[0], False)]
        case If():
            bodies = [(stmt.then, False), (stmt.orelse, True)]
        case _:
            bodies = []
    return [
        (*path[:-1], (path[-1][0], otherwise), (position, False))
        for body, otherwise in bodies
        for position in range(len(body))
    ]


def paths_below(stmt: Stmt, path: Path) -> list[Path]:
    """The paths of a statement and all in it, in program order."""
    found = [path]
    for inner in paths_directly_below(stmt, path):
        position, otherwise = inner[-1][0], inner[-2][1]
        body = stmt.orelse if isinstance(stmt, If) and otherwise else sub_bodies(stmt)[0]
        found += paths_below(body[position], inner)
    return found


def find_loop(func: PrimFunc, place: str) -> tuple[For, Domain]:
    """The loop over the variable `place`, and the domain around it; else ScheduleError."""
    stmt, domain = find(func, place)
    if not isinstance(stmt, For):
        what = "a block" if isinstance(stmt, Block) else "no loop"
        raise ScheduleError(f"{place} is {what}, and a loop is needed")
    return stmt, domain


def find_buffer(func: PrimFunc, name: str) -> Buffer:
    """The parameter or allocated buffer called `name`; ScheduleError where there is none."""
    for param in func.params:
        if param.buffer.name == name:
            return param.buffer
    for buffer in buffers_of(replace(func, params=())):
        if buffer.name == name:
            return buffer
    names = ", ".join(buffer.name for buffer in buffers_of(func))
    raise ScheduleError(f"{func.name} has no buffer {name}; it has {names}")


def unknown_place(func: PrimFunc, place: str) -> str:
    """The message that a kernel has no loop or block `place`, with the names that it has."""
    names = [name for name in (name_of(stmt) for stmt in walk(func.body)) if name]
    return f"{func.name} has no loop or block {place}; it has {', '.join(names) or 'none'}"


def names_in(body: Body) -> tuple[str, ...]:
    """The names of loops, blocks and allocated buffers in `body`, in program order."""
    found: list[str] = []
    for stmt in body:
        if isinstance(stmt, Block):
            found.append(stmt.name)
            found += _names_inside(stmt)
            continue
        if isinstance(stmt, Allocate):
            found.append(stmt.buffer.name)
        elif not isinstance(stmt, Let) and (name := name_of(stmt)) is not None:
            found.append(name)
        for below in sub_bodies(stmt):
            found += names_in(below)
    return tuple(found)


@kept
def _names_inside(block: Block) -> dict[str, None]:
    """The names in the body of a block, in program order."""
    return dict.fromkeys(names_in(block.body))


def has_name(stmt: Stmt, name: str) -> bool:
    """Whether `name` is a statement's own, or that of a loop, block or allocated buffer in it."""
    if isinstance(stmt, Block):
        return name == stmt.name or name in _names_inside(stmt)
    return name in names_in((stmt,))


def place_names(func: PrimFunc) -> tuple[str, ...]:
    """Every name that can be a place: of loops, blocks and buffers, parameters included."""
    return (*(p.buffer.name for p in func.params), *names_in(func.body))


def has_place(func: PrimFunc, name: str) -> bool:
    """Whether `name` is among the `place_names` of a kernel."""
    return any(p.buffer.name == name for p in func.params) or any(
        has_name(stmt, name) for stmt in func.body
    )


def require_fresh(func: PrimFunc, *names: str) -> None:
    """ScheduleError where a name is used in `func` already, or twice among `names`."""
    wanted = set(names)
    taken = wanted & {p.buffer.name for p in func.params}
    for stmt in func.body:
        if not isinstance(stmt, Block):
            taken |= wanted & set(names_in((stmt,)))
        elif stmt.name in wanted or not wanted.isdisjoint(_names_inside(stmt)):
            taken |= wanted & {stmt.name, *_names_inside(stmt)}
    clash = [name for name in names if name in taken]
    if clash or len(set(names)) != len(names):
        raise ScheduleError(f"{func.name} uses the name {(clash or list(names))[0]} already")


def require_names(*names: str) -> None:
    """ScheduleError for what is no name: identifiers, with dots between them."""
    odd = [name for name in names if not all(map(is_identifier, name.split(".")))]
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


def stage_names(func: PrimFunc, block: str, rank: int, *taken: str) -> tuple[str, ...]:
    """Fresh names for a new block, wanted as `block`, and for its `rank` loops, called after it.

    They avoid the names in `taken` besides those of the kernel.
    """
    wanted = (block, *(f"{block}_{axis}" for axis in range(rank)))
    return tuple(fresh_names({*taken, *place_names(func)}, wanted).values())


def fresh_copy(body: Body, suffix: str, taken: Collection[str]) -> tuple[Body, dict[str, str]]:
    """A copy of `body` under fresh names, and the new name by each old one.

    The names of loops, blocks and allocated buffers get the suffix, and a number behind it where
    that name is `taken`.
    """
    old = names_in(body)
    fresh = fresh_names(taken, (name + suffix for name in old))
    names = {name: fresh[name + suffix] for name in old}
    return rename_places(body, names), names


def rename_places(body: Body, names: Mapping[str, str]) -> Body:
    """`body` with its loops, blocks and allocated buffers renamed as given."""
    buffers = {
        stmt.buffer: replace(stmt.buffer, name=names[stmt.buffer.name])
        for stmt in walk(body)
        if isinstance(stmt, Allocate | NamedWindow) and stmt.buffer.name in names
    }
    values: dict[Var, IndexExpr] = {
        stmt.var: Var(names[stmt.var.name])
        for stmt in walk(body)
        if isinstance(stmt, For) and stmt.var.name in names
    }

    def renamed(stmt: Stmt) -> Stmt:
        match stmt:
            case For() if stmt.var in values:
                return replace(stmt, var=Var(names[stmt.var.name]))
            case Block() | Call() if stmt.name in names:
                return replace(stmt, name=names[stmt.name])
            case _:
                return stmt

    copy = map_body(substitute_body(body, values), renamed, calls_whole=True)
    return rename_buffers(copy, buffers)


def constant_extent(stmt: For) -> int:
    """The number of iterations of a loop; ScheduleError where that is not a constant."""
    if stmt.extent is None:
        raise ScheduleError(
            f"the loop {stmt.var} runs over ({stmt.start}, {stmt.stop}), not a constant extent"
        )
    return max(stmt.extent, 0)


def in_scope(value: IndexLike, domain: Domain) -> IndexExpr:
    """An index expression over the variables of a domain; ScheduleError where it uses others."""
    index = as_index(value)
    known = {axis.var for axis in domain.axes}
    strange = sorted(var.name for var in variables(index) if var not in known)
    if strange:
        raise ScheduleError(f"{index} uses {strange[0]}, and no loop around the place binds it")
    return index


def first_in_lanes(func: PrimFunc, place: str, around: Iterable[Var]) -> Var | None:
    """The first of the loops over `around`, those around a place, that is vectorized, or None."""
    holding = next((stmt for stmt in func.body if has_name(stmt, place)), None)
    kinds = {loop.var: loop.kind for loop in loops_of(() if holding is None else (holding,))}
    return next((var for var in around if kinds[var] is LoopKind.VECTORIZED), None)
