"""Conditions as bounds of a loop, and the iterations of a loop that meet no condition.

In: a kernel and a loop.  Out: the kernel with the loop restricted to the iterations for which a
condition holds; or, of `interior`, the range in which all conditions on the loop hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.conditions.conditions import with_live_branches
from graphflow.schedule.loops.loops import cut_loop
from graphflow.schedule.places import obligations, place_names
from graphflow.schedule.places.places import constant_extent, exchange_at, find_loop
from graphflow.schedule.steps.frame import Rewrite


def restrict_loop(func: tir.PrimFunc, loop: str) -> Rewrite:
    """`for i in (a, b): if p(i): S` → `for i in (max(a, …), min(b, …)): S`.

    Of p, each conjunct that compares a multiple of i with an expression without i becomes a bound,
    exactly: `>=` and `<` one from one side, `==` one from each; then the loop runs once or never.
    The others stay.  ScheduleError where the body is not one condition without else, and where no
    conjunct is such a bound.
    """
    stmt, domain = find_loop(func, loop)
    body = stmt.body[0] if len(stmt.body) == 1 else None
    if not isinstance(body, tir.If) or body.orelse or not tir.is_predicate(body.condition):
        raise ScheduleError(f"the body of {loop} is not a single condition without else")
    start, stop, left = _bounded(stmt, cast(arith.Predicate, body.condition))
    if left == arith.FALSE or not (start is not stmt.start or stop is not stmt.stop):
        raise ScheduleError(f"{body.condition} does not bound {loop}")
    inner = body.then if left == arith.TRUE else (tir.If(left, body.then),)
    new = exchange_at(func, loop, (replace(stmt, start=start, stop=stop, body=inner),))
    here = domain.inside(stmt.var, stmt.start, stmt.stop)
    now = arith.conjunction((arith.at_most(start, stmt.var), arith.less_than(stmt.var, stop), left))
    same = _equivalent(cast(arith.Predicate, body.condition), now, here)
    return Rewrite(new, same)


def _bounded(
    stmt: tir.For, condition: arith.Predicate
) -> tuple[arith.IndexExpr, arith.IndexExpr, arith.Predicate]:
    """The bounds of a loop under a condition on its body, and the conjuncts that are no bounds."""
    start, stop, left = stmt.start, stmt.stop, []
    for member in arith.conjuncts(condition):
        k, rest = 0, arith.as_index(0)
        if isinstance(member, arith.AtLeastZero | arith.IsZero):
            k = next((c for atom, c in arith.terms_of(member.expr)[0] if atom is stmt.var), 0)
            rest = member.expr - k * stmt.var
        if not k or stmt.var in arith.variables(rest):
            left.append(member)
        elif isinstance(member, arith.IsZero):  # k·i + rest == 0: both k·i + rest >= 0 and <= 0
            k, rest = (k, rest) if k > 0 else (-k, -rest)
            start = arith.maximum(start, -arith.floor_div(rest, k))
            stop = arith.minimum(stop, arith.floor_div(-rest, k) + 1)
        elif k > 0:  # k·i + rest >= 0  ⇔  i >= ceil(-rest / k) = -(rest // k)
            start = arith.maximum(start, -arith.floor_div(rest, k))
        else:  # i <= rest // -k
            stop = arith.minimum(stop, arith.floor_div(rest, -k) + 1)
    return start, stop, arith.conjunction(left)


def _equivalent(
    before: arith.Predicate, after: arith.Predicate, domain: arith.Domain
) -> tuple[arith.Proof, ...]:
    return (
        obligations.require(
            arith.prove(after, domain.given(before)), "the new bounds keep every iteration"
        ),
        obligations.require(
            arith.prove(before, domain.given(after)), "the new bounds add no iteration"
        ),
    )


def stride_loop(func: tir.PrimFunc, loop: str) -> Rewrite:
    """`for i in (a, b): … if (e - i) % s == 0: S` → `for i in (0, ceil((b - a)/s)): … S'`.

    In S', i is `a + (e - a) % s + s·i`: the iterations for which the condition holds, in their
    order.  Where the last of them may exceed b, a condition keeps it out.  ScheduleError where a or
    b is not a constant, or the loop does something that is not under the condition.
    """
    stmt, domain = find_loop(func, loop)
    start, extent = arith.constant_value(stmt.start), constant_extent(stmt)
    congruence = _congruence(stmt)
    if congruence is None or start is None:
        raise ScheduleError(f"no condition (e - {loop}) % s == 0 holds for all that {loop} does")
    place, step = congruence
    first = place - start - step * arith.floor_div(place - start, step)
    here = start + first + step * stmt.var
    count = -(-extent // step)
    body = tir.substitute_body(stmt.body, {stmt.var: here})
    inside = domain.inside(stmt.var, arith.const(0), arith.const(count))
    proofs = [
        obligations.structural(f"{here} for {stmt.var} from 0 on are those that meet the condition")
    ]
    ends = arith.prove(arith.less_than(here, stmt.stop), inside)
    if ends.proven:
        proofs.append(ends)
    else:
        body = (tir.If(arith.less_than(here, stmt.stop), body),)
    new = exchange_at(
        func,
        loop,
        (replace(stmt, start=arith.const(0), stop=arith.const(count), body=body),),
    )
    return Rewrite(new, tuple(proofs))


def _congruence(stmt: tir.For) -> tuple[arith.IndexExpr, int] | None:
    """`e` and `s` of a condition `(e - i) % s == 0` on all that a loop over i does."""
    inner: set[arith.Var] = set()
    body = stmt.body
    while len(body) == 1 and isinstance(below := body[0], tir.For | tir.If):
        if isinstance(below, tir.For):
            inner.add(below.var)
            body = below.body
            continue
        if below.orelse or not tir.is_predicate(below.condition):
            return None
        for member in arith.conjuncts(cast(arith.Predicate, below.condition)):
            solution = _solved(member, stmt.var)
            if solution is not None and not inner & arith.variables(solution[0]):
                return solution
        body = below.then
    return None


def _solved(member: arith.Predicate, var: arith.Var) -> tuple[arith.IndexExpr, int] | None:
    if not isinstance(member, arith.IsZero) or not isinstance(member.expr, arith.FloorMod):
        return None
    place, step = member.expr.numerator, member.expr.divisor
    k = next((c for atom, c in arith.terms_of(place)[0] if atom is var), 0)
    rest = place - k * var
    if k not in (1, -1) or var in arith.variables(rest):
        return None
    return -k * rest, step


MOST_ITERATIONS = 100_000
"""Iterations for which conditions are decided one by one, in tens of microseconds each."""

MOST_PARTS = 8
"""Parts into which a loop is partitioned at most; beyond them it runs through conditions faster."""


def partition_loop(func: tir.PrimFunc, loop: str, suffix: str = "_part") -> Rewrite:
    """`for i in (a, b): S` → `for i in (a, p): S1`, `for i' in (p, q): S2`, …, conditions decided.

    The loop is cut where a condition on it, for all values of the other loops, begins or ceases to
    hold or to fail.  In each part such a condition is replaced by its branch, or left out of a
    conjunction with others, and a part in which nothing runs is dropped.  The places of the parts
    after the first end in `suffix`.  ScheduleError where the bounds are not constant, where no
    condition is decided in any part, or where there would be more than `MOST_PARTS`, or more than
    `MOST_ITERATIONS`.

    Makes the loops that are left in the role `parts`.
    """
    stmt, domain = find_loop(func, loop)
    start, extent = arith.constant_value(stmt.start), constant_extent(stmt)
    if start is None:
        raise ScheduleError(f"the loop {loop} starts at {stmt.start}; its bounds must be constant")
    if extent > MOST_ITERATIONS:
        raise ScheduleError(
            f"size: {loop} has {extent:,} iterations, and conditions are decided for "
            f"{MOST_ITERATIONS:,} at most; divide it first"
        )
    conditions = _conditions(stmt, domain)
    decided = [_decisions(stmt, conditions, start + k) for k in range(extent)]
    cuts = [start + k for k in range(1, extent) if decided[k] != decided[k - 1]]
    if all(one is None for verdicts in decided for one in verdicts):
        raise ScheduleError(f"no condition on {loop} is decided in any of its iterations")
    if len(cuts) >= MOST_PARTS:
        raise ScheduleError(
            f"{loop} would fall into {len(cuts) + 1} parts, and {MOST_PARTS} is most"
        )
    proofs: tuple[arith.Proof, ...] = ()
    now, last = func, loop
    parts, places = [loop], dict[str, tuple[str, ...]]()
    for point in cuts:
        done = cut_loop(now, last, point, suffix)
        last = done.made["pieces"][1]
        parts.append(last)
        for old, new in done.places.items():
            origin = next((first for first, all_ in places.items() if old in all_), old)
            places[origin] = tuple(dict.fromkeys((*places.get(origin, ()), *new)))
        now, proofs = done.func, (*proofs, *done.proofs)
    for part, point in zip(parts, (start, *cuts), strict=True):
        if any(one is not None for one in decided[point - start]):
            live = with_live_branches(now, part)
            now, proofs = live.func, (*proofs, *live.proofs)
    return Rewrite(
        now, proofs, places, {"parts": tuple(p for p in parts if place_names.has_place(now, p))}
    )


def _decisions(
    stmt: tir.For, conditions: Sequence[tuple[arith.Predicate, arith.Ranges]], value: int
) -> tuple[bool | None, ...]:
    """Which conditions hold in one iteration of a loop, which fail, and which may do either."""
    here: dict[arith.Var, arith.IndexExpr] = {stmt.var: arith.const(value)}
    simplified = (
        arith.simplify_predicate(arith.substitute_in(p, here), ranges) for p, ranges in conditions
    )
    return tuple(one.value if isinstance(one, arith.Truth) else None for one in simplified)


def interior(func: tir.PrimFunc, loop: str) -> tuple[int, int]:
    """The longest range (begin, end) of iterations of `loop` for which all conditions on it hold.

    The conditions are the conjuncts of index conditions inside the loop that mention its variable;
    they must hold for all values of the other loops.  Empty (begin = end) where there is no such
    iteration.  `cut_loop` at both ends leaves a middle that `simplify` frees of conditions.
    ScheduleError where the bounds of the loop are not constant.
    """
    stmt, domain = find_loop(func, loop)
    start, extent = arith.constant_value(stmt.start), constant_extent(stmt)
    if start is None:
        raise ScheduleError(f"the loop {loop} starts at {stmt.start}; its bounds must be constant")
    conditions = _conditions(stmt, domain)
    best, run = (start, start), 0
    for k in range(extent + 1):
        here: dict[arith.Var, arith.IndexExpr] = {stmt.var: arith.const(start + k)}
        if k < extent and all(
            arith.simplify_predicate(arith.substitute_in(condition, here), ranges) == arith.TRUE
            for condition, ranges in conditions
        ):
            run += 1
            continue
        if run > best[1] - best[0]:
            best = (start + k - run, start + k)
        run = 0
    return best


def _conditions(stmt: tir.For, domain: arith.Domain) -> list[tuple[arith.Predicate, arith.Ranges]]:
    """The index conditions inside `stmt` that mention its variable, with the ranges there."""
    here = domain.inside(stmt.var, stmt.start, stmt.stop)
    conditions: list[tuple[arith.Predicate, arith.Ranges]] = []
    for site in tir.sites(stmt.body, here):
        if isinstance(site.stmt, tir.If) and tir.is_predicate(site.stmt.condition):
            for member in arith.conjuncts(cast(arith.Predicate, site.stmt.condition)):
                if stmt.var in arith.predicate_variables(member):
                    conditions.append((member, site.domain.ranges()))
    return conditions
