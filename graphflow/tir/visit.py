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
    const,
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
    children,
    is_predicate,
    walk_expr,
)
from graphflow.tir.kept import kept
from graphflow.tir.stmt import (
    Allocate,
    Assume,
    Block,
    Body,
    BufferWindow,
    Call,
    For,
    If,
    Let,
    LoopKind,
    NamedWindow,
    PrimFunc,
    Reduce,
    ReduceOp,
    Stmt,
    Store,
)
from graphflow.tir.unify import NotUnifiable, unify


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
        case Call() | Let() | NamedWindow():
            return (performed(stmt),)
        case Store() | Reduce() | Allocate() | Assume():
            return ()
    assert_never(stmt)


def map_body(
    body: Body, change: Callable[[Stmt], Stmt | Body], *, calls_whole: bool = False
) -> Body:
    """`body` rebuilt from the leaves up; `change` may give one statement, several or none.

    What a call performs is mapped too, and matched with its definition again; where it is no
    instance of that any more, a block with the call's name takes its place; lets and named windows
    likewise.  With `calls_whole`, calls are given to `change` as they are, and the statements in a
    named window access its name.
    """
    out: list[Stmt] = []
    for stmt in body:
        changed = change(_map_below(stmt, change, calls_whole))
        out += changed if isinstance(changed, tuple) else (changed,)
    return body if _same(out, body) else tuple(out)


def _map_below(stmt: Stmt, change: Callable[[Stmt], Stmt | Body], calls_whole: bool) -> Stmt:
    match stmt:
        case For() | Block():
            body = map_body(stmt.body, change, calls_whole=calls_whole)
            return stmt if body is stmt.body else replace(stmt, body=body)
        case If():
            then = map_body(stmt.then, change, calls_whole=calls_whole)
            orelse = map_body(stmt.orelse, change, calls_whole=calls_whole)
            if then is stmt.then and orelse is stmt.orelse:
                return stmt
            return replace(stmt, then=then, orelse=orelse)
        case Call():
            return stmt if calls_whole else with_performed(stmt, map_body(performed(stmt), change))
        case Let():
            body = map_body(performed(stmt), change, calls_whole=calls_whole)
            return with_performed(stmt, body)
        case NamedWindow() if calls_whole:
            body = map_body(stmt.body, change, calls_whole=True)
            return stmt if body is stmt.body else replace(stmt, body=body)
        case NamedWindow():
            return with_performed(stmt, map_body(performed(stmt), change))
        case Store() | Reduce() | Allocate() | Assume():
            return stmt
    assert_never(stmt)


def _same(new: list[Stmt], old: Body) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))


def with_performed(stmt: Call | Let | NamedWindow, body: Body) -> Call | Let | NamedWindow | Block:
    """The let, the same named window, or the call of the same definition, that performs `body`;
    else a block of it.

    The block has the name of the call or window, or that of the let with `.let` behind it.
    """
    if body is performed(stmt):
        return stmt
    match stmt:
        case Let():
            return _as_let(stmt, body)
        case Call():
            return _as_call(stmt, body)
        case NamedWindow():
            return _as_window(stmt, body)
    assert_never(stmt)


def _as_window(named: NamedWindow, body: Body) -> NamedWindow | Block:
    """The elements that the old body accessed by the name are accessed by it in `body` too."""
    found: dict[Load, tuple[IndexExpr, ...]] = {}
    for site in _accessed(named.body):
        if site.buffer == named.buffer:
            place = named.window.place(site.indices)
            found[Load(named.window.buffer, place)] = site.indices

    def on_expr(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr in found:
            return Load(named.buffer, found[expr])
        return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Reduce):
            indices = found.get(Load(stmt.buffer, stmt.indices))
            if indices is not None:
                return replace(stmt, buffer=named.buffer, indices=indices)
        return stmt

    inner = map_expressions(body, on_expr, calls_whole=True)
    new = replace(named, body=map_body(inner, on_stmt, calls_whole=True))
    is_used = any(access.buffer == named.buffer for access in _accessed(new.body))
    return new if is_used and performed(new) == body else Block(named.buffer.name, body)


def _accessed(body: Body) -> Iterator[Load]:
    """The elements that statements access, as loads, in calls and named windows too."""
    yield from loads_in(body)
    for write in writes_in(body):
        yield Load(write.buffer, write.indices)


