"""Exact sets of integer points with named coordinates, and what code needs of them.

In: domains, intersected, united and projected.  Out: the least and greatest value of a coordinate
as index expressions of others, the smallest box, and a predicate that holds exactly in the set.
What always holds: an expression that is read from isl is compared with isl's own before it is
returned, so it is exact where it says so.  `Undecided` where a question takes too many operations.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain, permutations
from typing import Any

import islpy as isl
from msgspec import Struct

from graphflow.arith import index_expr
from graphflow.arith.bounds import Interval, simplify_index, simplify_predicate
from graphflow.arith.domain import Axis, Domain
from graphflow.arith.index_expr import variables
from graphflow.arith.isl_text import isl_constraints, isl_index, isl_name
from graphflow.arith.predicates import (
    Predicate,
    at_least_zero,
    conjunction,
    disjunction,
    equal,
    predicate_variables,
)
from graphflow.arith.sets import OPERATION_BUDGET, IslBudget, integer_of, out_of_budget

_IN, _OUT, _DIV = isl.dim_type.in_, isl.dim_type.out, isl.dim_type.div

MOST_PIECES = 4
"""Pieces of a piecewise expression that are tried as minima and maxima of each other."""


RECENT = 64
"""Sets of domains that a thread keeps: a step of a schedule asks for few, each dozens of times."""


class Undecided(Exception):
    """A question that isl did not answer within its operation budget, or that has no short form."""


@contextmanager
def _decided() -> Iterator[Any]:
    try:
        with IslBudget() as context:
            yield context
    except isl.Error as error:
        if not out_of_budget(error):
            raise
        raise Undecided(f"not decided within {OPERATION_BUDGET} operations") from None


class Bound(Struct, frozen=True):
    """The least or the greatest value of a coordinate, as an expression of others.

    Where `exact` is false the expression is a bound on that side, and not the closest.
    """

    expr: index_expr.IndexExpr
    exact: bool


class IntegerSet(Struct, frozen=True, eq=False):
    """Points whose coordinates are the values of `variables`, in this order.

    The isl set belongs to the thread that made it.
    """

    variables: tuple[index_expr.Var, ...]
    points: Any

    @staticmethod
    def of(domain: Domain) -> IntegerSet:
        """The points of a domain."""
        found = _recent.sets.pop(domain, None)
        if found is None:
            variables = tuple(axis.var for axis in domain.axes)
            with _decided() as context:
                text = f"{{ {_tuple(variables)} : {isl_constraints(domain)} }}"
                found = IntegerSet(variables, isl.Set.read_from_str(context, text))
        _recent.sets[domain] = found  # as the last one
        if len(_recent.sets) > RECENT:
            del _recent.sets[next(iter(_recent.sets))]
        return found

    @staticmethod
    def nothing(variables: Sequence[index_expr.Var]) -> IntegerSet:
        """The empty set."""
        with _decided() as context:
            text = f"{{ {_tuple(variables)} : false }}"
            return IntegerSet(tuple(variables), isl.Set.read_from_str(context, text))

    def over(self, variables: Sequence[index_expr.Var]) -> IntegerSet:
        """The same points over other coordinates: others than these are projected out, new ones
        take every value."""
        if tuple(variables) == self.variables:
            return self
        if tuple(var for var in self.variables if var in variables) == tuple(variables):
            return self._projected(variables)
        if tuple(var for var in variables if var in self.variables) == self.variables:
            return self._extended(variables)
        with _decided() as context:
            text = f"{{ {_tuple(self.variables)} -> {_tuple(variables)} }}"
            return IntegerSet(
                tuple(variables), self.points.apply(isl.Map.read_from_str(context, text))
            )

    def _projected(self, variables: Sequence[index_expr.Var]) -> IntegerSet:
        """The points without the coordinates that are not among these, which keep their order."""
        with _decided():
            points = self.points
            for place in reversed(range(len(self.variables))):
                if self.variables[place] not in variables:
                    points = points.project_out(isl.dim_type.set, place, 1)
            return IntegerSet(tuple(variables), points)

    def _extended(self, variables: Sequence[index_expr.Var]) -> IntegerSet:
        """The points with every value of the coordinates that are new; the others keep their
        order."""
        with _decided():
            points = self.points
            for place, var in enumerate(variables):
                if var not in self.variables:
                    points = points.insert_dims(isl.dim_type.set, place, 1)
            return IntegerSet(tuple(variables), points)

    def image(
        self,
        names: Sequence[index_expr.Var],
        indices: Sequence[index_expr.IndexExpr],
        kept: Sequence[index_expr.Var] | None = None,
    ) -> IntegerSet:
        """The points with one more coordinate for each index, called by the names; of the others
        those that are `kept`, None for all."""
        before = self.variables if kept is None else tuple(kept)
        with _decided() as context:
            text = ", ".join((*map(isl_name, before), *map(isl_index, indices)))
            moved = isl.Map.read_from_str(context, f"{{ {_tuple(self.variables)} -> [{text}] }}")
            return IntegerSet((*before, *names), self.points.apply(moved))

    def renamed(self, names: Mapping[index_expr.Var, index_expr.Var]) -> IntegerSet:
        """The same points under other names of coordinates."""
        return IntegerSet(tuple(names.get(v, v) for v in self.variables), self.points)

    def __and__(self, other: IntegerSet) -> IntegerSet:
        """The points over the coordinates of both that lie in both."""
        if other is self:
            return self
        variables = tuple(dict.fromkeys((*self.variables, *other.variables)))
        left, right = self.over(variables), other.over(variables)
        with _decided():
            return IntegerSet(variables, left.points.intersect(right.points))

    def __or__(self, other: IntegerSet) -> IntegerSet:
        """The points in one of two sets with the same coordinates."""
        right = other.over(self.variables)
        with _decided():
            return IntegerSet(self.variables, self.points.union(right.points).coalesce())

    def __sub__(self, other: IntegerSet) -> IntegerSet:
        """The points that are not in the other set with the same coordinates."""
        right = other.over(self.variables)
        with _decided():
            return IntegerSet(self.variables, self.points.subtract(right.points).coalesce())

    @property
    def is_empty(self) -> bool:
        """Whether there is no point."""
        with _decided():
            return bool(self.points.is_empty())

    def equals(self, other: IntegerSet) -> bool:
        """Whether the other set, over the same coordinates, has the same points."""
        right = other.over(self.variables)
        with _decided():
            return bool(self.points.is_equal(right.points))

    def least(self) -> tuple[int, ...]:
        """The least value of each coordinate of a set that is bounded and not empty."""
        with _decided():
            places = range(len(self.variables))
            return tuple(integer_of(self.points.dim_min_val(k)) for k in places)

    def sample(self) -> dict[index_expr.Var, int]:
        """A point; Undecided where there is none."""
        with _decided():
            point = self.points.sample_point()
            if point.is_void():
                raise Undecided("an empty set has no point")
            return {
                var: integer_of(point.get_coordinate_val(isl.dim_type.set, place))
                for place, var in enumerate(self.variables)
            }

    def bounds(self, var: index_expr.Var, given: Sequence[index_expr.Var]) -> tuple[Bound, Bound]:
        """The least and the greatest value of a coordinate, for each value of others.

        Where the others have values for which there is no point, the bounds say nothing.  Where isl
        finds no expression they are constants, and not exact.
        """
        part = self.over((*given, var))
        try:
            with _decided() as context:
                relation = _relation(part.points, len(given))
                low, high = relation.dim_min(0).coalesce(), relation.dim_max(0).coalesce()
                return (
                    _as_bound(context, low, part, "max"),
                    _as_bound(context, high, part, "min"),
                )
        except Undecided:
            with _decided():
                last = part.points.dim(isl.dim_type.set) - 1
                ends = (part.points.dim_min_val(last), part.points.dim_max_val(last))
                low, high = (Bound(index_expr.const(integer_of(end)), False) for end in ends)
                return low, high

    def extent(self, var: index_expr.Var, given: Sequence[index_expr.Var]) -> int:
        """The most values between the least and the greatest of a coordinate, those included, for
        any value of others; 0 for the empty set."""
        part = self.over((*given, var))
        with _decided():
            relation = _relation(part.points, len(given))
            if relation.is_empty():
                return 0
            length = relation.dim_max(0).sub(relation.dim_min(0))
            most = isl.Map.from_pw_aff(length).range().dim_max_val(0)
            return integer_of(most) + 1

    def offset(
        self, var: index_expr.Var, given: Sequence[index_expr.Var]
    ) -> tuple[index_expr.IndexExpr, int]:
        """A start and a constant length such that the coordinate always lies in between.

        The length is the least possible.  Of the starts that it permits the simplest is returned:
        the start of a window that is cut off at a border may lie beyond the border.
        """
        part = self.over((*given, var))
        length = part.extent(var, given)
        low, high = part.bounds(var, given)
        starts = [*_operands(low.expr), *(e - (length - 1) for e in _operands(high.expr)), low.expr]
        for start in dict.fromkeys(starts):
            axis = Axis(var, start, start + length)
            if _inside(part, given, axis):
                return start, length
        whole = part.over((var,))
        least, _ = whole.bounds(var, ())
        return least.expr, whole.extent(var, ())

    def predicate(self, under: IntegerSet) -> Predicate:
        """A predicate that holds at the points of `under` exactly where they are in this set.

        Undecided where none is found that isl confirms.
        """
        here = self.over(under.variables)
        with _decided() as context:
            wanted = here.points.intersect(under.points)
            stated = wanted.gist(under.points).coalesce().compute_divs()
            pieces = [
                conjunction(_constraint(c, under.variables) for c in piece.get_constraints())
                for piece in stated.get_basic_sets()
            ]
            short = disjunction(pieces)
            found = simplify_predicate(short, _ranges(under, predicate_variables(short)))
            text = isl_constraints(Domain((), found))
            again = isl.Set.read_from_str(context, f"{{ {_tuple(under.variables)} : {text} }}")
            if not again.intersect(under.points).is_equal(wanted):
                raise Undecided("the form that isl gives a set is not one of index expressions")
            return found

    def hull(self, given: Sequence[index_expr.Var]) -> IntegerSet:
        """For each value of the given coordinates the smallest box of the others that covers the
        points."""
        rest = [var for var in self.variables if var not in given]
        with _decided() as context:
            from_below, from_above = (
                isl.Map.read_from_str(context, f"{{ [a] -> [b] : {order} }}")
                for order in ("b >= a", "b <= a")
            )
        box = self.over(tuple(given))
        for var in rest:
            part = self.over((*given, var))
            with _decided():
                values = _relation(part.points, len(given))
                between = values.apply_range(from_below).intersect(values.apply_range(from_above))
                spread = between.wrap().flatten()
            box = box & IntegerSet(part.variables, spread)
        return box.over(self.variables)

    def parts(self) -> tuple[IntegerSet, ...]:
        """Disjoint convex pieces (up to divisibility) that together are this set."""
        with _decided():
            apart = self.points.coalesce().make_disjoint().coalesce()
            return tuple(
                IntegerSet(self.variables, isl.Set.from_basic_set(piece))
                for piece in apart.get_basic_sets()
                if not piece.is_empty()
            )


class _Recent(threading.local):
    """The sets of domains that a thread asked for last: isl's objects belong to one thread."""

    def __init__(self) -> None:
        self.sets: dict[Domain, IntegerSet] = {}


