"""The largest or smallest elements of an axis, in order.

In: a logical shape, an axis, how many elements.  Out: a PrimFunc that gives their indices.  The
order is total: by value, of equal elements the lower index first, and a NaN is larger than every
number (as numpy sorts).  Either each element is selected in a pass over the axis, or all elements
are ranked by counting those before them, which runs in lanes and threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.arith import IndexExpr, Var, const, less_than
from graphflow.errors import InvalidModel
from graphflow.kernels.definitions.indexing import as_int64, matched
from graphflow.kernels.definitions.stages import (
    Loop,
    Shape,
    elementwise_stage,
    indices_of,
    kernel,
    literal,
    loops_over,
    nest,
    normalized_axes,
    reduction_stage,
)
from graphflow.kernels.definitions.values import compared
from graphflow.tir import (
    FLOATS,
    Allocate,
    Binary,
    Block,
    Buffer,
    Cast,
    Comparison,
    Expr,
    If,
    IndexValue,
    Load,
    PrimFunc,
    ReduceOp,
    Select,
    Store,
    Unary,
)


def stands_before(a: Expr, b: Expr, largest: bool) -> Expr:
    """Whether the value `a` stands before `b`, and is not as good: bool."""
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

    One pass over the axis for each of the `count` elements: the best one behind the last one found.
    """
    axis, y_shape = _checked(x_shape, axis, count)
    x, y = Buffer("x", x_shape, dtype), Buffer("y", y_shape, "int64")
    last, best = Buffer("last", (1,), dtype), Buffer("best", (1,), dtype)
    place, found = Buffer("place", (1,), "int64"), Buffer("found", (1,), "int64")
    at = (const(0),)
    outer = loops_over("a", (*x_shape[:axis], *x_shape[axis + 1 :]))
    (turns,), (elements,) = loops_over("t", (count,)), loops_over("i", (x_shape[axis],))
    turn, i = turns[0], elements[0]
    element = Load(x, _on_axis(outer, axis, i))
    before, behind = (
        stands_before(Load(last, at), element, largest),
        stands_before(element, Load(last, at), largest),
    )
    tied = Binary("and", Unary("not", behind), Comparison("lt", Load(place, at), IndexValue(i)))
    is_left = Binary("or", compared("lt", Load(place, at), 0), Binary("or", before, tied))
    is_better = Binary(
        "or",
        compared("lt", Load(found, at), 0),
        stands_before(element, Load(best, at), largest),
    )
    take = If(
        Binary("and", is_left, is_better),
        (Store(best, at, element), Store(found, at, IndexValue(i))),
    )
    body = (
        Store(found, at, literal(-1, "int64")),
        *nest((elements,), (take,)),
        Store(y, _on_axis(outer, axis, turn), Load(found, at)),
        Store(place, at, Load(found, at)),
        Store(last, at, Load(best, at)),
    )
    stage = nest(
        outer,
        (
            *(Allocate(buffer) for buffer in (last, best, place, found)),
            Store(last, at, literal(0, dtype)),
            Store(best, at, literal(0, dtype)),
            Store(place, at, literal(-1, "int64")),
            *nest((turns,), body),
        ),
    )
    return kernel("selected", (x,), (y,), (Block("selected", stage),))


def ranks(x_shape: Shape, axis: int, largest: bool = True, dtype: str = "float32") -> PrimFunc:
    """`y[…, i, …]` is how many elements of `axis` come before element i in the order, int32."""
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
    """`y[…, r, …]` is the index on `axis` of the element whose rank `x` is r, for r < `count`."""
    axis, y_shape = _checked(x_shape, axis, count)
    x, y = Buffer("x", x_shape, "int32"), Buffer("y", y_shape, "int64")
    loops, empty, rank = loops_over("i", x_shape), loops_over("z", y_shape), Var("rank")
    at = indices_of(loops)
    store = Store(y, (*at[:axis], rank, *at[axis + 1 :]), IndexValue(at[axis]))
    placed = nest(loops, (matched(rank, count, as_int64(Load(x, at)), (store,)),))
    cleared = elementwise_stage("cleared", y, empty, literal(0, "int64"))
    return kernel("at_ranks", (x,), (y,), (cleared, Block("at_ranks", placed)))


def _checked(x_shape: Shape, axis: int, count: int) -> tuple[int, Shape]:
    """The axis counted from the front, and the shape of the result."""
    (axis,) = normalized_axes((axis,), len(x_shape))
    if not 0 <= count <= x_shape[axis]:
        raise InvalidModel(
            f"{count} elements of axis {axis} are wanted, which has {x_shape[axis]} in shape "
            f"{x_shape}"
        )
    return axis, (*x_shape[:axis], count, *x_shape[axis + 1 :])


def _on_axis(outer: Sequence[Loop], axis: int, index: IndexExpr) -> tuple[IndexExpr, ...]:
    """The variables of the other axes with `index` on `axis` between them."""
    others = indices_of(outer)
    return (*others[:axis], index, *others[axis:])
