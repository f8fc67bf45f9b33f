"""Derives the inverse of an index map from the structure of its output expressions.

In: for each physical variable the expression over logical indices that it equals, and ranges of
these indices where a shape is known.  Out: logical indices (and subexpressions) as expressions over
the physical variables.  Each rule below is one exact equality; nothing is guessed, and the caller
checks the result.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphflow import arith

Known = dict[arith.IndexExpr, arith.IndexExpr]


def solve_indices(outputs: Mapping[arith.Var, arith.IndexExpr], ranges: arith.Ranges) -> Known:
    """Atoms (variables, floors, mods) of `outputs`, and the physical expression of each."""
    known: Known = {}
    equations: list[tuple[arith.IndexExpr, arith.IndexExpr]] = [(e, p) for p, e in outputs.items()]
    size = -1
    while size != len(known):
        size = len(known)
        for left, right in equations:
            _learn_sum(left, right, known, ranges)
        for atom in tuple(known):
            _join(atom, known, ranges)
    return known


def _learn_sum(
    left: arith.IndexExpr, right: arith.IndexExpr, known: Known, ranges: arith.Ranges
) -> None:
    """`Σ k·atom + c = right`: take known terms to the right; then one atom, or digits, is left."""
    terms, constant = arith.terms_of(left)
    right = right - constant
    unknown = []
    for atom, k in terms:
        if atom in known:
            right = right - known[atom] * k
        else:
            unknown.append((atom, k))
    # Digits of a mixed-radix number: the largest coefficient's atom is the quotient, where the
    # rest stays inside one step of it.
    while len(unknown) > 1:
        (atom, k), rest = unknown[0], unknown[1:]
        low, high = arith.bounds(arith.linear(rest), ranges)
        if k <= 0 or low is None or high is None or low < 0 or high >= k:
            return
        _add(atom, arith.floor_div(right, k), known, ranges)
        unknown, right = rest, arith.floor_mod(right, k)
    for atom, k in unknown:
        value = right if k > 0 else -right
        _add(atom, arith.floor_div(value, abs(k)), known, ranges)


def _add(atom: arith.IndexExpr, value: arith.IndexExpr, known: Known, ranges: arith.Ranges) -> None:
    if atom in known:
        return
    known[atom] = value
    _join(atom, known, ranges)


def _join(atom: arith.IndexExpr, known: Known, ranges: arith.Ranges) -> None:
    """`x // c = q` and `x % c = r` give `x = c·q + r`; `atom` is the quotient or the remainder.

    The normal form of the remainder may omit multiples of c from x, and either may be a sum of
    atoms; so both are constructed again from x and c, and looked up term by term.
    """
    if not isinstance(atom, arith.FloorMod | arith.FloorDiv):
        return
    whole, c = atom.numerator, atom.divisor
    quotient = _value(arith.floor_div(whole, c), known)
    rest = _value(arith.floor_mod(whole, c), known)
    if quotient is not None and rest is not None:
        _learn_sum(whole, quotient * c + rest, known, ranges)


def _value(expr: arith.IndexExpr, known: Known) -> arith.IndexExpr | None:
    """`expr` over physical variables, where all its terms are known."""
    terms, constant = arith.terms_of(expr)
    if any(atom not in known for atom, _ in terms):
        return None
    return sum((known[atom] * k for atom, k in terms), start=arith.const(constant))
