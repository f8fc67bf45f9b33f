"""Statements without an effect: proofs that the kernel computes the same without them.

In: a kernel, and the place to look in.  Out: the kernel without the statements that are proven to
be no-ops, one proof each.  What always holds: a statement is judged in the kernel that is left of
those removed before it, so that of two equal stores in a row one stays.
"""

from __future__ import annotations

from graphflow import arith, effects, tir
from graphflow.base.fields import replace
from graphflow.schedule.conditions.conditions import without_stores
from graphflow.schedule.places import addresses, place_names
from graphflow.schedule.steps.frame import Rewrite


def remove_no_op(func: tir.PrimFunc, place: str | None = None) -> Rewrite:
    """`S` → nothing, for each S without an effect in the loop or block `place`, or in the kernel.

    S has no effect if one of these is proven:

    - *unseen*: whatever it writes is overwritten before anything reads it, or is never read at all;
      so it is of a store, of a whole block or loop, and of what a buffer holds when it is freed.
    - *known value*: it is a store, and each element that it writes holds the stored value already,
      from a store or an assumption before, or because the value was read from there.

    Later statements are removed first, and a loop or block as a whole where that is possible.  What
    is left empty goes too, and so do allocations of buffers that nothing accesses.  Padding stages
    and assumptions stay, for they state what other primitives rely on.  A call that performs
    nothing is a hint to the processor (`prefetch`): it stays, unless a loop or block that writes is
    removed as a whole around it, or the buffer that it names goes.
    """
    proofs: list[arith.Proof] = []
    now = func
    while True:
        before = now
        if place is None:
            for position in reversed(range(len(now.body))):
                now = _without(now, ((position, False),), proofs, [])
        else:
            now = _without(now, addresses.path_of(now, place), proofs, [])
            if not place_names.has_place(now, place):
                break
        if now is before:
            break
    now = _without_unused(now)
    return Rewrite(func if not proofs else now, tuple(proofs))


def no_effect(func: tir.PrimFunc, path: effects.Path) -> arith.Proof:
    """Whether the kernel computes the same without the statement at `path`, and why.

    A proof that is not PROVEN is that of *unseen*, with the reader of a value as its witness.
    """
    unseen = effects.overwritten_unread(func, path)
    stmt = effects.statement_at(func, path)
    if unseen.proven or not isinstance(stmt, tir.Store):
        return unseen
    if not _may_be_undefined(stmt) and effects.is_first_to_touch(func, path):
        return replace(unseen, reason=f"{unseen.reason}; nothing is stored there before")
    known = effects.stores_known_value(func, path)
    if known.proven:
        return known
    return replace(unseen, reason=f"{unseen.reason}; {known.reason}") if known.reason else unseen


def _may_be_undefined(stmt: tir.Store) -> bool:
    """Whether the stored value could be what an element holds that nothing was stored to."""
    return any(
        isinstance(part, tir.Undef) or (isinstance(part, tir.Load) and part.buffer == stmt.buffer)
        for part in tir.walk_expr(stmt.value)
    )


def effects_left(
    func: tir.PrimFunc, path: effects.Path, proofs: list[arith.Proof]
) -> tuple[tir.Store | tir.Reduce, arith.Proof] | None:
    """What is left of the block at `path` without the no-ops in it, whose proofs are appended.

    The last statement that writes, with the proof that failed of it; None where nothing is left.
    """
    stmt = effects.statement_at(func, path)
    assert isinstance(stmt, tir.Block)
    left: list[tuple[tir.Store | tir.Reduce, arith.Proof]] = []
    for position in reversed(range(len(stmt.body))):
        func = _without(func, (*path, (position, False)), proofs, left)
    if left:
        return left[0]
    # What a call performs, and stages that state something, are not removed one by one.
    kept = list(tir.writes_in((effects.statement_at(func, path),)))
    proof = no_effect(func, path) if kept else None
    return None if proof is None or proof.proven else (kept[-1], proof)


def _without(
    func: tir.PrimFunc,
    path: effects.Path,
    proofs: list[arith.Proof],
    left: list[tuple[tir.Store | tir.Reduce, arith.Proof]],
) -> tir.PrimFunc:
    """The kernel without the statement at a path, or without the no-ops in it.

    What writes and stays is appended to `left`, with the proof that failed of it.
    """
    stmt = effects.statement_at(func, path)
    if isinstance(stmt, tir.Block) and stmt.annotations:
        return func
    if _may_go(stmt):
        proof = no_effect(func, path)
        if proof.proven:
            proofs.append(proof)
            return _removed(func, path)
        if isinstance(stmt, tir.Store | tir.Reduce):
            left.append((stmt, proof))
            return func
    for place in reversed(effects.paths_directly_below(stmt, path)):
        func = _without(func, place, proofs, left)
    return _removed(func, path) if _is_empty(effects.statement_at(func, path), stmt) else func


def _may_go(stmt: tir.Stmt) -> bool:
    """Whether a statement is asked about: it writes, and states nothing.

    A loop, block or condition around a single write goes with that write.
    """
    inside = tuple(tir.walk((stmt,)))
    if any(
        isinstance(s, tir.Assume) or (isinstance(s, tir.Block) and s.annotations) for s in inside
    ):
        return False
    count = sum(1 for _ in tir.writes_in((stmt,)))
    return count > 1 or isinstance(stmt, tir.Store | tir.Reduce)


def _is_empty(stmt: tir.Stmt, before: tir.Stmt) -> bool:
    """Whether a statement is empty that was not."""
    match stmt:
        case tir.For() | tir.Block() | tir.Let() | tir.NamedWindow():
            return not stmt.body and stmt is not before
        case tir.If():
            return not stmt.then and not stmt.orelse and stmt is not before
        case _:
            return False


def _removed(func: tir.PrimFunc, path: effects.Path) -> tir.PrimFunc:
    return effects.rewrite_path(func, path, lambda body, k, _d: (*body[:k], *body[k + 1 :]))


def _without_unused(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel without allocations of buffers that nothing accesses."""
    used: set[tir.Buffer] = {load.buffer for load in tir.loads_in(func.body)}
    used |= {stmt.buffer for stmt in tir.writes_in(func.body)}
    unused = {s.buffer for s in tir.walk(func.body) if isinstance(s, tir.Allocate)} - used
    return replace(func, body=without_stores(func.body, unused)) if unused else func
