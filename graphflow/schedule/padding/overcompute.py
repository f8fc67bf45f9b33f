"""Overcompute in place of branching and the reverse: statements run where it has no effect.

In: a kernel, and the loop or block whose index conditions are to go, or a condition that it is to
get.  Out: the kernel with statements that run more often, or less often, and proofs that what runs
besides has no effect: its writes are overwritten or freed before anything reads them, it stores
what its target holds already, or it reduces a neutral element.

Both directions are the same step read in two ways.  `if c: S` is first written `if c: S else: S'`
with a copy S' of S; once every statement of S' is proven a no-op there, this is S, and so is `S`.
"""

from __future__ import annotations

from typing import cast

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.conditions.no_ops import effects_left
from graphflow.schedule.facts import dependence, padding
from graphflow.schedule.padding.neutral import NeutralQuery
from graphflow.schedule.places import addresses, obligations
from graphflow.schedule.places.step_arguments import predicate_of
from graphflow.schedule.steps.frame import Rewrite


def remove_branching_through_overcompute(
    func: tir.PrimFunc, place: str, about: str | None = None, wrap: bool = False, fill: bool = False
) -> Rewrite:
    """`if c: S` → `S`, for the index conditions in the loop or block `place`.

    With `about`, only conditions that mention that loop's variable are removed.  With `wrap`, an
    index of a load that would leave its buffer where c fails is reduced modulo the extent of the
    axis.  With `fill`, such a load is zero there: `x[e]` → `select(c, x[e], 0)`.

    1. *No else branch*: c has none, and there is such a condition.
    2. *In bounds*: where c fails, every access of S stays in its buffer, and away from padding that
       nothing may access.
    3. *No effect*: where c fails, each statement of S is a no-op, as `remove_no_op` has it, or
       reduces a value that is the neutral element of its operator by what is known of the padding
       it loads.
    4. *Independence*: loops whose iterations run at once stay independent.

    ScheduleError, which names the clause, where one of these is not proven.
    """
    proofs: list[arith.Proof] = []
    found = [
        path for path in _inside(func, place) if _is_about(effects.statement_at(func, path), about)
    ]
    for path in found:
        stmt = cast(tir.If, effects.statement_at(func, path))
        if stmt.orelse:
            raise ScheduleError(f"the condition {_predicate(stmt)} has an else branch")
    if not found:
        raise ScheduleError(f"there is no index condition in {place} on {about or 'anything'}")
    now = func
    for path in reversed(found):  # inner conditions first, and later ones: the others keep paths
        now = _freed(now, path, wrap, fill, proofs)
    proofs += dependence.still_independent(now, place)
    return Rewrite(now, tuple(dict.fromkeys(proofs)))


def remove_overcompute_through_branching(
    func: tir.PrimFunc, place: str, condition: arith.Predicate | str
) -> Rewrite:
    """`for i: S` → `for i: if c: S`, where the iterations that c excludes have no effect.

    `place` is the loop or block whose whole body gets the condition, a predicate over the loops
    around and its own variable, or its text: `"4*io + ii < 14"`.

    1. *In scope*: c has no other variables.
    2. *Excludes*: c does not hold for every iteration.
    3. *No effect*: where c fails, each statement of S is a no-op, as `remove_no_op` has it, or
       reduces a neutral element.

    ScheduleError, which names the clause, where one of these is not proven.
    """
    where = predicate_of(condition)
    path = addresses.path_of(func, place)
    stmt = effects.statement_at(func, path)
    if not isinstance(stmt, tir.For | tir.Block):
        raise ScheduleError(f"{place} is no loop or block, whose body could get a condition")
    domain = effects.domain_at(func, (*path, (0, False)))
    strange = arith.predicate_variables(where) - {axis.var for axis in domain.axes}
    if strange:
        names = ", ".join(sorted(var.name for var in strange))
        raise ScheduleError(f"{names} in {where} is no loop around the body of {place}")
    if arith.prove(where, domain).proven:
        raise ScheduleError(f"{where} holds for every iteration of {place}")

    def branched(orelse: tir.Body) -> tir.PrimFunc:
        new = replace(stmt, body=(tir.If(where, stmt.body, orelse),))
        return effects.exchange_path(func, path, (new,))

    copy = tir.Block("overcompute", stmt.body)
    proofs = without_effect(branched((copy,)), (*path, (0, True), (0, False)), copy)
    return Rewrite(branched(()), proofs)


