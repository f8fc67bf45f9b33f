"""Primitives that split one loop, condition or block into two, or fuse two into one.

In: a kernel and the place to split, or two neighbours to fuse.  Out: the kernel with their
statements in other nests.  What always holds: pairs of iterations that change their order are
proven free of conflicts.
"""

from __future__ import annotations

from typing import cast

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.facts.dependence import independent, ordered_commute
from graphflow.schedule.places import addresses, obligations, place_names
from graphflow.schedule.places.places import (
    exchange_at,
    find_loop,
    loop_at,
    rewrite_around,
    stmt_at,
)
from graphflow.schedule.steps.frame import Rewrite


def fission(func: tir.PrimFunc, loop: str, position: int, suffix: str, lifts: int = 1) -> Rewrite:
    """`for i: {S1; S2}` → `for i: S1` and `for i': S2`, through `lifts` loops or conditions.

    `position` counts the statements of S1.  The places of the second nest end in `suffix`.

    1. The gap has statements on both sides.
    2. S2 does not use a buffer that S1 allocates.
    3. No later iteration of S1 conflicts with an earlier one of S2.

    Makes the loops of the two nests, from the outermost in, in the roles `first` and `second`.
    """
    proofs: list[arith.Proof] = []
    place_names.require_names(loop + suffix)
    name = place_names.fresh_name(loop + suffix, lambda wanted: place_names.has_place(func, wanted))

    def change(body: tir.Body, place: int, domain: arith.Domain) -> tir.Body:
        stmt = body[place]
        if not isinstance(stmt, tir.For):
            raise ScheduleError(f"{loop} is a block, and a loop is needed")
        parts = _spread(stmt.body)
        first, second = parts[:position], parts[position:]
        if not first or not second:
            raise ScheduleError(f"position {position} leaves one side of {loop} empty")
        proofs.extend(_may_part(stmt, first, second, domain))
        moved = tir.substitute_body(second, {stmt.var: arith.Var(name)})
        pieces = (replace(stmt, body=first), replace(stmt, var=arith.Var(name), body=moved))
        return (*body[:place], *pieces, *body[place + 1 :])

    new = rewrite_around(func, loop, change)
    places: dict[str, tuple[str, ...]] = {loop: (loop, name)}
    if lifts == 1:
        return Rewrite(new, tuple(proofs), places, {"first": (loop,), "second": (name,)})
    parent = _parent_loop(new, loop)
    new, split, gone = _split_conditions(new, parent, name)
    places |= dict.fromkeys(gone, ())
    above = fission(new, parent, split, suffix, lifts - 1)
    made = {
        "first": (*above.made["first"], loop),
        "second": (*above.made["second"], name),
    }
    return Rewrite(above.func, (*proofs, *above.proofs), {**places, **above.places}, made)


def _spread(body: tir.Body) -> tir.Body:
    """`if c: {F; G}` as a whole body → `if c: F; if c: G`: an index condition stays what it is."""
    only = body[0] if len(body) == 1 else None
    if isinstance(only, tir.If) and tir.is_predicate(only.condition) and not only.orelse:
        # An allocation would end with the copy of the condition that it stands in.
        if any(isinstance(stmt, tir.Allocate) for stmt in only.then):
            return body
        return tuple(replace(only, then=(stmt,)) for stmt in _spread(only.then))
    return body


def _may_part(
    stmt: tir.For, first: tir.Body, second: tir.Body, domain: arith.Domain
) -> tuple[arith.Proof, ...]:
    """Proofs that a loop over `first; second` may become two loops; else ScheduleError."""
    allocated = {s.buffer for s in tir.walk(first) if isinstance(s, tir.Allocate)}
    touched = (*tir.accesses(second), *effects.claimed_loads(second))
    shared = [a.buffer.name for a in touched if a.buffer in allocated]
    if shared:
        raise ScheduleError(f"the second part uses {shared[0]}, which the first allocates")
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    # The first part at a later iteration runs, after the split, before the second at this one.
    order = arith.less_than(arith.Var(stmt.var.name + "'"), stmt.var)
    condition = f"the parts of {stmt.var} are independent across iterations"
    return ordered_commute(first, second, inner, (stmt.var,), order, condition)


