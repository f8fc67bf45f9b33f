"""Primitives that change the shape of a loop nest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never, cast

from graphflow.arith import (
    FALSE,
    TRUE,
    AtLeastZero,
    Domain,
    IndexExpr,
    Predicate,
    Proof,
    Ranges,
    Var,
    as_index,
    at_most,
    conjunction,
    conjuncts,
    const,
    constant_value,
    equal,
    floor_div,
    floor_mod,
    less_than,
    maximum,
    minimum,
    predicate_variables,
    prove,
    simplify_predicate,
    substitute,
    substitute_in,
    terms_of,
    variables,
)
from graphflow.errors import ScheduleError
from graphflow.schedule.dependence import AT_ONCE, independent, ordered_commute
from graphflow.schedule.frame import Rewrite, require, structural
from graphflow.schedule.places import (
    find_loop,
    fresh_copy,
    require_fresh,
    rewrite_around,
    rewrite_at,
)
from graphflow.tir import (
    Allocate,
    Block,
    Body,
    For,
    If,
    LoopKind,
    PrimFunc,
    Stmt,
    accesses,
    is_predicate,
    loops_of,
    sites,
    substitute_body,
    walk,
)

TAILS = ("perfect", "guard", "cut", "cut_and_guard")


def divide_loop(
    func: PrimFunc, loop: str, factor: int, names: tuple[str, str], tail: str = "guard"
) -> Rewrite:
    """`for i in (0, n): S` → `for io in (0, n//f): for ii in (0, f): S[i → f·io + ii]`.

    The tail is `perfect` (f must divide n), `guard` (the last block under `if f·io + ii < n`),
    `cut` (a loop of n % f iterations behind, whose places end in `_tail`), or `cut_and_guard`
    (the same, its extent f and under the guard).  The iterations keep their order, so the only
    condition is that the bounds cover the same values.
    """
    stmt, _ = find_loop(func, loop)
    extent = _constant_extent(stmt)
    kinds = _kinds_of_parts(stmt.kind)
    if factor <= 0 or tail not in TAILS:
        raise ScheduleError(f"cannot divide by {factor} with tail {tail}; tails are {TAILS}")
    rest = extent % factor
    if tail == "perfect" and rest:
        raise ScheduleError(f"perfect needs a factor that divides {extent}, and {factor} does not")
    outer, inner = Var(names[0]), Var(names[1])
    index = stmt.start + factor * outer + inner
    body = substitute_body(stmt.body, {stmt.var: index})
    blocks = extent // factor
    if tail == "guard" and rest:
        blocks += 1
        body = (If(less_than(factor * outer + inner, extent), body),)
    inner_loop = For(inner, const(0), const(factor), kinds[1], body)
    divided: list[Stmt] = [For(outer, const(0), const(blocks), kinds[0], (inner_loop,))]
    places: dict[str, tuple[str, ...]] = {loop: names}
    fresh = [*names]
    if tail.startswith("cut") and rest:
        piece, copies = _tail(stmt, blocks * factor, rest, factor, names[1], tail)
        divided.append(piece)
        places |= {old: (old, new) for old, new in copies.items()}
        places[loop] = (*names, names[1] + "_tail")
        fresh += [names[1] + "_tail", *copies.values()]
    require_fresh(_without(func, loop), *fresh)
    new = rewrite_at(func, loop, lambda _s, _d: tuple(divided))
    claim = f"{factor}·{outer} + {inner} takes each of 0 … {extent - 1} once, in order"
    return Rewrite(new, (structural(claim),), places)


def _kinds_of_parts(kind: LoopKind) -> tuple[LoopKind, LoopKind]:
    """Threads take whole blocks, lanes the elements of one; an unrolled loop stays unrolled."""
    match kind:
        case LoopKind.PARALLEL:
            return kind, LoopKind.SERIAL
        case LoopKind.VECTORIZED:
            return LoopKind.SERIAL, kind
        case LoopKind.SERIAL | LoopKind.UNROLLED:
            return kind, kind
    assert_never(kind)


def _tail(
    stmt: For, done: int, rest: int, factor: int, name: str, tail: str
) -> tuple[Stmt, dict[str, str]]:
    var = Var(name + "_tail")
    body, copies = fresh_copy(stmt.body, "_tail")
    body = substitute_body(body, {stmt.var: stmt.start + done + var})
    extent = rest
    if tail == "cut_and_guard":
        extent = factor
        body = (If(less_than(as_index(var), rest), body),)
    return For(var, const(0), const(extent), stmt.kind, body), copies


def _without(func: PrimFunc, loop: str) -> PrimFunc:
    """`func` with the loop's own name taken out, so that a part may inherit it."""

    def change(stmt: Stmt, _: Domain) -> Body:
        assert isinstance(stmt, For)
        return stmt.body

    return rewrite_at(func, loop, change)


