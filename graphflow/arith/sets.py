"""Proofs about sets of integer points, decided by isl.

In: a `Domain` (loop variables with bounds, and conditions on them) and a predicate, or a tuple of
index expressions, over it.  Out: a `Proof`, or an `Image`.  A claim is first tried by interval
arithmetic, then against the domain's own conditions and bounds, by the equations among them, and at
a few sample points that may refute it; what is still open goes to isl with a limit on its
operations, and is UNKNOWN, with that reason, if the limit is reached.  What always holds: equal
questions are answered once (proofs are memoized by structure), and no expression is ever read back
from isl: it decides, and generates no code.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, assert_never

import islpy as isl

from graphflow.arith.bounds import Interval, bounds, simplify_predicate
from graphflow.arith.equations import contradict
from graphflow.arith.index_expr import (
    Const,
    Extremum,
    FloorDiv,
    FloorMod,
    IndexExpr,
    IndexLike,
    Sum,
    Var,
    as_index,
    evaluate,
    substitute,
    variables,
)
from graphflow.arith.predicate import (
    FALSE,
    TRUE,
    And,
    AtLeastZero,
    IsZero,
    Not,
    Or,
    Predicate,
    Truth,
    at_most,
    conjunction,
    conjuncts,
    disjunction,
    equal,
    less_than,
    negation,
    predicate_variables,
    substitute_in,
    within,
)
from graphflow.arith.proof import Proof, Verdict, Witness

OPERATION_BUDGET = 200_000
"""Most isl operations for one question, some tens of milliseconds; beyond them it is UNKNOWN."""

_OTHER_CHARACTER = re.compile("[^A-Za-z0-9]")

_threads = threading.local()


@dataclass(frozen=True, slots=True)
class Axis:
    """A variable that takes each integer value with `start <= var < stop`."""

    var: Var
    start: IndexExpr
    stop: IndexExpr


@dataclass(frozen=True, slots=True)
class Domain:
    """Integer points: axes from the outermost in, bounds may use outer axes; `where` must hold."""

    axes: tuple[Axis, ...] = ()
    where: Predicate = TRUE

    def ranges(self) -> dict[Var, Interval]:
        """An interval for each variable, from the bounds of the axes."""
        found: dict[Var, Interval] = {}
        for axis in self.axes:
            low = bounds(axis.start, found)[0]
            high = bounds(axis.stop, found)[1]
            found[axis.var] = (low, None if high is None else high - 1)
        return found

    def bounds(self) -> Iterator[Predicate]:
        """What the bounds of the axes say that are no constants, one comparison each."""
        for axis in self.axes:
            for low in _operands(axis.start, "max"):
                yield at_most(low, axis.var)
            for high in _operands(axis.stop, "min"):
                yield less_than(axis.var, high)

    def given(self, condition: Predicate) -> Domain:
        """The points of this domain for which `condition` holds too."""
        if isinstance(condition, Truth) and condition.value:
            return self
        return Domain(self.axes, conjunction((self.where, condition)))

    def inside(self, var: Var, start: IndexLike, stop: IndexLike) -> Domain:
        """This domain with one more axis, innermost."""
        return Domain((*self.axes, Axis(var, as_index(start), as_index(stop))), self.where)

    def renamed(self, suffix: str) -> tuple[Domain, dict[Var, IndexExpr]]:
        """A copy over fresh variables `name + suffix`, and the map from old to new."""
        fresh: dict[Var, IndexExpr] = {a.var: Var(a.var.name + suffix) for a in self.axes}
        axes = tuple(
            Axis(
                Var(axis.var.name + suffix),
                substitute(axis.start, fresh),
                substitute(axis.stop, fresh),
            )
            for axis in self.axes
        )
        return Domain(axes, substitute_in(self.where, fresh)), fresh

    def __str__(self) -> str:
        axes = ", ".join(f"{a.start} <= {a.var} < {a.stop}" for a in self.axes)
        return axes if self.where == TRUE else f"{axes}, {self.where}"


def _operands(bound: IndexExpr, kind: str) -> tuple[IndexExpr, ...]:
    """What a bound is the maximum or minimum of, or the bound itself; nothing for a constant."""
    if isinstance(bound, Extremum) and bound.kind == kind:
        return tuple(e for operand in bound.operands for e in _operands(operand, kind))
    return () if isinstance(bound, Const) else (bound,)


ANYWHERE = Domain()
"""The domain without axes: one point, nothing known."""


def box(names: Sequence[Var], shape: Sequence[int]) -> Domain:
    """All points of `shape`, one variable an axis."""
    axes = tuple(Axis(v, as_index(0), as_index(n)) for v, n in zip(names, shape, strict=True))
    return Domain(axes)


def joined(left: Domain, right: Domain) -> Domain:
    """The Cartesian product of two domains over different variables."""
    return Domain((*left.axes, *right.axes), conjunction((left.where, right.where)))


@lru_cache(maxsize=100_000)
def prove(claim: Predicate, domain: Domain = ANYWHERE) -> Proof:
    """Whether `claim` holds at every point of `domain`."""
    text = f"{claim} for {domain}" if domain.axes or domain.where != TRUE else str(claim)
    ranges = domain.ranges()
    simplified = simplify_predicate(claim, ranges)
    if simplified == TRUE:
        return Proof(Verdict.PROVEN, text, "intervals")
    where = simplify_predicate(domain.where, ranges)
    if where == FALSE:
        return Proof(Verdict.PROVEN, text, "intervals", "no such point")
    missing = set(conjuncts(simplified)) - set(conjuncts(where))
    if missing.issubset(simplify_predicate(bound, ranges) for bound in domain.bounds()):
        return Proof(Verdict.PROVEN, text, "premises")
    left = Domain(domain.axes, where)
    if contradict(conjunction((where, negation(simplified))), ranges):
        return Proof(Verdict.PROVEN, text, "equations")
    point = point_in(left.given(negation(simplified)))
    if point is not None:
        return Proof(Verdict.REFUTED, text, "a point", *_failing(point))
    return _prove_exactly(simplified, left, text)


def point_in(domain: Domain) -> dict[Var, int] | None:
    """A point of `domain`, or None if a cheap search over a few points finds none.

    The search starts at the middle of the box; then one axis after the other is moved to its start
    or its end, if that violates the domain's conditions less.  None proves nothing.
    """
    named = predicate_variables(domain.where)
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


def _missing(predicate: Predicate, point: Mapping[Var, int]) -> int:
    """By how much a predicate is violated at a point; 0 where it holds."""
    match predicate:
        case Truth():
            return int(not predicate.value)
        case AtLeastZero():
            return max(0, -evaluate(predicate.expr, point))
        case IsZero():
            return abs(evaluate(predicate.expr, point))
        case Not():
            return int(evaluate(predicate.member.expr, point) == 0)
        case And():
            return sum(_missing(member, point) for member in predicate.members)
        case Or():
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


def _prove_exactly(claim: Predicate, domain: Domain, text: str) -> Proof:
    failing = domain.given(negation(claim))

    def counterexamples(context: Any) -> Any:
        return _read(context, failing)

    return _decided(text, counterexamples, lambda points: _failing(_point_of(points, failing)))


def _decided(
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
    proof = prove(FALSE, domain)
    return replace(proof, claim=claim or proof.claim)


def prove_injective(indices: Sequence[IndexExpr], domain: Domain) -> Proof:
    """Whether two different points of `domain` always give different `indices`."""
    other, fresh = domain.renamed("'")
    same = [equal(index, substitute(index, fresh)) for index in indices]
    differ = disjunction(negation(equal(a.var, fresh[a.var])) for a in domain.axes)
    both = joined(domain, other).given(conjunction((*same, differ)))
    return prove_empty(both, f"({', '.join(map(str, indices))}) is injective for {domain}")


@dataclass(frozen=True, slots=True)
class Image:
    """The set of index tuples that `indices` reaches over `domain`."""

    domain: Domain
    indices: tuple[IndexExpr, ...]

    def inside(self, region: Predicate, names: Sequence[Var], shape: Sequence[int]) -> Proof:
        """Whether every tuple lies in the box `shape` and in `region`, stated over `names`."""
        values = dict(zip(names, self.indices, strict=True))
        in_box = (within(e, 0, n) for e, n in zip(self.indices, shape, strict=True))
        return prove(conjunction((*in_box, substitute_in(region, values))), self.domain)

    def covers(self, region: Predicate, names: Sequence[Var], shape: Sequence[int]) -> Proof:
        """Whether every tuple of the box `shape` in `region` is reached."""
        return images_cover((self,), region, names, shape)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.indices))}) for {self.domain}"

    def range(self, context: Any) -> Any:
        """The set in isl's terms."""
        inputs = ", ".join(isl_name(axis.var) for axis in self.domain.axes)
        outputs = ", ".join(isl_index(index) for index in self.indices)
        text = f"{{ [{inputs}] -> [{outputs}] : {isl_constraints(self.domain)} }}"
        return isl.Map.read_from_str(context, text).range()


