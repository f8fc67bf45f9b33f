"""What equations force: of equal numbers all digits are equal, and equal digits make equal numbers.

In: a predicate, and ranges of its variables.  Out: whether its equations contradict the rest of it.
What always holds: True is a proof that nothing satisfies the predicate; False says nothing.

Most claims that two iterations touch different elements end here, without integer sets:

    16·j + v = 16·j' + v'  for 0 <= v, v' < 16       j = j' and v = v'
    x // 14 = x' // 14 and x % 14 = x' % 14          x = x'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphflow.arith import index_expr
from graphflow.arith.bounds import Interval, bounds, simplify_predicate
from graphflow.arith.predicates import FALSE, IsZero, Predicate, conjuncts, substitute_in

MOST_EQUATIONS = 64
"""Equations that one predicate may lead to: what digits compose is finite, and never so many."""


def contradict(predicate: Predicate, ranges: Mapping[index_expr.Var, Interval]) -> bool:
    """Whether equations among the conjuncts leave nothing of `predicate`.

    Variables that they make equal are replaced by each other; nothing is left if what that gives
    is false for all values in `ranges`.
    """
    given = [c.expr for c in conjuncts(predicate) if isinstance(c, IsZero)]
    if not given:
        return False
    same: dict[index_expr.Var, index_expr.IndexExpr] = {}
    for equation in _followed(given, ranges):
        terms, constant = index_expr.terms_of(index_expr.substitute(equation, same))
        match terms:
            case ((index_expr.Var() as one, a), (index_expr.Var() as other, b)) if (
                not constant and a == -b
            ):
                same = {
                    var: index_expr.substitute(value, {one: other}) for var, value in same.items()
                }
                same[one] = other
    return bool(same) and simplify_predicate(substitute_in(predicate, same), ranges) == FALSE


def _followed(
    given: list[index_expr.IndexExpr], ranges: Mapping[index_expr.Var, Interval]
) -> Iterator[index_expr.IndexExpr]:
    """Expressions that are 0 where the given ones are, and those."""
    known: dict[index_expr.IndexExpr, None] = {}
    taken: set[index_expr.IndexExpr] = (
        set()
    )  # its digits may all be known without it being one of them
    waiting = list(given)
    while waiting and len(known) < MOST_EQUATIONS:
        equation = waiting.pop()
        taken |= {equation, -equation}
        for digit in _digits(equation, ranges):
            if digit not in known and -digit not in known:
                known[digit] = None
                yield digit
        if not waiting:
            composed = [e for one in known for e in _composed(one, known)]
            waiting = [e for e in composed if e not in taken]


def _digits(
    equation: index_expr.IndexExpr, ranges: Mapping[index_expr.Var, Interval]
) -> Iterator[index_expr.IndexExpr]:
    """`c·(a - a') + rest` that is 0 → `a - a'` and `rest`, where the rest is smaller than c."""
    terms, constant = index_expr.terms_of(equation)
    while len(terms) > 2 and not constant:
        (first, a), (second, b), *others = terms  # by falling coefficients
        rest = index_expr.linear(others)
        low, high = bounds(rest, ranges)
        if a != -b or low is None or high is None or max(-low, high) >= abs(a):
            break
        yield index_expr.linear(((first, 1), (second, -1)))
        terms, constant = index_expr.terms_of(rest)
        equation = rest
    if len(terms) == 2 and not constant and terms[0][1] == -terms[1][1]:
        equation = index_expr.linear(((terms[0][0], 1), (terms[1][0], -1)))
    yield equation


def _composed(
    equation: index_expr.IndexExpr, known: Mapping[index_expr.IndexExpr, None]
) -> Iterator[index_expr.IndexExpr]:
    """`x % c - x' % c` → `x - x'` where the quotients are known to be equal.

    It is `x % (c·m) - x' % (c·m)` where they are equal modulo m.
    """
    match index_expr.terms_of(equation):
        case ((index_expr.FloorMod() as one, 1), (index_expr.FloorMod() as other, -1)), 0:
            pass
        case _:
            return
    if one.divisor != other.divisor:
        return
    c = one.divisor
    quotient, second = (
        index_expr.floor_div(one.numerator, c),
        index_expr.floor_div(other.numerator, c),
    )
    if _equal(quotient, second, known):
        yield one.numerator - other.numerator
        return
    for atom in _atoms(known):
        if isinstance(atom, index_expr.FloorMod) and atom.numerator is quotient:
            m = atom.divisor
            if _equal(atom, index_expr.floor_mod(second, m), known):
                yield index_expr.floor_mod(one.numerator, c * m) - index_expr.floor_mod(
                    other.numerator, c * m
                )


def _equal(
    one: index_expr.IndexExpr,
    other: index_expr.IndexExpr,
    known: Mapping[index_expr.IndexExpr, None],
) -> bool:
    return one is other or one - other in known or other - one in known


def _atoms(known: Mapping[index_expr.IndexExpr, None]) -> Iterator[index_expr.IndexExpr]:
    terms: Iterator[index_expr.Term] = (
        term for equation in known for term in index_expr.terms_of(equation)[0]
    )
    return (atom for atom, _ in terms)