def _as_let(let: Let, body: Body) -> Let | Block:
    match body:
        case (Allocate(buffer), Store() as store, *rest) if store.buffer == buffer:
            plain = not buffer.shape and buffer.scope == "register"
            same_type = store.value.dtype == buffer.dtype
            used = any(node == Load(buffer, ()) for node in walk_expr(store.value))
            written = any(write.buffer == buffer for write in writes_in(tuple(rest)))
            if plain and same_type and not used and not written:
                return Let(buffer, store.value, tuple(rest))
        case _:
            pass
    return Block(f"{let.buffer.name}.let", body)


def _as_call(call: Call, body: Body) -> Call | Block:
    try:
        new = unify(call.definition, body, call.name)
    except NotUnifiable:
        return Block(call.name, body)
    return new if performed(new) == body else Block(call.name, body)


@kept
def performed(stmt: Call | Let | NamedWindow) -> Body:
    """The statements that a let, a named window or a call performs.

    A let allocates its buffer, stores the value, and runs its body.  A named window runs its body
    on the buffer behind the name.  A call runs the body of its
    definition with the arguments put in; loops, blocks, calls and allocated buffers in it are named
    `call.name` of the definition.
    """
    if isinstance(stmt, Let):
        return (Allocate(stmt.buffer), Store(stmt.buffer, (), stmt.value), *stmt.body)
    if isinstance(stmt, NamedWindow):
        window = stmt.window
        return redirect_accesses(stmt.body, stmt.buffer, window.buffer, window.place)
    return _performed_by_call(stmt)


def _performed_by_call(call: Call) -> Body:
    func = call.definition
    windows = {p.buffer: w for p, w in zip(func.params, call.windows, strict=True)}
    values: dict[Var, IndexExpr] = dict(zip(func.scalars, call.scalars, strict=True))
    buffers: dict[Buffer, Buffer] = {}
    for stmt in _own(func.body):
        match stmt:
            case For():
                values[stmt.var] = Var(f"{call.name}.{stmt.var.name}")
            case Allocate():
                named = replace(stmt.buffer, name=f"{call.name}.{stmt.buffer.name}")
                buffers[stmt.buffer] = named
            case NamedWindow(window=BufferWindow(buffer=behind)):
                # In the memory of the caller's buffer; a window around this one comes before it.
                scope = (buffers[behind] if behind in buffers else windows[behind].buffer).scope
                name = f"{call.name}.{stmt.buffer.name}"
                buffers[stmt.buffer] = replace(stmt.buffer, name=name, scope=scope)
            case _:
                pass
    for old, new in buffers.items():
        windows[old] = BufferWindow(new, (const(0),) * len(new.shape), tuple(range(len(new.shape))))

    def on_expr(expr: Expr) -> Expr:
        if isinstance(expr, Load) and not expr.buffer.is_field:
            window = windows[expr.buffer]
            return Load(window.buffer, window.place(expr.indices))
        return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        match stmt:
            case Store() | Reduce() if stmt.buffer.is_field:
                return stmt
            case Store() | Reduce():
                window = windows[stmt.buffer]
                return replace(stmt, buffer=window.buffer, indices=window.place(stmt.indices))
            case For():
                return replace(stmt, var=cast(Var, values[stmt.var]))
            case Allocate():
                return Allocate(buffers[stmt.buffer])
            case Block():
                return replace(stmt, name=f"{call.name}.{stmt.name}")
            case Call():
                inner = tuple(_inside_window(w, windows[w.buffer]) for w in stmt.windows)
                return replace(stmt, name=f"{call.name}.{stmt.name}", windows=inner)
            case NamedWindow():
                within = _inside_window(stmt.window, windows[stmt.window.buffer])
                return replace(stmt, buffer=buffers[stmt.buffer], window=within)
            case If() | Assume() | Let():
                return stmt
        assert_never(stmt)

    body = map_indices(
        func.body, lambda e: substitute(e, values), lambda p: substitute_in(p, values)
    )
    body = map_expressions(body, on_expr, calls_whole=True)
    return map_body(body, on_stmt, calls_whole=True)


