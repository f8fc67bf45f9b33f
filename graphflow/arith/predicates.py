"""Predicates over index expressions: comparisons with zero, and, or, not.

A predicate never contains a load.  Comparisons are kept as `expr >= 0` and `expr == 0`; the
functions `less_than`, `at_most`, `equal` … build them.  `conjunction` and `disjunction` flatten,
drop duplicates and neutral members; nothing here needs the ranges of variables (see `bounds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias, assert_never

from msgspec import Struct

from graphflow.arith import index_expr

MOST_COMPARISONS = 1 << 13
"""Cached results of each function that makes a comparison: six of seven are asked for again."""


class Truth(Struct, frozen=True):
    """A predicate that always, or never, holds."""

    value: bool

    def __str__(self) -> str:
        return str(self.value)


class AtLeastZero(Struct, frozen=True):
    """`expr >= 0`."""

    expr: index_expr.IndexExpr

    def __str__(self) -> str:
        return _comparison_text(self.expr, "<=")


class IsZero(Struct, frozen=True):
    """`expr == 0`."""

    expr: index_expr.IndexExpr

    def __str__(self) -> str:
        return _comparison_text(self.expr, "==")


class And(Struct, frozen=True):
    """All members hold."""

    members: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " and ".join(_member_text(member) for member in self.members)


class Or(Struct, frozen=True):
    """At least one member holds."""

    members: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " or ".join(_member_text(member) for member in self.members)


class Not(Struct, frozen=True):
    """The member does not hold; built by `negation` only around `IsZero`."""

    member: IsZero

    def __str__(self) -> str:
        return _comparison_text(self.member.expr, "!=")


Predicate: TypeAlias = Truth | AtLeastZero | IsZero | And | Or | Not
TRUE, FALSE = Truth(True), Truth(False)


def _member_text(member: Predicate) -> str:
    return f"({member})" if isinstance(member, And | Or) else str(member)


@lru_cache(maxsize=MOST_COMPARISONS)
def _comparison_text(expr: index_expr.IndexExpr, sign: str) -> str:
    """`13 - 4*i - j >= 0` reads `4*i + j < 14`: negative terms go to the left."""
    terms, constant = index_expr.terms_of(expr)
    left = index_expr.linear([(atom, -k) for atom, k in terms if k < 0])
    right = index_expr.linear([(atom, k) for atom, k in terms if k > 0])
    if index_expr.constant_value(right) == 0:
        if sign == "<=":
            return f"{left} < {constant + 1}"
        return f"{left} {sign} {constant}"
    if index_expr.constant_value(left) == 0:
        if sign == "<=":
            return f"{right} >= {-constant}"
        return f"{right} {sign} {-constant}"
    return f"{left} {sign} {right + constant}"


def at_least_zero(expr: index_expr.IndexLike) -> Predicate:
    """`expr >= 0`."""
    index = index_expr.as_index(expr)
    value = index_expr.constant_value(index)
    return AtLeastZero(index) if value is None else Truth(value >= 0)


@lru_cache(maxsize=MOST_COMPARISONS)
def at_most(left: index_expr.IndexLike, right: index_expr.IndexLike) -> Predicate:
    """`left <= right`."""
    return at_least_zero(index_expr.as_index(right) - left)


@lru_cache(maxsize=MOST_COMPARISONS)
def less_than(left: index_expr.IndexLike, right: index_expr.IndexLike) -> Predicate:
    """`left < right`."""
    return at_least_zero(index_expr.as_index(right) - left - 1)


@lru_cache(maxsize=MOST_COMPARISONS)
def equal(left: index_expr.IndexLike, right: index_expr.IndexLike) -> Predicate:
    """`left == right`."""
    difference = index_expr.as_index(left) - right
    value = index_expr.constant_value(difference)
    if value is not None:
        return Truth(value == 0)
    negative = index_expr.terms_of(difference)[0][0][1] < 0
    return IsZero(-difference if negative else difference)


@lru_cache(maxsize=MOST_COMPARISONS)
def within(
    expr: index_expr.IndexLike, start: index_expr.IndexLike, stop: index_expr.IndexLike
) -> Predicate:
    """`start <= expr < stop`."""
    return conjunction((at_most(start, expr), less_than(expr, stop)))


def equivalent(one: Predicate, other: Predicate) -> Predicate:
    """The predicate that both hold, or both fail."""
    return conjunction((disjunction((negation(one), other)), disjunction((negation(other), one))))


def negation(predicate: Predicate) -> Predicate:
    """`not predicate`, with the negation pushed to the comparisons."""
    match predicate:
        case Truth():
            return Truth(not predicate.value)
        case AtLeastZero():
            return _below_zero(predicate.expr)
        case IsZero():
            return Not(predicate)
        case Not():
            return predicate.member
        case And():
            return disjunction(negation(member) for member in predicate.members)
        case Or():
            return conjunction(negation(member) for member in predicate.members)
    assert_never(predicate)


@lru_cache(maxsize=MOST_COMPARISONS)
def _below_zero(expr: index_expr.IndexExpr) -> Predicate:
    return at_least_zero(-expr - 1)


def conjunction(members: Iterable[Predicate]) -> Predicate:
    """All of `members`; no member is `TRUE`."""
    flat: dict[Predicate, None] = {}
    for member in members:
        if not isinstance(member, Truth):
            flat |= dict.fromkeys(conjuncts(member))
        elif not member.value:
            return FALSE
    if len(flat) == 1:
        return next(iter(flat))
    return And(tuple(flat)) if flat else TRUE


def disjunction(members: Iterable[Predicate]) -> Predicate:
    """At least one of `members`; none is `FALSE`."""
    flat: dict[Predicate, None] = {}
    for member in members:
        if not isinstance(member, Truth):
            inner = member.members if isinstance(member, Or) else (member,)
            flat |= dict.fromkeys(inner)
        elif member.value:
            return TRUE
    if len(flat) == 1:
        return next(iter(flat))
    return Or(tuple(flat)) if flat else FALSE


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The members of a conjunction, or the predicate alone; `TRUE` has none."""
    if isinstance(predicate, And):
        return predicate.members
    return () if isinstance(predicate, Truth) and predicate.value else (predicate,)


