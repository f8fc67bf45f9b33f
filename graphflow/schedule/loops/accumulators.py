"""A reduction into one element as reductions into several, which do not wait for each other.

In: a kernel and a loop that reduces into one element.  Out: the kernel with as many accumulators as
asked for, each of which takes some of the terms, and a loop that adds them up.  What always holds:
the iterations of a reduction commute by declaration, an accumulator starts neutral, and the element
that they are added up into is one that the reduction touches.
"""

from __future__ import annotations

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.places import obligations, place_names, places
from graphflow.schedule.steps.frame import Rewrite


def rfactor(
    func: tir.PrimFunc, loop: str, along: str, buffer: str, count: int, name: str
) -> Rewrite:
    """`for r: t ⊕= v` → `p; for z: p[z] = neutral; for r: p[r % count] ⊕= v; for z: t ⊕= p[z]`.

    `loop` is the outermost loop of the reduction; the loop `along`, itself or one in it, decides
    which of the `count` accumulators takes a term.  In `loop` there must be exactly one access to
    `buffer`: a reduction whose element no loop in it changes.  The loop may not be parallel, nor
    any around or in it vectorized.  The accumulators are added up without the index conditions
    inside `loop`, so wherever the loop begins, some iteration must meet them: else the element is
    perhaps outside the buffer, or another thread's.

    Makes the accumulators `name` in the role `buffer`, and the loops that clear and combine them
    in the roles `clear` and `combine`.
    """
    place_names.require_names(name)
    place_names.require_fresh(func, name)
    stmt, domain = places.find_loop(func, loop)
    old = places.find_buffer(func, buffer)
    inside = {s.var.name: s for s in tir.loops_of((stmt,))}
    _may_factor(func, stmt, along, old, count)
    if (
        places.first_in_lanes(func, loop, (*(axis.var for axis in domain.axes), stmt.var))
        is not None
    ):
        raise ScheduleError(f"{loop} is in lanes already, in which nothing is allocated")
    (update,) = (s for s in tir.walk(stmt.body) if isinstance(s, tir.Reduce) and s.buffer == old)
    touches = _touches(stmt, domain, old)
    partial = tir.Buffer(name, (count,), old.dtype, "register")
    taken = {name, *place_names.names_of_places(func)}
    fresh = place_names.fresh_names(taken, (f"{name}_clear", f"{name}_combine"))
    clear, combine = fresh.values()
    at = arith.floor_mod(inside[along].var, count)

    def change(inner: tir.Stmt) -> tir.Stmt:
        return replace(inner, buffer=partial, indices=(at,)) if inner is update else inner

    value = tir.neutral_literal(update.op, old.dtype)
    body: tir.Body = (
        tir.Allocate(partial),
        _row(clear, count, tir.Store(partial, (arith.Var(clear),), tir.Literal(value, old.dtype))),
        replace(stmt, body=tir.map_body(stmt.body, change)),
        _row(
            combine,
            count,
            tir.Reduce(update.op, old, update.indices, tir.Load(partial, (arith.Var(combine),))),
        ),
    )
    new = places.exchange_at(func, loop, body)
    made = {"buffer": (name,), "clear": (clear,), "combine": (combine,)}
    claim = f"every term of {buffer} goes to one of {count} accumulators that start neutral"
    return Rewrite(new, (obligations.structural(claim), touches), made=made)


def _may_factor(
    func: tir.PrimFunc, stmt: tir.For, along: str, buffer: tir.Buffer, count: int
) -> None:
    """ScheduleError unless the loop only reduces into one element of `buffer`."""
    if count < 1:
        raise ScheduleError(f"there must be at least one accumulator, not {count}")
    loops = {s.var.name: s for s in tir.loops_of((stmt,))}
    if along not in loops:
        raise ScheduleError(f"{along} is not {stmt.var} or a loop in it")
    at_once = [s.var for s in loops.values() if s.kind in tir.AT_ONCE]
    if at_once:
        raise ScheduleError(f"the iterations of {at_once[0]} run at once; factor before that")
    if any(isinstance(s, tir.Allocate) and s.buffer == buffer for s in tir.walk(stmt.body)):
        raise ScheduleError(f"{buffer.name} is allocated inside {stmt.var}")
    touched = [a for a in tir.accesses((stmt,)) if a.buffer == buffer]
    claimed = any(a.buffer == buffer for a in effects.claimed_loads((stmt,)))
    if len(touched) != 1 or touched[0].op is None or claimed:
        raise ScheduleError(f"{stmt.var} does not only reduce into {buffer.name}, once")
    changing = {s.var for s in loops.values()}
    moved = [v for e in touched[0].indices for v in arith.variables(e) if v in changing]
    if moved:
        raise ScheduleError(f"{moved[0]} changes the element of {buffer.name} inside {stmt.var}")
    update = [s for s in tir.walk(stmt.body) if isinstance(s, tir.Reduce) and s.buffer == buffer]
    around = [
        s for s in tir.walk(stmt.body) if isinstance(s, tir.For) and update[0] in tir.walk(s.body)
    ]
    if stmt.var.name != along and along not in {s.var.name for s in around}:
        raise ScheduleError(f"{along} is not around the reduction into {buffer.name}")


def _touches(stmt: tir.For, domain: arith.Domain, buffer: tir.Buffer) -> arith.Proof:
    """A proof that the loop touches its element of `buffer` wherever it begins."""
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    (access,) = (a for a in tir.accesses(stmt.body, inner) if a.buffer == buffer)
    return obligations.require(
        effects.touches_whenever_begun(access, domain),
        f"{stmt.var} reduces into its element of {buffer.name} wherever it begins",
    )


def _row(name: str, count: int, stmt: tir.Stmt) -> tir.For:
    return tir.For(
        arith.Var(name), arith.const(0), arith.const(count), tir.LoopKind.SERIAL, (stmt,)
    )
