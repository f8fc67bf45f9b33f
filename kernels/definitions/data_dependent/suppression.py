"""Non-maximum suppression: picks boxes by score, and drops those that overlap a picked one.

In: the numbers of batches, classes and boxes, and how many boxes may be picked in each class.  Out:
a PrimFunc that gives the picked boxes of each class, and one that lists them in consecutive rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.compaction import compacted
from graphflow.kernels.definitions.data_dependent.largest_first import (
    LANES,
    LargestFirst,
    whole_vectors,
)
from graphflow.kernels.definitions.scalar_functions import add, compared, divide, multiply, subtract

Side: TypeAlias = tuple[tir.Expr, tir.Expr]
"""The lower and the upper bound of a box along an axis."""

Corners: TypeAlias = tuple[Side, Side]


def picked_boxes(
    batches: int,
    classes: int,
    boxes: int,
    most: int,
    thresholds: tuple[bool, bool],
    centered: bool = False,
) -> tir.PrimFunc:
    """`y[b, c, t]` is the t-th box picked of a class, int64, or −1 if there is none.

    Boxes are taken by their scores, of equal ones the first, and one is picked unless its
    intersection over union with a box that was picked before exceeds `overlap` (0 if it is not
    given).  Scores that are NaN, −∞, or not above `least`, if that is given, do not count.
    `thresholds` says which of the two parameters are given, as tensors of one element.  Boxes are
    `y, x, y, x` of two corners, or if `centered` `x, y, width, height`.
    """
    given = tir.Buffer("boxes", (batches, boxes, 4), "float32")
    scores = tir.Buffer("scores", (batches, classes, boxes), "float32")
    overlap, least = tir.Buffer("overlap", (1,), "float32"), tir.Buffer("least", (1,), "float32")
    y = tir.Buffer("y", (batches, classes, most), "int64")
    at, ((b, _), (c, _)) = (const(0),), (outer := stages.loops_over("bc", (batches, classes)))
    order, picked = LargestFirst(boxes), _PickedBoxes(most)
    ((i, _),) = first = stages.loops_over("i", (boxes,))
    ((t, _),) = empty = stages.loops_over("t", (most,))
    row, place = Var("row"), Var("place")
    exceeded: tir.Expr = tir.Load(least, at) if thresholds[1] else order.lowest
    score: tir.Expr = tir.Load(scores, (b, c, i))
    counts: tir.Expr = tir.Comparison("gt", score, exceeded)
    if thresholds[1]:
        counts = tir.Binary("and", counts, tir.Comparison("gt", score, order.lowest))
    limit: tir.Expr = tir.Load(overlap, at) if thresholds[0] else stages.literal(0, "float32")
    corners = _corners(given, (b, row), centered)
    turn = order.taken(
        row,
        (
            *picked.compared(corners, limit),
            *picked.added(place, (tir.Store(y, (b, c, place), tir.IndexValue(row)),)),
        ),
    )
    goes_on = tir.Binary("and", order.is_left(), compared("lt", tir.Load(picked.count, ()), most))
    body = (
        *map(tir.Allocate, (*order.buffers, *picked.buffers)),
        *tir.nest(empty, (tir.Store(y, (b, c, t), stages.literal(-1, "int64")),)),
        *tir.nest(first, (tir.Store(order.keys, (i,), tir.Select(counts, score, order.lowest)),)),
        *order.started(),
        *picked.started(),
        *tir.nest(((Var("turn"), boxes),), (tir.If(goes_on, turn),)),
    )
    parameters = [b for b, is_given in zip((overlap, least), thresholds, strict=True) if is_given]
    return stages.nest_kernel("picked_boxes", (given, scores, *parameters), y, outer, body)


class _PickedBoxes:
    """The lower and upper bounds of the boxes picked so far along both axes, and their areas.

    There is room for whole vectors of them; boxes of no area, which overlap nothing, stand behind
    them.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.sides = tir.Buffer("sides", (5, whole_vectors(most)), "float32")
        self.box = tir.Buffer("box", (5,), "float32")
        self.count, self.overlapped = (
            tir.Buffer("count", (), "int64"),
            tir.Buffer("overlapped", (), "int32"),
        )
        self.buffers = (self.sides, self.box, self.count, self.overlapped)

    def started(self) -> tir.Body:
        """No box is picked."""
        loops = stages.loops_over("zs", self.sides.shape)
        clear = tir.Store(self.sides, stages.indices_of(loops), stages.literal(0, "float32"))
        return (*tir.nest(loops, (clear,)), tir.Store(self.count, (), stages.literal(0, "int64")))

    def compared(self, corners: Corners, limit: tir.Expr) -> tir.Body:
        """Counts boxes that overlap one of these corners by more than `limit`, as far as the first
        vector that has one."""
        k, v = Var("k"), Var("vk")
        values = [bound for pair in corners for bound in pair]
        box = [tir.Load(self.box, (const(side),)) for side in range(5)]
        sides = [tir.Load(self.sides, (const(side), k * LANES + v)) for side in range(5)]
        area = _area((box[0], box[1]), (box[2], box[3]))
        exceeds = tir.Cast(_overlap(sides, box, limit), "int32")
        count = tir.nest(
            ((v, LANES),), (tir.Reduce(tir.ReduceOp.ADD, self.overlapped, (), exceeds),)
        )
        is_picked = tir.below_count(k * LANES, self.count)
        none = compared("eq", tir.Load(self.overlapped, ()), 0)
        vectors = self.sides.shape[1] // LANES
        return (
            *(
                tir.Store(self.box, (const(side),), value)
                for side, value in enumerate((*values, area))
            ),
            tir.Store(self.overlapped, (), stages.literal(0, "int32")),
            *tir.nest(((k, vectors),), (tir.If(is_picked, (tir.If(none, count),)),)),
        )

    def added(self, place: Var, stores: tir.Body) -> tir.Body:
        """Picks the box that was compared last unless it overlaps, with `stores` executed at its
        `place` among those that are picked."""
        sides = (
            tir.Store(self.sides, (const(side), place), tir.Load(self.box, (const(side),)))
            for side in range(5)
        )
        one_more = tir.Reduce(tir.ReduceOp.ADD, self.count, (), stages.literal(1, "int64"))
        put = stages.matched(place, self.most, tir.Load(self.count, ()), (*sides, *stores))
        return (tir.If(compared("eq", tir.Load(self.overlapped, ()), 0), (put, one_more)),)


