"""The statements of a kernel with their iteration domains, and the elements that they access.

In: a kernel.  Out: its statements in program order, and for each the accesses that its instances
make.  What always holds: domains and index expressions are exact; an access under a condition on
data may happen and need not (`certain` is false), and nothing else is approximated.

An *instance* of a statement is one point of its domain.  Instances are ordered by their time stamp:
the number of each loop around, followed by its variable, then the number of the statement itself,
compared lexicographically; reads of an instance come before its write.  Loops of every kind are
ordered as serial ones are.

A buffer that is allocated inside of loops exists once for each of their iterations.  Its elements
are therefore identified by the variables of these loops (`copies`) in front of the indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never, cast

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.effects.paths import Path


def statement_title(stmt: tir.Stmt) -> str:
    """The statement in a message: `the store to y[i, j]`, `the loop i`."""
    match stmt:
        case tir.Store():
            return f"the store to {tir.element_text(stmt.buffer, stmt.indices)}"
        case tir.Reduce():
            return f"the reduction into {tir.element_text(stmt.buffer, stmt.indices)}"
        case tir.For():
            return f"the loop {stmt.var}"
        case tir.Block():
            return f"the block {stmt.name}"
        case tir.If():
            return f"the condition {tir.condition_text(stmt.condition)}"
        case tir.Allocate():
            return f"the allocation of {stmt.buffer.name}"
        case tir.Assume():
            return "the assumption"
        case tir.Call():
            return f"the call {stmt.name}"
        case tir.Let():
            return f"the let {stmt.buffer.name}"
        case tir.NamedWindow():
            return f"the window {stmt.buffer.name}"
    assert_never(stmt)


class Statement(Struct, frozen=True):
    """A statement of a kernel, and the points at which it runs."""

    number: int
    """Its position in program order, parents before children."""
    stop: int
    """The number of the first statement after it that is not inside it."""
    path: Path
    stmt: tir.Stmt
    domain: arith.Domain
    """The loops and the index conditions around it."""
    guards: tuple[tir.Expr, ...]
    """The conditions on data around it."""
    branches: tuple[tuple[int, bool], ...]
    """For each of them the number of its statement, and whether this one is in the else branch."""
    loops: tuple[int, ...]
    """The numbers of the loops around it, one for each axis of the domain."""

    def loops_to_run_with(self, other: Statement) -> int | None:
        """How many loops around this statement must be in equal iterations in an instance of
        `other`, so that this one certainly runs there as well, where its domain says so; None where
        data may decide otherwise."""
        if self.branches != other.branches[: len(self.branches)]:
            return None
        number = self.branches[-1][0] if self.branches else 0
        return sum(loop < number for loop in self.loops)

    def holds(self, other: Statement) -> bool:
        """Whether `other` is this statement or inside it."""
        return self.number <= other.number < self.stop

    @property
    def title(self) -> str:
        """The statement in a message: `the store to y[i, j]`, `the loop i`."""
        return statement_title(self.stmt)

    @property
    def time(self) -> tuple[arith.IndexExpr, ...]:
        """The time stamp of an instance: numbers of loops and their variables in turn."""
        axes = zip(self.loops, self.domain.axes, strict=True)
        pairs = (part for loop, axis in axes for part in (arith.const(loop), axis.var))
        return (*pairs, arith.const(self.number))


class StatementAccess(Struct, frozen=True):
    """An access, the statement that makes it, and which copy of the buffer it accesses."""

    number: int
    """Its position among all accesses of the kernel: reads of a statement before its write."""
    statement: Statement
    access: tir.Access
    copies: tuple[arith.Var, ...]
    """The variables of the loops around the allocation of the buffer."""

    @property
    def domain(self) -> arith.Domain:
        """The instances that make the access: those of the statement, without the sides of
        selects that they do not take."""
        return self.access.domain

    @property
    def element(self) -> tuple[arith.IndexExpr, ...]:
        """What identifies the element: the copy of the buffer, and the indices in it."""
        return (*self.copies, *self.access.indices)

    @property
    def is_claim(self) -> bool:
        """Whether the access is a load in an `Assume`, which nothing executes."""
        return isinstance(self.statement.stmt, tir.Assume)

    def __str__(self) -> str:
        if self.access.buffer.is_field:
            return self.access.buffer.name
        indices = ", ".join(map(str, self.access.indices))
        return f"{self.access.buffer.name}[{indices}]"


@dataclass(frozen=True, slots=True)
class KernelStatements(tir.Kept):
    """The statements and accesses of a kernel, both in program order."""

    func: tir.PrimFunc
    statements: tuple[Statement, ...]
    accesses: tuple[StatementAccess, ...]

    @property
    def assumes_nothing(self) -> bool:
        """Whether buffers may hold anything before the kernel."""
        return not any(isinstance(statement.stmt, tir.Assume) for statement in self.statements)

    def at(self, path: Path) -> Statement:
        """The statement at a path; KeyError where there is none."""
        for statement in self.statements:
            if statement.path == path:
                return statement
        raise KeyError(path)

    def outlives(self, buffer: tir.Buffer) -> bool:
        """Whether what a buffer holds after the kernel is part of its meaning: for outputs and
        configuration state."""
        return buffer.is_field or buffer in self.func.outputs

    def of(self, buffer: tir.Buffer) -> tuple[StatementAccess, ...]:
        """The accesses to a buffer."""
        return _by_buffer(self).get(buffer, ())

    def made_by(self, statement: Statement) -> tuple[StatementAccess, ...]:
        """The accesses of a statement itself, without those inside it: loads in the order of its
        expressions, then the write."""
        return tuple(a for a in self.accesses if a.statement is statement)

    def inside(self, statement: Statement) -> tuple[Statement, ...]:
        """A statement and all those inside it."""
        return self.statements[statement.number : statement.stop]


@tir.kept_by_node
def _by_buffer(model: KernelStatements) -> dict[tir.Buffer, tuple[StatementAccess, ...]]:
    found: dict[tir.Buffer, list[StatementAccess]] = {}
    for access in model.accesses:
        found.setdefault(access.access.buffer, []).append(access)
    return {buffer: tuple(accesses) for buffer, accesses in found.items()}


@lru_cache(maxsize=256)
def statements_of(func: tir.PrimFunc) -> KernelStatements:
    """The statements of a kernel and their accesses.  A kernel with a `callee` has none."""
    statements: list[Statement] = []
    _collect(func.body, (), arith.ANYWHERE, (), (), (), statements)
    copies = {
        one.stmt.buffer: tuple(axis.var for axis in one.domain.axes)
        for one in statements
        if isinstance(one.stmt, tir.Allocate)
    }
    found: list[StatementAccess] = []
    for statement in statements:
        for access in _accesses(statement):
            own = copies.get(access.buffer, ())
            found.append(StatementAccess(len(found), statement, access, own))
    return KernelStatements(func, tuple(statements), tuple(found))


def _collect(
    body: tir.Body,
    path: Path,
    domain: arith.Domain,
    guards: tuple[tir.Expr, ...],
    branches: tuple[tuple[int, bool], ...],
    loops: tuple[int, ...],
    found: list[Statement],
) -> None:
    for position, stmt in enumerate(body):
        number = len(found)
        here = (*path, (position, False))
        found.append(cast(Statement, None))  # until those inside have their numbers
        around = domain
        match stmt:
            case tir.For():
                inside = domain.inside(stmt.var, stmt.start, stmt.stop)
                _collect(stmt.body, here, inside, guards, branches, (*loops, number), found)
            case tir.Block():
                _collect(stmt.body, here, domain, guards, branches, loops, found)
            case tir.Call() | tir.Let() | tir.NamedWindow():
                _collect(tir.performed(stmt), here, domain, guards, branches, loops, found)
            case tir.If():
                then, orelse = domain, domain
                within, taken, other = guards, branches, branches
                if tir.is_predicate(stmt.condition):
                    condition = cast(arith.Predicate, stmt.condition)
                    then, orelse = domain.given(condition), domain.given(arith.negation(condition))
                else:
                    within = (*guards, cast(tir.Expr, stmt.condition))
                    taken, other = (*branches, (number, False)), (*branches, (number, True))
                _collect(stmt.then, here, then, within, taken, loops, found)
                there = (*path, (position, True))
                _collect(stmt.orelse, there, orelse, within, other, loops, found)
            case _:
                domain = tir.after(stmt, domain)
        found[number] = Statement(number, len(found), here, stmt, around, guards, branches, loops)


def _accesses(statement: Statement) -> Iterator[tir.Access]:
    """What one instance accesses itself, without the statements inside it; the write last."""
    stmt = statement.stmt
    match stmt:
        case tir.Assume():
            yield from _claims_of(stmt, statement.domain, not statement.guards)
            return
        case tir.For() | tir.Block() | tir.Allocate() | tir.Call() | tir.Let() | tir.NamedWindow():
            return
        case tir.If():
            stmt = replace(stmt, then=(), orelse=())
        case _:
            pass
    certain = not statement.guards
    for access in tir.accesses((stmt,), statement.domain):
        yield access if certain or not access.certain else replace(access, certain=False)


def claimed_loads(body: tir.Body, domain: arith.Domain = arith.ANYWHERE) -> Iterator[tir.Access]:
    """The loads in claims of `Assume`, as reads: writing an element ends a claim about it."""
    if not any(isinstance(stmt, tir.Assume) for stmt in tir.walk(body)):
        return  # before domains are made, which most bodies do not need
    for site in tir.sites(body, domain):
        if isinstance(site.stmt, tir.Assume):
            yield from _claims_of(site.stmt, site.domain, not site.guards)


def _claims_of(stmt: tir.Assume, domain: arith.Domain, certain: bool) -> Iterator[tir.Access]:
    """The loads in an assumption, as reads at the points where it is made."""
    if tir.is_predicate(stmt.unless):
        domain = domain.given(arith.negation(cast(arith.Predicate, stmt.unless)))
    else:
        certain = False
    for expr in tir.expressions_of(stmt):
        for node in tir.walk_expr(expr):
            if isinstance(node, tir.Load):
                yield tir.Access(node.buffer, node.indices, domain, tir.AccessKind.READ, certain)
