"""Primitives that put conditions around statements, and move conditions and loops outwards.

In: a kernel and the place of a statement, a name or an address.  Out: the kernel with the same
statements under the same conditions in another nest.  What always holds: a condition that is
evaluated earlier or more often than before has the same value there, and reads elements that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.facts import claims, dependence
from graphflow.schedule.loops.loops import reorder_loops
from graphflow.schedule.places import addresses, obligations, place_names
from graphflow.schedule.places.places import exchange_at, find, stmt_at
from graphflow.schedule.places.step_arguments import condition_of
from graphflow.schedule.statements.expressions import unchanged
from graphflow.schedule.statements.lets import lift_let
from graphflow.schedule.steps.frame import Rewrite


def specialize(
    func: tir.PrimFunc, place: str, conditions: Sequence[tir.Condition | str]
) -> Rewrite:
    """`S` → `if c0: S`, `else: if c1: S`, …, `else: S`.

    A condition may be given as its text, one on data as `data(x[i] < f32(0.0))`.

    1. Each condition is valid there: it uses the variables of loops around, its type is bool, and
       the elements that it reads exist.
    2. S is no allocation, for that would end with the branch.

    The places of the first branch keep their names, those of branch k end in `_k`.
    """
    stmt, domain = find(func, place)
    if isinstance(stmt, tir.Allocate):
        raise ScheduleError(f"{place} is an allocation, which would end with the branch")
    if not conditions:
        raise ScheduleError(f"{place}: no condition is given to specialize for")
    proofs: list[arith.Proof] = []
    read = [condition_of(func, condition) for condition in conditions]
    for condition in read:
        proofs += _valid(func, condition, domain)
    taken = set(place_names.names_of_places(func))
    places: dict[str, tuple[str, ...]] = {
        name: (name,) for name in place_names.declared_names((stmt,))
    }
    copies: list[tir.Body] = [(stmt,)]
    for k in range(1, len(read) + 1):
        copy, names = place_names.fresh_copy((stmt,), f"_{k}", taken)
        taken |= set(names.values())
        places = {old: (*now, names[old]) for old, now in places.items()}
        copies.append(copy)
    body = copies[-1]
    for condition, branch in zip(reversed(read), reversed(copies[:-1]), strict=True):
        body = (tir.If(condition, branch, body),)
    new = exchange_at(func, place, body)
    every = obligations.structural(f"each branch is {place}")
    return Rewrite(new, (*proofs, every), places)


def _valid(func: tir.PrimFunc, condition: tir.Condition, domain: arith.Domain) -> list[arith.Proof]:
    """Proofs that a condition can be evaluated at each point of a domain; else ScheduleError."""
    text = tir.condition_text(condition)
    known = {axis.var for axis in domain.axes}
    used = set(_variables(condition))
    if not used <= known:
        strange = min(var.name for var in used - known)
        raise ScheduleError(f"{text} uses {strange}, and no loop around the place binds it")
    if tir.is_predicate(condition):
        return [obligations.structural(f"{text} uses the loops around it")]
    if cast(tir.Expr, condition).dtype != "bool":
        raise ScheduleError(f"{text} is {cast(tir.Expr, condition).dtype}, and a condition is bool")
    proofs: list[arith.Proof] = []
    forbidden = {
        node.buffer
        for stmt in tir.walk(func.body)
        if isinstance(stmt, tir.Assume) and claims.forbids_access(stmt.claim)
        for node in tir.walk_expr(stmt.claim)
        if isinstance(node, tir.Load)
    }
    for node in tir.walk_expr(cast(tir.Expr, condition)):
        if not isinstance(node, tir.Load):
            continue
        if node.buffer in forbidden:
            raise ScheduleError(f"{text} reads {node.buffer.name}, parts of which nothing may read")
        sides = zip(node.indices, node.buffer.shape, strict=True)
        exists = arith.conjunction(
            p for e, n in sides for p in (arith.at_least_zero(e), arith.less_than(e, n))
        )
        proofs.append(obligations.require(arith.prove(exists, domain), f"what {text} reads exists"))
    return proofs


def _variables(condition: tir.Condition) -> frozenset[arith.Var]:
    if tir.is_predicate(condition):
        return arith.predicate_variables(cast(arith.Predicate, condition))
    found: frozenset[arith.Var] = frozenset()
    for node in tir.walk_expr(cast(tir.Expr, condition)):
        match node:
            case tir.Load():
                found = found.union(*map(arith.variables, node.indices))
            case tir.IndexValue():
                found |= arith.variables(node.index)
            case _ if (inner := getattr(node, "condition", None)) is not None:
                if tir.is_predicate(inner):
                    found |= arith.predicate_variables(inner)
            case _:
                pass
    return found


def lift_scope(func: tir.PrimFunc, place: str) -> Rewrite:
    """The loop, condition or let at `place` changes places with what is around it.

    - `for i: for j: S` → `for j: for i: S`, as `reorder_loops` does.
    - `for i: if e: S else: T` → `if e: for i: S else: for i': T`.
    - `if e: for i: S` → `for i: if e: S`; the condition has no else branch.
    - `if e: {if d: S else: T} else: U` → `if d: {if e: S else: U} else: {if e: T else: U'}`, and
      the same for a condition in the else branch.
    - `P: A; with let(e) as t: S; B` → `with let(e) as t: P: A; S; B`, where P is a loop, condition,
      block or let; the conditions are those of `lift_let`.
    - `with let(e) as t: for i: S` → `for i: with let(e) as t: S`; no iteration writes what e loads.
    - `with let(e) as t: if c: S else: T` → `if c: with let(e) as t: S else: with let(e) as t': T`;
      c does not use t.

    1. The place is the only statement in the body around it, or a let.
    2. A condition that a loop is exchanged with does not depend on the loop's variable, and no
       iteration writes what the condition reads.
    3. A condition that is evaluated where it was not before reads elements that exist.

    Copies of places end in `_else`.
    """
    path = addresses.path_of(func, place)
    if len(path) == 1:
        raise ScheduleError(f"nothing is around {place}")
    above = path[:-1]
    parent, stmt = (
        effects.statement_at(func, (*above[:-1], (above[-1][0], False))),
        stmt_at(func, place),
    )
    outer = addresses.statement_address(func, (*above[:-1], (above[-1][0], False)))
    if isinstance(stmt, tir.Let):
        return lift_let(func, place)
    if len(_body(parent, above[-1][1])) != 1:
        raise ScheduleError(f"{place} is not the only statement in the body of {outer}")
    _, domain = find(func, outer)
    match parent, stmt:
        case tir.Let(), tir.For():
            return _loop_out_of_let(func, outer, parent, stmt, domain)
        case tir.Let(), tir.If():
            return _condition_out_of_let(func, outer, parent, stmt)
        case tir.For(), tir.For():
            return reorder_loops(func, (stmt.var.name, parent.var.name))
        case tir.For(), tir.If():
            return _condition_out_of_loop(func, outer, parent, stmt, domain)
        case tir.If(), tir.For():
            return _loop_out_of_condition(func, outer, parent, stmt, domain)
        case tir.If(), tir.If():
            return _condition_out_of_condition(func, outer, parent, stmt, domain, above[-1][1])
        case _:
            raise ScheduleError(f"{outer} and {place} are not both loops, conditions or lets")


def _body(stmt: tir.Stmt, otherwise: bool) -> tir.Body:
    match stmt:
        case tir.If():
            return stmt.orelse if otherwise else stmt.then
        case _:
            return getattr(stmt, "body", ())


def _unchanged(
    condition: tir.Condition, loop: tir.For, domain: arith.Domain
) -> tuple[arith.Proof, ...]:
    """Proofs that a loop does not change the value of a condition; else ScheduleError."""
    text = tir.condition_text(condition)
    if loop.var in _variables(condition):
        raise ScheduleError(f"{text} depends on {loop.var}")
    if tir.is_predicate(condition):
        return (obligations.structural(f"{text} does not depend on {loop.var}"),)
    asks = (tir.If(condition, ()),)
    because = f"no iteration of {loop.var} writes what {text} reads"
    return dependence.ordered_commute(asks, (loop,), domain, (), arith.TRUE, because)


def _condition_out_of_loop(
    func: tir.PrimFunc, outer: str, loop: tir.For, stmt: tir.If, domain: arith.Domain
) -> Rewrite:
    proofs = _unchanged(stmt.condition, loop, domain)
    if not tir.is_predicate(stmt.condition):
        proofs += tuple(_valid(func, stmt.condition, domain))
    orelse: tir.Body = ()
    places: dict[str, tuple[str, ...]] = {}
    if stmt.orelse:
        other = replace(loop, body=stmt.orelse)
        names = place_names.declared_names(stmt.orelse)
        (copy,), fresh = place_names.fresh_copy(
            (replace(other, body=()),), "_else", place_names.names_of_places(func)
        )
        assert isinstance(copy, tir.For) and len(fresh) == 1
        moved = tir.substitute_body(stmt.orelse, {loop.var: copy.var})
        orelse = (replace(copy, body=moved),)
        places = {loop.var.name: (loop.var.name, copy.var.name), **{n: (n,) for n in names}}
    lifted = tir.If(stmt.condition, (replace(loop, body=stmt.then),), orelse)
    new = exchange_at(func, outer, (lifted,))
    return Rewrite(new, proofs, places)


def _loop_out_of_condition(
    func: tir.PrimFunc, outer: str, stmt: tir.If, loop: tir.For, domain: arith.Domain
) -> Rewrite:
    if stmt.orelse:
        raise ScheduleError(f"{outer} has an else branch")
    proofs = _unchanged(stmt.condition, loop, domain)
    lifted = replace(loop, body=(tir.If(stmt.condition, loop.body),))
    return Rewrite(exchange_at(func, outer, (lifted,)), proofs)


def _condition_out_of_condition(
    func: tir.PrimFunc,
    place: str,
    outer: tir.If,
    inner: tir.If,
    domain: arith.Domain,
    otherwise: bool,
) -> Rewrite:
    proofs = _valid(func, inner.condition, domain)
    beside = outer.then if otherwise else outer.orelse
    again, names = place_names.fresh_copy(beside, "_else", place_names.names_of_places(func))
    places = {old: (old, new) for old, new in names.items()}

    def branch(own: tir.Body, other: tir.Body) -> tir.Body:
        then, orelse = (other, own) if otherwise else (own, other)
        return conditional(outer.condition, then, orelse)

    lifted = tir.If(inner.condition, branch(inner.then, beside), branch(inner.orelse, again))
    new = exchange_at(func, place, (lifted,))
    return Rewrite(
        new, (*proofs, obligations.structural("the same branch runs for each pair")), places
    )


def _loop_out_of_let(
    func: tir.PrimFunc, outer: str, let: tir.Let, loop: tir.For, domain: arith.Domain
) -> Rewrite:
    text = tir.expr_text(let.value)
    proofs = unchanged(
        let.value, (loop,), domain, f"no iteration of {loop.var} writes what {text} reads"
    )
    lifted = replace(loop, body=(replace(let, body=loop.body),))
    return Rewrite(exchange_at(func, outer, (lifted,)), proofs)


def _condition_out_of_let(func: tir.PrimFunc, outer: str, let: tir.Let, stmt: tir.If) -> Rewrite:
    if any(
        node == tir.Load(let.buffer, ())
        for e in tir.expressions_of(stmt)
        for node in tir.walk_expr(e)
    ):
        raise ScheduleError(f"{tir.condition_text(stmt.condition)} uses {outer}")
    orelse: tir.Body = ()
    places: dict[str, tuple[str, ...]] = {}
    if stmt.orelse:
        again = place_names.fresh_name(
            f"{outer}_else", lambda name: place_names.has_place(func, name)
        )
        orelse = place_names.rename_places((replace(let, body=stmt.orelse),), {outer: again})
        places = {outer: (outer, again)}
    lifted = tir.If(stmt.condition, (replace(let, body=stmt.then),), orelse)
    proof = obligations.structural(f"{outer} is evaluated in the branch that uses it")
    return Rewrite(exchange_at(func, outer, (lifted,)), (proof,), places)


def conditional(condition: tir.Condition, then: tir.Body, orelse: tir.Body) -> tir.Body:
    """`if c: then else: orelse`, without branches that are empty."""
    if then:
        return (tir.If(condition, then, orelse),)
    if not orelse:
        return ()
    if tir.is_predicate(condition):
        return (tir.If(arith.negation(cast(arith.Predicate, condition)), orelse),)
    return (tir.If(tir.Unary("not", cast(tir.Expr, condition)), orelse),)
