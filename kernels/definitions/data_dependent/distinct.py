"""Unique: which rows of a tensor are equal, and the distinct ones among them.

In: the number of rows and their width.  Out: PrimFuncs that sort the rows, find the first of those
that are equal, and give the distinct rows, their indices and counts; the outputs have room for all
rows, and `unique_extent` counts the distinct ones.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.digit_sort import DigitSort, sorting_key
from graphflow.kernels.definitions.data_dependent.ranking import stands_before


def row_order(shape: tuple[int, int], dtype: str = "float32") -> tir.PrimFunc:
    """`y[t]` is the index of the t-th row of x in lexicographic order, int64, of equal rows the
    first; NaN is behind all numbers."""
    rows, width = shape
    x, y = tir.Buffer("x", shape, dtype), tir.Buffer("y", (rows,), "int64")
    line = "uint8" if dtype == "bool" else dtype

    def key(row: IndexExpr, column: IndexExpr) -> tir.Expr:
        element: tir.Expr = tir.Load(x, (row, column))
        return sorting_key(element if line == dtype else tir.Cast(element, line), False)

    def put(place: IndexExpr, row: tir.Expr) -> tir.Stmt:
        return tir.Store(y, (place,), row)

    sort = DigitSort(rows, rows, line)
    if width == 1:
        body = sort.sorted(lambda row: key(row, const(0)), put)
    else:
        body = sort.sorted_by(width, key, put)
    return stages.kernel_of_stages("row_order", (x,), (y,), (tir.Block("row_order", body),))


def first_alike(shape: tuple[int, int], dtype: str = "float32") -> tir.PrimFunc:
    """`y[i]` is the index of the first row of x that equals row i, int64; NaNs are equal here.

    `order` is the result of `row_order`, in which equal rows follow one another.
    """
    rows = shape[0]
    x, order, _, _ = _of_rows(shape, dtype)
    y = tir.Buffer("y", (rows,), "int64")
    head, before = (tir.Buffer(name, (), "int64") for name in ("head", "before"))
    differ = tir.Buffer("differ", (), "bool")
    t, e, row, other = map(Var, ("t", "e", "row", "other"))
    one, two = tir.Load(x, (row, e)), tir.Load(x, (other, e))
    apart = tir.Binary("or", stands_before(one, two, False), stands_before(two, one, False))
    compared_rows = tir.nest(((e, shape[1]),), (tir.Reduce(tir.ReduceOp.MAX, differ, (), apart),))
    number = tir.IndexValue(row)
    is_first = tir.Comparison("lt", tir.Load(before, ()), stages.literal(0, "int64"))
    one_row = (
        tir.Store(differ, (), is_first),
        stages.matched(other, rows, tir.Load(before, ()), compared_rows),
        tir.If(tir.Load(differ, ()), (tir.Store(head, (), number),)),
        tir.Store(y, (row,), tir.Load(head, ())),
        tir.Store(before, (), number),
    )
    none = stages.literal(-1, "int64")
    body = (
        *map(tir.Allocate, (head, before, differ)),
        tir.Store(head, (), none),
        tir.Store(before, (), none),
        *tir.nest(((t, rows),), (stages.matched(row, rows, tir.Load(order, (t,)), one_row),)),
    )
    block = tir.Block("first_alike", body)
    return stages.kernel_of_stages("first_alike", (x, order), (y,), (stages.cleared(y), block))


def places_of(rows: int, ordered: bool) -> tir.PrimFunc:
    """`y[i]` is the position of row i among the distinct rows, int64.

    Distinct rows are in lexicographic order if `ordered`, else in order of first occurrence.
    `order` and `first` are the results of `row_order` and `first_alike`; the former is an input
    only if `ordered`.
    """
    _, order, first, _ = _of_rows((rows, 1), "int64")
    y, places = tir.Buffer("y", (rows,), "int64"), tir.Buffer("own", (rows,), "int64")
    last, t, row, head = tir.Buffer("last", (), "int64"), Var("t"), Var("row"), Var("head")
    one_more = tir.Reduce(tir.ReduceOp.ADD, last, (), stages.literal(1, "int64"))
    place, known = tir.Load(last, ()), tir.Load(first, (row,))
    starts = tir.Comparison("eq", known, tir.IndexValue(row))
    one_row: tir.Body
    if ordered:
        one_row = (tir.If(starts, (one_more,)), tir.Store(y, (row,), place))
        step: tir.Body = (stages.matched(row, rows, tir.Load(order, (t,)), one_row),)
        body = tir.nest(((t, rows),), step)
        given: tuple[tir.Buffer, ...] = (order, first)
    else:
        same = stages.matched(head, rows, known, (tir.Store(y, (row,), tir.Load(places, (head,))),))
        begun = (one_more, tir.Store(places, (row,), place), tir.Store(y, (row,), place))
        body = (tir.Allocate(places), *tir.nest(((row, rows),), (tir.If(starts, begun, (same,)),)))
        given = (first,)
    start = tir.Store(last, (), stages.literal(-1, "int64"))
    block = tir.Block("places_of", (tir.Allocate(last), start, *body))
    return stages.kernel_of_stages("places_of", given, (y,), (stages.cleared(y), block))


def unique_rows(shape: tuple[int, int], dtype: str = "float32") -> tir.PrimFunc:
    """`y[places[i], e] = x[i, e]` for the first occurrence of each distinct row."""
    x, _, first, places = _of_rows(shape, dtype)
    y = tir.Buffer("y", shape, dtype)
    ((i, _),) = loops = stages.loops_over("i", shape[:1])
    inner, row = stages.loops_over("e", shape[1:]), Var("row")
    store = tir.Store(
        y, (row, *stages.indices_of(inner)), tir.Load(x, (i, *stages.indices_of(inner)))
    )
    body = _where_first(first, places, i, row, shape[0], tir.nest(inner, (store,)))
    return stages.nest_kernel("unique_rows", (x, first, places), y, loops, body, stages.cleared(y))


def unique_indices(count: int) -> tir.PrimFunc:
    """`y[places[i]] = i` for the first occurrence of each distinct row, int64."""
    _, _, first, places = _of_rows((count, 1), "int64")
    y = tir.Buffer("y", (count,), "int64")
    ((i, _),) = loops = stages.loops_over("i", (count,))
    row = Var("row")
    body = _where_first(first, places, i, row, count, (tir.Store(y, (row,), tir.IndexValue(i)),))
    return stages.nest_kernel("unique_indices", (first, places), y, loops, body, stages.cleared(y))


def unique_counts(count: int) -> tir.PrimFunc:
    """`y[p]` is the number of rows whose position among the distinct rows is p, int64."""
    places, y = tir.Buffer("places", (count,), "int64"), tir.Buffer("y", (count,), "int64")
    ((i, _),) = loops = stages.loops_over("i", (count,))
    row = Var("row")
    update = tir.Reduce(tir.ReduceOp.ADD, y, (row,), stages.literal(1, "int64"))
    body = (stages.matched(row, count, tir.Load(places, (i,)), (update,)),)
    return stages.nest_kernel("unique_counts", (places,), y, loops, body, stages.cleared(y))


def unique_extent(count: int) -> tir.PrimFunc:
    """`y[()]` is the number of distinct rows, int64."""
    first, y = tir.Buffer("first", (count,), "int64"), tir.Buffer("y", (), "int64")
    ((i, _),) = loops = stages.loops_over("i", (count,))
    value = tir.Cast(tir.Comparison("eq", tir.Load(first, (i,)), tir.IndexValue(i)), "int64")
    stage = stages.reduction_stage("unique_extent", tir.ReduceOp.ADD, y, (), loops, value)
    return stages.kernel_of_stages("unique_extent", (first,), (y,), (stage,))


def _of_rows(
    shape: tuple[int, int], dtype: str
) -> tuple[tir.Buffer, tir.Buffer, tir.Buffer, tir.Buffer]:
    order, first, places = (
        tir.Buffer(name, shape[:1], "int64") for name in ("order", "first", "places")
    )
    return tir.Buffer("x", shape, dtype), order, first, places


def _where_first(
    first: tir.Buffer, places: tir.Buffer, i: Var, row: Var, extent: int, body: tir.Body
) -> tir.Body:
    """`body` with `row` bound to the position of row i, if row i is a first occurrence."""
    is_first = tir.Comparison("eq", tir.Load(first, (i,)), tir.IndexValue(i))
    return (tir.If(is_first, (stages.matched(row, extent, tir.Load(places, (i,)), body),)),)
