"""Primitives that decide where values are kept: in registers, in scratch buffers, in caches.

In: a kernel, a buffer, and the loop or kernel whose accesses are redirected.  Out: the kernel with
those accesses on a small buffer or a copy, and the copying between.  What always holds: what is
copied is proven to be in bounds, and to be elements that may be accessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.buffers.relocation import require_same_sources
from graphflow.schedule.facts import dependence, padding
from graphflow.schedule.places import addresses, obligations, place_names, places
from graphflow.schedule.steps.frame import Rewrite


class _Footprint(Struct, frozen=True):
    """The elements of a buffer that one iteration of the staged loop accesses.

    All accesses have the same `indices`; `dims` are the loops inside the staged loop that the
    indices use; `guard` is the conjunction of the index conditions that all accesses share; and
    `points` the domain of the dims under the guard.
    """

    indices: tuple[arith.IndexExpr, ...]
    dims: tuple[tir.For, ...]
    guard: arith.Predicate
    points: arith.Domain

    def read_of(self, buffer: tir.Buffer) -> tir.Access:
        """The load that copies these elements of a buffer."""
        return tir.Access(buffer, self.indices, self.points, tir.AccessKind.READ, True)


def stage_mem(
    func: tir.PrimFunc,
    loop: str,
    buffer: str,
    name: str,
    dims: Sequence[str],
    scope: tir.Scope = "register",
) -> Rewrite:
    """`for i: S[a[e(i, d)]]` → `for i: {t; S[t[d]]; for d: a[e(i, d)] = t[d]}`.

    The body of `loop` works on a small buffer `name`, with one axis for each loop in `dims`.  The
    elements are loaded first, unless the first access stores all of them.  They are stored back,
    unless the loop only reads them, or the buffer is allocated in the kernel, stored first in each
    iteration and read by nothing outside the loop.

    1. All accesses to `buffer` in the body use the same indices.
    2. These are injective in `dims`.
    3. What is copied is in bounds, and no padding that nothing may access.

    Makes the small buffer in the role `buffer`, and the nests that copy, whose loops are called
    after the dims, in the roles `load` and `store`.
    """
    place_names.require_names(name)
    place_names.require_fresh(func, name)
    taken = {name, *place_names.names_of_places(func)}
    nests = {
        role: place_names.fresh_names(taken, (d + suffix for d in dims))
        for role, suffix in (("load", "_in"), ("store", "_out"))
    }
    made: dict[str, tuple[str, ...]] = {"buffer": (name,), "load": (), "store": ()}
    stmt, domain = places.find_loop(func, loop)
    require_no_lanes_around(func, loop, domain.inside(stmt.var, stmt.start, stmt.stop))
    old = places.find_buffer(func, buffer)
    footprint, touched = _footprint(stmt, domain, old, tuple(dims))
    proofs: list[arith.Proof] = [
        obligations.require(
            _own_element(footprint),
            f"each iteration of {', '.join(dims)} has its own element of {buffer}",
        )
    ]
    shape = tuple(_extent(d) for d in footprint.dims)
    new = tir.Buffer(name, shape, old.dtype, scope)
    index: tuple[arith.IndexExpr, ...] = tuple(d.var - d.start for d in footprint.dims)
    body: tir.Body = (tir.Allocate(new),)
    stored_first = touched[0].kind is tir.AccessKind.WRITE and _dominates(
        touched[0], touched, footprint
    )
    if not stored_first:
        copied = footprint.read_of(old)
        inside = arith.prove(padding.in_bounds(copied), copied.domain)
        proofs.append(obligations.require(inside, f"what is staged of {buffer} lies inside it"))
        proofs.append(_touched_before(func, old, footprint, touched))
        made["load"] = tuple(nests["load"].values())
        store = tir.Store(new, index, tir.Load(old, footprint.indices))
        body = (*body, *_copy_nest(footprint, made["load"], store))
    body = (*body, *tir.redirect_accesses(stmt.body, old, new, lambda _: index))
    private = old not in {param.buffer for param in func.params}
    unread = (
        stored_first
        and private
        and effects.unread_outside(func, addresses.path_of(func, loop), old)
    )
    if unread and unread.proven:
        proofs.append(unread)
    elif any(access.writes for access in touched):
        proofs.append(_touched_before(func, old, footprint, touched))
        made["store"] = tuple(nests["store"].values())
        store = tir.Store(old, footprint.indices, tir.Load(new, index))
        body = (*body, *_copy_nest(footprint, made["store"], store))
    staged = places.exchange_at(func, loop, (replace(stmt, body=body),))
    if unread and unread.proven and not _is_touched(staged, old):
        staged = replace(staged, body=without_allocation(staged.body, old))
    proofs += dependence.still_independent(staged, loop)
    return Rewrite(staged, tuple(proofs), made=made)


def require_no_lanes_around(func: tir.PrimFunc, place: str, domain: arith.Domain) -> None:
    """ScheduleError where a loop of the domain, those around statements at a place, is
    vectorized."""
    lanes = places.first_in_lanes(func, place, (axis.var for axis in domain.axes))
    if lanes is not None:
        raise ScheduleError(f"the iterations of {lanes} are lanes; nothing is allocated in them")


def _footprint(
    stmt: tir.For, domain: arith.Domain, buffer: tir.Buffer, dims: tuple[str, ...]
) -> tuple[_Footprint, tuple[tir.Access, ...]]:
    """The footprint of a buffer in the loop `stmt`, and its accesses; ScheduleError without one."""
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    touched = tuple(a for a in tir.accesses(stmt.body, inner) if a.buffer == buffer)
    if not touched:
        raise ScheduleError(f"{stmt.var} does not touch {buffer.name}")
    require_not_claimed(stmt.body, buffer, stmt.var.name)
    first = touched[0]
    for access in touched:
        if any(a is not b for a, b in zip(access.indices, first.indices, strict=True)):
            here, there = (", ".join(map(str, a.indices)) for a in (first, access))
            raise ScheduleError(f"{buffer.name} is touched at [{here}] and at [{there}]")
    loops = {s.var.name: s for s in tir.walk(stmt.body) if isinstance(s, tir.For)}
    missing = [name for name in dims if name not in loops]
    if missing:
        raise ScheduleError(f"{missing[0]} is not a loop inside {stmt.var}")
    chosen = tuple(loops[name] for name in dims)
    known = {a.var for a in inner.axes} | {d.var for d in chosen}
    stray = [v for e in first.indices for v in arith.variables(e) if v not in known]
    if stray:
        raise ScheduleError(f"the indices of {buffer.name} use {stray[0]}, not among {dims}")
    for access in touched:
        outside = [d for d in chosen if d.var not in {axis.var for axis in access.domain.axes}]
        if outside:
            raise ScheduleError(f"{buffer.name} is touched outside the loop {outside[0].var} too")
    around = {axis.var for axis in inner.axes}
    bent = [
        d.var for d in chosen if not arith.variables(d.start) | arith.variables(d.stop) <= around
    ]
    if bent:
        raise ScheduleError(f"the bounds of {bent[0]} change inside {stmt.var}")
    shared = [list(_members(a.domain.where, inner.where)) for a in touched]
    guard = arith.conjunction(
        m
        for m in shared[0]
        if arith.predicate_variables(m) <= known and all(m in members for members in shared)
    )
    points = inner.given(guard)
    for d in chosen:
        points = points.inside(d.var, d.start, d.stop)
    return _Footprint(first.indices, chosen, guard, points), touched


def require_not_claimed(body: tir.Body, buffer: tir.Buffer, place: str) -> None:
    """ScheduleError where statements assume something of the buffer, or allocate it."""
    for inner in tir.walk(body):
        if isinstance(inner, tir.Assume) and any(
            a.buffer == buffer for a in tir.loads_in((inner,))
        ):
            raise ScheduleError(f"{place} assumes something of {buffer.name} inside")
        if isinstance(inner, tir.Allocate) and inner.buffer == buffer:
            raise ScheduleError(f"{buffer.name} is allocated inside {place} already")


def _members(where: arith.Predicate, outside: arith.Predicate) -> Iterator[arith.Predicate]:
    """The conjuncts of `where` that are not conjuncts of `outside`."""
    around = set(arith.conjuncts(outside))
    return (m for m in arith.conjuncts(where) if m not in around)


def _own_element(footprint: _Footprint) -> arith.Proof:
    """A proof that, in each outer iteration, different values of the dims give other elements."""
    dims = {d.var for d in footprint.dims}
    axes = tuple(axis for axis in footprint.points.axes if axis.var in dims)
    copy, fresh = arith.Domain(axes, footprint.points.where).renamed("'")
    same = [arith.equal(e, arith.substitute(e, fresh)) for e in footprint.indices]
    differ = arith.disjunction(
        arith.negation(arith.equal(axis.var, fresh[axis.var])) for axis in axes
    )
    both = arith.joined_domains(footprint.points, copy).given(arith.conjunction((*same, differ)))
    return arith.prove_empty(
        both, f"({', '.join(map(str, footprint.indices))}) is injective in the dims"
    )


def _extent(loop: tir.For) -> int:
    if loop.extent is None:
        raise ScheduleError(f"the loop {loop.var} has no constant extent")
    return max(loop.extent, 0)


def _dominates(first: tir.Access, touched: tuple[tir.Access, ...], footprint: _Footprint) -> bool:
    """Whether `first` is done at every point of the footprint, before any other access to it."""
    axes = first.domain.axes
    return (
        first.certain
        and {axis.var for axis in axes} <= {axis.var for axis in footprint.points.axes}
        and set(arith.conjuncts(first.domain.where)) <= set(arith.conjuncts(footprint.points.where))
        and all(a.domain.axes[: len(axes)] == axes for a in touched)
    )


def _touched_before(
    func: tir.PrimFunc, buffer: tir.Buffer, footprint: _Footprint, touched: tuple[tir.Access, ...]
) -> arith.Proof:
    """A proof that copying the footprint accesses no forbidden padding.

    That is so where the loop itself accesses all points of the footprint; else it must be proven to
    contain no forbidden element.
    """
    axes = {axis.var for axis in footprint.points.axes}
    where = set(arith.conjuncts(footprint.points.where))
    if any(
        access.certain
        and {axis.var for axis in access.domain.axes} <= axes
        and set(arith.conjuncts(access.domain.where)) <= where
        for access in touched
    ):
        return obligations.structural(
            f"every element of {buffer.name} that is copied is accessed anyway"
        )
    copied = footprint.read_of(buffer)
    return padding.require_away_from_forbidden(func, copied)


def _copy_nest(footprint: _Footprint, loops: tuple[str, ...], store: tir.Store) -> tir.Body:
    names = {d.var: arith.Var(name) for d, name in zip(footprint.dims, loops, strict=True)}
    values: dict[arith.Var, arith.IndexExpr] = dict(names.items())
    body = tir.substitute_body((store,), values)
    guard = arith.substitute_in(footprint.guard, values)
    if guard != arith.TRUE:
        body = (tir.If(guard, body),)
    for d in reversed(footprint.dims):
        body = (tir.For(names[d.var], d.start, d.stop, tir.LoopKind.SERIAL, body),)
    return body


def _is_touched(func: tir.PrimFunc, buffer: tir.Buffer) -> bool:
    touched = (*tir.accesses(func.body), *effects.claimed_loads(func.body))
    return any(access.buffer == buffer for access in touched)


def without_allocation(body: tir.Body, buffer: tir.Buffer) -> tir.Body:
    """The body without the statements that allocate `buffer`."""

    def change(stmt: tir.Stmt) -> tir.Body:
        return () if isinstance(stmt, tir.Allocate) and stmt.buffer == buffer else (stmt,)

    return tir.map_body(body, change)


def lift_alloc(func: tir.PrimFunc, buffer: str, levels: int = 1) -> Rewrite:
    """`for i: {a; S}` → `a; for i: S`, out of `levels` loops.

    Conditions: *kind*: the loops are not parallel or vectorized; their iterations would share the
    buffer.  *carried*: no value is carried from one iteration to the next, for each iteration
    stores an element before it loads it.
    """
    old = places.find_buffer(func, buffer)
    own = effects.written_before_read(func, old)
    proofs: list[arith.Proof] = [own] if own.proven else []
    new = func
    for _ in range(levels):
        loop = _loop_around(new, old)
        stmt, _domain = places.find_loop(new, loop)
        if stmt.kind in tir.AT_ONCE:
            raise ScheduleError(
                f"kind: the iterations of {loop} run at once, and would share {buffer}"
            )
        moved = (tir.Allocate(old), replace(stmt, body=without_allocation(stmt.body, old)))
        before = new
        new = places.exchange_at(new, loop, moved)
        if not own.proven:
            claim = f"carried: each iteration of {loop} stores {buffer} before it loads it"
            proofs += require_same_sources(before, new, (old,), (old,), claim)
    return Rewrite(new, tuple(proofs))


def _loop_around(func: tir.PrimFunc, buffer: tir.Buffer) -> str:
    for site in tir.sites(func.body):
        if isinstance(site.stmt, tir.Allocate) and site.stmt.buffer == buffer:
            if site.domain.axes:
                return site.domain.axes[-1].var.name
            raise ScheduleError(f"{buffer.name} is allocated outside all loops already")
    raise ScheduleError(f"{buffer.name} is not allocated in {func.name}")


def cache_read(func: tir.PrimFunc, buffer: str, name: str, liftable: bool = True) -> Rewrite:
    """`S[a]` → `name_copy: c = a`, then `S[c]`, for the input a and a new buffer c; the copy can be
    lifted out of the kernel unless `liftable` is false.

    If `liftable`, the stage `name_copy` is marked `preproc: copy`, so that `lift_stages` can lift
    it out; without the mark it can be fused with others.

    Makes the copy in the role `buffer`, the stage in the role `block`.
    """
    old = places.find_buffer(func, buffer)
    if old not in func.inputs:
        raise ScheduleError(f"{buffer} is not an input of {func.name}")
    return _cached(func, old, name, tir.BlockNote.PREPROC, liftable, f"{buffer} is never written")


def cache_write(func: tir.PrimFunc, buffer: str, name: str, liftable: bool = True) -> Rewrite:
    """`S[a]` → `S[c]`, then `name_copy: a = c`, for the output a and a new buffer c;
    an a that is read and written (`inout`) is copied into c first, by `name_load: c = a`.

    If `liftable`, the stage is marked `postproc: copy`, so that `lift_stages` can lift it out;
    without the mark it can be fused with others.  The kernel must not read the output before it
    writes it, which the verifier ensures.

    Both stages of an a that is read and written stay in the kernel.

    Makes the copy in the role `buffer`, the stage in the role `block`, and the stage that loads, if
    there is one, in the role `load`.
    """
    old = places.find_buffer(func, buffer)
    if old not in func.outputs:
        raise ScheduleError(f"{buffer} is not an output of {func.name}")
    if any(p.buffer == old and p.role is tir.Role.INOUT for p in func.params):
        return _cached_both_ways(func, old, name)
    return _cached(func, old, name, tir.BlockNote.POSTPROC, liftable, f"{buffer} starts undefined")


def _cached(
    func: tir.PrimFunc,
    buffer: tir.Buffer,
    name: str,
    mark: tir.BlockNote,
    marked: bool,
    because: str,
) -> Rewrite:
    """A kernel that works on a copy of a parameter, with a stage that makes the copy.

    The stage comes first with PREPROC and last with POSTPROC; if `marked`, it carries that mark.
    """
    names = _may_cache(func, buffer, name)
    cache = replace(buffer, name=name)
    body = tir.rename_buffers(func.body, {buffer: cache})
    notes = ((mark, "copy"),) if marked else ()
    if mark is tir.BlockNote.PREPROC:
        stage = _copy_stage(buffer, cache, names, notes)
        body = (stage, *body)
    else:
        stage = _copy_stage(cache, buffer, names, notes)
        body = (*body, stage)
    made = {"buffer": (name,), "block": (stage.name,)}
    new = replace(func, body=(tir.Allocate(cache), *body))
    return Rewrite(new, (obligations.structural(because),), made=made)


def _cached_both_ways(func: tir.PrimFunc, buffer: tir.Buffer, name: str) -> Rewrite:
    """A kernel that works on a copy of an `inout` parameter, and stages before and behind."""
    store_names = _may_cache(func, buffer, name)
    rank = len(buffer.shape)
    load_names = place_names.stage_names(func, f"{name}_load", rank, name, *store_names)
    cache = replace(buffer, name=name)
    load = _copy_stage(buffer, cache, load_names)
    store = _copy_stage(cache, buffer, store_names)
    body = tir.rename_buffers(func.body, {buffer: cache})
    made = {"buffer": (name,), "block": (store.name,), "load": (load.name,)}
    new = replace(func, body=(tir.Allocate(cache), load, *body, store))
    why = f"{name} begins as {buffer.name}, which is touched by the copies alone"
    return Rewrite(new, (obligations.structural(why),), made=made)


def _may_cache(func: tir.PrimFunc, buffer: tir.Buffer, name: str) -> tuple[str, ...]:
    """Fresh names for a copying stage and its loops; ScheduleError where the buffer is padded."""
    place_names.require_names(name)
    place_names.require_fresh(func, name)
    for stmt in tir.walk(func.body):
        if isinstance(stmt, tir.Block) and stmt.note(tir.BlockNote.PADDING_OF) == buffer.name:
            raise ScheduleError(
                f"{buffer.name} has padding, which the copy would touch; cache it first, and "
                "transform the cache"
            )
    return place_names.stage_names(func, f"{name}_copy", len(buffer.shape), name)


def _copy_stage(
    source: tir.Buffer,
    target: tir.Buffer,
    fresh: tuple[str, ...],
    notes: tuple[tuple[tir.BlockNote, str], ...] = (),
) -> tir.Block:
    block, *loops = fresh
    names = tuple(map(arith.Var, loops))
    copy = tir.Store(target, names, tir.Load(source, names))
    return tir.Block(block, tir.nest(tuple(zip(names, source.shape, strict=True)), (copy,)), notes)
