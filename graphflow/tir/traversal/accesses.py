"""Where the statements of a kernel run, and which elements they access.

In: a body, and the domain around it.  Out: each statement with its iteration domain (`Site`), and
each read and write with the points at which it happens (`Access`).  What always holds: calls, lets
and named windows are traversed as what they perform; results about a block outside of all loops are
cached on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TypeAlias, assert_never, cast

from msgspec import Struct

from graphflow.arith import (
    ANYWHERE,
    Domain,
    IndexExpr,
    Predicate,
    kept_at_place,
    kept_by_node,
    negation,
)
from graphflow.base.fields import replace
from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.traversal.performed import performed


class Site(Struct, frozen=True):
    """A statement with the loops and index conditions around it; `guards` are data conditions."""

    stmt: stmts.Stmt
    domain: Domain
    guards: tuple[exprs.Expr, ...] = ()


def sites(body: stmts.Body, domain: Domain = ANYWHERE) -> Iterator[Site]:
    """Every statement with its iteration domain, parents before children, in program order."""
    places: list[_Place] = []
    _collect(body, domain, (), places)
    return (Site(*place) for place in places)


_Place: TypeAlias = tuple[stmts.Stmt, Domain, tuple[exprs.Expr, ...]]


def _collect(
    body: stmts.Body, domain: Domain, guards: tuple[exprs.Expr, ...], places: list[_Place]
) -> None:
    """Append the fields of a `Site` for each statement in `body`.

    They are plain tuples because kernels are traversed so often that constructing a `Site` for each
    statement shows in compile times.
    """
    for stmt in body:
        places.append((stmt, domain, guards))
        if domain is ANYWHERE and not guards and isinstance(stmt, stmts.Block):
            places += _places_below(stmt)
            continue
        match stmt:
            case stmts.For():
                inner = domain.inside(stmt.var, stmt.start, stmt.stop)
                _collect(stmt.body, inner, guards, places)
            case stmts.Block():
                _collect(stmt.body, domain, guards, places)
            case stmts.Call() | stmts.Let() | stmts.NamedWindow():
                _collect(performed(stmt), domain, guards, places)
            case stmts.If() if exprs.is_predicate(stmt.condition):
                predicate = cast(Predicate, stmt.condition)
                _collect(stmt.then, domain.given(predicate), guards, places)
                if stmt.orelse:
                    _collect(stmt.orelse, domain.given(negation(predicate)), guards, places)
            case stmts.If():
                inside = (*guards, cast(exprs.Expr, stmt.condition))
                _collect(stmt.then, domain, inside, places)
                _collect(stmt.orelse, domain, inside, places)
            case stmts.Assume():
                domain = after(stmt, domain)
            case stmts.Store() | stmts.Reduce() | stmts.Allocate():
                pass


def after(stmt: stmts.Stmt, domain: Domain) -> Domain:
    """The domain behind a statement of a body: `assume(unless(c), bool(False))` states that c
    holds, and no variable changes."""
    if (
        not isinstance(stmt, stmts.Assume)
        or stmt.claim != _FALSE
        or not exprs.is_predicate(stmt.unless)
    ):
        return domain
    return domain.given(cast(Predicate, stmt.unless))


_FALSE = exprs.Literal(False, "bool")


@kept_by_node
def _places_below(stage: stmts.Block) -> list[_Place]:
    """What `_collect` appends behind a block outside of all loops; most stages stay unchanged."""
    places: list[_Place] = []
    _collect(stage.body, ANYWHERE, (), places)
    return places


class AccessKind(Enum):
    """What an access does to the element."""

    READ = "read"
    WRITE = "write"
    """A store."""
    REDUCE = "reduce"


class Access(Struct, frozen=True):
    """One read or write of a buffer, with the points at which it happens."""

    buffer: exprs.Buffer
    indices: tuple[IndexExpr, ...]
    domain: Domain
    kind: AccessKind
    certain: bool
    """False under a data condition: then it may happen, and must not be relied upon."""
    op: stmts.ReduceOp | None = None
    """The operator of a reduction."""

    @property
    def writes(self) -> bool:
        """Whether the access changes the element: a store or a reduction."""
        return self.kind is not AccessKind.READ


_Accessing: TypeAlias = (
    stmts.Store | stmts.Reduce | stmts.For | stmts.If | stmts.Block | stmts.Call | stmts.Let
    | stmts.NamedWindow
)  # fmt: skip


def accesses(body: stmts.Body, domain: Domain = ANYWHERE) -> tuple[Access, ...]:
    """Every access in `body`, in program order; claims of `Assume` are not accesses."""
    made: list[Access] = []
    for stmt in body:
        match stmt:
            case stmts.Allocate():
                pass
            case stmts.Assume():
                domain = after(stmt, domain)
            case _:
                made += _accesses_of(stmt, domain)
    return tuple(made)


@kept_at_place
def _accesses_of(stmt: _Accessing, domain: Domain) -> tuple[Access, ...]:
    match stmt:
        case stmts.Store():
            write = Access(stmt.buffer, stmt.indices, domain, AccessKind.WRITE, True)
            return (*_reads(stmt.value, domain, True), write)
        case stmts.Reduce():
            kind = AccessKind.REDUCE
            write = Access(stmt.buffer, stmt.indices, domain, kind, True, stmt.op)
            return (*_reads(stmt.value, domain, True), write)
        case stmts.For():
            return accesses(stmt.body, domain.inside(stmt.var, stmt.start, stmt.stop))
        case stmts.Block():
            return accesses(stmt.body, domain)
        case stmts.Call() | stmts.Let() | stmts.NamedWindow():
            return accesses(performed(stmt), domain)
        case stmts.If() if exprs.is_predicate(stmt.condition):
            predicate = cast(Predicate, stmt.condition)
            taken = accesses(stmt.then, domain.given(predicate))
            return (*taken, *accesses(stmt.orelse, domain.given(negation(predicate))))
        case stmts.If():
            asked = _reads(cast(exprs.Expr, stmt.condition), domain, True)
            inside = (*accesses(stmt.then, domain), *accesses(stmt.orelse, domain))
            return (*asked, *(replace(access, certain=False) for access in inside))
    assert_never(stmt)


def _reads(expr: exprs.Expr, domain: Domain, certain: bool) -> Iterator[Access]:
    if isinstance(expr, exprs.Load):
        yield Access(expr.buffer, expr.indices, domain, AccessKind.READ, certain)
        return
    if not isinstance(expr, exprs.Select):
        for child in exprs.children(expr):
            yield from _reads(child, domain, certain)
        return
    if exprs.is_predicate(expr.condition):
        predicate = cast(Predicate, expr.condition)
        yield from _reads(expr.if_true, domain.given(predicate), certain)
        yield from _reads(expr.if_false, domain.given(negation(predicate)), certain)
        return
    yield from _reads(cast(exprs.Expr, expr.condition), domain, certain)
    yield from _reads(expr.if_true, domain, False)
    yield from _reads(expr.if_false, domain, False)