def _constant_extent(stmt: For) -> int:
    if stmt.extent is None:
        raise ScheduleError(
            f"the loop {stmt.var} runs over ({stmt.start}, {stmt.stop}), not a constant extent"
        )
    return max(stmt.extent, 0)


def mult_loops(func: PrimFunc, outer: str, inner: str, name: str) -> Rewrite:
    """`for i in (0, n): for j in (0, c): S` → `for k in (0, n·c): S[i → k // c, j → k % c]`.

    The inner loop must be the whole body of the outer one, with a constant extent c.  The new loop
    is of the outer one's kind; where that runs iterations at once, all of them must be independent.
    """
    stmt, domain = find_loop(func, outer)
    body = _only_loop(stmt, inner)
    c, n = _constant_extent(body), _constant_extent(stmt)
    if c == 0:
        raise ScheduleError(f"the loop {inner} never runs, so {outer} and it are no single loop")
    k = Var(name)
    first: IndexExpr = stmt.start + floor_div(k, c)
    values: dict[Var, IndexExpr] = {
        stmt.var: first,
        body.var: substitute(body.start, {stmt.var: first}) + floor_mod(k, c),
    }
    require_fresh(_without(_without(func, inner), outer), name)
    loop = For(k, const(0), const(n * c), stmt.kind, substitute_body(body.body, values))
    claim = f"({k} // {c}, {k} % {c}) takes each pair once, in order"
    proofs: tuple[Proof, ...] = (structural(claim),)
    if stmt.kind in AT_ONCE and body.kind is not stmt.kind:
        proofs += independent(loop, domain)
    new = rewrite_at(func, outer, lambda _s, _d: (loop,))
    return Rewrite(new, proofs, {outer: (name,), inner: (name,)})


def _only_loop(stmt: For, inner: str) -> For:
    body = stmt.body[0] if len(stmt.body) == 1 else None
    if not isinstance(body, For) or body.var.name != inner:
        raise ScheduleError(f"{inner} must be the only statement in the body of {stmt.var}")
    return body


def reorder_loops(func: PrimFunc, order: Sequence[str]) -> Rewrite:
    """A perfect nest of the loops named in `order` → the same nest in that order.

    Index conditions between the loops move inside the innermost one, where they hold as often.
    Each pair of neighbours that changes places must commute: no two iterations that swap their
    order touch the same element with one of them writing, and neither bound uses the other's
    variable.  A parallel or vectorized loop that moves outwards must be independent there too.
    """
    nest, conditions, domain = _nest(func, tuple(order))
    wanted = {name: position for position, name in enumerate(order)}
    loops = list(nest)
    body = loops[-1].body if not conditions else (If(conjunction(conditions), loops[-1].body),)
    proofs: list[Proof] = []
    for done in range(len(loops), 0, -1):
        for k in range(done - 1):
            if wanted[loops[k].var.name] > wanted[loops[k + 1].var.name]:
                proofs += _swap(loops, k, body, domain)
                loops[k], loops[k + 1] = loops[k + 1], loops[k]
    if list(nest) == loops:
        return Rewrite(func)
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    new = rewrite_at(func, nest[0].var.name, lambda _s, _d: body)
    return Rewrite(new, tuple(dict.fromkeys(proofs)))