def _parent_loop(func: tir.PrimFunc, place: str) -> str:
    _, domain = find_loop(func, place)
    if not domain.axes:
        raise ScheduleError(f"{place} has no loop around it to split as well")
    return domain.axes[-1].var.name


def _split_conditions(
    func: tir.PrimFunc, parent: str, second: str
) -> tuple[tir.PrimFunc, int, tuple[str, ...]]:
    """`for p: if c: {F; G}` → `for p: {if c: F; if c: G}`, where G holds the loop `second`.

    With the position of G in the loop's body, and the blocks around both that are dissolved.
    """
    stmt = loop_at(func, parent)
    body = _parted(stmt.body, second)
    new = exchange_at(func, parent, (replace(stmt, body=body),))
    left = {s.name for s in tir.walk(body) if isinstance(s, tir.Block)}
    gone = tuple(
        s.name for s in tir.walk(stmt.body) if isinstance(s, tir.Block) and s.name not in left
    )
    gap = next((k for k, s in enumerate(body) if _holds(s, second)), 0)
    if gap == 0:
        raise ScheduleError(
            f"{parent} cannot be split before {second}: a data condition or an else branch holds "
            "both parts"
        )
    return new, gap, gone


def _parted(body: tir.Body, second: str) -> tir.Body:
    out: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.If) and tir.is_predicate(stmt.condition) and not stmt.orelse:
            inner = _parted(stmt.then, second)
            at = next((k for k, s in enumerate(inner) if _holds(s, second)), 0)
            if at:
                inside = {s.buffer for s in tir.walk(inner[:at]) if isinstance(s, tir.Allocate)}
                shared = [a.buffer.name for a in tir.accesses(inner[at:]) if a.buffer in inside]
                if shared:
                    raise ScheduleError(
                        f"the second part uses {shared[0]}, which the first allocates"
                    )
                out += [replace(stmt, then=inner[:at]), replace(stmt, then=inner[at:])]
                continue
        if isinstance(stmt, tir.Block):
            inner = _parted(stmt.body, second)
            if any(_holds(s, second) for s in inner[1:]):
                out += inner
                continue
        out.append(stmt)
    return tuple(out)


def _holds(stmt: tir.Stmt, name: str) -> bool:
    return any(isinstance(s, tir.For) and s.var.name == name for s in tir.walk((stmt,)))


def split_condition(func: tir.PrimFunc, loop: str) -> Rewrite:
    """`for i: if c: {F; G}` → `for i: {if c: F; if c: G}`; c must be an index condition.

    F cannot change c, because an index condition depends on loop variables alone.
    """
    stmt = loop_at(func, loop)
    body = _spread(stmt.body)
    if body is stmt.body:
        raise ScheduleError(f"the body of {loop} is not a single index condition without else")
    new = exchange_at(func, loop, (replace(stmt, body=body),))
    return Rewrite(
        new, (obligations.structural("an index condition does not depend on what is stored"),)
    )


def fuse(func: tir.PrimFunc, first: str, second: str) -> Rewrite:
    """`for i: S1` and `for j: S2` → `for i: {S1; S2[j → i]}`; two blocks → one block;
    `if e: S1 else: T1` and `if d: S2 else: T2` → `if e: {S1; S2} else: {T1; T2}`.

    1. The two are neighbours; allocations between them move in front.
    2. Loops have equal bounds, and their kinds fit; blocks have equal annotations; conditions are
       equivalent there, those on data the same expression.
    3. No iteration of S2 conflicts with a later one of S1; S1 and T1 write nothing that a
       condition on data reads.
    4. Where iterations run at once, all of the joined loop are independent.

    Makes the joined loop or block in the role `joined`; it keeps the name of the first.
    """
    proofs: list[arith.Proof] = []

    def change(body: tir.Body, position: int, domain: arith.Domain) -> tir.Body:
        following = position + 1
        while following < len(body) and isinstance(body[following], tir.Allocate):
            following += 1
        a = body[position]
        b = body[following] if following < len(body) else None
        if isinstance(a, tir.If):
            joined, proven = _fused_conditions(
                a, _following(func, first, following, second), domain
            )
        else:
            joined, proven = _fused(a, b, second, domain)
        proofs.extend(proven)
        allocations = body[position + 1 : following]
        return (*body[:position], *allocations, joined, *body[following + 1 :])

    new = rewrite_around(func, first, change)
    if isinstance(stmt_at(func, first), tir.If):
        return Rewrite(new, tuple(proofs))
    return Rewrite(new, tuple(proofs), {second: (first,)}, {"joined": (first,)})


