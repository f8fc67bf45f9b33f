"""Primitives that make one of several branches, and that use what elements are known to hold.

In: a kernel, and the place to look in.  Out: a kernel that writes the same values, with fewer
conditions or loads, and one proof for each that went.  What always holds: conditions on data are
merged only where nothing writes what they read in between.
"""

from __future__ import annotations

from typing import cast

from graphflow import arith, effects, tir
from graphflow.base.fields import replace
from graphflow.schedule.places import addresses, obligations
from graphflow.schedule.steps.frame import Rewrite


def merge_conditions(func: tir.PrimFunc, place: str | None = None) -> Rewrite:
    """`if c: F else: G` and `if d: H else: K` → `if c: {F; H} else: {G; K}`; equal branches → one.

    In the loop or block `place`, or in the whole kernel, as often as one of these is proven:

    - *equal branches*: F and G do the same where c fails, or where it holds; then `if c` goes;
    - *equal conditions*: c and d follow directly on each other and imply one another, however they
      are written; for conditions on data, both compute the same, from elements that F and G do not
      write;
    - *complementary conditions*: c holds exactly where d fails; then K goes with F, and H with G.

    The form of the first condition is kept.
    """
    proofs: list[arith.Proof] = []
    now = func
    while (step := _merged_once(now, place)) is not None:
        now, proof = step
        proofs.append(proof)
    return Rewrite(now, tuple(proofs))


def replace_known_loads(func: tir.PrimFunc, place: str | None = None) -> Rewrite:
    """`S[x[i]]` → `S[c]`, for each load of an element that is known to hold the constant c.

    In the loop or block `place`, or in the whole kernel.  The constant is one that was stored there
    before, or that an assumption states, in every instance of S and with no write in between that
    may touch the element.  Zeros that are assumed of floats stay loads, for they have two signs.
    """
    proofs: list[arith.Proof] = []
    now = func
    for path in _paths(func, place):
        stmt = effects.statement_at(now, path)
        if isinstance(stmt, tir.For | tir.Block | tir.Assume):
            continue
        known: dict[tir.Load, tir.Literal] = {}
        loads = (node for expr in tir.expressions_of(stmt) for node in tir.walk_expr(expr))
        for load in dict.fromkeys(node for node in loads if isinstance(node, tir.Load)):
            literal, proof = effects.held_constant(now, path, load)
            if literal is not None:
                known[load] = literal
                proofs.append(proof)
        if known:
            now = effects.exchange_path(now, path, (_with_constants(stmt, known),))
    return Rewrite(now, tuple(proofs))


def _with_constants(stmt: tir.Stmt, known: dict[tir.Load, tir.Literal]) -> tir.Stmt:
    """A statement with loads replaced in its own expressions, not in the bodies below it."""
    head = replace(stmt, then=(), orelse=()) if isinstance(stmt, tir.If) else stmt

    def change(expr: tir.Expr) -> tir.Expr:
        return known.get(expr, expr) if isinstance(expr, tir.Load) else expr

    (new,) = tir.map_expressions((head,), change)
    if isinstance(stmt, tir.If) and isinstance(new, tir.If):
        return replace(new, then=stmt.then, orelse=stmt.orelse)
    return new


def _paths(func: tir.PrimFunc, place: str | None) -> list[effects.Path]:
    """The paths of all statements in a place, or in the kernel, in program order."""
    roots: list[effects.Path] = [((position, False),) for position in range(len(func.body))]
    if place is not None:
        roots = [addresses.path_of(func, place)]
    return [
        path
        for root in roots
        for path in effects.paths_below(effects.statement_at(func, root), root)
    ]


def _merged_once(func: tir.PrimFunc, place: str | None) -> tuple[tir.PrimFunc, arith.Proof] | None:
    """The kernel after the first step that is proven, with the proof; None where there is none."""
    paths = _paths(func, place)
    there = set(paths)
    for path in paths:
        stmt = effects.statement_at(func, path)
        if not isinstance(stmt, tir.If):
            continue
        domain = effects.domain_at(func, path)
        one = _one_branch(stmt, domain)
        if one is not None:
            return effects.exchange_path(func, path, one[0]), one[1]
        after: effects.Path = (*path[:-1], (path[-1][0] + 1, False))
        second = effects.statement_at(func, after) if after in there else None
        if not isinstance(second, tir.If):
            continue
        merged = _pair(func, path, after, stmt, second, domain)
        if merged is not None:
            return effects.exchange_path(func, path, (merged[0],), 2), merged[1]
    return None