def _nest(func: PrimFunc, names: tuple[str, ...]) -> tuple[list[For], list[Predicate], Domain]:
    """The loops from the outermost in, the conditions that stand between them, and the domain."""
    found = {name: find_loop(func, name) for name in names}
    loop, domain = min(found.values(), key=lambda item: len(item[1].axes))
    nest, conditions = [loop], list[Predicate]()
    while len(nest) < len(names):
        body = nest[-1].body
        below = body[0] if len(body) == 1 else None
        while isinstance(below, If) and is_predicate(below.condition) and not below.orelse:
            conditions.append(cast(Predicate, below.condition))
            below = below.then[0] if len(below.then) == 1 else None
        if not isinstance(below, For) or below.var.name not in found:
            between = ", ".join(names)
            raise ScheduleError(f"{between} are not a perfect nest: see the body of {nest[-1].var}")
        nest.append(below)
    return nest, conditions, domain


def _swap(loops: list[For], k: int, body: Body, domain: Domain) -> tuple[Proof, ...]:
    outer, inner = loops[k], loops[k + 1]
    if LoopKind.VECTORIZED in (outer.kind, inner.kind):
        raise ScheduleError(
            f"one of {outer.var} and {inner.var} runs as lanes; reorder before that"
        )
    if outer.var in variables(inner.start) | variables(inner.stop):
        raise ScheduleError(f"the bounds of {inner.var} depend on {outer.var}")
    for loop in reversed(loops[k + 2 :]):
        body = (replace(loop, body=body),)
    for loop in loops[:k]:
        domain = domain.inside(loop.var, loop.start, loop.stop)
    proofs: tuple[Proof, ...] = ()
    if inner.kind in AT_ONCE:
        proofs = independent(replace(inner, body=(replace(outer, body=body),)), domain)
    for loop in (outer, inner):
        domain = domain.inside(loop.var, loop.start, loop.stop)
    moving = (outer.var, inner.var)
    primed = tuple(Var(v.name + "'") for v in moving)
    order = conjunction((less_than(moving[0], primed[0]), less_than(primed[1], moving[1])))
    condition = f"{outer.var} and {inner.var} commute"
    return (*proofs, *ordered_commute(body, body, domain, moving, order, condition))


def cut_loop(func: PrimFunc, loop: str, point: int, suffix: str) -> Rewrite:
    """`for i in (a, b): S` → `for i in (a, p): S` and `for i' in (p, b): S'`.

    The places of the second piece end in `suffix`.  The point must lie between the bounds.
    """
    stmt, domain = find_loop(func, loop)
    here = as_index(point)
    inside = conjunction((at_most(stmt.start, here), at_most(here, stmt.stop)))
    proof = require(prove(inside, domain), f"{point} lies between the bounds of {loop}")
    body, copies = fresh_copy((stmt,), suffix)
    copied = body[0]
    assert isinstance(copied, For)
    pieces = (replace(stmt, stop=here), replace(copied, start=here))
    require_fresh(func, *copies.values())
    new = rewrite_at(func, loop, lambda _s, _d: pieces)
    return Rewrite(new, (proof,), {old: (old, copy) for old, copy in copies.items()})