_recent = _Recent()


def _tuple(variables: Sequence[index_expr.Var]) -> str:
    return f"[{', '.join(map(isl_name, variables))}]"


def _relation(points: Any, given: int) -> Any:
    """The set as a map from its first coordinates to the others."""
    return isl.Map.from_range(points).move_dims(_IN, 0, _OUT, 0, given)


def _inside(part: IntegerSet, given: Sequence[index_expr.Var], axis: Axis) -> bool:
    """Whether the last coordinate lies between the bounds of the axis at every point."""
    text = isl_constraints(Domain((axis,)))
    with _decided() as context:
        box = isl.Set.read_from_str(context, f"{{ {_tuple((*given, axis.var))} : {text} }}")
        return bool(part.points.is_subset(box))


def _operands(expr: index_expr.IndexExpr) -> tuple[index_expr.IndexExpr, ...]:
    """The operands of minima and maxima, the simplest first; else the expression."""
    if not isinstance(expr, index_expr.Extremum):
        return (expr,)
    found = [e for operand in expr.operands for e in _operands(operand)]
    return tuple(sorted(found, key=lambda e: len(str(e))))


def _ranges(
    points: IntegerSet, named: Collection[index_expr.Var]
) -> dict[index_expr.Var, Interval]:
    """The ranges of coordinates in a set: of those that are named, as each takes isl a while."""
    found: dict[index_expr.Var, Interval] = {}
    for place, var in enumerate(points.variables):
        if var in named:
            ends = [points.points.dim_min_val(place), points.points.dim_max_val(place)]
            low, high = (integer_of(e) if e.is_int() else None for e in ends)
            found[var] = (low, high)
    return found


