"""Non-maximum suppression: boxes picked by score, those that overlap a picked one left out.

In: how many batches, classes and boxes, and how many may be picked of each class.  Out: a PrimFunc
that gives the picked boxes, and one that puts them one below the other.
"""

from __future__ import annotations

from functools import reduce

from graphflow.arith import IndexExpr, Var, const
from graphflow.kernels.definitions.indexing import matched
from graphflow.kernels.definitions.stages import (
    elementwise_stage,
    kernel,
    literal,
    loops_over,
    nest,
)
from graphflow.kernels.definitions.values import add, compared, divide, multiply, subtract
from graphflow.tir import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Comparison,
    Expr,
    If,
    IndexValue,
    Literal,
    Load,
    PrimFunc,
    Reduce,
    ReduceOp,
    Stmt,
    Store,
)


def picked_boxes(
    batches: int, classes: int, boxes: int, most: int, centered: bool, thresholds: tuple[bool, bool]
) -> PrimFunc:
    """`y[b, c, t]` is the t-th box picked of a class, int64, or −1 where there is none.

    The box with the highest score is picked, of equal ones the first; then no box is that overlaps
    it by more than `overlap` (0 if it is not given).  Only scores above `least` count, if that is
    given.  `thresholds` says which of the two are: parameters of one element each.  Boxes are
    `y, x, y, x` of two corners, or if `centered` `x, y, width, height`.
    """
    corners = Buffer("boxes", (batches, boxes, 4), "float32")
    scores = Buffer("scores", (batches, classes, boxes), "float32")
    overlap, least = Buffer("overlap", (1,), "float32"), Buffer("least", (1,), "float32")
    y = Buffer("y", (batches, classes, most), "int64")
    alive, best = Buffer("alive", (boxes,), "bool"), Buffer("best", (1,), "float32")
    found, at = Buffer("found", (1,), "int64"), (const(0),)
    (b, c), outer = (Var("b"), Var("c")), loops_over(("b", "c"), (batches, classes))
    ((i, _),) = first = loops_over("i", (boxes,))
    ((j, _),) = second = loops_over("j", (boxes,))
    ((k, _),) = third = loops_over("k", (boxes,))
    ((t, _),) = turns = loops_over("t", (most,))
    row = Var("row")
    counts: Expr = Literal(True, "bool")
    if thresholds[1]:
        counts = Comparison("gt", Load(scores, (b, c, i)), Load(least, at))
    score = Load(scores, (b, c, j))
    is_better = Binary(
        "or", compared("lt", Load(found, at), 0), Comparison("gt", score, Load(best, at))
    )
    take = If(
        Binary("and", Load(alive, (j,)), is_better),
        (Store(best, at, score), Store(found, at, IndexValue(j))),
    )
    limit: Expr = Load(overlap, at) if thresholds[0] else literal(0, "float32")
    one, other = _corners(corners, (b, row), centered), _corners(corners, (b, k), centered)
    left_out = If(
        Binary("and", Load(alive, (k,)), _overlap(one, other, limit)),
        (Store(alive, (k,), Literal(False, "bool")),),
    )
    suppress = (*nest(third, (left_out,)), Store(alive, (row,), Literal(False, "bool")))
    # Once nothing is found, nothing is left to look for.
    look: tuple[Stmt, ...] = (Store(found, at, literal(-1, "int64")), *nest(second, (take,)))
    turn = (
        If(compared("ge", Load(found, at), 0), look),
        Store(y, (b, c, t), Load(found, at)),
        matched(row, boxes, Load(found, at), suppress),
    )
    body = (
        *(Allocate(buffer) for buffer in (alive, best, found)),
        Store(best, at, literal(0, "float32")),
        Store(found, at, literal(0, "int64")),
        *nest(first, (Store(alive, (i,), counts),)),
        *nest(turns, turn),
    )
    given = [
        buffer for buffer, is_given in zip((overlap, least), thresholds, strict=True) if is_given
    ]
    stage = Block("picked_boxes", nest(outer, body))
    return kernel("picked_boxes", (corners, scores, *given), (y,), (stage,))


def listed_boxes(batches: int, classes: int, most: int) -> PrimFunc:
    """`y[p]` is batch, class and box of the p-th picked box; zeros behind the last one."""
    picked = Buffer("picked", (batches, classes, most), "int64")
    room = batches * classes * most
    y, count = Buffer("y", (room, 3), "int64"), Buffer("count", (1,), "int64")
    (b, c, t), at, place = (Var("b"), Var("c"), Var("t")), (const(0),), Var("place")
    loops = loops_over(("b", "c", "t"), picked.shape)
    numbers: tuple[Expr, ...] = (IndexValue(b), IndexValue(c), Load(picked, (b, c, t)))
    stores = tuple(Store(y, (place, const(k)), value) for k, value in enumerate(numbers))
    listed = (
        matched(place, room, Load(count, at), stores),
        Reduce(ReduceOp.ADD, count, at, literal(1, "int64")),
    )
    test = If(compared("ge", Load(picked, (b, c, t)), 0), listed)
    cleared = elementwise_stage("cleared", y, loops_over("z", y.shape), literal(0, "int64"))
    body = (Allocate(count), Store(count, at, literal(0, "int64")), *nest(loops, (test,)))
    return kernel("listed_boxes", (picked,), (y,), (cleared, Block("listed_boxes", body)))


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


def _overlap(
    one: tuple[tuple[Expr, Expr], tuple[Expr, Expr]],
    other: tuple[tuple[Expr, Expr], tuple[Expr, Expr]],
    limit: Expr,
) -> Expr:
    """Whether the intersection of two boxes is more than `limit` of their union."""
    sides = [
        (Binary("max", a[0], b[0]), Binary("min", a[1], b[1]))
        for a, b in zip(one, other, strict=True)
    ]
    inner = _area(*sides)
    areas = _area(*one), _area(*other)
    union = subtract(add(*areas), inner)
    tests: list[Expr] = [Comparison("gt", high, low) for low, high in sides]
    tests += [compared("gt", area, 0.0) for area in (inner, *areas, union)]
    tests.append(Comparison("gt", divide(inner, union), limit))
    return reduce(lambda a, b: Binary("and", a, b), tests)


def _area(first: tuple[Expr, Expr], second: tuple[Expr, Expr]) -> Expr:
    return multiply(subtract(first[1], first[0]), subtract(second[1], second[0]))