def fission(func: PrimFunc, loop: str, position: int, suffix: str, lifts: int = 1) -> Rewrite:
    """`for i: {S1; S2}` → `for i: S1` and `for i': S2`, through `lifts` loops or conditions.

    `position` counts the statements of S1.  S2 may not use a buffer that S1 allocates, and no
    later iteration of S1 may conflict with an earlier one of S2.  The places of the second nest
    end in `suffix`.
    """
    proofs: list[Proof] = []
    name = loop + suffix
    require_fresh(func, name)

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
        return Rewrite(new, tuple(proofs), places)
    parent = _parent_loop(new, loop)
    new, split, gone = _split_conditions(new, parent, name)
    places |= dict.fromkeys(gone, ())
    above = fission(new, parent, split, suffix, lifts - 1)
    return Rewrite(above.func, (*proofs, *above.proofs), {**places, **above.places})


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
    """`for p: if c: {F; G}` → `for p: {if c: F; if c: G}`, the position of the gap, lost blocks."""
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

    Nothing that F does changes an index condition, and it is the same for all of one iteration.
    """
    stmt, _ = find_loop(func, loop)
    body = _spread(stmt.body)
    if body is stmt.body:
        raise ScheduleError(f"the body of {loop} is not a single index condition without else")
    new = rewrite_at(func, loop, lambda _s, _d: (replace(stmt, body=body),))
    return Rewrite(new, (structural("an index condition does not depend on what is stored"),))


def fuse(func: PrimFunc, first: str, second: str) -> Rewrite:
    """`for i: S1` and `for j: S2` → `for i: {S1; S2[j → i]}`; two blocks → one block.

    The two must be neighbours (allocations may stand between, and move ahead), the loops must have
    equal bounds, and no iteration of S2 may conflict with a later one of S1.
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
    return Rewrite(new, tuple(proofs), {second: (first,)})


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


def unroll_loop(func: PrimFunc, loop: str) -> Rewrite:
    """`for i: S` → the same loop marked to be unrolled by the emitter.

    The bounds must be constants.  The loop stays a loop until then: an unrolled tile would be
    thousands of nodes for every later proof.
    """
    stmt, _ = find_loop(func, loop)
    extent = _constant_extent(stmt)
    new = rewrite_at(func, loop, lambda _s, _d: (replace(stmt, kind=LoopKind.UNROLLED),))
    return Rewrite(new, (structural(f"{loop} runs exactly {extent} times"),))


def vectorize_loop(func: PrimFunc, loop: str) -> Rewrite:
    """`for i: S` → the same loop, whose iterations the emitter runs as lanes of a vector.

    The loop must be innermost with constant bounds, and its iterations must be independent.
    """
    stmt, domain = find_loop(func, loop)
    _constant_extent(stmt)
    if any(isinstance(s, For | Allocate) for s in walk(stmt.body)):
        raise ScheduleError(f"{loop} holds a loop or an allocation, so it cannot become lanes")
    _not_in_lanes(func, domain, loop)
    proofs = independent(stmt, domain)
    new = rewrite_at(func, loop, lambda _s, _d: (replace(stmt, kind=LoopKind.VECTORIZED),))
    return Rewrite(new, proofs)


def parallelize_loop(func: PrimFunc, loop: str) -> Rewrite:
    """`for i: S` → the same loop, whose iterations threads may run at once.

    Iterations must be independent: no element is written in one and touched in another.
    """
    stmt, domain = find_loop(func, loop)
    _not_in_lanes(func, domain, loop)
    proofs = independent(stmt, domain)
    new = rewrite_at(func, loop, lambda _s, _d: (replace(stmt, kind=LoopKind.PARALLEL),))
    return Rewrite(new, proofs)


def _not_in_lanes(func: PrimFunc, domain: Domain, loop: str) -> None:
    kinds = {s.var: s.kind for s in loops_of(func.body)}
    lanes = [axis.var.name for axis in domain.axes if kinds[axis.var] is LoopKind.VECTORIZED]
    if lanes:
        raise ScheduleError(f"{loop} stands inside {lanes[0]}, whose iterations are lanes already")


def shift_loop(func: PrimFunc, loop: str, start: int) -> Rewrite:
    """`for i in (a, b): S` → `for i in (s, s + b - a): S[i → i + a - s]`, with s >= 0."""
    stmt, _ = find_loop(func, loop)
    if start < 0:
        raise ScheduleError(f"the new start {start} of {loop} is negative")
    move: IndexExpr = stmt.start - start
    body = substitute_body(stmt.body, {stmt.var: stmt.var + move})
    shifted = replace(stmt, start=const(start), stop=stmt.stop - move, body=body)
    new = rewrite_at(func, loop, lambda _s, _d: (shifted,))
    return Rewrite(new, (structural(f"{loop} takes the same values, moved by {move}"),))


