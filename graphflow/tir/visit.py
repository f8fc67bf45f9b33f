"""Traversal and rewriting of kernels.

What always holds: a rewrite that changes nothing returns the same object, so that results cached
for it (`kept`) stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias, assert_never, cast

from graphflow.arith import (
    ANYWHERE,
    Domain,
    IndexExpr,
    Predicate,
    Var,
    negation,
    substitute,
    substitute_in,
)
from graphflow.tir.expr import (
    Binary,
    Buffer,
    Cast,
    Comparison,
    Condition,
    Expr,
    IndexValue,
    Literal,
    Load,
    Select,
    Unary,
    Undef,
    is_predicate,
)
from graphflow.tir.kept import kept
from graphflow.tir.stmt import (
    Allocate,
    Assume,
    Block,
    Body,
    For,
    If,
    LoopKind,
    PrimFunc,
    Reduce,
    ReduceOp,
    Stmt,
    Store,
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The scalar expressions directly below `expr`, a data condition included."""
    match expr:
        case Literal() | Load() | IndexValue() | Undef():
            return ()
        case Unary() | Cast():
            return (expr.operand,)
        case Binary() | Comparison():
            return (expr.left, expr.right)
        case Select():
            head = () if is_predicate(expr.condition) else (cast(Expr, expr.condition),)
            return (*head, expr.if_true, expr.if_false)
    assert_never(expr)


