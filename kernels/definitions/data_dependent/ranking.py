"""TopK: the indices of the largest or smallest elements of an axis, in order.

In: a logical shape, an axis, the number of elements.  Out: a PrimFunc that gives their indices.
The order is total: by value, of equal elements the lower index first, and a NaN is larger than
every number (as numpy sorts).  There are three algorithms: elements are taken one after the other
from a line, the largest of what is left each time; or a line is sorted digit by digit; or the rank
of every element is found by counting those before it, which runs along several lines at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

from graphflow import tir
from graphflow.arith import IndexExpr, Var, less_than
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.digit_sort import (
    DigitSort,
    sorting_cycles,
    sorting_key,
)
from graphflow.kernels.definitions.data_dependent.indexing import as_int64
from graphflow.kernels.definitions.data_dependent.largest_first import LargestFirst
from graphflow.kernels.definitions.scalar_functions import compared, subtract
from graphflow.kernels.definitions.stages import Loop, Shape


def stands_before(a: tir.Expr, b: tir.Expr, largest: bool) -> tir.Expr:
    """Whether `a` comes strictly before `b` in the order: bool."""
    ordered: tir.Expr = tir.Comparison("gt" if largest else "lt", a, b)
    if a.dtype not in tir.FLOATS:
        return ordered
    first, second = (a, b) if largest else (b, a)
    # The NaN comes first among the largest, and last among the smallest.
    nan_decides = tir.Binary(
        "and", tir.Comparison("ne", first, first), tir.Comparison("eq", second, second)
    )
    return tir.Binary("or", ordered, nan_decides)


def ranking_pays(extent: int, count: int, dtype: str) -> bool:
    """Whether ranking all of `extent` elements, which compares each pair in vectors, is expected to
    take less time than finding the first `count` of them, by cycles measured on a Zen 4."""
    ranking = 0.7 * extent**2 + 10 * extent + 600
    return ranking < min(_taking_cycles(extent, count), sorting_cycles(extent, count, dtype))


def _taking_cycles(extent: int, count: int) -> float:
    """The cycles of taking elements one after the other: each waits for four searches, through a
    number of keys that grows with the root of the extent."""
    return count * (150 + sqrt(extent)) + 0.7 * extent + 1000


def selected(
    x_shape: Shape, axis: int, count: int, largest: bool = True, dtype: str = "float32"
) -> tir.PrimFunc:
    """`y[…, t, …]` is the index on `axis` of the t-th element in the order, int64."""
    axis, y_shape = _checked(x_shape, axis, count)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", y_shape, "int64")
    if not y.size:
        return stages.kernel_of_stages("selected", (x,), (y,), ())
    outer = stages.loops_over("a", (*x_shape[:axis], *x_shape[axis + 1 :]))
    nest = tir.nest(outer, _selected_line(x, y, outer, axis, largest))
    return stages.kernel_of_stages("selected", (x,), (y,), (tir.Block("selected", nest),))


def _selected_line(
    x: tir.Buffer, y: tir.Buffer, outer: Sequence[Loop], axis: int, largest: bool
) -> tir.Body:
    """Writes the first indices of a line of x along an axis, as many as y has room for."""
    extent, count = x.shape[axis], y.shape[axis]
    if _taking_cycles(extent, count) < sorting_cycles(extent, count, x.dtype):
        return _TakenLine(x, y, outer, axis, largest).selected()

    def at(index: IndexExpr) -> tuple[IndexExpr, ...]:
        return _on_axis(outer, axis, index)

    return DigitSort(extent, count, x.dtype).sorted(
        lambda index: sorting_key(tir.Load(x, at(index)), largest),
        lambda place, index: tir.Store(y, at(place), index),
    )


class _TakenLine:
    """A line of x along an axis, and the indices of the elements that are taken of it, in y.

    Elements are taken by their keys.  NaN has none and comes first or last; elements whose key is
    the lowest one come behind all others, in the order of their indices.
    """

    def __init__(
        self, x: tir.Buffer, y: tir.Buffer, outer: Sequence[Loop], axis: int, largest: bool
    ) -> None:
        self.x, self.y, self.outer, self.axis, self.largest = x, y, outer, axis, largest
        self.extent, self.most = x.shape[axis], y.shape[axis]
        self.order = LargestFirst(self.extent, x.dtype)
        self.count, self.nans = tir.Buffer("count", (), "int64"), tir.Buffer("nans", (), "int32")

    def selected(self) -> tir.Body:
        """Takes as many elements as y has room for."""
        order, zero, i, t = self.order, stages.literal(0, "int64"), Var("i"), Var("t")
        body: tir.Body = (
            *map(tir.Allocate, (*order.buffers, self.count)),
            tir.Store(self.count, (), zero),
            *tir.nest(((t, self.most),), (tir.Store(self.y, self._at(t), zero),)),
            *tir.nest(((i, self.extent),), (tir.Store(order.keys, (i,), self._key(i)),)),
            *order.started(),
        )
        floats = self.x.dtype in tir.FLOATS
        if floats and self.largest:
            body += self._nans_first()
        row, lowest = Var("row"), _last(self.x.dtype, self.largest)
        taken = tir.If(order.is_left(), order.taken(row, self._put(row, "taken")))
        body += tir.nest(((Var("turn"), self.most),), (taken,))
        body += self._put_all("lowest", lambda x: tir.Comparison("eq", x, lowest))
        if floats and not self.largest:
            body += self._put_all("nan", lambda x: tir.Comparison("ne", x, x))
        return body

    def _nans_first(self) -> tir.Body:
        """Counts the NaN, of which there are mostly none, and takes them."""
        i, left = Var("n"), tir.Load(self.nans, ())
        x = tir.Load(self.x, self._at(i))
        counted = tir.Cast(tir.Comparison("ne", x, x), "int32")
        one_less = tir.Store(self.nans, (), subtract(left, 1))
        return (
            tir.Allocate(self.nans),
            tir.Store(self.nans, (), stages.literal(0, "int32")),
            *tir.nest(((i, self.extent),), (tir.Reduce(tir.ReduceOp.ADD, self.nans, (), counted),)),
            *self._put_all(
                "nan", lambda x: tir.Comparison("ne", x, x), compared("gt", left, 0), (one_less,)
            ),
        )

    def _put_all(
        self,
        name: str,
        wanted: Callable[[tir.Expr], tir.Expr],
        goes_on: tir.Expr | None = None,
        after: tir.Body = (),
    ) -> tir.Body:
        """Takes the elements that are `wanted`, by their indices, until y is full."""
        i = Var(f"{name}_i")
        has_room: tir.Expr = compared("lt", tir.Load(self.count, ()), self.most)
        if goes_on is not None:
            has_room = tir.Binary("and", goes_on, has_room)
        put = tir.If(wanted(tir.Load(self.x, self._at(i))), (*self._put(i, name), *after))
        return tir.nest(((i, self.extent),), (tir.If(has_room, (put,)),))

    def _put(self, index: IndexExpr, name: str) -> tir.Body:
        """Writes an index behind those that are taken."""
        place, count = Var(f"{name}_place"), tir.Load(self.count, ())
        store = tir.Store(self.y, self._at(place), tir.IndexValue(index))
        one_more = tir.Reduce(tir.ReduceOp.ADD, self.count, (), stages.literal(1, "int64"))
        return stages.matched(place, self.most, count, (store,)), one_more

    def _key(self, index: IndexExpr) -> tir.Expr:
        """A number that is larger the further in front the element stands; NaN gives the lowest."""
        x: tir.Expr = tir.Load(self.x, self._at(index))
        if x.dtype in tir.FLOATS:
            key = x if self.largest else tir.Unary("neg", x)
            return tir.Select(tir.Comparison("eq", x, x), key, self.order.lowest)
        unsigned = x.dtype in tir.UNSIGNED
        ones = (
            stages.neutral(tir.ReduceOp.MIN, x.dtype) if unsigned else stages.literal(-1, x.dtype)
        )
        # All bits flipped: the order is reversed, and no number overflows.
        return x if self.largest else tir.Binary("xor", x, ones)

    def _at(self, index: IndexExpr) -> tuple[IndexExpr, ...]:
        return _on_axis(self.outer, self.axis, index)


def _on_axis(outer: Sequence[Loop], axis: int, index: IndexExpr) -> tuple[IndexExpr, ...]:
    """The index with `index` on the axis and the variables of `outer` on the other axes."""
    others = stages.indices_of(outer)
    return (*others[:axis], index, *others[axis:])


def _last(dtype: str, largest: bool) -> tir.Literal:
    """The number that stands behind all others in the order."""
    return stages.neutral(tir.ReduceOp.MAX if largest else tir.ReduceOp.MIN, dtype)


def ranks(x_shape: Shape, axis: int, largest: bool = True, dtype: str = "float32") -> tir.PrimFunc:
    """`y[…, i, …]` is the number of elements of `axis` before element i in the order, int32."""
    (axis,) = stages.normalized_axes((axis,), len(x_shape))
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, "int32")
    loops, others = stages.loops_over("i", x_shape), stages.loops_over("j", (x_shape[axis],))
    at = stages.indices_of(loops)
    own, (j, _) = at[axis], others[0]
    element, other = tir.Load(x, at), tir.Load(x, (*at[:axis], j, *at[axis + 1 :]))
    # Of equal elements the one with the lower index comes first.
    ahead = tir.Cast(tir.Unary("not", stands_before(element, other, largest)), "int32")
    after = tir.Cast(stands_before(other, element, largest), "int32")
    comes_first = tir.Select(less_than(j, own), ahead, after)
    stage = stages.reduction_stage("ranks", tir.ReduceOp.ADD, y, loops, others, comes_first)
    return stages.kernel_of_stages("ranks", (x,), (y,), (stage,))


def at_ranks(x_shape: Shape, axis: int, count: int) -> tir.PrimFunc:
    """`y[…, r, …]` is the index on `axis` of the element with rank `x` = r, for r < `count`."""
    axis, y_shape = _checked(x_shape, axis, count)
    x, y = tir.Buffer("x", x_shape, "int32"), tir.Buffer("y", y_shape, "int64")
    loops, rank = stages.loops_over("i", x_shape), Var("rank")
    at = stages.indices_of(loops)
    store = tir.Store(y, (*at[:axis], rank, *at[axis + 1 :]), tir.IndexValue(at[axis]))
    placed = (stages.matched(rank, count, as_int64(tir.Load(x, at)), (store,)),)
    return stages.nest_kernel("at_ranks", (x,), y, loops, placed, stages.cleared(y))


def _checked(x_shape: Shape, axis: int, count: int) -> tuple[int, Shape]:
    """The axis counted from the front, and the shape of the result; InvalidModel for a wrong
    count."""
    (axis,) = stages.normalized_axes((axis,), len(x_shape))
    if not 0 <= count <= x_shape[axis]:
        raise InvalidModel(
            f"{count} elements of axis {axis} are wanted, which has {x_shape[axis]} in shape "
            f"{x_shape}"
        )
    return axis, (*x_shape[:axis], count, *x_shape[axis + 1 :])
