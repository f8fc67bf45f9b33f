"""A window of a buffer, copied for an iteration that accesses several elements of it.

In: a kernel, a loop and a buffer.  Out: the kernel in which each iteration works on a small copy of
what it touches.  What always holds: only elements that the iteration touches are copied in, and
only those that it may store are copied out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from graphflow.arith import (
    Domain,
    IndexExpr,
    IntegerSet,
    Proof,
    Undecided,
    Var,
    conjunction,
    prove,
    within,
)
from graphflow.base.errors import ScheduleError
from graphflow.schedule.bound_inference import element_of
from graphflow.schedule.dependence import still_independent
from graphflow.schedule.frame import Rewrite
from graphflow.schedule.memory import require_no_lanes_around, require_not_claimed
from graphflow.schedule.obligations import require, structural
from graphflow.schedule.padding import require_away_from_forbidden
from graphflow.schedule.places import (
    find_buffer,
    find_loop,
    fresh_names,
    place_names,
    require_fresh,
    require_names,
    rewrite_at,
)
from graphflow.schedule.private import stored_before_read
from graphflow.tir import (
    Access,
    Allocate,
    Body,
    Buffer,
    For,
    If,
    Load,
    LoopKind,
    PrimFunc,
    Scope,
    Stmt,
    Store,
    accesses,
    redirect_accesses,
)

Indices = tuple[IndexExpr, ...]


def stage_window(
    func: PrimFunc, loop: str, buffer: str, name: str, scope: Scope = "scratch"
) -> Rewrite:
    """`for i: S[a[e1], a[e2]]` → `for i: {t; t = a[window]; S[t[e1 - o], t[e2 - o]]; a = t}`.

    The body of `loop` works on a small buffer `name`: the smallest box that holds, in any
    iteration, all elements of `buffer` that it touches, exactly as integer sets find it.  These
    elements are copied in, unless the iteration stores each before it reads it; those that it
    stores are copied back.  Elements touched under a condition on data must be in bounds, and no
    padding that nothing may access.

    Makes the small buffer in the role `buffer`, and the outermost loops that copy in the roles
    `load` and `store`.
    """
    require_names(name)
    require_fresh(func, name)
    stmt, domain = find_loop(func, loop)
    require_no_lanes_around(func, stmt, domain)
    old = find_buffer(func, buffer)
    require_not_claimed(stmt, old)
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    touched = [a for a in accesses(stmt.body, inner) if a.buffer == old]
    if not touched:
        raise ScheduleError(f"{loop} does not touch {buffer}")
    try:
        return _staged(func, stmt, inner, old, name, scope, touched)
    except Undecided as error:
        raise ScheduleError(f"what {loop} touches of {buffer} is not found: {error}") from error


def _staged(
    func: PrimFunc,
    stmt: For,
    inner: Domain,
    old: Buffer,
    name: str,
    scope: Scope,
    touched: Sequence[Access],
) -> Rewrite:
    loop = stmt.var.name
    outer = tuple(axis.var for axis in inner.axes)
    used = _elements(touched, outer)
    windows = [used.offset(var, outer) for var in element_of(old)]
    kept = [axis for axis, (_, extent) in enumerate(windows) if extent > 1]
    new = Buffer(name, tuple(windows[axis][1] for axis in kept), old.dtype, scope)

    def place(indices: Indices) -> Indices:
        return tuple(indices[axis] - windows[axis][0] for axis in kept)

    proofs = [_fits(access, windows, loop) for access in touched]
    names = _loop_names(func, name, len(old.shape))
    body: Body = (Allocate(new),)
    made: dict[str, tuple[str, ...]] = {"buffer": (name,), "load": (), "store": ()}
    known = _stored_first(touched, loop)
    proofs += known or ()
    if known is None:
        proofs += _may_copy(func, touched)
        body += scan(used, inner, names["load"], lambda e: Store(new, place(e), Load(old, e)))
        made["load"] = _first(names["load"])
    body += redirect_accesses(stmt.body, old, new, place)
    stores = [access for access in touched if access.writes]
    if stores:
        stored = _elements(stores, outer)
        body += scan(stored, inner, names["store"], lambda e: Store(old, e, Load(new, place(e))))
        made["store"] = _first(names["store"])
    staged = rewrite_at(func, loop, lambda _s, _d: (replace(stmt, body=body),))
    proofs += still_independent(staged, loop)
    return Rewrite(staged, tuple(dict.fromkeys(proofs)), made=made)


def _elements(touched: Sequence[Access], outer: tuple[Var, ...]) -> IntegerSet:
    """The elements that accesses touch, over the loops outside and the element."""
    element = element_of(touched[0].buffer)
    images = (IntegerSet.of(a.domain).image(element, a.indices) for a in touched)
    return reduce(lambda a, b: a | b, (image.over((*outer, *element)) for image in images))


def _fits(access: Access, windows: Sequence[tuple[IndexExpr, int]], loop: str) -> Proof:
    sides = zip(access.indices, windows, strict=True)
    inside = conjunction(within(index - offset, 0, extent) for index, (offset, extent) in sides)
    shape = [extent for _, extent in windows]
    condition = f"what {loop} touches of {access.buffer.name} fits {shape}"
    return require(prove(inside, access.domain), condition)


def _stored_first(touched: Sequence[Access], loop: str) -> list[Proof] | None:
    """Proofs that nothing need be copied in, or None where it must be."""
    if not all(access.certain for access in touched if access.writes):
        return None
    try:
        return stored_before_read(touched, loop)
    except ScheduleError:
        return None


def _may_copy(func: PrimFunc, touched: Sequence[Access]) -> list[Proof]:
    """Proofs that the elements that are copied may be accessed in each iteration."""
    name = touched[0].buffer.name
    proofs = [structural(f"the elements of {name} that are copied are accessed anyway")]
    for access in touched:
        if not access.certain:
            sides = zip(access.indices, access.buffer.shape, strict=True)
            inside = prove(conjunction(within(e, 0, n) for e, n in sides), access.domain)
            proofs.append(require(inside, f"what is copied of {name} lies inside it"))
            proofs.append(require_away_from_forbidden(func, access))
    return proofs


def _loop_names(func: PrimFunc, name: str, rank: int) -> dict[str, tuple[Var, ...]]:
    taken = {name, *place_names(func)}
    found = {}
    for role in ("load", "store"):
        wanted = (f"{name}_{role}_{axis}" for axis in range(rank))
        found[role] = tuple(map(Var, fresh_names(taken, wanted).values()))
    return found


def _first(names: tuple[Var, ...]) -> tuple[str, ...]:
    return tuple(var.name for var in names[:1])


def scan(
    points: IntegerSet, outside: Domain, names: Sequence[Var], leaf: Callable[[Indices], Stmt]
) -> Body:
    """Loops over the last coordinates of a set, as many as names; the others are loops outside.

    The leaf runs once for each point, in lexicographic order.
    """
    outer = tuple(axis.var for axis in outside.axes)
    last = points.variables[len(outer) :]
    named = points.renamed(dict(zip(last, names, strict=True)))
    here, loops = outside, list[For]()
    for var in names:
        low, high = named.bounds(var, tuple(axis.var for axis in here.axes))
        loops.append(For(var, low.expr, high.expr + 1, LoopKind.SERIAL, ()))
        here = here.inside(var, low.expr, high.expr + 1)
    body: Body = (leaf(tuple(names)),)
    around = IntegerSet.of(here)
    if not (around - named).is_empty:
        body = (If(named.predicate(around), body),)
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body