def map_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` rebuilt from the leaves up, `change` applied to each node."""
    match expr:
        case Literal() | Load() | IndexValue() | Undef():
            return change(expr)
        case Unary() | Cast():
            operand = map_expr(expr.operand, change)
            return change(expr if operand is expr.operand else replace(expr, operand=operand))
        case Binary() | Comparison():
            left, right = map_expr(expr.left, change), map_expr(expr.right, change)
            if left is expr.left and right is expr.right:
                return change(expr)
            return change(replace(expr, left=left, right=right))
        case Select():
            condition = map_condition(expr.condition, change)
            if_true, if_false = map_expr(expr.if_true, change), map_expr(expr.if_false, change)
            if (
                condition is expr.condition
                and if_true is expr.if_true
                and if_false is expr.if_false
            ):
                return change(expr)
            return change(Select(condition, if_true, if_false))
    assert_never(expr)


def map_condition(condition: Condition, change: Callable[[Expr], Expr]) -> Condition:
    """A data condition mapped as an expression; a predicate as it is."""
    return condition if is_predicate(condition) else map_expr(cast(Expr, condition), change)


def sub_bodies(stmt: Stmt) -> tuple[Body, ...]:
    """The bodies directly below `stmt`."""
    match stmt:
        case For() | Block():
            return (stmt.body,)
        case If():
            return (stmt.then, stmt.orelse)
        case Store() | Reduce() | Allocate() | Assume():
            return ()
    assert_never(stmt)


def map_body(body: Body, change: Callable[[Stmt], Stmt | Body]) -> Body:
    """`body` rebuilt from the leaves up; `change` may give one statement, several or none."""
    out: list[Stmt] = []
    for stmt in body:
        changed = change(_map_below(stmt, change))
        out += changed if isinstance(changed, tuple) else (changed,)
    return body if _same(out, body) else tuple(out)


def _map_below(stmt: Stmt, change: Callable[[Stmt], Stmt | Body]) -> Stmt:
    match stmt:
        case For() | Block():
            body = map_body(stmt.body, change)
            return stmt if body is stmt.body else replace(stmt, body=body)
        case If():
            then, orelse = map_body(stmt.then, change), map_body(stmt.orelse, change)
            if then is stmt.then and orelse is stmt.orelse:
                return stmt
            return replace(stmt, then=then, orelse=orelse)
        case Store() | Reduce() | Allocate() | Assume():
            return stmt
    assert_never(stmt)


def _same(new: list[Stmt], old: Body) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))


def map_expressions(body: Body, change: Callable[[Expr], Expr]) -> Body:
    """`body` with `change` applied to every scalar expression node in it."""

    def on_stmt(stmt: Stmt) -> Stmt:
        match stmt:
            case Store() | Reduce():
                value = map_expr(stmt.value, change)
                return stmt if value is stmt.value else replace(stmt, value=value)
            case If():
                condition = map_condition(stmt.condition, change)
                return stmt if condition is stmt.condition else replace(stmt, condition=condition)
            case Assume():
                unless = map_condition(stmt.unless, change)
                claim = map_expr(stmt.claim, change)
                if unless is stmt.unless and claim is stmt.claim:
                    return stmt
                return Assume(unless, claim)
            case For() | Allocate() | Block():
                return stmt
        assert_never(stmt)

    return map_body(body, on_stmt)


def map_indices(
    body: Body,
    on_index: Callable[[IndexExpr], IndexExpr],
    on_predicate: Callable[[Predicate], Predicate],
) -> Body:
    """`body` with every index expression and every index predicate rewritten."""

    def on_indices(indices: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
        new = tuple(on_index(i) for i in indices)
        return indices if all(a is b for a, b in zip(new, indices, strict=True)) else new

    def on_condition(condition: Condition) -> Condition:
        return on_predicate(cast(Predicate, condition)) if is_predicate(condition) else condition

    def on_expr(expr: Expr) -> Expr:
        match expr:
            case Load():
                indices = on_indices(expr.indices)
                return expr if indices is expr.indices else Load(expr.buffer, indices)
            case IndexValue():
                index = on_index(expr.index)
                return expr if index is expr.index else IndexValue(index, expr.dtype)
            case Select():
                condition = on_condition(expr.condition)
                return expr if condition is expr.condition else replace(expr, condition=condition)
            case _:
                return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        match stmt:
            case Store() | Reduce():
                indices = on_indices(stmt.indices)
                return stmt if indices is stmt.indices else replace(stmt, indices=indices)
            case For():
                start, stop = on_index(stmt.start), on_index(stmt.stop)
                if start is stmt.start and stop is stmt.stop:
                    return stmt
                return replace(stmt, start=start, stop=stop)
            case If():
                condition = on_condition(stmt.condition)
                return stmt if condition is stmt.condition else replace(stmt, condition=condition)
            case Assume():
                unless = on_condition(stmt.unless)
                return stmt if unless is stmt.unless else replace(stmt, unless=unless)
            case Allocate() | Block():
                return stmt
        assert_never(stmt)

    return map_body(map_expressions(body, on_expr), on_stmt)


def substitute_body(body: Body, values: Mapping[Var, IndexExpr]) -> Body:
    """`body` with variables replaced by index expressions; loops over them are left alone."""
    return map_indices(body, lambda e: substitute(e, values), lambda p: substitute_in(p, values))


def rename_buffers(body: Body, buffers: Mapping[Buffer, Buffer]) -> Body:
    """`body` with each buffer exchanged for another of the same rank."""
    if not buffers:
        return body

    def on_expr(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer in buffers:
            return Load(buffers[expr.buffer], expr.indices)
        return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Reduce | Allocate) and stmt.buffer in buffers:
            return replace(stmt, buffer=buffers[stmt.buffer])
        return stmt

    return map_body(map_expressions(body, on_expr), on_stmt)


def redirect_accesses(
    body: Body,
    old: Buffer,
    new: Buffer,
    place: Callable[[tuple[IndexExpr, ...]], tuple[IndexExpr, ...]],
) -> Body:
    """`body` with each access to `old` made an access to `new`, at the indices that `place` gives
    for its own.  Allocations stay as they are."""

    def on_expr(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer == old:
            return Load(new, place(expr.indices))
        return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Reduce) and stmt.buffer == old:
            return replace(stmt, buffer=new, indices=place(stmt.indices))
        return stmt

    return map_body(map_expressions(body, on_expr), on_stmt)


def walk(body: Body) -> Iterator[Stmt]:
    """Every statement, parents before children, in program order."""
    left = list(reversed(body))
    while left:
        stmt = left.pop()
        yield stmt
        for below in reversed(sub_bodies(stmt)):
            left += reversed(below)


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """Every node of `expr`, parents before children."""
    left = [expr]  # no recursion: a sum of hundreds is as deep
    while left:
        node = left.pop()
        yield node
        left += reversed(children(node))


def expressions_of(stmt: Stmt) -> tuple[Expr, ...]:
    """The scalar expressions that stand in `stmt` itself, not in the bodies below it."""
    match stmt:
        case Store() | Reduce():
            return (stmt.value,)
        case If():
            return () if is_predicate(stmt.condition) else (cast(Expr, stmt.condition),)
        case Assume():
            head = () if is_predicate(stmt.unless) else (cast(Expr, stmt.unless),)
            return (*head, stmt.claim)
        case For() | Allocate() | Block():
            return ()
    assert_never(stmt)


def loads_in(body: Body) -> Iterator[Load]:
    """Every load in `body`, in program order; those of `Assume` too."""
    for stmt in walk(body):
        for expr in expressions_of(stmt):
            yield from (node for node in walk_expr(expr) if isinstance(node, Load))


@kept
def mentioned(block: Block) -> frozenset[Buffer]:
    """The buffers that a block reads, writes, allocates or assumes something of."""
    named = (s.buffer for s in walk(block.body) if isinstance(s, Store | Reduce | Allocate))
    return frozenset((*named, *(load.buffer for load in loads_in(block.body))))


def writes_in(body: Body) -> Iterator[Store | Reduce]:
    """Every store and reduction in `body`, in program order."""
    for stmt in walk(body):
        if isinstance(stmt, Store | Reduce):
            yield stmt


def buffers_of(func: PrimFunc) -> tuple[Buffer, ...]:
    """Parameters, then allocated buffers, in program order."""
    allocated = (buffer for stmt in func.body for buffer in _allocated_in(stmt))
    return tuple(dict.fromkeys((*(p.buffer for p in func.params), *allocated)))


def _allocated_in(stmt: Stmt) -> tuple[Buffer, ...]:
    return _of_block(stmt) if isinstance(stmt, Block) else _allocated((stmt,))


def _allocated(body: Body) -> tuple[Buffer, ...]:
    return tuple(s.buffer for s in walk(body) if isinstance(s, Allocate))


@kept
def _of_block(block: Block) -> tuple[Buffer, ...]:
    return _allocated(block.body)


def loops_of(body: Body) -> Iterator[For]:
    """Every loop in `body`, outer before inner."""
    return (stmt for stmt in walk(body) if isinstance(stmt, For))


def with_serial_loops(func: PrimFunc, kinds: Container[LoopKind] = tuple(LoopKind)) -> PrimFunc:
    """`func` with all loops of these kinds made serial, which computes the same."""

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind is not LoopKind.SERIAL and stmt.kind in kinds:
            return replace(stmt, kind=LoopKind.SERIAL)
        return stmt

    body = map_body(func.body, change)
    return func if body is func.body else replace(func, body=body)


@dataclass(frozen=True, slots=True)
class Site:
    """A statement with the loops and index conditions around it; `guards` are data conditions."""

    stmt: Stmt
    domain: Domain
    guards: tuple[Expr, ...] = ()


def sites(body: Body, domain: Domain = ANYWHERE, guards: tuple[Expr, ...] = ()) -> Iterator[Site]:
    """Every statement with its iteration domain, parents before children, in program order."""
    found: list[_Place] = []
    _collect(body, domain, guards, found)
    return (Site(*place) for place in found)


_Place: TypeAlias = tuple[Stmt, Domain, tuple[Expr, ...]]


def _collect(body: Body, domain: Domain, guards: tuple[Expr, ...], found: list[_Place]) -> None:
    """Append the fields of a `Site` for each statement in `body`.

    They are plain tuples because kernels are traversed so often that constructing a `Site` for each
    statement shows in compile times.
    """
    for stmt in body:
        if domain is ANYWHERE and not guards and isinstance(stmt, Block):
            found += _places_of(stmt)
            continue
        found.append((stmt, domain, guards))
        match stmt:
            case For():
                inner = domain.inside(stmt.var, stmt.start, stmt.stop)
                _collect(stmt.body, inner, guards, found)
            case Block():
                _collect(stmt.body, domain, guards, found)
            case If() if is_predicate(stmt.condition):
                predicate = cast(Predicate, stmt.condition)
                _collect(stmt.then, domain.given(predicate), guards, found)
                if stmt.orelse:
                    _collect(stmt.orelse, domain.given(negation(predicate)), guards, found)
            case If():
                inside = (*guards, cast(Expr, stmt.condition))
                _collect(stmt.then, domain, inside, found)
                _collect(stmt.orelse, domain, inside, found)
            case Store() | Reduce() | Allocate() | Assume():
                pass


@kept
def _places_of(stage: Block) -> list[_Place]:
    """What `_collect` appends for a block outside of all loops; most stages stay unchanged."""
    found: list[_Place] = [(stage, ANYWHERE, ())]
    _collect(stage.body, ANYWHERE, (), found)
    return found


class AccessKind(Enum):
    """What an access does to the element."""

    READ = "read"
    WRITE = "write"
    """A store."""
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write of a buffer, with the points at which it happens."""

    buffer: Buffer
    indices: tuple[IndexExpr, ...]
    domain: Domain
    kind: AccessKind
    certain: bool
    """False under a data condition: then it may happen, and must not be relied upon."""
    op: ReduceOp | None = None
    """The operator of a reduction."""

    @property
    def writes(self) -> bool:
        """Whether the access changes the element: a store or a reduction."""
        return self.kind is not AccessKind.READ


def accesses(body: Body, domain: Domain = ANYWHERE) -> tuple[Access, ...]:
    """Every access in `body`, in program order; claims of `Assume` are not accesses."""
    found: list[Access] = []
    for stmt in body:
        if domain is ANYWHERE and isinstance(stmt, Block):
            found += _accesses_of(stmt)
        else:
            found += _accesses((stmt,), domain)
    return tuple(found)


@kept
def _accesses_of(stage: Block) -> tuple[Access, ...]:
    """The accesses in a block outside of all loops; most stages stay unchanged."""
    return tuple(_accesses(stage.body, ANYWHERE))


def _accesses(body: Body, domain: Domain) -> list[Access]:
    found: list[Access] = []
    places: list[_Place] = []
    _collect(body, domain, (), places)
    for stmt, here, guards in places:
        if isinstance(stmt, Assume):
            continue
        for expr in expressions_of(stmt):
            found += _reads(expr, here, not guards)
        if isinstance(stmt, Store | Reduce):
            op = stmt.op if isinstance(stmt, Reduce) else None
            kind = AccessKind.WRITE if op is None else AccessKind.REDUCE
            found.append(Access(stmt.buffer, stmt.indices, here, kind, not guards, op))
    return found


def _reads(expr: Expr, domain: Domain, certain: bool) -> Iterator[Access]:
    if isinstance(expr, Load):
        yield Access(expr.buffer, expr.indices, domain, AccessKind.READ, certain)
        return
    if not isinstance(expr, Select):
        for child in children(expr):
            yield from _reads(child, domain, certain)
        return
    if is_predicate(expr.condition):
        predicate = cast(Predicate, expr.condition)
        yield from _reads(expr.if_true, domain.given(predicate), certain)
        yield from _reads(expr.if_false, domain.given(negation(predicate)), certain)
        return
    yield from _reads(cast(Expr, expr.condition), domain, certain)
    yield from _reads(expr.if_true, domain, False)
    yield from _reads(expr.if_false, domain, False)
