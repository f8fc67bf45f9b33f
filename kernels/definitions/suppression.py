"""Non-maximum suppression: picks boxes by score, and drops those that overlap a picked one.

In: the numbers of batches, classes and boxes, and how many boxes may be picked in each class.  Out:
a PrimFunc that gives the picked boxes of each class, and one that lists them in consecutive rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from graphflow.arith import IndexExpr, Var, const
from graphflow.kernels.definitions.compaction import compacted
from graphflow.kernels.definitions.indexing import matched
from graphflow.kernels.definitions.scalar_functions import add, compared, divide, multiply, subtract
from graphflow.kernels.definitions.stages import (
    Loop,
    cleared,
    indices_of,
    kernel,
    literal,
    loops_over,
    store_stage,
)
from graphflow.tir import (
    Allocate,
    Binary,
    Block,
    Body,
    Buffer,
    Comparison,
    Expr,
    If,
    IndexValue,
    Load,
    PrimFunc,
    Reduce,
    ReduceOp,
    Select,
    Store,
    nest,
)

CHUNK = 16
"""The number of scores that are compared at once, in vector lanes."""


def box_sides(batches: int, boxes: int, centered: bool) -> PrimFunc:
    """`y[b, s, k]` are the lower and upper bounds of box k along both axes, and its area.

    Boxes are `y, x, y, x` of two corners, or if `centered` `x, y, width, height`.
    """
    given = Buffer("boxes", (batches, boxes, 4), "float32")
    y = Buffer("y", (batches, 5, boxes), "float32")
    stages = []
    for side in range(5):
        loops = loops_over((f"b{side}", f"k{side}"), (batches, boxes))
        b, k = indices_of(loops)
        corners = _corners(given, (b, k), centered)
        bounds = [bound for pair in corners for bound in pair]
        value = bounds[side] if side < 4 else _area(*corners)
        stages.append(store_stage(f"side{side}", y, loops, (b, const(side), k), value))
    return kernel("box_sides", (given,), (y,), stages)


def picked_boxes(
    batches: int, classes: int, boxes: int, most: int, thresholds: tuple[bool, bool]
) -> PrimFunc:
    """`y[b, c, t]` is the t-th box picked of a class, int64, or −1 if there is none.

    The box with the highest score is picked, of equal ones the first; then all boxes are dropped
    whose intersection over union with it exceeds `overlap` (0 if it is not given).  Scores that are
    NaN or not above `least`, if that is given, do not count.  `thresholds` says which of the two
    parameters are given, as tensors of one element.  `sides` is the result of `box_sides`.
    """
    sides = Buffer("sides", (batches, 5, boxes), "float32")
    scores = Buffer("scores", (batches, classes, boxes), "float32")
    overlap, least = Buffer("overlap", (1,), "float32"), Buffer("least", (1,), "float32")
    y = Buffer("y", (batches, classes, most), "int64")
    # The scores of the boxes that are left; NaN, which exceeds nothing, for the others.
    live = Buffer("live", (-(-boxes // CHUNK) * CHUNK,), "float32")
    found, at = Buffer("found", (1,), "int64"), (const(0),)
    (b, c), outer = (Var("b"), Var("c")), loops_over(("b", "c"), (batches, classes))
    ((i, _),) = first = loops_over("i", (boxes,))
    ((k, _),) = third = loops_over("k", (boxes,))
    ((i_behind, _),) = behind = loops_over("p", (live.size - boxes,))
    ((t, _),) = turns = loops_over("t", (most,))
    row, gone = Var("row"), literal(float("nan"), "float32")
    score: Expr = Load(scores, (b, c, i))
    if thresholds[1]:
        score = Select(Comparison("gt", score, Load(least, at)), score, gone)
    limit: Expr = Load(overlap, at) if thresholds[0] else literal(0, "float32")
    overlaps = _overlap(_sides(sides, b, row), _sides(sides, b, k), limit)
    kept = Select(overlaps, gone, Load(live, (k,)))
    suppress = (*nest(third, (Store(live, (k,), kept),)), Store(live, (row,), gone))
    # Once nothing is found, nothing is left to look for.
    turn = (
        If(compared("ge", Load(found, at), 0), _first_of_largest(live, found)),
        Store(y, (b, c, t), Load(found, at)),
        matched(row, boxes, Load(found, at), suppress),
    )
    body = (
        Allocate(live),
        Allocate(found),
        Store(found, at, literal(0, "int64")),
        *nest(first, (Store(live, (i,), score),)),
        *nest(behind, (Store(live, (i_behind + boxes,), gone),)),
        *nest(turns, turn),
    )
    given = [b for b, is_given in zip((overlap, least), thresholds, strict=True) if is_given]
    stage = Block("picked_boxes", nest(outer, body))
    return kernel("picked_boxes", (sides, scores, *given), (y,), (stage,))


def _first_of_largest(values: Buffer, found: Buffer) -> Body:
    """`found[0]` is the first position of the largest number, −1 if all are NaN.

    Each lane of a chunk keeps its own maximum and first position, so no step depends on the one
    before.
    """
    none, at = literal(values.size, "int64"), (const(0),)
    largest, places = Buffer("largest", (CHUNK,), "float32"), Buffer("places", (CHUNK,), "int64")
    best = Buffer("best", (1,), "float32")
    lowest = literal(float("-inf"), "float32")

    def chunks(name: str) -> tuple[Sequence[Loop], Var, IndexExpr]:
        loops = loops_over((f"{name}c", f"{name}v"), (values.size // CHUNK, CHUNK))
        (chunk, _), (place, _) = loops
        return loops, place, chunk * CHUNK + place

    ((u, _),), ((v, _),) = clear, gather = loops_over("u", (CHUNK,)), loops_over("v", (CHUNK,))
    ((w, _),) = settle = loops_over("w", (CHUNK,))
    first, lane, place = chunks("m")
    second, other, there = chunks("w")
    exceeds = Comparison("gt", Load(values, (place,)), Load(largest, (lane,)))
    larger = Select(exceeds, Load(values, (place,)), Load(largest, (lane,)))
    over_best = Comparison("gt", Load(largest, (v,)), Load(best, at))
    is_best = Comparison("eq", Load(values, (there,)), Load(best, at))
    sooner = Binary("min", Load(places, (other,)), Select(is_best, IndexValue(there), none))
    is_none = Comparison("eq", Load(found, at), none)
    return (
        *(Allocate(buffer) for buffer in (largest, places, best)),
        *nest(clear, (Store(largest, (u,), lowest), Store(places, (u,), none))),
        *nest(first, (Store(largest, (lane,), larger),)),
        Store(best, at, lowest),
        *nest(gather, (Store(best, at, Select(over_best, Load(largest, (v,)), Load(best, at))),)),
        *nest(second, (Store(places, (other,), sooner),)),
        Store(found, at, none),
        *nest(settle, (Reduce(ReduceOp.MIN, found, at, Load(places, (w,))),)),
        Store(found, at, Select(is_none, literal(-1, "int64"), Load(found, at))),
    )


def listed_boxes(batches: int, classes: int, most: int) -> PrimFunc:
    """`y[p]` is batch, class and box of the p-th picked box; rows behind the last one are zero."""
    picked = Buffer("picked", (batches, classes, most), "int64")
    room = batches * classes * most
    y, place = Buffer("y", (room, 3), "int64"), Var("place")
    b, c, t = Var("b"), Var("c"), Var("t")
    loops = loops_over(("b", "c", "t"), picked.shape)
    numbers: tuple[Expr, ...] = (IndexValue(b), IndexValue(c), Load(picked, (b, c, t)))
    stores = tuple(Store(y, (place, const(k)), value) for k, value in enumerate(numbers))
    is_picked = compared("ge", Load(picked, (b, c, t)), 0)
    body = compacted(loops, is_picked, place, room, stores)
    return kernel("listed_boxes", (picked,), (y,), (cleared(y), Block("listed_boxes", body)))


def _corners(
    boxes: Buffer, at: tuple[IndexExpr, IndexExpr], centered: bool
) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
    """The lower and the upper bound of a box along both of its axes."""
    a, b, c, d = (Load(boxes, (*at, const(k))) for k in range(4))
    if centered:
        halves = divide(c, 2.0), divide(d, 2.0)
        first, second = (
            (subtract(middle, half), add(middle, half))
            for middle, half in zip((a, b), halves, strict=True)
        )
        return first, second
    return (
        (Binary("min", a, c), Binary("max", a, c)),
        (Binary("min", b, d), Binary("max", b, d)),
    )


def _sides(sides: Buffer, b: IndexExpr, box: IndexExpr) -> list[Expr]:
    return [Load(sides, (b, const(side), box)) for side in range(5)]


def _overlap(one: list[Expr], other: list[Expr], limit: Expr) -> Expr:
    """Whether the intersection of two boxes, given by their sides, exceeds `limit` of their
    union."""
    inner = [
        (Binary("max", one[low], other[low]), Binary("min", one[low + 1], other[low + 1]))
        for low in (0, 2)
    ]
    shared = _area(inner[0], inner[1])
    union = subtract(add(one[4], other[4]), shared)
    tests: list[Expr] = [Comparison("gt", high, low) for low, high in inner]
    tests += [compared("gt", area, 0.0) for area in (shared, one[4], other[4], union)]
    tests.append(Comparison("gt", divide(shared, union), limit))
    return reduce(lambda a, b: Binary("and", a, b), tests)


def _area(first: tuple[Expr, Expr], second: tuple[Expr, Expr]) -> Expr:
    return multiply(subtract(first[1], first[0]), subtract(second[1], second[0]))
