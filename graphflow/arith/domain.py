"""Domains: the iteration points of loops.

In: loop variables with bounds, and conditions on them.  Out: a `Domain`, the set of integer points
where they hold.  What always holds: the bound of an axis uses variables of earlier axes or none of
the domain's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from msgspec import Struct

from graphflow.arith import index_expr, predicates
from graphflow.arith.bounds import Interval, Ranges, bounds
from graphflow.arith.kept import Kept, kept_by_node

RECENT = 1 << 12
"""Domains that are kept, with what is kept of them: each traversal of a kernel goes through the
same ones."""


class Axis(Struct, frozen=True):
    """A variable that takes each integer value with `start <= var < stop`."""

    var: index_expr.Var
    start: index_expr.IndexExpr
    stop: index_expr.IndexExpr


@dataclass(frozen=True, slots=True)
class Domain(Kept):
    """Integer points: axes from the outermost in, bounds may use outer axes; `where` must hold."""

    axes: tuple[Axis, ...] = ()
    where: predicates.Predicate = predicates.TRUE

    def __hash__(self) -> int:
        return _hash(self)

    def ranges(self) -> Ranges:
        """An interval for each variable, from the bounds of the axes."""
        return _ranges(self)

    def bounds(self) -> Iterator[predicates.Predicate]:
        """What the bounds of the axes say that are no constants, one comparison each."""
        for axis in self.axes:
            for low in _operands(axis.start, "max"):
                yield predicates.at_most(low, axis.var)
            for high in _operands(axis.stop, "min"):
                yield predicates.less_than(axis.var, high)

    def given(self, condition: predicates.Predicate) -> Domain:
        """The points of this domain for which `condition` holds too."""
        if isinstance(condition, predicates.Truth) and condition.value:
            return self
        return _given(self, condition)

    def inside(
        self, var: index_expr.Var, start: index_expr.IndexLike, stop: index_expr.IndexLike
    ) -> Domain:
        """This domain with one more axis, innermost."""
        first = start if isinstance(start, index_expr.IndexExpr) else index_expr.as_index(start)
        end = stop if isinstance(stop, index_expr.IndexExpr) else index_expr.as_index(stop)
        return _inside(self, var, first, end)

    def about(self, named: Iterable[index_expr.Var]) -> Domain:
        """The axes of these variables, those that their bounds use, and what is said of them alone:
        each point of this domain has its coordinates in that one."""
        kept = set(named)
        for axis in reversed(self.axes):
            if axis.var in kept:
                kept |= index_expr.variables(axis.start) | index_expr.variables(axis.stop)
        axes = tuple(axis for axis in self.axes if axis.var in kept)
        where = (
            condition
            for condition in predicates.conjuncts(self.where)
            if predicates.predicate_variables(condition) <= kept
        )
        return Domain(axes, predicates.conjunction(where))

    def renamed(self, suffix: str) -> tuple[Domain, dict[index_expr.Var, index_expr.IndexExpr]]:
        """A copy over fresh variables `name + suffix`, and the map from old to new."""
        fresh: dict[index_expr.Var, index_expr.IndexExpr] = {
            a.var: index_expr.Var(a.var.name + suffix) for a in self.axes
        }
        axes = tuple(
            Axis(
                index_expr.Var(axis.var.name + suffix),
                index_expr.substitute(axis.start, fresh),
                index_expr.substitute(axis.stop, fresh),
            )
            for axis in self.axes
        )
        return Domain(axes, predicates.substitute_in(self.where, fresh)), fresh

    def __str__(self) -> str:
        return _text(self)


@lru_cache(maxsize=RECENT)
def _inside(
    domain: Domain, var: index_expr.Var, start: index_expr.IndexExpr, stop: index_expr.IndexExpr
) -> Domain:
    return Domain((*domain.axes, Axis(var, start, stop)), domain.where)


@lru_cache(maxsize=RECENT)
def _given(domain: Domain, condition: predicates.Predicate) -> Domain:
    return Domain(domain.axes, predicates.conjunction((domain.where, condition)))


@kept_by_node
def _hash(domain: Domain) -> int:
    return hash((domain.axes, domain.where))


@kept_by_node
def _ranges(domain: Domain) -> Ranges:
    found: dict[index_expr.Var, Interval] = {}
    for axis in domain.axes:
        low = bounds(axis.start, found)[0]
        high = bounds(axis.stop, found)[1]
        found[axis.var] = (low, None if high is None else high - 1)
    return found


@kept_by_node
def _text(domain: Domain) -> str:
    axes = ", ".join(f"{a.start} <= {a.var} < {a.stop}" for a in domain.axes)
    return axes if domain.where == predicates.TRUE else f"{axes}, {domain.where}"


def _operands(bound: index_expr.IndexExpr, kind: str) -> tuple[index_expr.IndexExpr, ...]:
    """What a bound is the maximum or minimum of, or the bound itself; nothing for a constant."""
    if isinstance(bound, index_expr.Extremum) and bound.kind == kind:
        return tuple(e for operand in bound.operands for e in _operands(operand, kind))
    return () if isinstance(bound, index_expr.Const) else (bound,)


ANYWHERE = Domain()
"""The domain without axes: one point, nothing known."""


def box(names: Sequence[index_expr.Var], shape: Sequence[int]) -> Domain:
    """All points of `shape`, one variable an axis."""
    axes = tuple(
        Axis(v, index_expr.as_index(0), index_expr.as_index(n))
        for v, n in zip(names, shape, strict=True)
    )
    return Domain(axes)


def joined_domains(left: Domain, right: Domain) -> Domain:
    """The Cartesian product of two domains over different variables."""
    return Domain((*left.axes, *right.axes), predicates.conjunction((left.where, right.where)))