def _one_branch(stmt: tir.If, domain: arith.Domain) -> tuple[tir.Body, arith.Proof] | None:
    """The branch that can stand for both, with the proof."""
    if not stmt.orelse:
        return None
    held, failed = domain, domain
    if tir.is_predicate(stmt.condition):
        condition = cast(arith.Predicate, stmt.condition)
        held, failed = domain.given(condition), domain.given(arith.negation(condition))
    for kept, other, where in ((stmt.then, stmt.orelse, failed), (stmt.orelse, stmt.then, held)):
        if same_where(kept, other, where):
            return kept, obligations.structural(
                "both branches do the same where the condition chooses"
            )
    return None


def _pair(
    func: tir.PrimFunc,
    path: effects.Path,
    after: effects.Path,
    first: tir.If,
    second: tir.If,
    domain: arith.Domain,
) -> tuple[tir.If, arith.Proof] | None:
    """Two neighbouring conditions as one, with the proof."""
    if tir.is_predicate(first.condition) is not tir.is_predicate(second.condition):
        return None
    equal_ones = tir.If(
        first.condition, (*first.then, *second.then), (*first.orelse, *second.orelse)
    )
    if not tir.is_predicate(first.condition):
        conditions = cast(tir.Expr, first.condition), cast(tir.Expr, second.condition)
        proof = effects.equal_values(func, path, *conditions, after)
        return (equal_ones, proof) if proof.proven else None
    c, d = cast(arith.Predicate, first.condition), cast(arith.Predicate, second.condition)
    proof = arith.prove(arith.equivalent(c, d), domain)
    if proof.proven:
        return equal_ones, replace(proof, claim=f"{c} and {d} imply one another: {proof.claim}")
    proof = arith.prove(arith.equivalent(c, arith.negation(d)), domain)
    if not proof.proven:
        return None
    crossed = tir.If(c, (*first.then, *second.orelse), (*first.orelse, *second.then))
    return crossed, replace(proof, claim=f"{c} and {d} are complementary: {proof.claim}")


# Bodies that do the same --------------------------------------------------------------------------


def same_where(one: tir.Body, other: tir.Body, domain: arith.Domain) -> bool:
    """Whether two bodies do the same at all points of `domain`, statement by statement.

    Each statement of one must be like that of the other, with values, indices and conditions that
    are proven equal in any state of the memory.
    """
    return len(one) == len(other) and all(
        _same_stmt(a, b, domain) for a, b in zip(one, other, strict=True)
    )


def _same_stmt(one: tir.Stmt, other: tir.Stmt, domain: arith.Domain) -> bool:
    match one, other:
        case tir.Store(), tir.Store():
            return _same_write(one, other, domain)
        case tir.Reduce(), tir.Reduce():
            return one.op is other.op and _same_write(one, other, domain)
        case tir.For(), tir.For():
            if one.kind is not other.kind:
                return False
            bounds = (one.start, one.stop), (other.start, other.stop)
            inside = domain.inside(one.var, one.start, one.stop)
            body = tir.substitute_body(other.body, {other.var: one.var})
            return effects.equal_indices(*bounds, domain) and same_where(one.body, body, inside)
        case tir.If(), tir.If():
            if not effects.equal_in_any_state(one.condition, other.condition, domain).proven:
                return False
            then, orelse = domain, domain
            if tir.is_predicate(one.condition):
                condition = cast(arith.Predicate, one.condition)
                then, orelse = domain.given(condition), domain.given(arith.negation(condition))
            return same_where(one.then, other.then, then) and same_where(
                one.orelse, other.orelse, orelse
            )
        case _:
            return False


def _same_write(
    one: tir.Store | tir.Reduce, other: tir.Store | tir.Reduce, domain: arith.Domain
) -> bool:
    return (
        one.buffer == other.buffer
        and effects.equal_indices(one.indices, other.indices, domain)
        and effects.equal_in_any_state(one.value, other.value, domain).proven
    )