def congruences(predicate: Predicate) -> Iterator[tuple[frozenset[index_expr.Var], int]]:
    """The conditions `e % n == 0` among the conjuncts: the variables of e, and n."""
    for member in conjuncts(predicate):
        if isinstance(member, IsZero) and isinstance(member.expr, index_expr.FloorMod):
            yield frozenset(index_expr.variables(member.expr)), member.expr.divisor


def substitute_in(
    predicate: Predicate, values: Mapping[index_expr.Var, index_expr.IndexExpr]
) -> Predicate:
    """`predicate` with each variable replaced by its value; the same object if none occurs."""
    match predicate:
        case Truth():
            return predicate
        case AtLeastZero():
            inner = index_expr.substitute(predicate.expr, values)
            return predicate if inner is predicate.expr else at_least_zero(inner)
        case IsZero():
            inner = index_expr.substitute(predicate.expr, values)
            return predicate if inner is predicate.expr else equal(inner, 0)
        case Not():
            member = substitute_in(predicate.member, values)
            return predicate if member is predicate.member else negation(member)
        case And() | Or():
            members = tuple(substitute_in(member, values) for member in predicate.members)
            if all(new is old for new, old in zip(members, predicate.members, strict=True)):
                return predicate
            return conjunction(members) if isinstance(predicate, And) else disjunction(members)
    assert_never(predicate)


def predicate_variables(predicate: Predicate) -> frozenset[index_expr.Var]:
    """The variables that occur in `predicate`."""
    match predicate:
        case Truth():
            return frozenset()
        case AtLeastZero() | IsZero():
            return index_expr.variables(predicate.expr)
        case Not():
            return index_expr.variables(predicate.member.expr)
        case And() | Or():
            return frozenset().union(*(predicate_variables(m) for m in predicate.members))
    assert_never(predicate)


def holds(predicate: Predicate, values: Mapping[index_expr.Var, int]) -> bool:
    """Whether `predicate` holds when its variables have these values."""
    match predicate:
        case Truth():
            return predicate.value
        case AtLeastZero():
            return index_expr.evaluate(predicate.expr, values) >= 0
        case IsZero():
            return index_expr.evaluate(predicate.expr, values) == 0
        case Not():
            return not holds(predicate.member, values)
        case And():
            return all(holds(member, values) for member in predicate.members)
        case Or():
            return any(holds(member, values) for member in predicate.members)
    assert_never(predicate)
