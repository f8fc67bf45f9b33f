"""Proofs about sets of integer points, decided by isl.

In: a `Domain`, and a predicate or a tuple of index expressions over it.  Out: a `Proof`.  A claim
is first tried by interval arithmetic, then against the domain's own conditions and bounds, by the
equations among them, and at a few sample points that may refute it; what is still open goes to isl
with a limit on its operations, and is UNKNOWN, with that reason, if the limit is reached.  What
always holds: equal questions are answered once (proofs are memoized by structure), and no
expression is ever read back from isl: it decides, and generates no code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, assert_never

import islpy as isl

from graphflow.arith import predicates
from graphflow.arith.bounds import simplify_predicate
from graphflow.arith.domain import ANYWHERE, Domain, joined_domains
from graphflow.arith.equations import contradict
from graphflow.arith.index_expr import IndexExpr, Var, evaluate, substitute, variables
from graphflow.arith.isl_text import isl_constraints, isl_name, isl_parameters
from graphflow.arith.proof import Proof, Verdict, Witness

OPERATION_BUDGET = 200_000
"""Most isl operations for one question, some tens of milliseconds; beyond them it is UNKNOWN."""

_threads = threading.local()


@lru_cache(maxsize=100_000)
def prove(claim: predicates.Predicate, domain: Domain = ANYWHERE) -> Proof:
    """Whether `claim` holds at every point of `domain`."""
    text = f"{claim} for {domain}" if domain.axes or domain.where != predicates.TRUE else str(claim)
    ranges = domain.ranges()
    simplified = simplify_predicate(claim, ranges)
    if simplified == predicates.TRUE:
        return Proof(Verdict.PROVEN, text, "intervals")
    where = simplify_predicate(domain.where, ranges)
    if where == predicates.FALSE:
        return Proof(Verdict.PROVEN, text, "intervals", "no such point")
    missing = set(predicates.conjuncts(simplified)) - set(predicates.conjuncts(where))
    if missing.issubset(simplify_predicate(bound, ranges) for bound in domain.bounds()):
        return Proof(Verdict.PROVEN, text, "premises")
    left = Domain(domain.axes, where)
    if contradict(predicates.conjunction((where, predicates.negation(simplified))), ranges):
        return Proof(Verdict.PROVEN, text, "equations")
    point = point_in(left.given(predicates.negation(simplified)))
    if point is not None:
        return Proof(Verdict.REFUTED, text, "a point", *_failing(point))
    failing = left.given(predicates.negation(simplified))

    def counterexamples(context: Any) -> Any:
        return read_domain(context, failing)

    return proof_of_emptiness(
        text, counterexamples, lambda points: _failing(_point_of(points, failing))
    )


def point_in(domain: Domain) -> dict[Var, int] | None:
    """A point of `domain`, or None if a cheap search over a few points finds none.

    The search starts at the middle of the box; then one axis after the other is moved to its start
    or its end, if that violates the domain's conditions less.  None proves nothing.
    """
    named = predicates.predicate_variables(domain.where)
    parts = {axis.var: 1 for axis in domain.axes if axis.var in named}
    closest: int | None = None
    moves: list[dict[Var, int]] = [{}, *({var: part} for var in parts for part in (0, 2))]
    for move in moves:
        point = _point(domain, parts | move)
        if point is None or not named <= point.keys():  # empty, or about a parameter
            continue
        missing = _missing(domain.where, point)
        if missing == 0:
            return point
        if closest is None or missing < closest:
            parts, closest = parts | move, missing
    return None


def _missing(predicate: predicates.Predicate, point: Mapping[Var, int]) -> int:
    """By how much a predicate is violated at a point; 0 where it holds."""
    match predicate:
        case predicates.Truth():
            return int(not predicate.value)
        case predicates.AtLeastZero():
            return max(0, -evaluate(predicate.expr, point))
        case predicates.IsZero():
            return abs(evaluate(predicate.expr, point))
        case predicates.Not():
            return int(evaluate(predicate.member.expr, point) == 0)
        case predicates.And():
            return sum(_missing(member, point) for member in predicate.members)
        case predicates.Or():
            return min(_missing(member, point) for member in predicate.members)
    assert_never(predicate)


def _point(domain: Domain, parts: Mapping[Var, int]) -> dict[Var, int] | None:
    """The point so many halves of its length along each axis; None where one is empty there."""
    point: dict[Var, int] = {}
    for axis in domain.axes:
        try:
            first, last = evaluate(axis.start, point), evaluate(axis.stop, point) - 1
        except KeyError:  # a bound that is a parameter
            return None
        if last < first:
            return None
        point[axis.var] = first + (last - first) * parts.get(axis.var, 0) // 2
    return point


def holds_throughout(predicate: predicates.Predicate, domain: Domain) -> bool | None:
    """Whether a predicate holds, or fails, at all points; None where neither is proven."""
    if isinstance(predicate, predicates.Truth):
        return predicate.value
    if prove(predicate, domain).proven:
        return True
    return False if prove(predicates.negation(predicate), domain).proven else None


def proof_of_emptiness(
    text: str,
    counterexamples: Callable[[Any], Any],
    shown: Callable[[Any], tuple[str, Witness]],
) -> Proof:
    """PROVEN if the set of counterexamples, built in an isl context, is empty; else REFUTED.

    `shown` turns a non-empty set into one counterexample, as a reason and as a witness.  UNKNOWN if
    the operation budget is used up.
    """
    try:
        with IslBudget() as context:
            found = counterexamples(context)
            if found.is_empty():
                return Proof(Verdict.PROVEN, text, "integer sets")
            reason, witness = shown(found)
    except isl.Error as error:
        if not out_of_budget(error):
            raise
        reason = f"not decided within {OPERATION_BUDGET} operations"
        return Proof(Verdict.UNKNOWN, text, "integer sets", reason)
    return Proof(Verdict.REFUTED, text, "integer sets", reason, witness)


def prove_empty(domain: Domain, claim: str = "") -> Proof:
    """Whether `domain` has no point; `claim` is the text that the proof gets."""
    proof = prove(predicates.FALSE, domain)
    return proof.of(claim) if claim else proof


def prove_injective(indices: Sequence[IndexExpr], domain: Domain) -> Proof:
    """Whether two different points of `domain` always give different `indices`."""
    other, fresh = domain.renamed("'")
    same = [predicates.equal(index, substitute(index, fresh)) for index in indices]
    differ = predicates.disjunction(
        predicates.negation(predicates.equal(a.var, fresh[a.var])) for a in domain.axes
    )
    both = joined_domains(domain, other).given(predicates.conjunction((*same, differ)))
    return prove_empty(both, f"({', '.join(map(str, indices))}) is injective for {domain}")


class IslBudget:
    """The isl context of this thread, with its operation counter reset and limited.

    isl raises `isl.Error` at the limit; `out_of_budget` tells that error from others.  Budgets do
    not nest: an inner one would reset the counter of the outer one and lift its limit.
    """

    def __enter__(self) -> Any:
        context = getattr(_threads, "context", None)
        if context is None:
            context = _threads.context = isl.Context()
        context.reset_operations()
        context.set_max_operations(OPERATION_BUDGET)
        return context

    def __exit__(self, *_: object) -> None:
        _threads.context.set_max_operations(0)
        _threads.context.reset_operations()


def integer_of(value: Any) -> int:
    """An integer `isl.Val` as a Python integer; isl.Error where it has more than 64 bits.

    Its text is not read, as `to_python` does: isl gives none once its operation limit is reached.
    """
    return int(value.get_num_si())


def out_of_budget(error: Exception) -> bool:
    """Whether isl stopped at its operation limit.

    If it stops while it parses a set, its message is "syntax error".
    """
    return any(text in str(error) for text in ("maximal number of operations", "syntax error"))


def read_domain(context: Any, domain: Domain) -> Any:
    inputs = ", ".join(isl_name(axis.var) for axis in domain.axes)
    text = f"{isl_parameters(free_variables(domain))}{{ [{inputs}] : {isl_constraints(domain)} }}"
    return isl.Set.read_from_str(context, text)


def free_variables(domain: Domain) -> list[Var]:
    """The variables of a domain that are none of its axes, such as scalars of a kernel."""
    used = set(predicates.predicate_variables(domain.where))
    for axis in domain.axes:
        used |= variables(axis.start) | variables(axis.stop)
    return sorted(used.difference(axis.var for axis in domain.axes), key=str)


def _point_of(points: Any, domain: Domain) -> dict[Var, int]:
    """One of the points of a set that isl has found not to be empty."""
    point = points.sample_point()
    space = isl.dim_type.set
    values = [integer_of(point.get_coordinate_val(space, i)) for i in range(len(domain.axes))]
    found = dict(zip((axis.var for axis in domain.axes), values, strict=True))
    free = {isl_name(var): var for var in free_variables(domain)}
    for i in range(point.get_space().dim(isl.dim_type.param)):
        var = free[point.get_space().get_dim_name(isl.dim_type.param, i)]
        found[var] = integer_of(point.get_coordinate_val(isl.dim_type.param, i))
    return found


def _failing(point: Mapping[Var, int]) -> tuple[str, Witness]:
    """The reason and the witness of a claim that fails at a point."""
    witness = tuple((var.name, value) for var, value in point.items())
    text = ", ".join(f"{name}={value}" for name, value in witness) or "()"
    return f"fails at {text}", witness
