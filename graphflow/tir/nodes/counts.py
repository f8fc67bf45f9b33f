"""Conditions that an index is below a count that a run knows, such as the rows that it gives.

In: an index expression, and the scalar that counts.  Out: the comparison, or a value under it.
What always holds: all such conditions have this one form, `index < count[…]`, by which passes
recognize them.
"""

from __future__ import annotations

from graphflow.arith import IndexExpr
from graphflow.tir.nodes.exprs import Buffer, Comparison, Expr, IndexValue, Literal, Load, Select


def below_count(index: IndexExpr, count: Buffer, at: tuple[IndexExpr, ...] = ()) -> Comparison:
    """`index < count[at]`; a count of no axes has no place."""
    return Comparison("lt", IndexValue(index), Load(count, at))


def kept_below_count(index: IndexExpr, count: Buffer, value: Expr, fill: Literal) -> Select:
    """`value` where `index < count[()]`, else `fill`."""
    return Select(below_count(index, count), value, fill)