def images_cover(
    images: Sequence[Image], region: Predicate, names: Sequence[Var], shape: Sequence[int]
) -> Proof:
    """Whether every tuple of the box `shape` in `region` is reached by one of `images`."""
    text = f"{' or '.join(map(str, images))} covers {list(shape)}"

    def missing(context: Any) -> Any:
        points = _read(context, box(names, shape).given(region))
        for image in images:
            points = points.subtract(image.range(context))
        return points

    return _decided(text, missing, lambda points: (f"misses {points.sample_point()}", ()))


def image_within(inner: Image, others: Sequence[Image]) -> Proof:
    """Whether every tuple that `inner` reaches is reached by one of `others`."""

    def missing(context: Any) -> Any:
        points = inner.range(context)
        for other in others:
            points = points.subtract(other.range(context))
        return points

    text = f"{inner} lies within {' or '.join(map(str, others)) or 'nothing'}"
    return _decided(text, missing, lambda points: (f"not at {points.sample_point()}", ()))


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


def _read(context: Any, domain: Domain) -> Any:
    inputs = ", ".join(isl_name(axis.var) for axis in domain.axes)
    text = f"{isl_parameters(_free(domain))}{{ [{inputs}] : {isl_constraints(domain)} }}"
    return isl.Set.read_from_str(context, text)