def _inside(func: tir.PrimFunc, place: str) -> list[effects.Path]:
    path = addresses.path_of(func, place)
    return effects.paths_below(effects.statement_at(func, path), path)


def _is_about(stmt: tir.Stmt, loop: str | None) -> bool:
    if not isinstance(stmt, tir.If) or not tir.is_predicate(stmt.condition):
        return False
    return loop is None or arith.Var(loop) in arith.predicate_variables(_predicate(stmt))


def _predicate(stmt: tir.If) -> arith.Predicate:
    return cast(arith.Predicate, stmt.condition)


def _freed(
    func: tir.PrimFunc, path: effects.Path, wrap: bool, fill: bool, proofs: list[arith.Proof]
) -> tir.PrimFunc:
    """The kernel with one condition replaced by its branch, if that has no effect besides.

    Its conjuncts go one by one, the last one first, because each may have another reason.
    """
    stmt = cast(tir.If, effects.statement_at(func, path))
    members = arith.conjuncts(_predicate(stmt))
    for count in reversed(range(len(members))):
        stmt = _without_last(func, path, members[:count], members[count], wrap, fill, proofs)
        body = stmt.then if count == 0 else (stmt,)
        func = effects.exchange_path(func, path, body)
    return func


def _without_last(
    func: tir.PrimFunc,
    path: effects.Path,
    others: tuple[arith.Predicate, ...],
    member: arith.Predicate,
    wrap: bool,
    fill: bool,
    proofs: list[arith.Proof],
) -> tir.If:
    """The condition at a path without the last conjunct, if that has no effect besides."""
    stmt = cast(tir.If, effects.statement_at(func, path))
    left = arith.conjunction(others)
    domain = effects.domain_at(func, path).given(left)
    outside = domain.given(arith.negation(member))
    if wrap:
        inside = tir.accesses(stmt.then, domain.given(member))
        body, same = _wrapped(tir.accesses(stmt.then, outside), inside, stmt.then)
        proofs += same
        stmt = replace(stmt, then=body)
    if fill:
        body = _filled(tir.accesses(stmt.then, outside), member, stmt.then)
        stmt = replace(stmt, then=body)
    for access in tir.accesses(stmt.then, outside):
        proofs.append(stays_in_bounds(access))
        proofs.append(padding.require_away_from_forbidden(func, access))
    copy = tir.Block("overcompute", stmt.then)
    orelse = (tir.If(left, (copy,)),) if others else (copy,)
    below: effects.Path = (*path[:-1], (path[-1][0], True), (0, False))
    below = (*below, (0, False)) if others else below
    proofs += without_effect(
        effects.exchange_path(func, path, (replace(stmt, orelse=orelse),)), below, copy
    )
    free = tir.map_body(
        stmt.then, lambda s: _guarded(s, member) if isinstance(s, tir.Assume) else s
    )
    return tir.If(left, free)


def _guarded(stmt: tir.Assume, condition: arith.Predicate) -> tir.Assume:
    """An assumption that stood under a condition, and stays under it."""
    if condition == arith.TRUE:
        return stmt
    if not tir.is_predicate(stmt.unless):
        raise ScheduleError(f"an assumption under {condition} has a condition on data")
    unless = arith.disjunction((cast(arith.Predicate, stmt.unless), arith.negation(condition)))
    return replace(stmt, unless=unless)


