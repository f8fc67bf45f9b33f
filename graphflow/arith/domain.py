"""Domains: the iteration points of loops.

In: loop variables with bounds, and conditions on them.  Out: a `Domain`, the set of integer points
where they hold.  What always holds: the bound of an axis uses variables of earlier axes or none of
the domain's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphflow.arith.bounds import Interval, bounds
from graphflow.arith.index_expr import (
    Const,
    Extremum,
    IndexExpr,
    IndexLike,
    Var,
    as_index,
    substitute,
)
from graphflow.arith.predicate import (
    TRUE,
    Predicate,
    Truth,
    at_most,
    conjunction,
    less_than,
    substitute_in,
)


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
