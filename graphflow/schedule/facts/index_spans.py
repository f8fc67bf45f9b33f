"""The values of an index, read off its form.

In: an index expression, the domain around it, and the outer variables that a caller fixes.  Out:
its `IndexSpan` for each of their values.  What always holds: both ends of a span are taken.  None
where the form does not show it; integer sets, which cost a hundred times as much, may find it all
the same.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from graphflow import arith


class IndexSpan(Struct, frozen=True):
    """The values of an index: from `base + low` to `base + high`.

    `base` is what the outer variables add, without a constant.  `steps` are the variables inside
    that the index depends on, each with the absolute value of its coefficient and its extent.
    """

    base: arith.IndexExpr
    low: int
    high: int
    steps: tuple[tuple[arith.Var, int, int], ...]

    @property
    def gapless(self) -> bool:
        """Whether the index takes every value in between."""
        reach = 0
        for _, step, extent in sorted(self.steps, key=lambda one: one[1]):
            if step > reach + 1:
                return False
            reach += step * (extent - 1)
        return True


def span_of(
    index: arith.IndexExpr, domain: arith.Domain, outer: Collection[arith.Var]
) -> IndexSpan | None:
    """The span of an index over the axes of a domain that are not outer ones.

    Conditions of the domain are left out: they may take values away.
    """
    rest, steps, low, high = index, [], 0, 0
    for axis in reversed(domain.axes):
        k = 0 if axis.var in outer else _coefficient(rest, axis.var)
        if not k:
            continue
        extent = arith.constant_value(axis.stop - axis.start)
        if extent is None or extent < 1:
            return None
        rest = arith.weighted(((rest, 1), (axis.var, -k), (axis.start, k)))
        steps.append((axis.var, abs(k), extent))
        low, high = low + min(k, 0) * (extent - 1), high + max(k, 0) * (extent - 1)
    if not arith.variables(rest).issubset(outer):
        return None
    constant = arith.terms_of(rest)[1]
    return IndexSpan(rest - constant, low + constant, high + constant, tuple(steps))


def _coefficient(expr: arith.IndexExpr, var: arith.Var) -> int:
    return next((k for atom, k in arith.terms_of(expr)[0] if atom is var), 0)
