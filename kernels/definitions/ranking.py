"""TopK: the indices of the largest or smallest elements of an axis, in order.

In: a logical shape, an axis, the number of elements.  Out: a PrimFunc that gives their indices.
The order is total: by value, of equal elements the lower index first, and a NaN is larger than
every number (as numpy sorts).  There are two algorithms: insertion into a sorted list of the best
elements in one pass, or the rank of every element by counting those before it, which vectorizes and
runs in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.arith import IndexExpr, Var, as_index, const, less_than, minimum
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions.indexing import as_int64, matched
from graphflow.kernels.definitions.stages import (
    Loop,
    Shape,
    cleared,
    indices_of,
    kernel,
    literal,
    loops_over,
    normalized_axes,
    reduction_stage,
)
from graphflow.tir import (
    FLOATS,
    Allocate,
    Binary,
    Block,
    Body,
    Buffer,
    Cast,
    Comparison,
    Expr,
    For,
    If,
    IndexValue,
    Load,
    LoopKind,
    PrimFunc,
    Reduce,
    ReduceOp,
    Select,
    Store,
    Unary,
    nest,
)


def stands_before(a: Expr, b: Expr, largest: bool) -> Expr:
    """Whether `a` comes strictly before `b` in the order: bool."""
    ordered: Expr = Comparison("gt" if largest else "lt", a, b)
    if a.dtype not in FLOATS:
        return ordered
    first, second = (a, b) if largest else (b, a)
    # The NaN comes first among the largest, and last among the smallest.
    nan_decides = Binary("and", Comparison("ne", first, first), Comparison("eq", second, second))
    return Binary("or", ordered, nan_decides)


def selected(
    x_shape: Shape, axis: int, count: int, largest: bool = True, dtype: str = "float32"
) -> PrimFunc:
    """`y[…, t, …]` is the index on `axis` of the t-th element in the order, int64.

    A sorted list keeps the best elements so far; most other elements need one comparison only, with
    the last of the list.
    """
    axis, y_shape = _checked(x_shape, axis, count)
    x, y, kept = (
        Buffer("x", x_shape, dtype),
        Buffer("y", y_shape, "int64"),
        Buffer("kept", (count,), dtype),
    )
    if not y.size:
        return kernel("selected", (x,), (y,), ())
    outer = loops_over("a", (*x_shape[:axis], *x_shape[axis + 1 :]))
    first, rest = Var("i"), Var("j")
    place = _on_axis(outer, axis, first)
    begin = _inserted(x, y, kept, place, axis, first, largest, "f")
    fill = For(first, const(0), const(count), LoopKind.SERIAL, begin)
    last = Load(kept, (const(count - 1),))
    place = _on_axis(outer, axis, rest)
    insert = _inserted(x, y, kept, place, axis, const(count), largest, "r")
    test = If(stands_before(Load(x, place), last, largest), insert)
    improve = For(rest, const(count), const(x_shape[axis]), LoopKind.SERIAL, (test,))
    body = nest(outer, (Allocate(kept), fill, improve))
    return kernel("selected", (x,), (y,), (Block("selected", body),))


def _inserted(
    x: Buffer,
    y: Buffer,
    kept: Buffer,
    place: tuple[IndexExpr, ...],
    axis: int,
    filled: IndexExpr,
    largest: bool,
    names: str,
) -> Body:
    """Insert the element at `place` into the sorted list, of which `filled` entries are used.

    The entries behind it move by one, from the last one on; the last one is dropped if the list is
    full.
    """
    (count,) = kept.shape
    element = Load(x, place)
    ahead, at = Buffer(f"ahead_{names}", (1,), "int64"), (const(0),)
    p, q, to = (Var(f"{name}_{names}") for name in "pqt")

    def slot(index: IndexExpr) -> tuple[IndexExpr, ...]:
        return (*place[:axis], index, *place[axis + 1 :])

    stays = Unary("not", stands_before(element, Load(kept, (p,)), largest))
    counted = Reduce(ReduceOp.ADD, ahead, at, Cast(stays, "int64"))
    # As many as are moved: all that are kept, but one where there is no more room.
    moving = minimum(filled, count - 1)
    low = moving - 1 - q
    move = If(
        Comparison("ge", IndexValue(low), Load(ahead, at)),
        (
            Store(kept, (low + 1,), Load(kept, (low,))),
            Store(y, slot(low + 1), Load(y, slot(low))),
        ),
    )
    put = (Store(kept, (to,), element), Store(y, slot(to), IndexValue(place[axis])))
    return (
        Allocate(ahead),
        Store(ahead, at, literal(0, "int64")),
        For(p, const(0), as_index(filled), LoopKind.SERIAL, (counted,)),
        For(q, const(0), as_index(moving), LoopKind.SERIAL, (move,)),
        matched(to, count, Load(ahead, at), put),
    )


def ranks(x_shape: Shape, axis: int, largest: bool = True, dtype: str = "float32") -> PrimFunc:
    """`y[…, i, …]` is the number of elements of `axis` before element i in the order, int32."""
    (axis,) = normalized_axes((axis,), len(x_shape))
    x, y = Buffer("x", x_shape, dtype), Buffer("y", x_shape, "int32")
    loops, others = loops_over("i", x_shape), loops_over("j", (x_shape[axis],))
    at = indices_of(loops)
    own, (j, _) = at[axis], others[0]
    element, other = Load(x, at), Load(x, (*at[:axis], j, *at[axis + 1 :]))
    # Of equal elements the one with the lower index comes first.
    ahead = Cast(Unary("not", stands_before(element, other, largest)), "int32")
    after = Cast(stands_before(other, element, largest), "int32")
    comes_first = Select(less_than(j, own), ahead, after)
    stage = reduction_stage("ranks", ReduceOp.ADD, y, loops, at, others, comes_first)
    return kernel("ranks", (x,), (y,), (stage,))


def at_ranks(x_shape: Shape, axis: int, count: int) -> PrimFunc:
    """`y[…, r, …]` is the index on `axis` of the element with rank `x` = r, for r < `count`."""
    axis, y_shape = _checked(x_shape, axis, count)
    x, y = Buffer("x", x_shape, "int32"), Buffer("y", y_shape, "int64")
    loops, rank = loops_over("i", x_shape), Var("rank")
    at = indices_of(loops)
    store = Store(y, (*at[:axis], rank, *at[axis + 1 :]), IndexValue(at[axis]))
    placed = nest(loops, (matched(rank, count, as_int64(Load(x, at)), (store,)),))
    return kernel("at_ranks", (x,), (y,), (cleared(y), Block("at_ranks", placed)))


def _checked(x_shape: Shape, axis: int, count: int) -> tuple[int, Shape]:
    """The axis counted from the front, and the shape of the result; InvalidModel for a wrong
    count."""
    (axis,) = normalized_axes((axis,), len(x_shape))
    if not 0 <= count <= x_shape[axis]:
        raise InvalidModel(
            f"{count} elements of axis {axis} are wanted, which has {x_shape[axis]} in shape "
            f"{x_shape}"
        )
    return axis, (*x_shape[:axis], count, *x_shape[axis + 1 :])


def _on_axis(outer: Sequence[Loop], axis: int, index: IndexExpr) -> tuple[IndexExpr, ...]:
    """The index with `index` on `axis` and the variables of `outer` on the other axes."""
    others = indices_of(outer)
    return (*others[:axis], index, *others[axis:])
