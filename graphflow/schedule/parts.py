"""Primitives that split one loop, condition or block into two, or fuse two into one.

In: a kernel and the place to split, or two neighbours to fuse.  Out: the kernel with their
statements in other nests.  What always holds: pairs of iterations that change their order are
proven free of conflicts.
"""

from __future__ import annotations

from dataclasses import replace

from graphflow.arith import (
    Domain,
    Proof,
    Var,
    conjunction,
    equal,
    less_than,
    prove,
)
from graphflow.base.errors import ScheduleError
from graphflow.schedule.dependence import AT_ONCE, independent, ordered_commute
from graphflow.schedule.frame import Rewrite
from graphflow.schedule.obligations import require, structural
from graphflow.schedule.places import (
    find_loop,
    fresh_name,
    has_place,
    require_names,
    rewrite_around,
    rewrite_at,
)
from graphflow.tir import (
    Allocate,
    Block,
    Body,
    For,
    If,
    PrimFunc,
    Stmt,
    accesses,
    is_predicate,
    substitute_body,
    walk,
)


def fission(func: PrimFunc, loop: str, position: int, suffix: str, lifts: int = 1) -> Rewrite:
    """`for i: {S1; S2}` → `for i: S1` and `for i': S2`, through `lifts` loops or conditions.

    `position` counts the statements of S1.  S2 may not use a buffer that S1 allocates, and no
    later iteration of S1 may conflict with an earlier one of S2.  The places of the second nest
    end in `suffix`.

    Makes the loops of the two nests, from the outermost in, in the roles `first` and `second`.
    """
    proofs: list[Proof] = []
    require_names(loop + suffix)
    name = fresh_name(loop + suffix, lambda wanted: has_place(func, wanted))

    def change(body: Body, place: int, domain: Domain) -> Body:
        stmt = body[place]
        if not isinstance(stmt, For):
            raise ScheduleError(f"{loop} is a block, and a loop is needed")
        parts = _spread(stmt.body)
        first, second = parts[:position], parts[position:]
        if not first or not second:
            raise ScheduleError(f"position {position} leaves one side of {loop} empty")
        proofs.extend(_may_part(stmt, first, second, domain))
        moved = substitute_body(second, {stmt.var: Var(name)})
        pieces = (replace(stmt, body=first), replace(stmt, var=Var(name), body=moved))
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


def _spread(body: Body) -> Body:
    """`if c: {F; G}` as a whole body → `if c: F; if c: G`: an index condition stays what it is."""
    only = body[0] if len(body) == 1 else None
    if isinstance(only, If) and is_predicate(only.condition) and not only.orelse:
        # An allocation would end with the copy of the condition that it stands in.
        if any(isinstance(stmt, Allocate) for stmt in only.then):
            return body
        return tuple(replace(only, then=(stmt,)) for stmt in _spread(only.then))
    return body


def _may_part(stmt: For, first: Body, second: Body, domain: Domain) -> tuple[Proof, ...]:
    """Proofs that a loop over `first; second` may become two loops; else ScheduleError."""
    allocated = {s.buffer for s in walk(first) if isinstance(s, Allocate)}
    shared = [a.buffer.name for a in accesses(second) if a.buffer in allocated]
    if shared:
        raise ScheduleError(f"the second part uses {shared[0]}, which the first allocates")
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    # The first part at a later iteration runs, after the split, before the second at this one.
    order = less_than(Var(stmt.var.name + "'"), stmt.var)
    condition = f"the parts of {stmt.var} are independent across iterations"
    return ordered_commute(first, second, inner, (stmt.var,), order, condition)


def _parent_loop(func: PrimFunc, place: str) -> str:
    _, domain = find_loop(func, place)
    if not domain.axes:
        raise ScheduleError(f"{place} has no loop around it to split as well")
    return domain.axes[-1].var.name


def _split_conditions(
    func: PrimFunc, parent: str, second: str
) -> tuple[PrimFunc, int, tuple[str, ...]]:
    """`for p: if c: {F; G}` → `for p: {if c: F; if c: G}`, where G holds the loop `second`.

    With the position of G in the loop's body, and the blocks around both that are dissolved.
    """
    stmt, _ = find_loop(func, parent)
    body = _parted(stmt.body, second)
    new = rewrite_at(func, parent, lambda _s, _d: (replace(stmt, body=body),))
    left = {s.name for s in walk(body) if isinstance(s, Block)}
    gone = tuple(s.name for s in walk(stmt.body) if isinstance(s, Block) and s.name not in left)
    gap = next((k for k, s in enumerate(body) if _holds(s, second)), 0)
    if gap == 0:
        raise ScheduleError(
            f"{parent} cannot be split before {second}: a data condition or an else branch holds "
            "both parts"
        )
    return new, gap, gone