def restrict_loop(func: PrimFunc, loop: str) -> Rewrite:
    """`for i in (a, b): if p(i): S` → `for i in (max(a, …), min(b, …)): S`.

    The conditions of the loop's only statement that bound i from one side by an expression free of
    i and of what stands inside become bounds, exactly; the others stay.
    """
    stmt, domain = find_loop(func, loop)
    body = stmt.body[0] if len(stmt.body) == 1 else None
    if not isinstance(body, If) or body.orelse or not is_predicate(body.condition):
        raise ScheduleError(f"the body of {loop} is not a single condition without else")
    start, stop, left = _bounded(stmt, cast(Predicate, body.condition))
    if left == FALSE or not (start is not stmt.start or stop is not stmt.stop):
        raise ScheduleError(f"{body.condition} does not bound {loop}")
    inner = body.then if left == TRUE else (If(left, body.then),)
    new = rewrite_at(
        func, loop, lambda _s, _d: (replace(stmt, start=start, stop=stop, body=inner),)
    )
    here = domain.inside(stmt.var, stmt.start, stmt.stop)
    now = conjunction((at_most(start, stmt.var), less_than(stmt.var, stop), left))
    same = _equivalent(cast(Predicate, body.condition), now, here)
    return Rewrite(new, same)


def _bounded(stmt: For, condition: Predicate) -> tuple[IndexExpr, IndexExpr, Predicate]:
    start, stop, left = stmt.start, stmt.stop, []
    for member in conjuncts(condition):
        k, rest = 0, as_index(0)
        if isinstance(member, AtLeastZero):
            k = next((c for atom, c in terms_of(member.expr)[0] if atom is stmt.var), 0)
            rest = member.expr - k * stmt.var
        if not k or stmt.var in variables(rest):
            left.append(member)
        elif k > 0:  # k·i + rest >= 0  ⇔  i >= ceil(-rest / k) = -(rest // k)
            start = maximum(start, -floor_div(rest, k))
        else:  # i <= rest // -k
            stop = minimum(stop, floor_div(rest, -k) + 1)
    return start, stop, conjunction(left)


def _equivalent(before: Predicate, after: Predicate, domain: Domain) -> tuple[Proof, ...]:
    return (
        require(prove(after, domain.given(before)), "the new bounds keep every iteration"),
        require(prove(before, domain.given(after)), "the new bounds add no iteration"),
    )


def interior(func: PrimFunc, loop: str) -> tuple[int, int]:
    """The longest run of iterations of `loop` in which no condition on it fails for any other.

    The conditions are the index predicates inside the loop that mention it.  Outside this run
    borders are met; `cut_loop` at both ends leaves a middle that `simplify` frees of conditions.
    """
    stmt, domain = find_loop(func, loop)
    start, extent = constant_value(stmt.start), _constant_extent(stmt)
    if start is None:
        raise ScheduleError(f"the loop {loop} starts at {stmt.start}; its bounds must be constant")
    conditions = _conditions(stmt, domain)
    best, run = (start, start), 0
    for k in range(extent + 1):
        here: dict[Var, IndexExpr] = {stmt.var: const(start + k)}
        if k < extent and all(
            simplify_predicate(substitute_in(condition, here), ranges) == TRUE
            for condition, ranges in conditions
        ):
            run += 1
            continue
        if run > best[1] - best[0]:
            best = (start + k - run, start + k)
        run = 0
    return best


def _conditions(stmt: For, domain: Domain) -> list[tuple[Predicate, Ranges]]:
    """The index conditions inside `stmt` that mention its variable, with the ranges there."""
    here = domain.inside(stmt.var, stmt.start, stmt.stop)
    found: list[tuple[Predicate, Ranges]] = []
    for site in sites(stmt.body, here):
        if isinstance(site.stmt, If) and is_predicate(site.stmt.condition):
            condition = cast(Predicate, site.stmt.condition)
            if stmt.var in predicate_variables(condition):
                found.append((condition, site.domain.ranges()))
    return found