def _as_bound(context: Any, value: Any, part: IntegerSet, kind: str) -> Bound:
    """The least ("max": a maximum of lower bounds) or greatest value of the last coordinate."""
    given = part.variables[:-1]
    reach = value.domain()
    pieces = [_index(aff, given) for _, aff in value.gist(reach).coalesce().get_pieces()]
    ranges = _ranges(IntegerSet(given, reach), frozenset().union(*map(variables, pieces)))
    exprs = list(dict.fromkeys(simplify_index(expr, ranges) for expr in pieces))
    for candidate in chain(_combined(exprs, kind), _from_constraints(part, kind)):
        if not variables(candidate).issubset(ranges):
            ranges |= _ranges(IntegerSet(given, reach), variables(candidate) - ranges.keys())
        short = simplify_index(candidate, ranges)
        text = f"{{ {_tuple(given)} -> [{isl_index(short)}] }}"
        again = isl.PwAff.read_from_str(context, text).intersect_domain(reach)
        if again.is_equal(value):
            return Bound(short, True)
    ends = isl.Map.from_pw_aff(value).range()
    end = ends.dim_min_val(0) if kind == "max" else ends.dim_max_val(0)
    return Bound(index_expr.const(integer_of(end) if end.is_int() else 0), False)


def _from_constraints(part: IntegerSet, kind: str) -> Iterator[index_expr.IndexExpr]:
    """What the constraints on the last coordinate say of it: where it takes few values of the
    others, isl gives these one by one, such as 15 and 3 for `min(15, 19 - 16*o)`."""
    var = part.variables[-1]
    outer, inner = (
        (index_expr.minimum, index_expr.maximum)
        if kind == "max"
        else (index_expr.maximum, index_expr.minimum)
    )
    ends: list[index_expr.IndexExpr] = []
    for piece in part.points.coalesce().compute_divs().remove_redundancies().get_basic_sets():
        sides = []
        for constraint in piece.get_constraints():
            expr = _numerator(constraint.get_aff(), part.variables)
            k = next((c for atom, c in index_expr.terms_of(expr)[0] if atom is var), 0)
            rest = expr - k * var
            if not k or var in variables(rest):
                continue
            if constraint.is_equality() and (k > 0) == (kind == "min"):
                k, rest = -k, -rest
            if (k > 0) == (kind == "max"):  # k·v + rest >= 0
                sides.append(
                    -index_expr.floor_div(rest, k) if k > 0 else index_expr.floor_div(rest, -k)
                )
        if not sides:
            return
        ends.append(reduce(inner, sides))
    if ends:
        yield reduce(outer, ends)


