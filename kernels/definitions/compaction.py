"""Compaction: kernels that keep some elements of a tensor, whose number depends on data.

In: logical shapes.  Out: a PrimFunc whose output has room for all elements; the kept elements stand
at its beginning, zeros behind them.  A kernel of its own (`count_of`) counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.arith import IndexExpr, Var, const
from graphflow.kernels.definitions.indexing import matched
from graphflow.kernels.definitions.ranking import stands_before
from graphflow.kernels.definitions.scalar_functions import compared
from graphflow.kernels.definitions.stages import (
    Loop,
    Shape,
    cleared,
    elementwise_stage,
    indices_of,
    kernel,
    literal,
    loops_over,
    normalized_axes,
    reduction_stage,
)
from graphflow.tir import (
    Allocate,
    Binary,
    Block,
    Body,
    Buffer,
    Cast,
    Comparison,
    Expr,
    If,
    IndexValue,
    Literal,
    Load,
    PrimFunc,
    Reduce,
    ReduceOp,
    Select,
    Store,
    nest,
)


def compacted(loops: Sequence[Loop], test: Expr, place: Var, room: int, stores: Body) -> Body:
    """Executes `stores` at each point of `loops` where `test` holds, in order, with `place` 0, 1,
    2, ….

    There are `room` places; points beyond them are dropped.
    """
    count, at = Buffer("count", (1,), "int64"), (const(0),)
    appended = matched(place, room, Load(count, at), stores)
    counted = Reduce(ReduceOp.ADD, count, at, literal(1, "int64"))
    start = Store(count, at, literal(0, "int64"))
    return (Allocate(count), start, *nest(loops, (If(test, (appended, counted)),)))


def kept_slices(x_shape: Shape, axis: int, conditions: int, dtype: str = "float32") -> PrimFunc:
    """The slices of x along `axis` for which the element of `keep`, a vector of bools, is true.

    `keep` has `conditions` elements; slices behind them are not kept.
    """
    (axis,) = normalized_axes((axis,), len(x_shape))
    room = min(conditions, x_shape[axis])
    x, keep = Buffer("x", x_shape, dtype), Buffer("keep", (conditions,), "bool")
    y = Buffer("y", (*x_shape[:axis], room, *x_shape[axis + 1 :]), dtype)
    ((i, _),) = along = loops_over("i", (room,))
    others = loops_over("b", (*x_shape[:axis], *x_shape[axis + 1 :]))
    place = Var("place")

    def element(index: IndexExpr) -> tuple[IndexExpr, ...]:
        around = indices_of(others)
        return (*around[:axis], index, *around[axis:])

    store = Store(y, element(place), Load(x, element(i)))
    body = compacted(along, Load(keep, (i,)), place, room, nest(others, (store,)))
    return kernel("kept_slices", (x, keep), (y,), (cleared(y), Block("kept_slices", body)))


def non_zero(x_shape: Shape, dtype: str = "float32") -> PrimFunc:
    """`y[k, p]` is the index on axis k of the p-th element that is not zero, in row-major order."""
    x = Buffer("x", x_shape, dtype)
    y = Buffer("y", (len(x_shape), x.size), "int64")
    loops, place = loops_over("i", x_shape), Var("place")
    stores = tuple(Store(y, (const(k), place), IndexValue(var)) for k, (var, _) in enumerate(loops))
    body = compacted(loops, is_not_zero(Load(x, indices_of(loops))), place, x.size, stores)
    return kernel("non_zero", (x,), (y,), (cleared(y), Block("non_zero", body)))


def count_of(x_shape: Shape, dtype: str, at_least: int | None = None) -> PrimFunc:
    """`y[()]` is the number of elements of x that are not zero, or that are >= `at_least`;
    int64."""
    x, y = Buffer("x", x_shape, dtype), Buffer("y", (), "int64")
    loops = loops_over("r", x_shape)
    element = Load(x, indices_of(loops))
    counts = is_not_zero(element) if at_least is None else compared("ge", element, at_least)
    stage = reduction_stage("count_of", ReduceOp.ADD, y, (), (), loops, Cast(counts, "int64"))
    return kernel("count_of", (x,), (y,), (stage,))


def counted_slices(shape: Shape, axis: int, fill: float, dtype: str) -> PrimFunc:
    """`y[i…] = x[i…]` for the first `count[()]` indices of an axis, `fill` behind them."""
    x, y, count = Buffer("x", shape, dtype), Buffer("y", shape, dtype), Buffer("count", (), "int64")
    loops = loops_over("i", shape)
    given = Comparison("lt", IndexValue(loops[axis][0]), Load(count, ()))
    value = Select(given, Load(x, indices_of(loops)), literal(fill, dtype))
    stage = elementwise_stage("counted_slices", y, loops, value)
    return kernel("counted_slices", (x, count), (y,), (stage,))


def is_not_zero(value: Expr) -> Expr:
    """Whether a number is not zero, which is true of NaN; a bool is returned as it is."""
    return value if value.dtype == "bool" else compared("ne", value, 0)


# Unique elements ---------------------------------------------------------------------------------


def first_alike(shape: tuple[int, int], dtype: str = "float32") -> PrimFunc:
    """`y[i]` is the index of the first row of x that equals row i, int64; NaNs are equal here."""
    x, y = Buffer("x", shape, dtype), Buffer("y", shape[:1], "int64")
    ((i, _),), ((j, _),) = loops, others = loops_over("i", shape[:1]), loops_over("j", shape[:1])
    differ, at = Buffer("differ", (1,), "bool"), (const(0),)
    ((e, _),) = inner = loops_over("e", shape[1:])
    one, other = Load(x, (i, e)), Load(x, (j, e))
    apart = Binary("or", stands_before(one, other, False), stands_before(other, one, False))
    found = Select(Load(differ, at), literal(shape[0], "int64"), IndexValue(j))
    compare: Body = (
        Allocate(differ),
        Store(differ, at, Literal(False, "bool")),
        *nest(inner, (Reduce(ReduceOp.MAX, differ, at, apart),)),
        Reduce(ReduceOp.MIN, y, (i,), found),
    )
    start = Store(y, (i,), literal(shape[0], "int64"))
    body = nest(loops, (start, *nest(others, compare)))
    return kernel("first_alike", (x,), (y,), (Block("first_alike", body),))


def places_of(shape: tuple[int, int], ordered: bool, dtype: str = "float32") -> PrimFunc:
    """`y[i]` is the position of row i among the distinct rows of x, int64.

    Distinct rows are in lexicographic order if `ordered`, else in order of first occurrence.
    `first` is the result of `first_alike`.
    """
    x, first = Buffer("x", shape, dtype), Buffer("first", shape[:1], "int64")
    y = Buffer("y", shape[:1], "int64")
    ((i, _),), ((j, _),) = loops, others = loops_over("i", shape[:1]), loops_over("j", shape[:1])
    is_first = Comparison("eq", Load(first, (j,)), IndexValue(j))
    if not ordered:
        before = Comparison("lt", IndexValue(j), Load(first, (i,)))
        value = Cast(Binary("and", is_first, before), "int64")
        stage = reduction_stage("places_of", ReduceOp.ADD, y, loops, (i,), others, value)
        return kernel("places_of", (x, first), (y,), (stage,))
    sign, at = Buffer("sign", (1,), "int64"), (const(0),)
    ((e, _),) = inner = loops_over("e", shape[1:])
    one, other = Load(x, (i, e)), Load(x, (j, e))
    # −1 where row j stands before row i, +1 where it stands behind it; the first difference counts.
    compared_here = Select(
        stands_before(other, one, False),
        literal(-1, "int64"),
        Select(stands_before(one, other, False), literal(1, "int64"), literal(0, "int64")),
    )
    decided = Select(compared("ne", Load(sign, at), 0), Load(sign, at), compared_here)
    counts = Binary("and", is_first, compared("lt", Load(sign, at), 0))
    compare: Body = (
        Allocate(sign),
        Store(sign, at, literal(0, "int64")),
        *nest(inner, (Store(sign, at, decided),)),
        Reduce(ReduceOp.ADD, y, (i,), Cast(counts, "int64")),
    )
    body = nest(loops, (Store(y, (i,), literal(0, "int64")), *nest(others, compare)))
    return kernel("places_of", (x, first), (y,), (Block("places_of", body),))


def unique_rows(shape: tuple[int, int], dtype: str = "float32") -> PrimFunc:
    """`y[places[i], e] = x[i, e]` for the first occurrence of each distinct row."""
    x, first, places = _of_rows(shape, dtype)
    y = Buffer("y", shape, dtype)
    ((i, _),) = loops = loops_over("i", shape[:1])
    inner, row = loops_over("e", shape[1:]), Var("row")
    store = Store(y, (row, *indices_of(inner)), Load(x, (i, *indices_of(inner))))
    body = _where_first(first, places, i, row, shape[0], nest(inner, (store,)))
    stage = Block("unique_rows", nest(loops, body))
    return kernel("unique_rows", (x, first, places), (y,), (cleared(y), stage))


def unique_indices(count: int) -> PrimFunc:
    """`y[places[i]] = i` for the first occurrence of each distinct row, int64."""
    _, first, places = _of_rows((count, 1), "int64")
    y = Buffer("y", (count,), "int64")
    ((i, _),) = loops = loops_over("i", (count,))
    row = Var("row")
    body = _where_first(first, places, i, row, count, (Store(y, (row,), IndexValue(i)),))
    stage = Block("unique_indices", nest(loops, body))
    return kernel("unique_indices", (first, places), (y,), (cleared(y), stage))


def unique_counts(count: int) -> PrimFunc:
    """`y[p]` is the number of rows whose position among the distinct rows is p, int64."""
    places, y = Buffer("places", (count,), "int64"), Buffer("y", (count,), "int64")
    ((i, _),) = loops = loops_over("i", (count,))
    row = Var("row")
    update = Reduce(ReduceOp.ADD, y, (row,), literal(1, "int64"))
    body = nest(loops, (matched(row, count, Load(places, (i,)), (update,)),))
    return kernel("unique_counts", (places,), (y,), (cleared(y), Block("unique_counts", body)))


def unique_extent(count: int) -> PrimFunc:
    """`y[()]` is the number of distinct rows, int64."""
    first, y = Buffer("first", (count,), "int64"), Buffer("y", (), "int64")
    ((i, _),) = loops = loops_over("i", (count,))
    value = Cast(Comparison("eq", Load(first, (i,)), IndexValue(i)), "int64")
    stage = reduction_stage("unique_extent", ReduceOp.ADD, y, (), (), loops, value)
    return kernel("unique_extent", (first,), (y,), (stage,))


def _of_rows(shape: tuple[int, int], dtype: str) -> tuple[Buffer, Buffer, Buffer]:
    return (
        Buffer("x", shape, dtype),
        Buffer("first", shape[:1], "int64"),
        Buffer("places", shape[:1], "int64"),
    )


def _where_first(first: Buffer, places: Buffer, i: Var, row: Var, extent: int, body: Body) -> Body:
    """`body` with `row` bound to the position of row i, if row i is a first occurrence."""
    is_first = Comparison("eq", Load(first, (i,)), IndexValue(i))
    return (If(is_first, (matched(row, extent, Load(places, (i,)), body),)),)