def without_effect(
    func: tir.PrimFunc, path: effects.Path, copy: tir.Block
) -> tuple[arith.Proof, ...]:
    """Proofs that the block `copy`, which stands at `path`, has no effect.

    `Unproven`, with the witness, names the last statement of it that is not proven a no-op.
    """
    proofs: list[arith.Proof] = []
    where = effects.domain_at(func, path)
    query = NeutralQuery(func, path[0][0])
    open_ones: dict[int, str] = {}
    for site in tir.sites(copy.body, where):
        if isinstance(site.stmt, tir.Reduce):
            answer = query.proof(site.stmt, site.domain)
            if isinstance(answer, arith.Proof):
                proofs.append(answer)
            else:
                open_ones[id(site.stmt)] = answer

    def kept(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        return () if isinstance(stmt, tir.Reduce) and id(stmt) not in open_ones else stmt

    rest = tir.map_body(copy.body, kept)
    if not any(True for _ in tir.writes_in(rest)):
        return tuple(proofs)
    failed = effects_left(
        effects.exchange_path(func, path, (replace(copy, body=rest),)), path, proofs
    )
    if failed is None:
        return tuple(proofs)
    last, proof = failed
    seen = f"what overcompute writes to {tir.element_text(last.buffer, last.indices)} is never read"
    seen += " does not hold" if proof.verdict is arith.Verdict.REFUTED else " is not proven"
    if isinstance(last, tir.Reduce) and id(last) in open_ones:
        seen += f"; and as a reduction, {open_ones[id(last)]}"
    raise obligations.Unproven(seen, proof)


def stays_in_bounds(access: tir.Access) -> arith.Proof:
    """A proof that an access stays in its buffer; else ScheduleError."""
    text = f"the overcomputed access {_text(access)} stays in bounds"
    return obligations.require(arith.prove(padding.in_bounds(access), access.domain), text)


def _wrapped(
    extra: tuple[tir.Access, ...], inside: tuple[tir.Access, ...], body: tir.Body
) -> tuple[tir.Body, list[arith.Proof]]:
    """A body with the indices of loads reduced modulo their extents, where they leave a buffer.

    `extra` are the accesses where the body runs besides, and `inside` the same ones where it runs
    already; there, proofs say, the reduced indices are the same.
    """
    reduced: dict[tir.Load, dict[int, int]] = {}
    proofs: list[arith.Proof] = []
    for access, before in zip(extra, inside, strict=True):
        if access.kind is not tir.AccessKind.READ:
            continue
        for axis, (index, extent) in enumerate(
            zip(access.indices, access.buffer.shape, strict=True)
        ):
            stays = arith.within(index, 0, extent)
            if not arith.prove(stays, access.domain).proven:
                claim = f"{_text(access)} stays in bounds where the condition holds"
                proofs.append(obligations.require(arith.prove(stays, before.domain), claim))
                reduced.setdefault(tir.Load(access.buffer, access.indices), {})[axis] = extent

    def change(expr: tir.Expr) -> tir.Expr:
        if not isinstance(expr, tir.Load) or expr not in reduced:
            return expr
        extents = reduced[expr]
        indices = (
            arith.floor_mod(index, extents[axis]) if axis in extents else index
            for axis, index in enumerate(expr.indices)
        )
        return replace(expr, indices=tuple(indices))

    return tir.map_expressions(body, change), proofs


def _filled(extra: tuple[tir.Access, ...], member: arith.Predicate, body: tir.Body) -> tir.Body:
    """A body with loads that are zero where a condition fails and they may leave their buffer.

    `extra` are the accesses where the body runs besides.
    """
    outside = {
        tir.Load(access.buffer, access.indices)
        for access in extra
        if access.kind is tir.AccessKind.READ
        and not arith.prove(padding.in_bounds(access), access.domain).proven
    }

    def change(expr: tir.Expr) -> tir.Expr:
        if not isinstance(expr, tir.Load) or expr not in outside:
            return expr
        zero = tir.Literal(False if expr.dtype == "bool" else 0, expr.dtype)
        return tir.Select(member, expr, zero)

    return tir.map_expressions(body, change) if outside else body


def _text(access: tir.Access) -> str:
    return f"{access.buffer.name}[{', '.join(map(str, access.indices))}]"
