"""TopK: the indices of the largest or smallest elements of an axis, in order.

In: a logical shape, an axis, the number of elements.  Out: a PrimFunc that gives their indices.
The order is total: by value, of equal elements the lower index first, and a NaN is larger than
every number (as numpy sorts).  There are two algorithms: insertion into a sorted list of the best
elements in one pass, of those that a bound found before does not leave out; or the rank of every
element by counting those before it, which vectorizes and runs in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, nan, prod

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, less_than
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import as_int64, matched
from graphflow.kernels.definitions.scalar_functions import add, compared, divide, subtract
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


BLOCK = 32
"""Elements of a contiguous line that are compared at once with the bound."""

LINED_UP = 16
"""The list has room for a multiple of these elements, so that it is compared in whole vectors."""

HALVINGS = 12
"""How often the range of values is halved in which the bound is."""


def selected(
    x_shape: Shape, axis: int, count: int, largest: bool = True, dtype: str = "float32"
) -> tir.PrimFunc:
    """`y[…, t, …]` is the index on `axis` of the t-th element in the order, int64.

    A list keeps the best elements so far, and an element that stands before the last of it is put
    in.  Where it pays, a bound that `count` elements reach is found before, by bisection: elements
    beyond it are behind all of these, so that one comparison leaves them out.
    """
    axis, y_shape = _checked(x_shape, axis, count)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", y_shape, "int64")
    if not y.size:
        return stages.kernel_of_stages("selected", (x,), (y,), ())
    outer = stages.loops_over("a", (*x_shape[:axis], *x_shape[axis + 1 :]))
    line = _LineOfBest(x, outer, axis, count, largest)
    body = line.emptied()
    if line.is_bounded:
        body += line.bounded()
    if line.blocks:
        body += line.taken_by_blocks()
    if rest := line.extent - BLOCK * line.blocks:
        i = Var("i")
        body += tir.nest(((i, rest),), (line.taken(i + BLOCK * line.blocks, "r"),))
    t = Var("t")
    place = as_int64(tir.Load(line.places, (count - 1 - t,)))
    body += tir.nest(((t, count),), (tir.Store(y, line.at(t), place),))
    nest = tir.nest(outer, body)
    return stages.kernel_of_stages("selected", (x,), (y,), (tir.Block("selected", nest),))


def _pays(extent: int, count: int) -> bool:
    """Whether to look for a bound: in random order `count · ln(extent / count)` elements are put in
    only to be dropped later, each of which takes 60 cycles and one for each that is kept by
    estimate.  An element takes a seventh of a cycle in a halving, measured on a Zen 4."""
    return count * log(extent / count) * (60 + count) > HALVINGS * extent / 7


class _LineOfBest:
    """A line of x along an axis, and the best of its elements so far.

    `kept` are these, the last in the order first, and `places` where they are on the axis, -1 where
    nothing is kept yet.  What fills up the last vector of both is before all elements.  No element
    beyond the `bound` is among the best; NaN bounds nothing.
    """

    def __init__(
        self, x: tir.Buffer, outer: Sequence[Loop], axis: int, count: int, largest: bool
    ) -> None:
        self.x, self.outer, self.axis, self.count, self.largest = x, outer, axis, count, largest
        self.extent = x.shape[axis]
        self.blocks = self.extent // BLOCK if prod(x.shape[axis + 1 :]) == 1 else 0
        self.is_bounded = self.blocks > 0 and _pays(self.extent, count)
        room = (-(-count // LINED_UP) * LINED_UP if count > 1 else 1,)
        self.kept = tir.Buffer("kept", room, x.dtype)
        self.places = tir.Buffer("places", room, "int32" if self.extent < 2**31 else "int64")
        self.bound = tir.Buffer("bound", (1,), x.dtype)

    def at(self, index: IndexExpr) -> tuple[IndexExpr, ...]:
        """The index with `index` on the axis and the variables of `outer` on the other axes."""
        others = stages.indices_of(self.outer)
        return (*others[: self.axis], index, *others[self.axis :])

    def emptied(self) -> tir.Body:
        """Allocates and clears the list."""
        body: tir.Body = (tir.Allocate(self.kept), tir.Allocate(self.places))
        foremost = _foremost(self.x.dtype, self.largest)
        (room,) = self.kept.shape
        for start, end, place in ((0, self.count, -1), (self.count, room, 0)):
            p = Var(f"p{start}")
            fill = (
                tir.Store(self.kept, (p + start,), foremost),
                tir.Store(self.places, (p + start,), stages.literal(place, self.places.dtype)),
            )
            body += tir.nest(((p, end - start),), fill) if end > start else ()
        return body

    def bounded(self) -> tir.Body:
        """Allocates the bound and finds it: the last in the order of the values tried that are
        reached by `count` elements, else the last of all elements."""
        far, middle = (tir.Buffer(name, (1,), self.x.dtype) for name in ("far", "middle"))
        reaching = tir.Buffer("reaching", (1,), "int32")
        first = (const(0),)
        least, most = tir.ReduceOp.MIN, tir.ReduceOp.MAX
        last, foremost = (least, most) if self.largest else (most, least)
        reached = compared("ge", tir.Load(reaching, first), self.count)
        half = add(divide(tir.Load(self.bound, first), 2), divide(tir.Load(far, first), 2))
        tried = tir.Load(middle, first)
        narrowed = (
            tir.Store(self.bound, first, tir.Select(reached, tried, tir.Load(self.bound, first))),
            tir.Store(far, first, tir.Select(reached, tir.Load(far, first), tried)),
        )
        reaches: tir.ComparisonOp = "ge" if self.largest else "le"

        def counted(x: tir.Expr) -> tir.Expr:
            return tir.Cast(tir.Comparison(reaches, x, tried), "int32")

        step = (
            tir.Store(middle, first, half),
            *self._reduced("r", tir.ReduceOp.ADD, reaching, counted),
            *narrowed,
        )
        return (
            *map(tir.Allocate, (self.bound, far, middle, reaching)),
            *self._reduced("l", last, self.bound, lambda x: x),
            *self._reduced("f", foremost, far, lambda x: x),
            *tir.nest(((Var("halving"), HALVINGS),), step),
        )

    def _reduced(
        self, name: str, op: tir.ReduceOp, to: tir.Buffer, value: Callable[[tir.Expr], tir.Expr]
    ) -> tir.Body:
        """A reduction over the line into a buffer of one element: of blocks element by element, so
        that no sum waits for the one before, and then of these."""
        parts = tir.Buffer(f"{name}_parts", (LINED_UP,), to.dtype)
        b, v, w, p, r = (Var(f"{name}_{part}") for part in "bvwpr")
        blocks, first = self.extent // LINED_UP, (const(0),)

        def reduce(into: tir.Buffer, at: IndexExpr, index: IndexExpr) -> tir.Body:
            element = tir.Load(self.x, self.at(index))
            return (tir.Reduce(op, into, (at,), value(element)),)

        total = tir.Reduce(op, to, first, tir.Load(parts, (p,)))
        neutral = stages.neutral(op, to.dtype)
        return (
            tir.Allocate(parts),
            *tir.nest(((v, LINED_UP),), (tir.Store(parts, (v,), neutral),)),
            *tir.nest(((b, blocks), (w, LINED_UP)), reduce(parts, w, LINED_UP * b + w)),
            tir.Store(to, first, neutral),
            *tir.nest(((p, LINED_UP),), (total,)),
            *tir.nest(((r, self.extent % LINED_UP),), reduce(to, const(0), r + LINED_UP * blocks)),
        )

    def taken_by_blocks(self) -> tir.Body:
        """Puts the best of whole blocks into the list; most blocks have none."""
        b, v, w = (Var(name) for name in ("b", "v", "w"))
        some, first = tir.Buffer("some", (1,), "int32"), (const(0),)
        takes = self._takes(tir.Load(self.x, self.at(BLOCK * b + v)))
        counted = tir.Reduce(tir.ReduceOp.ADD, some, first, tir.Cast(takes, "int32"))
        each = tir.nest(((w, BLOCK),), (self.taken(BLOCK * b + w, "b"),))
        block = (
            tir.Store(some, first, stages.literal(0, "int32")),
            *tir.nest(((v, BLOCK),), (counted,)),
            tir.If(compared("gt", tir.Load(some, first), 0), each),
        )
        return (tir.Allocate(some), *tir.nest(((b, self.blocks),), block))

    def _takes(self, element: tir.Expr) -> tir.Expr:
        """Whether an element is better than the last that is kept."""
        better = self._replaces(element, const(0))
        if not self.is_bounded:
            return better
        bound = tir.Load(self.bound, (const(0),))
        beyond = tir.Comparison("gt" if self.largest else "lt", bound, element)
        return tir.Binary("and", tir.Unary("not", beyond), better)

    def _replaces(self, element: tir.Expr, at: IndexExpr) -> tir.Expr:
        """Whether an element stands before what is kept at a place, or nothing is kept there."""
        free = compared("lt", tir.Load(self.places, (at,)), 0)
        before = stands_before(element, tir.Load(self.kept, (at,)), self.largest)
        return tir.Binary("or", free, before)

    def taken(self, index: IndexExpr, names: str) -> tir.Stmt:
        """Puts the element at `index` of the line into the list, if it is better than the last.

        Those that it stands before move one to the front, where the first of them is dropped.
        """
        element, first = tir.Load(self.x, self.at(index)), (const(0),)
        worse = tir.Buffer(f"worse_{names}", (1,), "int32")
        moved = tir.Buffer(f"moved_{names}", (), "int64")
        p, q, to = (Var(f"{name}_{names}") for name in ("p", "q", "to"))
        kept, places = self.kept, self.places
        counted = tir.Cast(self._replaces(element, p), "int32")
        move = (
            tir.Store(kept, (q,), tir.Load(kept, (q + 1,))),
            tir.Store(places, (q,), tir.Load(places, (q + 1,))),
        )
        is_moved = tir.Comparison("lt", tir.IndexValue(q), tir.Load(moved, ()))
        number = tir.IndexValue(index, places.dtype)
        put = (tir.Store(kept, (to,), element), tir.Store(places, (to,), number))
        insert = (
            tir.Allocate(worse),
            tir.Allocate(moved),
            tir.Store(worse, first, stages.literal(0, "int32")),
            *tir.nest(
                ((p, kept.shape[0]),), (tir.Reduce(tir.ReduceOp.ADD, worse, first, counted),)
            ),
            tir.Store(moved, (), subtract(as_int64(tir.Load(worse, first)), 1)),
            *tir.nest(((q, self.count - 1),), (tir.If(is_moved, move),)),
            matched(to, self.count, tir.Load(moved, ()), put),
        )
        return tir.If(self._takes(element), insert)


def _foremost(dtype: str, largest: bool) -> tir.Literal:
    """A value before which no element stands in the order."""
    if largest and dtype in tir.FLOATS:
        return tir.Literal(nan, dtype)
    return stages.neutral(tir.ReduceOp.MIN if largest else tir.ReduceOp.MAX, dtype)


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
    placed = (matched(rank, count, as_int64(tir.Load(x, at)), (store,)),)
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