def listed_boxes(batches: int, classes: int, most: int) -> tir.PrimFunc:
    """`y[p]` is batch, class and box of the p-th picked box; rows behind the last one are zero."""
    picked = tir.Buffer("picked", (batches, classes, most), "int64")
    room = batches * classes * most
    y = tir.Buffer("y", (room, 3), "int64")
    b, c, t = Var("b"), Var("c"), Var("t")
    loops = stages.loops_over(("b", "c", "t"), picked.shape)
    numbers: list[tir.Expr] = [tir.IndexValue(b), tir.IndexValue(c), tir.Load(picked, (b, c, t))]

    def stores(place: Var) -> tir.Body:
        return tuple(tir.Store(y, (place, const(k)), value) for k, value in enumerate(numbers))

    is_picked = compared("ge", tir.Load(picked, (b, c, t)), 0)
    parts = compacted("listed_boxes", loops, is_picked, y, 0, stores)
    return stages.kernel_of_stages("listed_boxes", (picked,), (y,), parts)


def _corners(boxes: tir.Buffer, at: tuple[IndexExpr, IndexExpr], centered: bool) -> Corners:
    """The lower and the upper bound of a box along both of its axes."""
    a, b, c, d = (tir.Load(boxes, (*at, const(k))) for k in range(4))
    if centered:
        halves = divide(c, 2.0), divide(d, 2.0)
        first, second = (
            (subtract(middle, half), add(middle, half))
            for middle, half in zip((a, b), halves, strict=True)
        )
        return first, second
    return (
        (tir.Binary("min", a, c), tir.Binary("max", a, c)),
        (tir.Binary("min", b, d), tir.Binary("max", b, d)),
    )


def _overlap(one: Sequence[tir.Expr], other: Sequence[tir.Expr], limit: tir.Expr) -> tir.Expr:
    """Whether the intersection of two boxes, given by their sides, exceeds `limit` of their
    union."""
    inner = [
        (tir.Binary("max", one[low], other[low]), tir.Binary("min", one[low + 1], other[low + 1]))
        for low in (0, 2)
    ]
    shared = _area(inner[0], inner[1])
    union = subtract(add(one[4], other[4]), shared)
    tests: list[tir.Expr] = [tir.Comparison("gt", high, low) for low, high in inner]
    tests += [compared("gt", area, 0.0) for area in (shared, one[4], other[4], union)]
    tests.append(tir.Comparison("gt", divide(shared, union), limit))
    return reduce(lambda a, b: tir.Binary("and", a, b), tests)


def _area(first: Side, second: Side) -> tir.Expr:
    return multiply(subtract(first[1], first[0]), subtract(second[1], second[0]))
