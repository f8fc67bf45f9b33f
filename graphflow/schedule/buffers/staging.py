"""A window of a buffer, copied for statements that access several elements of it.

In: a kernel, a place and a buffer.  Out: the kernel in which the statements work on a small copy of
what they touch.  What always holds: what is copied in may be read, and only what the
statements may store is copied out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.buffers.memory import require_no_lanes_around, require_not_claimed
from graphflow.schedule.facts import bound_inference, dependence, padding
from graphflow.schedule.places import obligations, place_names, places
from graphflow.schedule.places.step_arguments import IndexGiven, index_of
from graphflow.schedule.steps.frame import Rewrite

Indices = tuple[arith.IndexExpr, ...]

Window: TypeAlias = Sequence[IndexGiven | tuple[IndexGiven, int]]
"""For each axis of a buffer one index, or the first index and the number of elements."""


def stage_window(
    func: tir.PrimFunc,
    place: str,
    buffer: str,
    name: str,
    scope: tir.Scope = "scratch",
    window: Window | None = None,
) -> Rewrite:
    """`S[a[e1], a[e2]]` → `t; t = a[window]; S[t[e1 - o], t[e2 - o]]; a = t`, in the smallest
    window or a stated one.

    S is the body of a loop or block, or another statement, given by its address.  It works on a
    small buffer `name`: the `window`, which has for each axis an index, or a first index and an
    extent; an axis with an index alone is none of the small buffer.  Without one, the step finds
    the smallest box that holds all elements of `buffer` that one run of S touches, exactly as
    integer sets find it.

    The elements that S touches are copied in, unless it stores each before it reads it; of an input
    with a stated window, all in the window and in the buffer are.  Those that S stores are copied
    back.

    Conditions: *scope*: the window uses only loops around S.  *window*: S touches nothing outside
    of it.  *copied*: elements that are touched under a condition on data, or that a stated window
    adds, are in bounds, and no padding that nothing may access.

    `stage_mem` is the other way to get a small buffer: it keeps one element for each iteration of
    some loops, wherever these lie; this step keeps a box of elements, however often each is used.

    Makes the small buffer in the role `buffer`, and the outermost loops that copy in the roles
    `load` and `store`.
    """
    place_names.require_names(name)
    place_names.require_fresh(func, name)
    stmt, domain = places.find(func, place)
    if isinstance(stmt, tir.Allocate | tir.Assume):
        raise ScheduleError(f"{place} computes nothing that could be staged")
    old = places.find_buffer(func, buffer)
    staged = _Staged(func, place, stmt, domain, old)
    require_no_lanes_around(func, staged.name, staged.inner)
    require_not_claimed(staged.body, old, place)
    if not staged.touched:
        raise ScheduleError(f"{place} does not touch {buffer}")
    try:
        return _rewritten(staged, name, scope, window)
    except arith.Undecided as error:
        raise ScheduleError(f"what {place} touches of {buffer} is not found: {error}") from error


class _Staged:
    """Statements that get a copy of a buffer: where they stand, and what they touch of it."""

    def __init__(
        self,
        func: tir.PrimFunc,
        place: str,
        stmt: tir.Stmt,
        domain: arith.Domain,
        buffer: tir.Buffer,
    ) -> None:
        self.func, self.place, self.stmt, self.buffer = func, place, stmt, buffer
        self.inner = domain
        if isinstance(stmt, tir.For):
            self.inner = domain.inside(stmt.var, stmt.start, stmt.stop)
        self.body: tir.Body = stmt.body if isinstance(stmt, tir.For | tir.Block) else (stmt,)
        self.touched = [a for a in tir.accesses(self.body, self.inner) if a.buffer == buffer]
        self.outer = tuple(axis.var for axis in self.inner.axes)

    @property
    def name(self) -> str:
        """A name at the place or in it, else that of a loop around it; "" where there is none."""
        inside = place_names.declared_names((self.stmt,))
        return inside[0] if inside else self.outer[-1].name if self.outer else ""

    def with_body(self, body: tir.Body) -> tir.PrimFunc:
        """The kernel with other statements in this place."""

        def change(stmt: tir.Stmt, _: arith.Domain) -> tir.Body:
            return (replace(stmt, body=body),) if isinstance(stmt, tir.For | tir.Block) else body

        return places.rewrite_at(self.func, self.place, change)


def _rewritten(s: _Staged, name: str, scope: tir.Scope, window: Window | None) -> Rewrite:
    old = s.buffer
    used = _elements(s.touched, s.outer)
    if window is None:
        windows = [used.offset(var, s.outer) for var in bound_inference.element_variables(old)]
        kept = [axis for axis, (_, extent) in enumerate(windows) if extent > 1]
    else:
        windows, kept = stated_window(window, s.buffer, s.inner, s.place)
    new = tir.Buffer(name, tuple(windows[axis][1] for axis in kept), old.dtype, scope)

    def place(indices: Indices) -> Indices:
        return tuple(indices[axis] - windows[axis][0] for axis in kept)

    proofs = [_fits(access, windows, s.place) for access in s.touched]
    names = _loop_names(s.func, name, len(old.shape))
    body: tir.Body = (tir.Allocate(new),)
    made: dict[str, tuple[str, ...]] = {"buffer": (name,), "load": (), "store": ()}
    known = _stored_first(s.touched)
    proofs += known or ()
    if known is None:
        wanted = s.touched
        if window is not None and old in s.func.inputs:
            # Whatever an input holds may be read, and a copy without gaps needs no conditions.
            wanted = [_within_buffer(s, windows)]
        proofs += _may_copy(s.func, wanted)
        loaded = used if wanted is s.touched else _elements(wanted, s.outer)
        body += scan(
            loaded, s.inner, names["load"], lambda e: tir.Store(new, place(e), tir.Load(old, e))
        )
        made["load"] = _first(names["load"])
    body += tir.redirect_accesses(s.body, old, new, place)
    stores = [access for access in s.touched if access.writes]
    if stores:
        stored = used if stores == s.touched else _elements(stores, s.outer)
        body += scan(
            stored, s.inner, names["store"], lambda e: tir.Store(old, e, tir.Load(new, place(e)))
        )
        made["store"] = _first(names["store"])
    staged = s.with_body(body)
    if s.name:
        proofs += dependence.still_independent(staged, s.name)
    return Rewrite(staged, tuple(dict.fromkeys(proofs)), made=made)


def stated_window(
    window: Window, buffer: tir.Buffer, domain: arith.Domain, place: str
) -> tuple[list[tuple[arith.IndexExpr, int]], list[int]]:
    """The first index and the extent on each axis, and the axes that the window keeps.

    ScheduleError where the window does not fit the axes of the buffer, or uses a variable that is
    not in the `domain`, that of what is at `place`.
    """
    if len(window) != len(buffer.shape):
        raise ScheduleError(
            f"window: {buffer.name} has {len(buffer.shape)} axes, the window {len(window)}"
        )
    given = [side if isinstance(side, tuple) else (side, 1) for side in window]
    sides = [(index_of(start), extent) for start, extent in given]
    empty = [extent for _, extent in sides if extent <= 0]
    if empty:
        raise ScheduleError(f"window: an axis of {empty[0]} elements holds nothing")
    around = {axis.var for axis in domain.axes}
    for start, _ in sides:
        stray = sorted(var.name for var in arith.variables(start) - around)
        if stray:
            raise ScheduleError(f"scope: {stray[0]} is no loop around {place}")
    kept = [axis for axis, side in enumerate(window) if isinstance(side, tuple)]
    return sides, kept


def _within_buffer(s: _Staged, windows: Sequence[tuple[arith.IndexExpr, int]]) -> tir.Access:
    """A load of all elements of a window that the buffer has."""
    element, domain = bound_inference.element_variables(s.buffer), s.inner
    for var, extent, (start, count) in zip(element, s.buffer.shape, windows, strict=True):
        domain = domain.inside(var, arith.const(0), arith.const(extent)).given(
            arith.within(var - start, 0, count)
        )
    return tir.Access(s.buffer, element, domain, tir.AccessKind.READ, False)


def _elements(touched: Sequence[tir.Access], outer: tuple[arith.Var, ...]) -> arith.IntegerSet:
    """The elements that accesses touch, over the loops outside and the element."""
    element = bound_inference.element_variables(touched[0].buffer)
    images = (arith.IntegerSet.of(a.domain).image(element, a.indices) for a in touched)
    return reduce(lambda a, b: a | b, (image.over((*outer, *element)) for image in images))


def _fits(
    access: tir.Access, windows: Sequence[tuple[arith.IndexExpr, int]], loop: str
) -> arith.Proof:
    sides = zip(access.indices, windows, strict=True)
    inside = arith.conjunction(
        arith.within(index - offset, 0, extent) for index, (offset, extent) in sides
    )
    shape = [extent for _, extent in windows]
    condition = f"window: what {loop} touches of {access.buffer.name} fits {shape}"
    return obligations.require(arith.prove(inside, access.domain), condition)


def _stored_first(touched: Sequence[tir.Access]) -> list[arith.Proof] | None:
    """Proofs that nothing need be copied in, or None where it must be."""
    if touched[0].kind is not tir.AccessKind.WRITE:
        return None  # nothing is stored before the first access, and isl need not say so
    if not all(access.certain for access in touched if access.writes):
        return None
    proofs = list(effects.stored_before_read(touched))
    return proofs if all(proof.proven for proof in proofs) else None


def _may_copy(func: tir.PrimFunc, touched: Sequence[tir.Access]) -> list[arith.Proof]:
    """Proofs that the elements that are copied may be accessed in each iteration."""
    name = touched[0].buffer.name
    proofs = [obligations.structural(f"the elements of {name} that are copied are accessed anyway")]
    for access in touched:
        if not access.certain:
            condition = f"copied: what is copied of {name} lies inside it"
            proofs += padding.may_load(func, access, condition)
    return proofs


def _loop_names(func: tir.PrimFunc, name: str, rank: int) -> dict[str, tuple[arith.Var, ...]]:
    taken = {name, *place_names.names_of_places(func)}
    found = {}
    for role in ("load", "store"):
        wanted = (f"{name}_{role}_{axis}" for axis in range(rank))
        found[role] = tuple(map(arith.Var, place_names.fresh_names(taken, wanted).values()))
    return found


def _first(names: tuple[arith.Var, ...]) -> tuple[str, ...]:
    return tuple(var.name for var in names[:1])


def scan(
    points: arith.IntegerSet,
    outside: arith.Domain,
    names: Sequence[arith.Var],
    leaf: Callable[[Indices], tir.Stmt],
) -> tir.Body:
    """Loops over the last coordinates of a set, as many as names; the others are loops outside.

    The leaf runs once for each point, in lexicographic order.
    """
    outer = tuple(axis.var for axis in outside.axes)
    last = points.variables[len(outer) :]
    named = points.renamed(dict(zip(last, names, strict=True)))
    here, loops = outside, list[tir.For]()
    for var in names:
        low, high = named.bounds(var, tuple(axis.var for axis in here.axes))
        loops.append(tir.For(var, low.expr, high.expr + 1, tir.LoopKind.SERIAL, ()))
        here = here.inside(var, low.expr, high.expr + 1)
    body: tir.Body = (leaf(tuple(names)),)
    around = arith.IntegerSet.of(here)
    if not (around - named).is_empty:
        body = (tir.If(named.predicate(around), body),)
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body