def _combined(exprs: list[index_expr.IndexExpr], kind: str) -> Iterator[index_expr.IndexExpr]:
    """Ways to make one expression of those of the pieces, the likeliest first."""
    if not exprs:
        yield index_expr.const(0)
        return
    operators = (
        (index_expr.maximum, index_expr.minimum)
        if kind == "max"
        else (index_expr.minimum, index_expr.maximum)
    )
    for operator in operators:
        yield reduce(operator, exprs)
    if 2 < len(exprs) <= MOST_PIECES:
        for first, *others in permutations(exprs):
            for outer, inner in (operators, operators[::-1]):
                yield outer(first, reduce(inner, others))
                if len(others) == 3:
                    yield inner(outer(first, others[0]), outer(others[1], others[2]))


def _index(aff: Any, variables: Sequence[index_expr.Var]) -> index_expr.IndexExpr:
    """An affine expression of isl, with its integer divisions, as an index expression."""
    numerator = _numerator(aff, variables)
    return index_expr.floor_div(numerator, integer_of(aff.get_denominator_val()))


def _numerator(aff: Any, variables: Sequence[index_expr.Var]) -> index_expr.IndexExpr:
    """The expression times its denominator."""
    scale = aff.get_denominator_val()

    def whole(value: Any) -> int:
        return integer_of(value.mul(scale))

    dims = _IN if aff.dim(_IN) == len(variables) else isl.dim_type.set
    terms: list[tuple[index_expr.IndexExpr, int]] = [
        (var, whole(aff.get_coefficient_val(dims, place))) for place, var in enumerate(variables)
    ]
    rest = index_expr.linear([t for t in terms if t[1]], whole(aff.get_constant_val()))
    for place in range(aff.dim(_DIV)):
        k = whole(aff.get_coefficient_val(_DIV, place))
        if not k:
            continue
        inner = aff.get_div(place)
        divisor = integer_of(inner.get_denominator_val())
        top = _numerator(inner, variables)
        if k == -1:  # a - floor(b / c) = floor((c·a - b + c - 1) / c)
            rest = index_expr.floor_div(
                index_expr.weighted([(rest, divisor), (top, -1)]) + (divisor - 1), divisor
            )
        else:
            rest = rest + k * index_expr.floor_div(top, divisor)
    return rest


def _constraint(constraint: Any, variables: Sequence[index_expr.Var]) -> Predicate:
    expr = _numerator(constraint.get_aff(), variables)
    return equal(expr, 0) if constraint.is_equality() else at_least_zero(expr)