def _following(func: tir.PrimFunc, first: str, position: int, second: str) -> tir.If:
    """The condition `second`, at a position in the body of `first`; else ScheduleError."""
    stmt = stmt_at(func, second)
    *around, _ = addresses.path_of(func, first)
    if addresses.path_of(func, second) != (*around, (position, False)) or not isinstance(
        stmt, tir.If
    ):
        raise ScheduleError(f"{second} does not follow {first} as a condition")
    return stmt


def _fused_conditions(
    a: tir.If, b: tir.If, domain: arith.Domain
) -> tuple[tir.Stmt, tuple[arith.Proof, ...]]:
    one, other = tir.condition_text(a.condition), tir.condition_text(b.condition)
    if tir.is_predicate(a.condition) and tir.is_predicate(b.condition):
        first, second = cast(arith.Predicate, a.condition), cast(arith.Predicate, b.condition)
        implied = arith.disjunction((arith.negation(first), second))
        implies = arith.disjunction((first, arith.negation(second)))
        claim = arith.prove(arith.conjunction((implied, implies)), domain)
        proofs: tuple[arith.Proof, ...] = (
            obligations.require(claim, f"{one} and {other} are equivalent"),
        )
    elif a.condition == b.condition:
        because = f"no statement under {one} writes what it reads"
        proofs = ordered_commute((a,), (tir.If(b.condition, ()),), domain, (), arith.TRUE, because)
    else:
        raise ScheduleError(f"{one} and {other} are not the same condition")
    return tir.If(a.condition, (*a.then, *b.then), (*a.orelse, *b.orelse)), proofs


def _fused(
    a: tir.Stmt, b: tir.Stmt | None, second: str, domain: arith.Domain
) -> tuple[tir.Stmt, tuple[arith.Proof, ...]]:
    if isinstance(a, tir.Block) and isinstance(b, tir.Block) and b.name == second:
        if a.annotations != b.annotations:
            raise ScheduleError(
                f"{a.name} and {b.name} carry different annotations; one of them would be lost"
            )
        return replace(a, body=(*a.body, *b.body)), (
            obligations.structural("two blocks in a row are one"),
        )
    if not (isinstance(a, tir.For) and isinstance(b, tir.For) and b.var.name == second):
        raise ScheduleError(f"{second} does not follow as a loop or block of the same kind")
    if a.kind is not b.kind and {a.kind, b.kind} & set(tir.AT_ONCE):
        raise ScheduleError(f"{a.var} is {a.kind.value} and {b.var} is {b.kind.value}")
    if a.start is not b.start or a.stop is not b.stop:
        same = arith.conjunction((arith.equal(a.start, b.start), arith.equal(a.stop, b.stop)))
        proofs: tuple[arith.Proof, ...] = (
            obligations.require(
                arith.prove(same, domain), f"{a.var} and {b.var} have equal bounds"
            ),
        )
    else:
        proofs = (obligations.structural(f"{a.var} and {b.var} have equal bounds"),)
    moved = tir.substitute_body(b.body, {b.var: a.var})
    inner = domain.inside(a.var, a.start, a.stop)
    order = arith.less_than(arith.Var(a.var.name + "'"), a.var)
    condition = f"no iteration of {b.var} needs a later one of {a.var}"
    # The second loop's iteration i' now runs before the first loop's iteration i > i'.
    proofs += ordered_commute(a.body, moved, inner, (a.var,), order, condition)
    joined = replace(a, body=(*a.body, *moved))
    if a.kind in tir.AT_ONCE:
        proofs += independent(joined, domain)
    return joined, proofs
