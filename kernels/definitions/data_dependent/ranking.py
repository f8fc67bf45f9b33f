"""TopK: the indices of the largest or smallest elements of an axis, in order.

In: a logical shape, an axis, the number of elements.  Out: a PrimFunc that gives their indices.
The order is total: by value, of equal elements the lower index first, and a NaN is larger than
every number (as numpy sorts).  There are two algorithms: insertion into a sorted list of the best
elements in one pass, or the rank of every element by counting those before it, which vectorizes and
runs in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow import tir
from graphflow.arith import IndexExpr, Var, as_index, const, less_than, minimum
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import as_int64, matched
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


def selected(
    x_shape: Shape, axis: int, count: int, largest: bool = True, dtype: str = "float32"
) -> tir.PrimFunc:
    """`y[…, t, …]` is the index on `axis` of the t-th element in the order, int64.

    A sorted list keeps the best elements so far; most other elements need one comparison only, with
    the last of the list.
    """
    axis, y_shape = _checked(x_shape, axis, count)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", y_shape, "int64")
    kept = tir.Buffer("kept", (count,), dtype)
    if not y.size:
        return stages.kernel_of_stages("selected", (x,), (y,), ())
    outer = stages.loops_over("a", (*x_shape[:axis], *x_shape[axis + 1 :]))
    first, rest = Var("i"), Var("j")
    place = _on_axis(outer, axis, first)
    begin = _inserted(x, y, kept, place, axis, first, largest, "f")
    fill = tir.For(first, const(0), const(count), tir.LoopKind.SERIAL, begin)
    last = tir.Load(kept, (const(count - 1),))
    place = _on_axis(outer, axis, rest)
    insert = _inserted(x, y, kept, place, axis, const(count), largest, "r")
    test = tir.If(stands_before(tir.Load(x, place), last, largest), insert)
    improve = tir.For(rest, const(count), const(x_shape[axis]), tir.LoopKind.SERIAL, (test,))
    body = tir.nest(outer, (tir.Allocate(kept), fill, improve))
    return stages.kernel_of_stages("selected", (x,), (y,), (tir.Block("selected", body),))


def _inserted(
    x: tir.Buffer,
    y: tir.Buffer,
    kept: tir.Buffer,
    place: tuple[IndexExpr, ...],
    axis: int,
    filled: IndexExpr,
    largest: bool,
    names: str,
) -> tir.Body:
    """Insert the element at `place` into the sorted list, of which `filled` entries are used.

    The entries behind it move by one, from the last one on; the last one is dropped if the list is
    full.
    """
    (count,) = kept.shape
    element = tir.Load(x, place)
    ahead, at = tir.Buffer(f"ahead_{names}", (1,), "int64"), (const(0),)
    p, q, to = (Var(f"{name}_{names}") for name in "pqt")

    def slot(index: IndexExpr) -> tuple[IndexExpr, ...]:
        return (*place[:axis], index, *place[axis + 1 :])

    stays = tir.Unary("not", stands_before(element, tir.Load(kept, (p,)), largest))
    counted = tir.Reduce(tir.ReduceOp.ADD, ahead, at, tir.Cast(stays, "int64"))
    # As many as are moved: all that are kept, but one where there is no more room.
    moving = minimum(filled, count - 1)
    low = moving - 1 - q
    move = tir.If(
        tir.Comparison("ge", tir.IndexValue(low), tir.Load(ahead, at)),
        (
            tir.Store(kept, (low + 1,), tir.Load(kept, (low,))),
            tir.Store(y, slot(low + 1), tir.Load(y, slot(low))),
        ),
    )
    put = (tir.Store(kept, (to,), element), tir.Store(y, slot(to), tir.IndexValue(place[axis])))
    return (
        tir.Allocate(ahead),
        tir.Store(ahead, at, stages.literal(0, "int64")),
        tir.For(p, const(0), as_index(filled), tir.LoopKind.SERIAL, (counted,)),
        tir.For(q, const(0), as_index(moving), tir.LoopKind.SERIAL, (move,)),
        matched(to, count, tir.Load(ahead, at), put),
    )


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


def _on_axis(outer: Sequence[Loop], axis: int, index: IndexExpr) -> tuple[IndexExpr, ...]:
    """The index with `index` on `axis` and the variables of `outer` on the other axes."""
    others = stages.indices_of(outer)
    return (*others[:axis], index, *others[axis:])
