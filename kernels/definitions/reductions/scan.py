"""Cumulative sums and products, and triangles (Trilu).

In: logical shapes and attributes.  Out: a PrimFunc.  A cumulative sum computes each element from
the one before, so its loop over the axis is serial; the iterations of all other loops are
independent.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.arith import TRUE, IndexExpr, const, less_than, simplify_predicate
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Shape


def cumulative(
    op: tir.ReduceOp,
    shape: Shape,
    axis: int,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y[…, i, …] = x[…, 0, …] op … op x[…, i, …]` along `axis`.

    With `exclusive` the element at i is left out, and the first result is the neutral element of
    `op`; with `reverse` the scan runs from the end of the axis.
    """
    (axis,) = stages.normalized_axes((axis,), len(shape))
    x, y = tir.Buffer("x", shape, dtype), tir.Buffer("y", shape, dtype)
    loops = stages.loops_over("i", shape)
    step = loops[axis][0]

    def place(count: IndexExpr) -> tuple[IndexExpr, ...]:
        """The element that is the `count`-th along the axis, in the direction of the scan."""
        along = shape[axis] - 1 - count if reverse else count
        return tuple(along if k == axis else var for k, (var, _) in enumerate(loops))

    before = tir.Load(y, place(step - 1))
    taken = tir.Load(x, place(step - 1 if exclusive else step))
    first: tir.Expr = stages.neutral(op, dtype) if exclusive else taken
    later = simplify_predicate(less_than(const(0), step), stages.ranges_of(loops))
    value = tir.Select(later, tir.Binary(op.value, before, taken), first)
    stage = stages.store_stage("scan", y, loops, place(step), value)
    return stages.kernel_of_stages(f"cumulative_{op.value}", (x,), (y,), (stage,))


def triangle(
    shape: Shape, upper: bool, diagonal: int | None = 0, dtype: str = "float32"
) -> tir.PrimFunc:
    """`y = x` in the upper or lower triangle of the last two axes, zero elsewhere.

    The triangle includes the diagonal with column − row = `diagonal`.  With None that number is a
    second parameter, an int64 of rank 0.
    """
    if len(shape) < 2:
        raise InvalidModel(f"a tensor of shape {shape} has no triangle; it needs two axes")
    x, y = tir.Buffer("x", shape, dtype), tir.Buffer("y", shape, dtype)
    loops = stages.loops_over("i", shape)
    offset = loops[-1][0] - loops[-2][0]
    element, zero = stages.element(x, loops), stages.literal(0, dtype)
    if diagonal is None:
        k = tir.Buffer("k", (), "int64")
        inside = tir.Comparison("ge" if upper else "le", tir.IndexValue(offset), tir.Load(k, ()))
        value: tir.Expr = tir.Select(inside, element, zero)
        return stages.elementwise_kernel("triangle", (x, k), y, loops, value)
    known = less_than(diagonal - 1, offset) if upper else less_than(offset, diagonal + 1)
    condition = simplify_predicate(known, stages.ranges_of(loops))
    value = element if condition == TRUE else tir.Select(condition, element, zero)
    return stages.elementwise_kernel("triangle", (x,), y, loops, value)
