"""Primitives that change the shape of a loop nest: divide, multiply, reorder, cut and shift loops.

In: a kernel and the names of its loops.  Out: the kernel with other loops over the same iterations.
What always holds: each iteration runs exactly once, and in the old order unless reordering is
proven harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, assert_never, cast, get_args

from graphflow.arith import (
    Domain,
    IndexExpr,
    Predicate,
    Proof,
    Var,
    at_least_zero,
    at_most,
    conjunction,
    const,
    constant_value,
    equal,
    floor_div,
    floor_mod,
    less_than,
    maximum,
    prove,
    substitute,
    variables,
)
from graphflow.base.errors import ScheduleError
from graphflow.schedule.dependence import independent, ordered_commute
from graphflow.schedule.frame import Rewrite
from graphflow.schedule.obligations import require, structural
from graphflow.schedule.place_names import (
    fresh_copy,
    fresh_name,
    place_names,
    require_fresh,
    require_names,
)
from graphflow.schedule.places import constant_extent, find_loop, in_scope, rewrite_at
from graphflow.schedule.step_arguments import IndexGiven
from graphflow.tir import (
    AT_ONCE,
    EXPANDED,
    Body,
    For,
    If,
    LoopKind,
    PrimFunc,
    Stmt,
    is_predicate,
    substitute_body,
)

Tail: TypeAlias = Literal["perfect", "guard", "cut", "cut_and_guard"]

TAILS: tuple[Tail, ...] = get_args(Tail)


def divide_loop(
    func: PrimFunc, loop: str, factor: int, names: tuple[str, str], tail: Tail = "guard"
) -> Rewrite:
    """`for i in (0, n): S` → `for io in (0, n//f): for ii in (0, f): S[i → f·io + ii]`.

    The tail is `perfect` (f must divide n), `guard` (the last block under `if f·io + ii < n`),
    `cut` (a loop of n % f iterations behind, whose places end in `_tail`), or `cut_and_guard`
    (the same, its extent f and under the guard).  The iterations keep their order, so the only
    conditions are these:

    1. The factor is positive.
    2. With a `perfect` tail it divides the extent.
    3. The extent is a constant where the iterations run at once or are written out.

    Makes the two loops in the role `parts`, and the loop behind in the role `tail`.
    """
    stmt, domain = find_loop(func, loop)
    extent = _extent_to_divide(stmt, domain)
    kinds = _kinds_of_parts(stmt.kind)
    if factor <= 0 or tail not in TAILS:
        raise ScheduleError(f"cannot divide by {factor} with tail {tail}; tails are {TAILS}")
    rest = floor_mod(extent, factor)
    claims: list[Proof] = []
    divides = rest is const(0)
    if tail == "perfect" and not divides:
        claim = equal(rest, const(0))
        if constant_value(rest) is not None:
            raise ScheduleError(
                f"perfect needs a factor that divides {extent}, and {factor} does not"
            )
        claims.append(require(prove(claim, domain), f"{factor} divides the extent {extent}"))
    outer, inner = Var(names[0]), Var(names[1])
    index = stmt.start + factor * outer + inner
    body = substitute_body(stmt.body, {stmt.var: index})
    blocks = floor_div(extent, factor)
    if tail == "guard" and not divides:
        blocks = floor_div(extent + (factor - 1), factor)
        body = (If(less_than(factor * outer + inner, extent), body),)
    inner_loop = For(inner, const(0), const(factor), kinds[1], body)
    divided: list[Stmt] = [For(outer, const(0), blocks, kinds[0], (inner_loop,))]
    places: dict[str, tuple[str, ...]] = {loop: names}
    require_names(*names)
    others = _without(func, loop)
    require_fresh(others, *names)
    behind: tuple[str, ...] = ()
    if tail.startswith("cut") and not divides:
        taken = {*place_names(others), *names}
        var = Var(fresh_name(names[1] + "_tail", taken.__contains__))
        taken.add(var.name)
        piece, copies = _tail(stmt, var, blocks * factor, rest, factor, tail, taken)
        divided.append(piece)
        places |= {old: (old, new) for old, new in copies.items()}
        behind = (var.name,)
        places[loop] = (*names, *behind)
    new = rewrite_at(func, loop, lambda _s, _d: tuple(divided))
    claim_text = f"{factor}·{outer} + {inner} takes each of 0 … {extent - 1} once, in order"
    proofs = (structural(claim_text), *claims)
    return Rewrite(new, proofs, places, {"parts": names, "tail": behind})


def _extent_to_divide(stmt: For, domain: Domain) -> IndexExpr:
    """The number of iterations of a loop, at least 0, as an expression over the loops around."""
    if stmt.extent is not None or stmt.kind is not LoopKind.SERIAL:
        return const(constant_extent(stmt))
    extent = stmt.stop - stmt.start
    if prove(at_least_zero(extent), domain).proven:
        return extent
    return maximum(extent, const(0))


def _kinds_of_parts(kind: LoopKind) -> tuple[LoopKind, LoopKind]:
    """The kinds of outer and inner loop: threads take whole blocks, lanes the elements of one."""
    match kind:
        case LoopKind.PARALLEL:
            return kind, LoopKind.SERIAL
        case LoopKind.VECTORIZED:
            return LoopKind.SERIAL, kind
        case LoopKind.SERIAL | LoopKind.UNROLLED:
            return kind, kind
    assert_never(kind)


def _tail(
    stmt: For,
    var: Var,
    done: IndexExpr,
    rest: IndexExpr,
    factor: int,
    tail: Tail,
    taken: Collection[str],
) -> tuple[Stmt, dict[str, str]]:
    body, copies = fresh_copy(stmt.body, "_tail", taken)
    body = substitute_body(body, {stmt.var: stmt.start + done + var})
    extent = rest
    if tail == "cut_and_guard":
        extent = const(factor)
        body = (If(less_than(var, rest), body),)
    return For(var, const(0), extent, stmt.kind, body), copies


def _without(func: PrimFunc, loop: str) -> PrimFunc:
    """`func` without the loop itself, so that a part of it may take its name."""

    def change(stmt: Stmt, _: Domain) -> Body:
        assert isinstance(stmt, For)
        return stmt.body

    return rewrite_at(func, loop, change)


def mult_loops(func: PrimFunc, outer: str, inner: str, name: str) -> Rewrite:
    """`for i in (0, n): for j in (0, c): S` → `for k in (0, n·c): S[i → k // c, j → k % c]`.

    1. The inner loop is the only statement in the body of the outer one.
    2. Its extent c is a positive constant; that of the outer one is constant too where its
       iterations run at once or are written out.
    3. Where iterations of the outer loop run at once, all of both are independent.

    The new loop is of the outer one's kind.

    Makes the new loop in the role `loop`.
    """
    stmt, domain = find_loop(func, outer)
    body = _only_loop(stmt, inner)
    c, n = constant_extent(body), _extent_to_divide(stmt, domain)
    if c == 0:
        raise ScheduleError(f"the loop {inner} never runs, so {outer} and it are no single loop")
    k = Var(name)
    first: IndexExpr = stmt.start + floor_div(k, c)
    values: dict[Var, IndexExpr] = {
        stmt.var: first,
        body.var: substitute(body.start, {stmt.var: first}) + floor_mod(k, c),
    }
    require_names(name)
    require_fresh(_without(_without(func, inner), outer), name)
    loop = For(k, const(0), n * c, stmt.kind, substitute_body(body.body, values))
    claim = f"({k} // {c}, {k} % {c}) takes each pair once, in order"
    proofs: tuple[Proof, ...] = (structural(claim),)
    if stmt.kind in AT_ONCE and body.kind is not stmt.kind:
        proofs += independent(loop, domain)
    new = rewrite_at(func, outer, lambda _s, _d: (loop,))
    return Rewrite(new, proofs, {outer: (name,), inner: (name,)}, {"loop": (name,)})


def _only_loop(stmt: For, inner: str) -> For:
    body = stmt.body[0] if len(stmt.body) == 1 else None
    if not isinstance(body, For) or body.var.name != inner:
        raise ScheduleError(f"{inner} must be the only statement in the body of {stmt.var}")
    return body


def reorder_loops(func: PrimFunc, order: Sequence[str]) -> Rewrite:
    """A perfect nest of the loops named in `order` → the same nest in that order.

    Index conditions between the loops move inside the innermost one, where they hold as often.

    1. The loops are a perfect nest but for such conditions.
    2. The bounds of a loop that moves outwards do not depend on one that it passes.
    3. Neighbours that change places commute: no two iterations that swap their order touch the same
       element with one of them writing.
    4. A parallel loop that moves outwards is independent there too; lanes do not move.
    """
    if not order:
        raise ScheduleError("no loop is given to reorder")
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


def cut_loop(func: PrimFunc, loop: str, point: IndexGiven, suffix: str) -> Rewrite:
    """`for i in (a, b): S` → `for i in (a, p): S` and `for i' in (p, b): S'`.

    The places of the second piece end in `suffix`.

    1. The point p, an expression over the loops around, lies between the bounds.
    2. A vectorized or unrolled loop is cut into pieces of constant extents.

    Makes the two loops in the role `pieces`, the first of which keeps its name.
    """
    stmt, domain = find_loop(func, loop)
    here = in_scope(point, domain)
    inside = conjunction((at_most(stmt.start, here), at_most(here, stmt.stop)))
    proof = require(prove(inside, domain), f"{point} lies between the bounds of {loop}")
    require_names(loop + suffix)
    body, copies = fresh_copy((stmt,), suffix, place_names(func))
    copied = body[0]
    assert isinstance(copied, For)
    pieces = (replace(stmt, stop=here), replace(copied, start=here))
    if stmt.kind in EXPANDED and stmt.extent is not None:
        for piece in pieces:
            constant_extent(piece)
    new = rewrite_at(func, loop, lambda _s, _d: pieces)
    places = {old: (old, copy) for old, copy in copies.items()}
    return Rewrite(new, (proof,), places, {"pieces": (loop, copies[loop])})


def shift_loop(func: PrimFunc, loop: str, start: IndexGiven) -> Rewrite:
    """`for i in (a, b): S` → `for i in (s, s + b - a): S[i → i + a - s]`.

    1. The new start s, an expression over the loops around, is not negative.
    """
    stmt, domain = find_loop(func, loop)
    begin = in_scope(start, domain)
    value = constant_value(begin)
    if value is not None and value < 0:
        raise ScheduleError(f"the new start {start} of {loop} is negative")
    move: IndexExpr = stmt.start - begin
    proofs: tuple[Proof, ...] = (structural(f"{loop} takes the same values, moved by {move}"),)
    if value is None:
        positive = prove(at_least_zero(begin), domain)
        proofs += (require(positive, f"the new start {begin} of {loop} is not negative"),)
    body = substitute_body(stmt.body, {stmt.var: stmt.var + move})
    shifted = replace(stmt, start=begin, stop=stmt.stop - move, body=body)
    return Rewrite(rewrite_at(func, loop, lambda _s, _d: (shifted,)), proofs)
