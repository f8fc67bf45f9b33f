"""Masks of values: what stands at or behind a count is a constant.

    select(row < count, value, 0.0)

In: a value that a kernel stores, and the inputs that count.  Out: its masks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct

from graphflow import arith, tir


class CountMask(Struct, frozen=True):
    """`value` where the index `row` is below a count, else `fill`."""

    count: tir.Buffer
    row: arith.IndexExpr
    fill: tir.Literal
    value: tir.Expr


def count_masks(value: tir.Expr, counts: Collection[tir.Buffer]) -> Iterator[CountMask]:
    """The masks of a value, one inside of the other, the outermost first."""
    while True:
        match value:
            case tir.Select(
                tir.Comparison("lt", tir.IndexValue(row), tir.Load(count, ())),
                inside,
                tir.Literal() as fill,
            ) if count in counts:
                yield CountMask(count, row, fill, inside)
                value = inside
            case _:
                return


def outermost_mask(value: tir.Expr, counts: Collection[tir.Buffer]) -> CountMask | None:
    """The mask around all of a value; None where it has none."""
    return next(count_masks(value, counts), None)