def _free(domain: Domain) -> list[Var]:
    """The variables of a domain that are none of its axes, such as scalars of a kernel."""
    used = set(predicate_variables(domain.where))
    for axis in domain.axes:
        used |= variables(axis.start) | variables(axis.stop)
    return sorted(used.difference(axis.var for axis in domain.axes), key=str)


def isl_parameters(names: Iterable[Var]) -> str:
    """What declares parameters in front of a set or map in isl's grammar; nothing for none."""
    declared = ", ".join(map(isl_name, names))
    return f"[{declared}] -> " if declared else ""


def _point_of(points: Any, domain: Domain) -> dict[Var, int]:
    """One of the points of a set that isl has found not to be empty."""
    point = points.sample_point()
    space = isl.dim_type.set
    values = [integer_of(point.get_coordinate_val(space, i)) for i in range(len(domain.axes))]
    found = dict(zip((axis.var for axis in domain.axes), values, strict=True))
    free = {isl_name(var): var for var in _free(domain)}
    for i in range(point.get_space().dim(isl.dim_type.param)):
        var = free[point.get_space().get_dim_name(isl.dim_type.param, i)]
        found[var] = integer_of(point.get_coordinate_val(isl.dim_type.param, i))
    return found


def _failing(point: Mapping[Var, int]) -> tuple[str, Witness]:
    """The reason and the witness of a claim that fails at a point."""
    witness = tuple((var.name, value) for var, value in point.items())
    text = ", ".join(f"{name}={value}" for name, value in witness) or "()"
    return f"fails at {text}", witness


def isl_constraints(domain: Domain) -> str:
    """The bounds and conditions of a domain in isl's grammar."""
    parts: list[Predicate] = [within(a.var, a.start, a.stop) for a in domain.axes]
    return " and ".join(f"({_predicate(part)})" for part in (*parts, domain.where))


def isl_name(var: Var) -> str:
    """The variable's name in isl's grammar: different variables have different names.

    ASCII letters and digits stay; `_` doubles, and any other character becomes `_x<hex>_`.
    """
    return "v" + _OTHER_CHARACTER.sub(_escaped, var.name)


def _escaped(match: re.Match[str]) -> str:
    return "__" if match[0] == "_" else f"_x{ord(match[0]):x}_"


def isl_index(expr: IndexExpr) -> str:
    """An index expression in isl's grammar."""
    match expr:
        case Const():
            return str(expr.value)
        case Var():
            return isl_name(expr)
        case Sum():
            terms = [f"{k}*({isl_index(atom)})" for atom, k in expr.terms]
            return " + ".join((*terms, str(expr.constant)))
        case FloorDiv():
            return f"floor(({isl_index(expr.numerator)})/{expr.divisor})"
        case FloorMod():
            return f"(({isl_index(expr.numerator)}) mod {expr.divisor})"
        case Extremum():
            return f"{expr.kind}({isl_index(expr.operands[0])}, {isl_index(expr.operands[1])})"
    raise TypeError(f"not an index expression: {expr!r}")


def _predicate(predicate: Predicate) -> str:
    match predicate:
        case Truth():
            return "true" if predicate.value else "false"
        case AtLeastZero():
            return f"{isl_index(predicate.expr)} >= 0"
        case IsZero():
            return f"{isl_index(predicate.expr)} = 0"
        case Not():
            return f"not ({isl_index(predicate.member.expr)} = 0)"
        case And():
            return _joined(predicate.members, "and")
        case Or():
            return _joined(predicate.members, "or")
    assert_never(predicate)


def _joined(members: Iterable[Predicate], word: str) -> str:
    return f" {word} ".join(f"({_predicate(member)})" for member in members)
