"""Paths to the statements of a kernel: the statement at a path, and the kernel with another one.

In: a kernel and a path.  Out: the statement, the domain around it, the paths below it, or the
kernel with the body around it replaced.  What always holds: the statements below a let or a named
window are those that it performs; statements that a call performs have no path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from graphflow import arith, tir
from graphflow.base.fields import replace

Path: TypeAlias = "tuple[tuple[int, bool], ...]"
"""The way to a statement, from the outside in: its position in each body, and whether the body
below it on the path is the else branch."""

Change: TypeAlias = Callable[[tir.Body, int, arith.Domain], tir.Body]
"""From a body, the position of a statement in it and the domain there: the body to put in its
place."""


def rewrite_path(func: tir.PrimFunc, path: Path, change: Change) -> tir.PrimFunc:
    """`func` with the body around the statement at a path replaced by what `change` gives."""
    return func.around(_rewrite(func.body, path, change, arith.ANYWHERE))


def exchange_path(func: tir.PrimFunc, path: Path, new: tir.Body, count: int = 1) -> tir.PrimFunc:
    """`func` with `count` statements, from the one at a path on, replaced by others."""
    return func.around(_exchanged(func.body, path, new, count))


def _exchanged(body: tir.Body, path: Path, new: tir.Body, count: int) -> tir.Body:
    """`_rewrite` without domains, which take half of its time."""
    (position, otherwise), *further = path
    if further:
        stmt = body[position]
        inner = _exchanged(body_below(stmt, otherwise), tuple(further), new, count)
        new, count = (with_body_below(stmt, otherwise, inner),), 1
    return (*body[:position], *new, *body[position + count :])


def _rewrite(body: tir.Body, path: Path, change: Change, domain: arith.Domain) -> tir.Body:
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
    """The statements directly below `stmt`, with `otherwise` those in its else branch; of a let or
    a named window, the statements that it performs."""
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
    """The domain in a body below `stmt`, given the domain around `stmt`."""
    match stmt:
        case tir.For():
            return domain.inside(stmt.var, stmt.start, stmt.stop)
        case tir.If() if tir.is_predicate(stmt.condition):
            condition: arith.Predicate = stmt.condition  # type: ignore[assignment]
            return domain.given(arith.negation(condition) if otherwise else condition)
        case _:
            return domain


def _before(body: tir.Body, position: int, domain: arith.Domain) -> arith.Domain:
    """The domain at a position of a body, given the domain at its beginning."""
    for stmt in body[:position]:
        if isinstance(stmt, tir.Assume):
            domain = tir.after(stmt, domain)
    return domain


def with_body_below(stmt: tir.Stmt, otherwise: bool, body: tir.Body) -> tir.Stmt:
    """`stmt` with `body` in place of `body_below(stmt, otherwise)`."""
    match stmt:
        case tir.For() | tir.Block():
            return stmt.around(body)
        case tir.Let() | tir.NamedWindow():
            return tir.with_performed(stmt, body)
        case tir.If():
            return replace(stmt, orelse=body) if otherwise else replace(stmt, then=body)
        case _:
            raise AssertionError("nothing is below any other statement")


def statement_at(func: tir.PrimFunc, path: Path) -> tir.Stmt:
    """The statement at a path."""
    body = func.body
    for position, otherwise in path[:-1]:
        body = body_below(body[position], otherwise)
    return body[path[-1][0]]


def domain_at(func: tir.PrimFunc, path: Path) -> arith.Domain:
    """The domain around the statement at a path: loops and conditions on indices."""
    body, domain = func.body, arith.ANYWHERE
    for position, otherwise in path[:-1]:
        domain = _inside(body[position], otherwise, _before(body, position, domain))
        body = body_below(body[position], otherwise)
    return _before(body, path[-1][0], domain)


def declared_around(func: tir.PrimFunc, path: Path) -> tuple[set[tir.Buffer], set[str]]:
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


def paths_directly_below(stmt: tir.Stmt, path: Path) -> list[Path]:
    """The paths of the statements directly below the one at `path`, in program order."""
    branches = (False, True) if isinstance(stmt, tir.If) else (False,)
    return [
        (*path[:-1], (path[-1][0], otherwise), (position, False))
        for otherwise in branches
        for position in range(len(body_below(stmt, otherwise)))
    ]


def paths_below(stmt: tir.Stmt, path: Path) -> list[Path]:
    """The paths of a statement and of all statements in it, in program order."""
    found = [path]
    for inner in paths_directly_below(stmt, path):
        (_, otherwise), (position, _) = inner[-2:]
        found += paths_below(body_below(stmt, otherwise)[position], inner)
    return found
