"""Reshapes of axes whose extents a run decides: where elements come from, and rows of them.

In: the axes in front of a reshape and behind it, with the counts that a run gives of them.  Out: a
PrimFunc that gives the place of each element, or one that copies, for each row behind the reshape,
the parts of rows in front that its elements come from.  What always holds: the last axis with a
count and the constant axes behind it are a row, whose elements are consecutive in memory; all
elements keep their row-major order.

A run of elements is copied in whole vectors, which may overwrite what stands behind it in the row:
that is written later, or behind the count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import cast

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Var, conjunction, less_than
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import IndexTuple
from graphflow.kernels.definitions.scalar_functions import add, divide, multiply, subtract
from graphflow.kernels.definitions.stages import Loop, Shape

LANES = 16
"""Elements that are copied at once."""


class CountedAxis(Struct, frozen=True):
    """An axis with `room` for elements, of which a run gives as many as input `count` says, or
    all."""

    count: int | None
    room: int


class Rows(Struct, frozen=True):
    """Axes in row-major order: `leading` ones, and those of a row."""

    leading: tuple[CountedAxis, ...]
    row: tuple[CountedAxis, ...]

    @staticmethod
    def of(axes: Sequence[CountedAxis]) -> Rows:
        """Axes whose row begins at the last one with a count."""
        counted = [number for number, axis in enumerate(axes) if axis.count is not None]
        begin = counted[-1] if counted else 0
        return Rows(tuple(axes[:begin]), tuple(axes[begin:]))

    @property
    def rooms(self) -> Shape:
        """The room for each of the leading axes."""
        return tuple(axis.room for axis in self.leading)

    @property
    def room(self) -> int:
        """The elements that there is room for in a row."""
        return prod(axis.room for axis in self.row)


class _Extents:
    """The extents of axes as a run gives them, at least 1: quotients by them exist."""

    def __init__(self, axes: Sequence[CountedAxis]) -> None:
        number = 1 + max(axis.count for axis in axes if axis.count is not None)
        self.counts = tuple(tir.Buffer(f"count{k}", (), "int64") for k in range(number))

    def of(self, axis: CountedAxis) -> tir.Expr:
        """The extent of an axis."""
        one = stages.literal(1, "int64")
        if axis.count is None:
            return stages.literal(axis.room, "int64")
        return tir.Binary("max", tir.Load(self.counts[axis.count], ()), one)

    def of_all(self, axes: Sequence[CountedAxis]) -> tir.Expr:
        """How many elements a run gives along axes together."""
        return reduce(multiply, map(self.of, axes))

    def position(self, loops: Sequence[Loop], axes: Sequence[CountedAxis]) -> tir.Expr:
        """The number of the point of `loops`, which are those of axes, among those of a run."""
        if not loops:
            return stages.literal(0, "int64")
        first, *others = (tir.IndexValue(var) for var in stages.indices_of(loops))
        return reduce(
            lambda found, pair: add(multiply(found, self.of(pair[1])), pair[0]),
            zip(others, axes[1:], strict=True),
            cast(tir.Expr, first),
        )

    def place(self, position: tir.Expr, axes: Sequence[CountedAxis]) -> tir.Expr:
        """The number of a point of axes, from that among those of a run, in the room."""
        inner: list[tir.Expr] = []
        stride = 1
        for axis in reversed(axes[1:]):
            rest = divide(position, self.of(axis))
            index = subtract(position, multiply(rest, self.of(axis)))
            inner.append(multiply(index, stride))
            position, stride = rest, stride * axis.room
        return reduce(add, inner, multiply(position, stride))


def reshaped_places(before: Sequence[CountedAxis], after: Sequence[CountedAxis]) -> tir.PrimFunc:
    """`y[j…]` is the place, in the flat room of axes `before`, of the element that is at j… once
    they are reshaped to the axes `after`; the inputs are the counts."""
    extents = _Extents((*before, *after))
    y = tir.Buffer("y", tuple(axis.room for axis in after), "int64")
    loops = stages.loops_over("j", y.shape)
    place = extents.place(extents.position(loops, after), before)
    last = stages.literal(max(prod(axis.room for axis in before), 1) - 1, "int64")
    kept = tir.Binary("min", place, last)
    return stages.elementwise_kernel("reshaped_places", extents.counts, y, loops, kept)


def moved_rows(ahead: Shape, before: Rows, after: Rows, dtype: str) -> tir.PrimFunc:
    """`y[a…, q…, j]` is element number j of row q… behind a reshape.

    x has the shape (ahead…, room of all axes before), y (ahead…, leading rooms…, room of a row).
    The other inputs are the counts, scalars.  What stands behind the elements of a row is anything
    that x holds, or zero.
    """
    sources = max(prod(axis.room for axis in before.leading), 1)
    shapes = (*ahead, sources * before.room), (*ahead, *after.rooms, after.room)
    x, y = (tir.Buffer(name, shape, dtype) for name, shape in zip("xy", shapes, strict=True))
    extents = _Extents((*before.leading, *before.row, *after.leading, *after.row))
    outer, rows = stages.loops_over("a", ahead), stages.loops_over("q", after.rooms)
    at, length = (tir.Buffer(name, (), "int64") for name in ("at", "length"))
    position, lengths = tir.Load(at, ()), (extents.of_all(before.row), extents.of_all(after.row))
    begin = multiply(extents.position(rows, after.leading), lengths[1])
    row = divide(position, lengths[0])
    passed = subtract(position, multiply(row, lengths[0])), subtract(position, begin)
    place = add(multiply(extents.place(row, before.leading), before.room), passed[0])
    left = (subtract(whole, part) for whole, part in zip(lengths, passed, strict=True))
    # Rows are the same for all that is ahead of them: one search for their places serves it.
    inner, loops = (outer, rows) if rows else ((), outer)
    to = (*stages.indices_of(outer), *stages.indices_of(rows))
    first = _Run(Var("start"), Var("source"), length)
    copied = first.copied(y, to, x, stages.indices_of(outer))
    one_run: tir.Body = (
        tir.Store(length, (), tir.Binary("min", *left)),
        stages.matched(
            first.start,
            after.room,
            passed[1],
            (stages.matched(first.source, x.shape[-1], place, tir.nest(inner, copied)),),
        ),
        tir.Store(at, (), add(position, tir.Load(length, ()))),
    )
    is_left = tir.Comparison("lt", position, add(begin, lengths[1]))
    body = (
        tir.Allocate(at),
        tir.Allocate(length),
        *_cleared_row(y, to, inner),
        tir.Store(at, (), begin),
        *tir.nest(((Var("turn"), sources),), (tir.If(is_left, one_run),)),
    )
    return stages.nest_kernel("moved_rows", (x, *extents.counts), y, loops, body)


def _cleared_row(y: tir.Buffer, to: IndexTuple, inner: Sequence[Loop]) -> tir.Body:
    """Zeros in a row, for every point of `inner` loops, whose variables get names of their own."""
    own = {var: Var(f"{var}z") for var, _ in inner}
    at = (*(own.get(index, index) for index in to if isinstance(index, Var)), Var("z"))
    loops = (*((own[var], extent) for var, extent in inner), (Var("z"), y.shape[-1]))
    return tir.nest(loops, (tir.Store(y, at, stages.literal(0, y.dtype)),))


class _Run(Struct, frozen=True):
    """Consecutive elements of a row: where they begin in it and in x, and how many there are."""

    start: Var
    source: Var
    length: tir.Buffer

    def copied(self, y: tir.Buffer, to: IndexTuple, x: tir.Buffer, origin: IndexTuple) -> tir.Body:
        """Copies the elements, in vectors that end where x or the row does."""
        chunk, lane = Var("chunk"), Var("lane")
        passed = LANES * chunk + lane
        target, element = self.start + passed, self.source + passed
        inside = conjunction((less_than(target, y.shape[-1]), less_than(element, x.shape[-1])))
        store = tir.Store(y, (*to, target), tir.Load(x, (*origin, element)))
        is_left = tir.below_count(LANES * chunk, self.length)
        vector = tir.nest(((lane, LANES),), (tir.If(inside, (store,)),))
        most = -(-min(y.shape[-1], x.shape[-1]) // LANES)
        return tir.nest(((chunk, most),), (tir.If(is_left, vector),))
