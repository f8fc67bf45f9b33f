"""Primitives that change the shape of a loop nest: divide, multiply, reorder, cut and shift loops.

In: a kernel and the names of its loops.  Out: the kernel with other loops over the same iterations.
What always holds: each iteration runs exactly once, and in the old order unless reordering is
proven harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias, assert_never, cast, get_args

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.facts.dependence import independent, ordered_commute
from graphflow.schedule.places import obligations, place_names
from graphflow.schedule.places.places import (
    constant_extent,
    exchange_at,
    find_loop,
    in_scope,
    rewrite_at,
)
from graphflow.schedule.places.step_arguments import IndexGiven
from graphflow.schedule.steps.frame import Rewrite

Tail: TypeAlias = Literal["perfect", "guard", "cut", "cut_and_guard"]

TAILS: tuple[Tail, ...] = get_args(Tail)


def divide_loop(
    func: tir.PrimFunc, loop: str, factor: int, names: tuple[str, str], tail: Tail = "guard"
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
    rest = arith.floor_mod(extent, factor)
    claims: list[arith.Proof] = []
    divides = rest is arith.const(0)
    if tail == "perfect" and not divides:
        claim = arith.equal(rest, arith.const(0))
        if arith.constant_value(rest) is not None:
            raise ScheduleError(
                f"perfect needs a factor that divides {extent}, and {factor} does not"
            )
        claims.append(
            obligations.require(arith.prove(claim, domain), f"{factor} divides the extent {extent}")
        )
    outer, inner = arith.Var(names[0]), arith.Var(names[1])
    index = stmt.start + factor * outer + inner
    body = tir.substitute_body(stmt.body, {stmt.var: index})
    blocks = arith.floor_div(extent, factor)
    if tail == "guard" and not divides:
        blocks = arith.floor_div(extent + (factor - 1), factor)
        body = (tir.If(arith.less_than(factor * outer + inner, extent), body),)
    inner_loop = tir.For(inner, arith.const(0), arith.const(factor), kinds[1], body)
    divided: list[tir.Stmt] = [tir.For(outer, arith.const(0), blocks, kinds[0], (inner_loop,))]
    places: dict[str, tuple[str, ...]] = {loop: names}
    place_names.require_names(*names)
    others = _without(func, loop)
    place_names.require_fresh(others, *names)
    behind: tuple[str, ...] = ()
    if tail.startswith("cut") and not divides:
        taken = {*place_names.names_of_places(others), *names}
        var = arith.Var(place_names.fresh_name(names[1] + "_tail", taken.__contains__))
        taken.add(var.name)
        piece, copies = _tail(stmt, var, blocks * factor, rest, factor, tail, taken)
        divided.append(piece)
        places |= {old: (old, new) for old, new in copies.items()}
        behind = (var.name,)
        places[loop] = (*names, *behind)
    new = exchange_at(func, loop, tuple(divided))
    claim_text = f"{factor}·{outer} + {inner} takes each of 0 … {extent - 1} once, in order"
    proofs = (obligations.structural(claim_text), *claims)
    return Rewrite(new, proofs, places, {"parts": names, "tail": behind})


def _extent_to_divide(stmt: tir.For, domain: arith.Domain) -> arith.IndexExpr:
    """The number of iterations of a loop, at least 0, as an expression over the loops around."""
    if stmt.extent is not None or stmt.kind is not tir.LoopKind.SERIAL:
        return arith.const(constant_extent(stmt))
    extent = stmt.stop - stmt.start
    if arith.prove(arith.at_least_zero(extent), domain).proven:
        return extent
    return arith.maximum(extent, arith.const(0))


def _kinds_of_parts(kind: tir.LoopKind) -> tuple[tir.LoopKind, tir.LoopKind]:
    """The kinds of outer and inner loop: threads take whole blocks, lanes the elements of one."""
    match kind:
        case tir.LoopKind.PARALLEL:
            return kind, tir.LoopKind.SERIAL
        case tir.LoopKind.VECTORIZED:
            return tir.LoopKind.SERIAL, kind
        case tir.LoopKind.SERIAL | tir.LoopKind.UNROLLED:
            return kind, kind
    assert_never(kind)


def _tail(
    stmt: tir.For,
    var: arith.Var,
    done: arith.IndexExpr,
    rest: arith.IndexExpr,
    factor: int,
    tail: Tail,
    taken: Collection[str],
) -> tuple[tir.Stmt, dict[str, str]]:
    body, copies = place_names.fresh_copy(stmt.body, "_tail", taken)
    body = tir.substitute_body(body, {stmt.var: stmt.start + done + var})
    extent = rest
    if tail == "cut_and_guard":
        extent = arith.const(factor)
        body = (tir.If(arith.less_than(var, rest), body),)
    return tir.For(var, arith.const(0), extent, stmt.kind, body), copies


def _without(func: tir.PrimFunc, loop: str) -> tir.PrimFunc:
    """`func` without the loop itself, so that a part of it may take its name."""

    def change(stmt: tir.Stmt, _: arith.Domain) -> tir.Body:
        assert isinstance(stmt, tir.For)
        return stmt.body

    return rewrite_at(func, loop, change)


def mult_loops(func: tir.PrimFunc, outer: str, inner: str, name: str) -> Rewrite:
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
    k = arith.Var(name)
    first: arith.IndexExpr = stmt.start + arith.floor_div(k, c)
    values: dict[arith.Var, arith.IndexExpr] = {
        stmt.var: first,
        body.var: arith.substitute(body.start, {stmt.var: first}) + arith.floor_mod(k, c),
    }
    place_names.require_names(name)
    place_names.require_fresh(_without(_without(func, inner), outer), name)
    loop = tir.For(k, arith.const(0), n * c, stmt.kind, tir.substitute_body(body.body, values))
    claim = f"({k} // {c}, {k} % {c}) takes each pair once, in order"
    proofs: tuple[arith.Proof, ...] = (obligations.structural(claim),)
    if stmt.kind in tir.AT_ONCE and body.kind is not stmt.kind:
        proofs += independent(loop, domain)
    new = exchange_at(func, outer, (loop,))
    return Rewrite(new, proofs, {outer: (name,), inner: (name,)}, {"loop": (name,)})


def _only_loop(stmt: tir.For, inner: str) -> tir.For:
    body = stmt.body[0] if len(stmt.body) == 1 else None
    if not isinstance(body, tir.For) or body.var.name != inner:
        raise ScheduleError(f"{inner} must be the only statement in the body of {stmt.var}")
    return body


def reorder_loops(func: tir.PrimFunc, order: Sequence[str]) -> Rewrite:
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
    body = (
        loops[-1].body
        if not conditions
        else (tir.If(arith.conjunction(conditions), loops[-1].body),)
    )
    proofs: list[arith.Proof] = []
    for done in range(len(loops), 0, -1):
        for k in range(done - 1):
            if wanted[loops[k].var.name] > wanted[loops[k + 1].var.name]:
                proofs += _swap(loops, k, body, domain)
                loops[k], loops[k + 1] = loops[k + 1], loops[k]
    if list(nest) == loops:
        return Rewrite(func)
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    new = exchange_at(func, nest[0].var.name, body)
    return Rewrite(new, tuple(dict.fromkeys(proofs)))


def _nest(
    func: tir.PrimFunc, names: tuple[str, ...]
) -> tuple[list[tir.For], list[arith.Predicate], arith.Domain]:
    """The loops from the outermost in, the conditions that stand between them, and the domain."""
    found = {name: find_loop(func, name) for name in names}
    loop, domain = min(found.values(), key=lambda item: len(item[1].axes))
    nest, conditions = [loop], list[arith.Predicate]()
    while len(nest) < len(names):
        body = nest[-1].body
        below = body[0] if len(body) == 1 else None
        while isinstance(below, tir.If) and tir.is_predicate(below.condition) and not below.orelse:
            conditions.append(cast(arith.Predicate, below.condition))
            below = below.then[0] if len(below.then) == 1 else None
        if not isinstance(below, tir.For) or below.var.name not in found:
            between = ", ".join(names)
            raise ScheduleError(f"{between} are not a perfect nest: see the body of {nest[-1].var}")
        nest.append(below)
    return nest, conditions, domain


def _swap(
    loops: list[tir.For], k: int, body: tir.Body, domain: arith.Domain
) -> tuple[arith.Proof, ...]:
    outer, inner = loops[k], loops[k + 1]
    if tir.LoopKind.VECTORIZED in (outer.kind, inner.kind):
        raise ScheduleError(
            f"one of {outer.var} and {inner.var} runs as lanes; reorder before that"
        )
    if outer.var in arith.variables(inner.start) | arith.variables(inner.stop):
        raise ScheduleError(f"the bounds of {inner.var} depend on {outer.var}")
    for loop in reversed(loops[k + 2 :]):
        body = (replace(loop, body=body),)
    for loop in loops[:k]:
        domain = domain.inside(loop.var, loop.start, loop.stop)
    proofs: tuple[arith.Proof, ...] = ()
    if inner.kind in tir.AT_ONCE:
        proofs = independent(replace(inner, body=(replace(outer, body=body),)), domain)
    for loop in (outer, inner):
        domain = domain.inside(loop.var, loop.start, loop.stop)
    moving = (outer.var, inner.var)
    primed = tuple(arith.Var(v.name + "'") for v in moving)
    order = arith.conjunction(
        (arith.less_than(moving[0], primed[0]), arith.less_than(primed[1], moving[1]))
    )
    condition = f"{outer.var} and {inner.var} commute"
    return (*proofs, *ordered_commute(body, body, domain, moving, order, condition))


def cut_loop(func: tir.PrimFunc, loop: str, point: IndexGiven, suffix: str) -> Rewrite:
    """`for i in (a, b): S` → `for i in (a, p): S` and `for i' in (p, b): S'`, p an expression over
    the loops around.

    The places of the second piece end in `suffix`.

    1. The point p, an expression over the loops around, lies between the bounds.
    2. A vectorized or unrolled loop is cut into pieces of constant extents.

    Makes the two loops in the role `pieces`, the first of which keeps its name.
    """
    stmt, domain = find_loop(func, loop)
    here = in_scope(point, domain)
    inside = arith.conjunction((arith.at_most(stmt.start, here), arith.at_most(here, stmt.stop)))
    proof = obligations.require(
        arith.prove(inside, domain), f"{point} lies between the bounds of {loop}"
    )
    place_names.require_names(loop + suffix)
    body, copies = place_names.fresh_copy((stmt,), suffix, place_names.names_of_places(func))
    copied = body[0]
    assert isinstance(copied, tir.For)
    pieces = (replace(stmt, stop=here), replace(copied, start=here))
    if stmt.kind in tir.EXPANDED and stmt.extent is not None:
        for piece in pieces:
            constant_extent(piece)
    new = exchange_at(func, loop, pieces)
    places = {old: (old, copy) for old, copy in copies.items()}
    return Rewrite(new, (proof,), places, {"pieces": (loop, copies[loop])})


def shift_loop(func: tir.PrimFunc, loop: str, start: IndexGiven) -> Rewrite:
    """`for i in (a, b): S` → `for i in (s, s + b - a): S[i → i + a - s]`.

    1. The new start s, an expression over the loops around, is not negative.
    """
    stmt, domain = find_loop(func, loop)
    begin = in_scope(start, domain)
    value = arith.constant_value(begin)
    if value is not None and value < 0:
        raise ScheduleError(f"the new start {start} of {loop} is negative")
    move: arith.IndexExpr = stmt.start - begin
    proofs: tuple[arith.Proof, ...] = (
        obligations.structural(f"{loop} takes the same values, moved by {move}"),
    )
    if value is None:
        positive = arith.prove(arith.at_least_zero(begin), domain)
        proofs += (
            obligations.require(positive, f"the new start {begin} of {loop} is not negative"),
        )
    body = tir.substitute_body(stmt.body, {stmt.var: stmt.var + move})
    shifted = replace(stmt, start=begin, stop=stmt.stop - move, body=body)
    return Rewrite(exchange_at(func, loop, (shifted,)), proofs)