def calls_in(body: Body) -> tuple[Call, ...]:
    """The calls in `body`, in program order, without those that other calls make."""
    found: list[Call] = []
    for stmt in body:
        if isinstance(stmt, Call):
            found.append(stmt)
        elif isinstance(stmt, Block):
            found += _calls_of(stmt)
        else:
            for below in sub_bodies(stmt):
                found += calls_in(below)
    return tuple(found)


@kept
def _calls_of(block: Block) -> tuple[Call, ...]:
    return calls_in(block.body)


def without_calls(func: PrimFunc) -> PrimFunc:
    """`func` with a block of the same name in place of each call, which does the same."""

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Call):
            return stmt
        body = map_body(performed(stmt), change, calls_whole=True)
        return Block(stmt.name, body)

    body = map_body(func.body, change, calls_whole=True)
    return func if body is func.body else replace(func, body=body)


def _own(body: Body) -> Iterator[Stmt]:
    """The statements of `body` without those that calls in it perform."""
    for stmt in body:
        yield stmt
        if not isinstance(stmt, Call):
            for below in sub_bodies(stmt):
                yield from _own(below)


def _inside_window(inner: BufferWindow, outer: BufferWindow) -> BufferWindow:
    """The window `inner` of a parameter, as a window of what `outer` hands to the parameter."""
    kept_axes = tuple(outer.kept[axis] for axis in inner.kept)
    return BufferWindow(outer.buffer, outer.place(inner.starts), kept_axes)


def map_expressions(
    body: Body, change: Callable[[Expr], Expr], *, calls_whole: bool = False
) -> Body:
    """`body` with `change` applied to every scalar expression node in it; calls as `map_body`."""

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
            case For() | Allocate() | Block() | Call() | Let() | NamedWindow():
                return stmt
        assert_never(stmt)

    return map_body(body, on_stmt, calls_whole=calls_whole)


def map_indices(
    body: Body,
    on_index: Callable[[IndexExpr], IndexExpr],
    on_predicate: Callable[[Predicate], Predicate],
) -> Body:
    """`body` with every index expression and every index predicate rewritten.

    Those of a call are its arguments, not those in its definition.
    """

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
            case Call():
                windows = tuple(
                    w if (starts := on_indices(w.starts)) is w.starts else replace(w, starts=starts)
                    for w in stmt.windows
                )
                scalars = on_indices(stmt.scalars)
                if scalars is stmt.scalars and all(
                    a is b for a, b in zip(windows, stmt.windows, strict=True)
                ):
                    return stmt
                return replace(stmt, windows=windows, scalars=scalars)
            case NamedWindow():
                starts = on_indices(stmt.window.starts)
                if starts is stmt.window.starts:
                    return stmt
                return replace(stmt, window=replace(stmt.window, starts=starts))
            case Allocate() | Block() | Let():
                return stmt
        assert_never(stmt)

    body = map_expressions(body, on_expr, calls_whole=True)
    return map_body(body, on_stmt, calls_whole=True)


def substitute_body(body: Body, values: Mapping[Var, IndexExpr]) -> Body:
    """`body` with variables replaced by index expressions; loops over them are left alone."""
    return map_indices(body, lambda e: substitute(e, values), lambda p: substitute_in(p, values))


def rename_buffers(body: Body, buffers: Mapping[Buffer, Buffer]) -> Body:
    """`body` with each buffer exchanged for another of the same rank."""
    if not buffers:
        return body
    buffers = dict(buffers)
    for named in _named_windows(body):
        # A name has the type and scope of the buffer behind it.
        behind = buffers.get(named.window.buffer)
        if behind is not None:
            name = buffers.get(named.buffer, named.buffer)
            buffers[named.buffer] = replace(name, dtype=behind.dtype, scope=behind.scope)

    def on_expr(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer in buffers:
            return Load(buffers[expr.buffer], expr.indices)
        return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Reduce | Allocate) and stmt.buffer in buffers:
            return replace(stmt, buffer=buffers[stmt.buffer])
        if isinstance(stmt, NamedWindow):
            behind = buffers.get(stmt.window.buffer, stmt.window.buffer)
            if behind is stmt.window.buffer and stmt.buffer not in buffers:
                return stmt
            name = buffers.get(stmt.buffer, stmt.buffer)
            return replace(stmt, buffer=name, window=replace(stmt.window, buffer=behind))
        if isinstance(stmt, Call):
            windows = tuple(
                replace(w, buffer=buffers[w.buffer]) if w.buffer in buffers else w
                for w in stmt.windows
            )
            return stmt if windows == stmt.windows else replace(stmt, windows=windows)
        return stmt

    body = map_expressions(body, on_expr, calls_whole=True)
    return map_body(body, on_stmt, calls_whole=True)


