"""Points of a domain at which an image has a given tuple, solved for axis by axis.

In: the tuple as expressions of some variables, and the indices and the domain of an image.  Out: a
condition on these variables under which the image has the tuple.  What always holds: the condition
is sufficient and need not be necessary, for one point is tried, and others are not.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.arith.domain import ANYWHERE, Axis, Domain
from graphflow.arith.index_expr import IndexExpr, Var, substitute, terms_of, variables
from graphflow.arith.predicates import (
    Predicate,
    at_most,
    conjunction,
    equal,
    less_than,
    predicate_variables,
    substitute_in,
)


def condition_to_reach(
    wanted: Sequence[IndexExpr],
    indices: Sequence[IndexExpr],
    domain: Domain,
    given: Domain = ANYWHERE,
) -> Predicate | None:
    """A condition under which `indices` take the values `wanted` at some point of `domain`.

    `given` is what is known of the variables in `wanted`; what an axis of it says is left out.

    Indices are solved for an axis that they add once, such as `o` in `16*t + o`; an axis that none
    is solved for is at its start.  None where the domain has parameters: a variable of that name in
    `wanted` may be another one.
    """
    axes = {axis.var for axis in domain.axes}
    named = {*predicate_variables(domain.where)}.union(*map(variables, indices))
    named = named.union(*map(_named, domain.axes))
    if not named <= axes:
        return None
    point, left = _point(wanted, indices, domain)
    inside = [
        condition
        for axis in domain.axes
        if not (axis in given.axes and all(point[v] is v for v in _named(axis)))
        for condition in (
            at_most(substitute(axis.start, point), point[axis.var]),
            less_than(point[axis.var], substitute(axis.stop, point)),
        )
    ]
    reached = [equal(substitute(index, point), value) for index, value in left]
    return conjunction((*inside, substitute_in(domain.where, point), *reached))


def _named(axis: Axis) -> frozenset[Var]:
    return frozenset((axis.var,)).union(variables(axis.start), variables(axis.stop))


_Equation = tuple[IndexExpr, IndexExpr]


def _point(
    wanted: Sequence[IndexExpr], indices: Sequence[IndexExpr], domain: Domain
) -> tuple[dict[Var, IndexExpr], list[_Equation]]:
    """The point, and the equations that were not solved."""
    point: dict[Var, IndexExpr] = {}
    left = _solve(list(zip(indices, wanted, strict=True)), point)
    for axis in domain.axes:
        if axis.var not in point:
            point[axis.var] = substitute(axis.start, point)
            left = _solve(left, point)
    return point, left


def _solve(equations: list[_Equation], point: dict[Var, IndexExpr]) -> list[_Equation]:
    """Puts the axes that equations are solved for into `point`; the other equations."""
    left = []
    for index, value in equations:
        found = _solved(index, value, point)
        if found is None:
            left.append((index, value))
        else:
            point[found[0]] = found[1]
    return left if len(left) == len(equations) else _solve(left, point)


def _solved(
    index: IndexExpr, value: IndexExpr, point: dict[Var, IndexExpr]
) -> tuple[Var, IndexExpr] | None:
    """The axis that is unknown in `index`, which adds or subtracts it once, and its value."""
    if isinstance(index, Var):
        return None if index in point else (index, value)
    unknown = variables(index) - point.keys()
    if len(unknown) != 1:
        return None
    (var,) = unknown
    sign = next((k for atom, k in terms_of(index)[0] if atom is var), 0)
    rest = index - sign * var
    if abs(sign) != 1 or var in variables(rest):
        return None
    return var, sign * (value - substitute(rest, point))