def _parted(body: Body, second: str) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, If) and is_predicate(stmt.condition) and not stmt.orelse:
            inner = _parted(stmt.then, second)
            at = next((k for k, s in enumerate(inner) if _holds(s, second)), 0)
            if at:
                inside = {s.buffer for s in walk(inner[:at]) if isinstance(s, Allocate)}
                shared = [a.buffer.name for a in accesses(inner[at:]) if a.buffer in inside]
                if shared:
                    raise ScheduleError(
                        f"the second part uses {shared[0]}, which the first allocates"
                    )
                out += [replace(stmt, then=inner[:at]), replace(stmt, then=inner[at:])]
                continue
        if isinstance(stmt, Block):
            inner = _parted(stmt.body, second)
            if any(_holds(s, second) for s in inner[1:]):
                out += inner
                continue
        out.append(stmt)
    return tuple(out)


def _holds(stmt: Stmt, name: str) -> bool:
    return any(isinstance(s, For) and s.var.name == name for s in walk((stmt,)))


def split_condition(func: PrimFunc, loop: str) -> Rewrite:
    """`for i: if c: {F; G}` → `for i: {if c: F; if c: G}`; c must be an index condition.

    F cannot change c, because an index condition depends on loop variables alone.
    """
    stmt, _ = find_loop(func, loop)
    body = _spread(stmt.body)
    if body is stmt.body:
        raise ScheduleError(f"the body of {loop} is not a single index condition without else")
    new = rewrite_at(func, loop, lambda _s, _d: (replace(stmt, body=body),))
    return Rewrite(new, (structural("an index condition does not depend on what is stored"),))


def fuse(func: PrimFunc, first: str, second: str) -> Rewrite:
    """`for i: S1` and `for j: S2` → `for i: {S1; S2[j → i]}`; two blocks → one block.

    The two must be neighbours; allocations between them move in front.  Loops must have equal
    bounds, and no iteration of S2 may conflict with a later one of S1.  Blocks must have equal
    annotations.

    Makes the joined loop or block in the role `joined`; it keeps the name of the first.
    """
    proofs: list[Proof] = []

    def change(body: Body, position: int, domain: Domain) -> Body:
        following = position + 1
        while following < len(body) and isinstance(body[following], Allocate):
            following += 1
        a = body[position]
        b = body[following] if following < len(body) else None
        joined, proven = _fused(a, b, second, domain)
        proofs.extend(proven)
        allocations = body[position + 1 : following]
        return (*body[:position], *allocations, joined, *body[following + 1 :])

    new = rewrite_around(func, first, change)
    return Rewrite(new, tuple(proofs), {second: (first,)}, {"joined": (first,)})


def _fused(a: Stmt, b: Stmt | None, second: str, domain: Domain) -> tuple[Stmt, tuple[Proof, ...]]:
    if isinstance(a, Block) and isinstance(b, Block) and b.name == second:
        if a.annotations != b.annotations:
            raise ScheduleError(
                f"{a.name} and {b.name} carry different annotations; one of them would be lost"
            )
        return replace(a, body=(*a.body, *b.body)), (structural("two blocks in a row are one"),)
    if not (isinstance(a, For) and isinstance(b, For) and b.var.name == second):
        raise ScheduleError(f"{second} does not follow as a loop or block of the same kind")
    if a.kind is not b.kind and {a.kind, b.kind} & set(AT_ONCE):
        raise ScheduleError(f"{a.var} is {a.kind.value} and {b.var} is {b.kind.value}")
    if a.start is not b.start or a.stop is not b.stop:
        same = conjunction((equal(a.start, b.start), equal(a.stop, b.stop)))
        proofs: tuple[Proof, ...] = (
            require(prove(same, domain), f"{a.var} and {b.var} have equal bounds"),
        )
    else:
        proofs = (structural(f"{a.var} and {b.var} have equal bounds"),)
    moved = substitute_body(b.body, {b.var: a.var})
    inner = domain.inside(a.var, a.start, a.stop)
    order = less_than(Var(a.var.name + "'"), a.var)
    condition = f"no iteration of {b.var} needs a later one of {a.var}"
    # The second loop's iteration i' now runs before the first loop's iteration i > i'.
    proofs += ordered_commute(a.body, moved, inner, (a.var,), order, condition)
    joined = replace(a, body=(*a.body, *moved))
    if a.kind in AT_ONCE:
        proofs += independent(joined, domain)
    return joined, proofs