def _named_windows(body: Body) -> Iterator[NamedWindow]:
    """The named windows in `body` as they are written, outer before inner."""
    for stmt in body:
        if isinstance(stmt, NamedWindow):
            yield stmt
            yield from _named_windows(stmt.body)
        elif isinstance(stmt, Block):
            yield from _windows_of(stmt)
        elif not isinstance(stmt, Call):
            for below in sub_bodies(stmt):
                yield from _named_windows(below)


@kept
def _windows_of(block: Block) -> tuple[NamedWindow, ...]:
    return tuple(_named_windows(block.body))


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
        if isinstance(stmt, Call) and any(w.buffer == old for w in stmt.windows):
            # Both halves at once: a call that has only its loads redirected is no instance.
            below = redirect_accesses(performed(stmt), old, new, place)
            return with_performed(stmt, below)
        if isinstance(stmt, NamedWindow) and stmt.window.buffer == old:
            below = redirect_accesses(performed(stmt), old, new, place)
            return _redirected_window(stmt, new, place, below)
        return stmt

    body = map_expressions(body, on_expr, calls_whole=True)
    return map_body(body, on_stmt, calls_whole=True)


def _redirected_window(
    named: NamedWindow,
    new: Buffer,
    place: Callable[[tuple[IndexExpr, ...]], tuple[IndexExpr, ...]],
    below: Body,
) -> NamedWindow | Block:
    """A window of the old buffer as one of the new, where `place` moves all its elements alike;
    else a block that performs `below`."""
    rank = len(named.buffer.shape)
    starts = place(named.window.place((const(0),) * rank))
    kept: list[int] = []
    for axis in range(rank):
        unit = tuple(const(int(k == axis)) for k in range(rank))
        moved = zip(place(named.window.place(unit)), starts, strict=True)
        kept += [k for k, (a, b) in enumerate(moved) if a is not b]
    sides = zip(named.buffer.shape, (new.shape[axis] for axis in kept), strict=False)
    fits = len(kept) == rank and kept == sorted(set(kept)) and all(n <= m for n, m in sides)
    if fits:  # a smaller buffer may hold what is accessed, and not the whole window
        inner = replace(named.buffer, dtype=new.dtype, scope=new.scope)
        body = rename_buffers(named.body, {named.buffer: inner})
        found = NamedWindow(inner, BufferWindow(new, starts, tuple(kept)), body)
        if performed(found) == below:
            return found
    return Block(named.buffer.name, below)


def walk(body: Body) -> Iterator[Stmt]:
    """Every statement, parents before children, in program order."""
    left = list(reversed(body))
    while left:
        stmt = left.pop()
        yield stmt
        for below in reversed(sub_bodies(stmt)):
            left += reversed(below)


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
        case For() | Allocate() | Block() | Call() | Let() | NamedWindow():
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
            case Call() | Let() | NamedWindow():
                _collect(performed(stmt), domain, guards, found)
            case If() if is_predicate(stmt.condition):
                predicate = cast(Predicate, stmt.condition)
                _collect(stmt.then, domain.given(predicate), guards, found)
                if stmt.orelse:
                    _collect(stmt.orelse, domain.given(negation(predicate)), guards, found)
            case If():
                inside = (*guards, cast(Expr, stmt.condition))
                _collect(stmt.then, domain, inside, found)
                _collect(stmt.orelse, domain, inside, found)
            case Assume():
                domain = after(stmt, domain)
            case Store() | Reduce() | Allocate():
                pass


def after(stmt: Stmt, domain: Domain) -> Domain:
    """The domain behind a statement of a body: `assume(unless(c), bool(False))` states that c
    holds, and no variable changes."""
    if not isinstance(stmt, Assume) or stmt.claim != _FALSE or not is_predicate(stmt.unless):
        return domain
    return domain.given(cast(Predicate, stmt.unless))


_FALSE = Literal(False, "bool")


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
        domain = after(stmt, domain)
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
