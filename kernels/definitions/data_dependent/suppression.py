"""Non-maximum suppression: picks boxes by score, and drops those that overlap a picked one.

In: the numbers of batches, classes and boxes, and how many boxes may be picked in each class.  Out:
a PrimFunc that gives the picked boxes of each class, and one that lists them in consecutive rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.compaction import compacted
from graphflow.kernels.definitions.data_dependent.indexing import matched
from graphflow.kernels.definitions.scalar_functions import add, compared, divide, multiply, subtract
from graphflow.kernels.definitions.stages import Loop

CHUNK = 16
"""The number of scores that are compared at once, in vector lanes."""


def box_sides(batches: int, boxes: int, centered: bool) -> tir.PrimFunc:
    """`y[b, s, k]` are the lower and upper bounds of box k along both axes, and its area.

    Boxes are `y, x, y, x` of two corners, or if `centered` `x, y, width, height`.
    """
    given = tir.Buffer("boxes", (batches, boxes, 4), "float32")
    y = tir.Buffer("y", (batches, 5, boxes), "float32")
    parts = []
    for side in range(5):
        loops = stages.loops_over((f"b{side}", f"k{side}"), (batches, boxes))
        b, k = stages.indices_of(loops)
        corners = _corners(given, (b, k), centered)
        bounds = [bound for pair in corners for bound in pair]
        value = bounds[side] if side < 4 else _area(*corners)
        parts.append(stages.store_stage(f"side{side}", y, loops, (b, const(side), k), value))
    return stages.kernel_of_stages("box_sides", (given,), (y,), parts)


def picked_boxes(
    batches: int, classes: int, boxes: int, most: int, thresholds: tuple[bool, bool]
) -> tir.PrimFunc:
    """`y[b, c, t]` is the t-th box picked of a class, int64, or −1 if there is none.

    The box with the highest score is picked, of equal ones the first; then all boxes are dropped
    whose intersection over union with it exceeds `overlap` (0 if it is not given).  Scores that are
    NaN or not above `least`, if that is given, do not count.  `thresholds` says which of the two
    parameters are given, as tensors of one element.  `sides` is the result of `box_sides`.
    """
    sides = tir.Buffer("sides", (batches, 5, boxes), "float32")
    scores = tir.Buffer("scores", (batches, classes, boxes), "float32")
    overlap, least = tir.Buffer("overlap", (1,), "float32"), tir.Buffer("least", (1,), "float32")
    y = tir.Buffer("y", (batches, classes, most), "int64")
    # The scores of the boxes that are left; NaN, which exceeds nothing, for the others.
    live = tir.Buffer("live", (-(-boxes // CHUNK) * CHUNK,), "float32")
    found, at = tir.Buffer("found", (1,), "int64"), (const(0),)
    (b, c), outer = (Var("b"), Var("c")), stages.loops_over(("b", "c"), (batches, classes))
    ((i, _),) = first = stages.loops_over("i", (boxes,))
    ((k, _),) = third = stages.loops_over("k", (boxes,))
    ((i_behind, _),) = behind = stages.loops_over("p", (live.size - boxes,))
    ((t, _),) = turns = stages.loops_over("t", (most,))
    row, gone = Var("row"), stages.literal(float("nan"), "float32")
    score: tir.Expr = tir.Load(scores, (b, c, i))
    if thresholds[1]:
        score = tir.Select(tir.Comparison("gt", score, tir.Load(least, at)), score, gone)
    limit: tir.Expr = tir.Load(overlap, at) if thresholds[0] else stages.literal(0, "float32")
    overlaps = _overlap(_sides(sides, b, row), _sides(sides, b, k), limit)
    kept = tir.Select(overlaps, gone, tir.Load(live, (k,)))
    suppress = (*tir.nest(third, (tir.Store(live, (k,), kept),)), tir.Store(live, (row,), gone))
    # Once nothing is found, nothing is left to look for.
    turn = (
        tir.If(compared("ge", tir.Load(found, at), 0), _first_of_largest(live, found)),
        tir.Store(y, (b, c, t), tir.Load(found, at)),
        matched(row, boxes, tir.Load(found, at), suppress),
    )
    body = (
        tir.Allocate(live),
        tir.Allocate(found),
        tir.Store(found, at, stages.literal(0, "int64")),
        *tir.nest(first, (tir.Store(live, (i,), score),)),
        *tir.nest(behind, (tir.Store(live, (i_behind + boxes,), gone),)),
        *tir.nest(turns, turn),
    )
    given = [b for b, is_given in zip((overlap, least), thresholds, strict=True) if is_given]
    return stages.nest_kernel("picked_boxes", (sides, scores, *given), y, outer, body)


def _first_of_largest(values: tir.Buffer, found: tir.Buffer) -> tir.Body:
    """`found[0]` is the first position of the largest number, −1 if all are NaN.

    Each lane of a chunk keeps its own maximum and first position, so no step depends on the one
    before.
    """
    none, at = stages.literal(values.size, "int64"), (const(0),)
    largest = tir.Buffer("largest", (CHUNK,), "float32")
    places = tir.Buffer("places", (CHUNK,), "int64")
    best = tir.Buffer("best", (1,), "float32")
    lowest = stages.literal(float("-inf"), "float32")

    def chunks(name: str) -> tuple[Sequence[Loop], Var, IndexExpr]:
        loops = stages.loops_over((f"{name}c", f"{name}v"), (values.size // CHUNK, CHUNK))
        (chunk, _), (place, _) = loops
        return loops, place, chunk * CHUNK + place

    ((u, _),), ((v, _),) = clear, gather = (
        stages.loops_over("u", (CHUNK,)),
        stages.loops_over("v", (CHUNK,)),
    )
    ((w, _),) = settle = stages.loops_over("w", (CHUNK,))
    first, lane, place = chunks("m")
    second, other, there = chunks("w")
    exceeds = tir.Comparison("gt", tir.Load(values, (place,)), tir.Load(largest, (lane,)))
    larger = tir.Select(exceeds, tir.Load(values, (place,)), tir.Load(largest, (lane,)))
    over_best = tir.Comparison("gt", tir.Load(largest, (v,)), tir.Load(best, at))
    is_best = tir.Comparison("eq", tir.Load(values, (there,)), tir.Load(best, at))
    sooner = tir.Binary(
        "min", tir.Load(places, (other,)), tir.Select(is_best, tir.IndexValue(there), none)
    )
    is_none = tir.Comparison("eq", tir.Load(found, at), none)
    return (
        *(tir.Allocate(buffer) for buffer in (largest, places, best)),
        *tir.nest(clear, (tir.Store(largest, (u,), lowest), tir.Store(places, (u,), none))),
        *tir.nest(first, (tir.Store(largest, (lane,), larger),)),
        tir.Store(best, at, lowest),
        *tir.nest(
            gather,
            (
                tir.Store(
                    best, at, tir.Select(over_best, tir.Load(largest, (v,)), tir.Load(best, at))
                ),
            ),
        ),
        *tir.nest(second, (tir.Store(places, (other,), sooner),)),
        tir.Store(found, at, none),
        *tir.nest(settle, (tir.Reduce(tir.ReduceOp.MIN, found, at, tir.Load(places, (w,))),)),
        tir.Store(found, at, tir.Select(is_none, stages.literal(-1, "int64"), tir.Load(found, at))),
    )


def listed_boxes(batches: int, classes: int, most: int) -> tir.PrimFunc:
    """`y[p]` is batch, class and box of the p-th picked box; rows behind the last one are zero."""
    picked = tir.Buffer("picked", (batches, classes, most), "int64")
    room = batches * classes * most
    y, place = tir.Buffer("y", (room, 3), "int64"), Var("place")
    b, c, t = Var("b"), Var("c"), Var("t")
    loops = stages.loops_over(("b", "c", "t"), picked.shape)
    numbers: list[tir.Expr] = [tir.IndexValue(b), tir.IndexValue(c), tir.Load(picked, (b, c, t))]
    stores = tuple(tir.Store(y, (place, const(k)), value) for k, value in enumerate(numbers))
    is_picked = compared("ge", tir.Load(picked, (b, c, t)), 0)
    body = compacted(loops, is_picked, place, room, stores)
    return stages.kernel_of_stages(
        "listed_boxes", (picked,), (y,), (stages.cleared(y), tir.Block("listed_boxes", body))
    )


def _corners(
    boxes: tir.Buffer, at: tuple[IndexExpr, IndexExpr], centered: bool
) -> tuple[tuple[tir.Expr, tir.Expr], tuple[tir.Expr, tir.Expr]]:
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


def _sides(sides: tir.Buffer, b: IndexExpr, box: IndexExpr) -> list[tir.Expr]:
    return [tir.Load(sides, (b, const(side), box)) for side in range(5)]


def _overlap(one: list[tir.Expr], other: list[tir.Expr], limit: tir.Expr) -> tir.Expr:
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


def _area(first: tuple[tir.Expr, tir.Expr], second: tuple[tir.Expr, tir.Expr]) -> tir.Expr:
    return multiply(subtract(first[1], first[0]), subtract(second[1], second[0]))
