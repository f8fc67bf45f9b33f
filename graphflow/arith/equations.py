"""What equations force: of equal numbers all digits are equal, and equal digits make equal numbers.

In: a predicate, and ranges of its variables.  Out: whether its equations contradict the rest of it.
What always holds: True is a proof that nothing satisfies the predicate; False says nothing.

Most claims that two iterations touch different elements end here, without integer sets:

    16·j + v = 16·j' + v'  for 0 <= v, v' < 16       j = j' and v = v'
    x // 14 = x' // 14 and x % 14 = x' % 14          x = x'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphflow.arith.bounds import Interval, bounds, simplify_predicate
from graphflow.arith.index_expr import (
    FloorMod,
    IndexExpr,
    Term,
    Var,
    floor_div,
    floor_mod,
    linear,
    substitute,
    terms_of,
)
from graphflow.arith.predicate import FALSE, IsZero, Predicate, conjuncts, substitute_in

MOST_EQUATIONS = 64
"""Equations that one predicate may lead to: what digits compose is finite, and never so many."""


def contradict(predicate: Predicate, ranges: Mapping[Var, Interval]) -> bool:
    """Whether equations among the conjuncts leave nothing of `predicate`.

    Variables that they make equal are replaced by each other; nothing is left if what that gives
    is false for all values in `ranges`.
    """
    given = [c.expr for c in conjuncts(predicate) if isinstance(c, IsZero)]
    if not given:
        return False
    same: dict[Var, IndexExpr] = {}
    for equation in _followed(given, ranges):
        terms, constant = terms_of(substitute(equation, same))
        match terms:
            case ((Var() as one, a), (Var() as other, b)) if not constant and a == -b:
                same = {var: substitute(value, {one: other}) for var, value in same.items()}
                same[one] = other
    return bool(same) and simplify_predicate(substitute_in(predicate, same), ranges) == FALSE


def _followed(given: list[IndexExpr], ranges: Mapping[Var, Interval]) -> Iterator[IndexExpr]:
    """Expressions that are 0 where the given ones are, and those."""
    known: dict[IndexExpr, None] = {}
    taken: set[IndexExpr] = set()  # its digits may all be known without it being one of them
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


def _digits(equation: IndexExpr, ranges: Mapping[Var, Interval]) -> Iterator[IndexExpr]:
    """`c·(a - a') + rest` that is 0 → `a - a'` and `rest`, where the rest is smaller than c."""
    terms, constant = terms_of(equation)
    while len(terms) > 2 and not constant:
        (first, a), (second, b), *others = terms  # by falling coefficients
        rest = linear(others)
        low, high = bounds(rest, ranges)
        if a != -b or low is None or high is None or max(-low, high) >= abs(a):
            break
        yield linear(((first, 1), (second, -1)))
        terms, constant = terms_of(rest)
        equation = rest
    if len(terms) == 2 and not constant and terms[0][1] == -terms[1][1]:
        equation = linear(((terms[0][0], 1), (terms[1][0], -1)))
    yield equation


def _composed(equation: IndexExpr, known: Mapping[IndexExpr, None]) -> Iterator[IndexExpr]:
    """`x % c - x' % c` → `x - x'` where the quotients are known to be equal.

    It is `x % (c·m) - x' % (c·m)` where they are equal modulo m.
    """
    match terms_of(equation):
        case ((FloorMod() as one, 1), (FloorMod() as other, -1)), 0:
            pass
        case _:
            return
    if one.divisor != other.divisor:
        return
    c = one.divisor
    quotient, second = floor_div(one.numerator, c), floor_div(other.numerator, c)
    if _equal(quotient, second, known):
        yield one.numerator - other.numerator
        return
    for atom in _atoms(known):
        if isinstance(atom, FloorMod) and atom.numerator is quotient:
            m = atom.divisor
            if _equal(atom, floor_mod(second, m), known):
                yield floor_mod(one.numerator, c * m) - floor_mod(other.numerator, c * m)


def _equal(one: IndexExpr, other: IndexExpr, known: Mapping[IndexExpr, None]) -> bool:
    return one is other or one - other in known or other - one in known


def _atoms(known: Mapping[IndexExpr, None]) -> Iterator[IndexExpr]:
    terms: Iterator[Term] = (term for equation in known for term in terms_of(equation)[0])
    return (atom for atom, _ in terms)
