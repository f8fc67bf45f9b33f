"""Primitives about where values live: staging, binding, lifting and caching."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from graphflow.arith import (
    ANYWHERE,
    TRUE,
    Domain,
    IndexExpr,
    Predicate,
    Proof,
    Var,
    conjunction,
    conjuncts,
    const,
    equal,
    joined,
    predicate_variables,
    prove_empty,
    prove_injective,
    substitute,
    substitute_in,
    variables,
)
from graphflow.errors import ScheduleError
from graphflow.schedule.frame import Rewrite, require, structural
from graphflow.schedule.places import (
    find_buffer,
    find_loop,
    require_fresh,
    rewrite_at,
)
from graphflow.tir import (
    Access,
    Allocate,
    Block,
    Body,
    Buffer,
    Expr,
    For,
    If,
    Load,
    LoopKind,
    PrimFunc,
    Reduce,
    Stmt,
    Store,
    accesses,
    map_body,
    map_expressions,
    rename_buffers,
    sites,
    substitute_body,
    walk,
)


@dataclass(frozen=True, slots=True)
class _Window:
    """What one iteration of the staging scope touches of a buffer.

    Every access has the same `indices`; `dims` are the loops inside the scope that they run over,
    `guard` the index conditions between the scope and the first store.
    """

    indices: tuple[IndexExpr, ...]
    dims: tuple[For, ...]
    guard: Predicate


def stage_mem(
    func: PrimFunc,
    loop: str,
    buffer: str,
    name: str,
    dims: Sequence[str],
    scope: str = "register",
) -> Rewrite:
    """`for i: S[a[e(i, d)]]` → `for i: {t; S[t[d]]; for d: a[e(i, d)] = t[d]}`.

    The body of `loop` works on a small buffer `name`, with one axis for each loop in `dims`.  All
    its accesses to `buffer` must use the same indices, which must be injective in `dims`.  The
    value is loaded first unless the first access stores it, and is not stored back where the buffer
    is allocated in the kernel and each iteration stores before it loads: then nobody can read it.
    """
    require_fresh(func, name)
    stmt, domain = find_loop(func, loop)
    old = find_buffer(func, buffer)
    window, touched = _window(stmt, domain, old, tuple(dims))
    proofs: list[Proof] = [
        require(
            prove_injective(window.indices, _within_scope(window)),
            f"each iteration of {', '.join(dims)} has its own element of {buffer}",
        )
    ]
    shape = tuple(_extent(d) for d in window.dims)
    new = Buffer(name, shape, old.dtype, scope)
    index: tuple[IndexExpr, ...] = tuple(d.var for d in window.dims)
    body: Body = (Allocate(new),)
    stored_first = touched[0].kind == "write" and _dominates(touched[0], touched)
    if not stored_first:
        body = (*body, *_copy_nest(window, "_in", Store(new, index, Load(old, window.indices))))
    body = (*body, *_redirected(stmt.body, old, new, index))
    unread = _dead_outside(func, stmt, domain, old) if stored_first else None
    if unread is not None:
        proofs.append(unread)
    else:
        body = (*body, *_copy_nest(window, "_out", Store(old, window.indices, Load(new, index))))
    staged = rewrite_at(func, loop, lambda _s, _d: (replace(stmt, body=body),))
    if unread is not None and not _is_touched(staged, old):
        staged = replace(staged, body=_without_allocation(staged.body, old))
    return Rewrite(staged, tuple(proofs))


def _window(
    stmt: For, domain: Domain, buffer: Buffer, dims: tuple[str, ...]
) -> tuple[_Window, tuple[Access, ...]]:
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    touched = tuple(a for a in accesses(stmt.body, inner) if a.buffer == buffer)
    if not touched:
        raise ScheduleError(f"{stmt.var} does not touch {buffer.name}")
    first = touched[0]
    for access in touched:
        if any(a is not b for a, b in zip(access.indices, first.indices, strict=True)):
            here, there = (", ".join(map(str, a.indices)) for a in (first, access))
            raise ScheduleError(f"{buffer.name} is touched at [{here}] and at [{there}]")
    loops = {s.var.name: s for s in walk(stmt.body) if isinstance(s, For)}
    missing = [name for name in dims if name not in loops]
    if missing:
        raise ScheduleError(f"{missing[0]} is not a loop inside {stmt.var}")
    chosen = tuple(loops[name] for name in dims)
    known = {a.var for a in inner.axes} | {d.var for d in chosen}
    stray = [v for e in first.indices for v in variables(e) if v not in known]
    if stray:
        raise ScheduleError(f"the indices of {buffer.name} use {stray[0]}, not among {dims}")
    guard = conjunction(
        m for m in _members(first.domain.where, inner.where) if predicate_variables(m) <= known
    )
    return _Window(first.indices, chosen, guard), touched


def _members(where: Predicate, outside: Predicate) -> Iterator[Predicate]:
    around = set(conjuncts(outside))
    return (m for m in conjuncts(where) if m not in around)


def _within_scope(window: _Window) -> Domain:
    """The loops of the window alone: outer variables are the same for both points compared."""
    inner = ANYWHERE
    for loop in window.dims:
        inner = inner.inside(loop.var, loop.start, loop.stop)
    return inner


def _extent(loop: For) -> int:
    if loop.extent is None:
        raise ScheduleError(f"the loop {loop.var} has no constant extent")
    return loop.extent


def _dominates(first: Access, touched: tuple[Access, ...]) -> bool:
    """Whether `first` happens wherever any other access does: fewer conditions, same loops."""
    mine = set(conjuncts(first.domain.where))
    axes = first.domain.axes
    return first.certain and all(
        mine <= set(conjuncts(a.domain.where)) and a.domain.axes[: len(axes)] == axes
        for a in touched
    )


def _copy_nest(window: _Window, suffix: str, store: Store) -> Body:
    names = {d.var: Var(d.var.name + suffix) for d in window.dims}
    values: dict[Var, IndexExpr] = dict(names.items())
    body = substitute_body((store,), values)
    guard = substitute_in(window.guard, values)
    if guard != TRUE:
        body = (If(guard, body),)
    for d in reversed(window.dims):
        body = (For(names[d.var], d.start, d.stop, LoopKind.SERIAL, body),)
    return body


def _redirected(body: Body, old: Buffer, new: Buffer, index: tuple[IndexExpr, ...]) -> Body:
    def on_expr(expr: Expr) -> Expr:
        return Load(new, index) if isinstance(expr, Load) and expr.buffer == old else expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Reduce) and stmt.buffer == old:
            return replace(stmt, buffer=new, indices=index)
        return stmt

    return map_body(map_expressions(body, on_expr), on_stmt)


def _dead_outside(func: PrimFunc, stmt: For, domain: Domain, buffer: Buffer) -> Proof | None:
    """A proof that nothing outside `stmt` reads what it writes to an allocated buffer, or None."""
    if buffer in {p.buffer for p in func.params}:
        return None
    inside = [a for a in accesses((stmt,), domain) if a.buffer == buffer and a.kind != "read"]
    remaining = rewrite_at(func, stmt.var.name, lambda _s, _d: ())
    readers = [a for a in accesses(remaining.body) if a.buffer == buffer and a.kind != "write"]
    claim = f"nothing outside {stmt.var} reads what it writes to {buffer.name}"
    for write in {a.indices: a for a in inside}.values():
        for reader in readers:
            copy, fresh = reader.domain.renamed("'")
            same = [
                equal(a, substitute(b, fresh))
                for a, b in zip(write.indices, reader.indices, strict=True)
            ]
            if not prove_empty(joined(write.domain, copy).given(conjunction(same))).proven:
                return None
    return structural(claim)


def _is_touched(func: PrimFunc, buffer: Buffer) -> bool:
    return any(access.buffer == buffer for access in accesses(func.body))


def _without_allocation(body: Body, buffer: Buffer) -> Body:
    def change(stmt: Stmt) -> Body:
        return () if isinstance(stmt, Allocate) and stmt.buffer == buffer else (stmt,)

    return map_body(body, change)


def lift_alloc(func: PrimFunc, buffer: str, levels: int = 1) -> Rewrite:
    """`for i: {a; S}` → `a; for i: S`, out of `levels` loops.

    Each iteration must store what it loads: values may not be carried from one to the next.  An
    access whose first store in the iteration does not dominate refuses.
    """
    old = find_buffer(func, buffer)
    proofs: list[Proof] = []
    new = func
    for _ in range(levels):
        loop = _loop_around(new, old)
        stmt, domain = find_loop(new, loop)
        inner = domain.inside(stmt.var, stmt.start, stmt.stop)
        touched = tuple(a for a in accesses(stmt.body, inner) if a.buffer == old)
        if touched and not (touched[0].kind == "write" and touched[0].certain):
            raise ScheduleError(f"{loop} loads {buffer} before it stores it")
        body = _without_allocation(stmt.body, old)
        moved = (Allocate(old), replace(stmt, body=body))
        new = rewrite_at(new, loop, lambda _s, _d, moved=moved: moved)  # type: ignore[misc]
        proofs.append(structural(f"each iteration of {loop} stores {buffer} before it loads it"))
    return Rewrite(new, tuple(proofs))


def _loop_around(func: PrimFunc, buffer: Buffer) -> str:
    for site in sites(func.body):
        if isinstance(site.stmt, Allocate) and site.stmt.buffer == buffer:
            if site.domain.axes:
                return site.domain.axes[-1].var.name
            raise ScheduleError(f"{buffer.name} is allocated outside all loops already")
    raise ScheduleError(f"{buffer.name} is not allocated in {func.name}")


def bind_expr(func: PrimFunc, place: str, buffer: str, name: str) -> Rewrite:
    """`S[b[e]]` → `t = b[e]; S[t]` in the body of the loop `place`, for its loads of `buffer`.

    All loads of `buffer` in the body must be the same expression, free of inner loop variables, and
    the body may not write the buffer.
    """
    require_fresh(func, name)
    stmt, domain = find_loop(func, place)
    old = find_buffer(func, buffer)
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    touched = [a for a in accesses(stmt.body, inner) if a.buffer == old]
    if not touched or any(a.kind != "read" for a in touched):
        raise ScheduleError(f"{place} does not only read {buffer}")
    indices = touched[0].indices
    known = {axis.var for axis in inner.axes}
    if any(a.indices != indices or a.domain.where != inner.where for a in touched):
        raise ScheduleError(f"{place} reads {buffer} at different places or under conditions")
    if any(v not in known for e in indices for v in variables(e)):
        raise ScheduleError(f"the element of {buffer} changes inside {place}")
    bound = Buffer(name, (), old.dtype, "register")
    head = (Allocate(bound), Store(bound, (), Load(old, indices)))
    body = (*head, *_redirected(stmt.body, old, bound, ()))
    new = rewrite_at(func, place, lambda _s, _d: (replace(stmt, body=body),))
    return Rewrite(new, (structural(f"{place} reads one element of {buffer} and writes none"),))


def cache_read(func: PrimFunc, buffer: str, name: str) -> Rewrite:
    """Copies the input `buffer` into `name` before everything, and reads the copy instead.

    The copying stage is a block `name` marked `preproc: copy`; a graph may lift it out.
    """
    require_fresh(func, name)
    old = find_buffer(func, buffer)
    if old not in func.inputs:
        raise ScheduleError(f"{buffer} is not an input of {func.name}")
    cache = replace(old, name=name)
    body = rename_buffers(func.body, {old: cache})
    stage = _copy_stage(old, cache, name + "_copy", "preproc")
    new = replace(func, body=(Allocate(cache), stage, *body))
    return Rewrite(new, (structural(f"{buffer} is never written"),))


def cache_write(func: PrimFunc, buffer: str, name: str) -> Rewrite:
    """Computes the output `buffer` in `name`, and copies it out after everything.

    The copying stage is a block marked `postproc: copy`; a graph may lift it out.  The kernel must
    not read the buffer before it wrote it, which the verifier ensures for outputs.
    """
    require_fresh(func, name)
    old = find_buffer(func, buffer)
    if old not in func.outputs:
        raise ScheduleError(f"{buffer} is not an output of {func.name}")
    cache = replace(old, name=name)
    body = rename_buffers(func.body, {old: cache})
    stage = _copy_stage(cache, old, name + "_copy", "postproc")
    new = replace(func, body=(Allocate(cache), *body, stage))
    return Rewrite(new, (structural(f"{buffer} starts undefined"),))


def _copy_stage(source: Buffer, target: Buffer, block: str, mark: str) -> Block:
    names = tuple(Var(f"{block}_{k}") for k in range(len(source.shape)))
    body: Body = (Store(target, names, Load(source, names)),)
    for var, extent in zip(reversed(names), reversed(source.shape), strict=True):
        body = (For(var, const(0), const(extent), LoopKind.SERIAL, body),)
    return Block(block, body, ((mark, "copy"),))
