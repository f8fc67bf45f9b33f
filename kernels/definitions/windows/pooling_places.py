"""Max pooling with the positions of the maxima, the second output of ONNX's MaxPool.

In: a logical shape and a window.  Out: a PrimFunc that gives for each window the
maximum, or its position in the whole tensor.  As in onnxruntime the first of equal elements wins.
A NaN is the maximum only at the first position of a window, because elements are compared by `>`
and none is greater than it; at later positions it is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow import tir
from graphflow.arith import TRUE, IndexExpr, const, simplify_predicate
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import compared
from graphflow.kernels.definitions.stages import Shape
from graphflow.kernels.definitions.windows.window import Window, spatial_names


def max_pool_place(
    x_shape: Shape,
    window: Window,
    *,
    column_major: bool = False,
    value: bool = False,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y[n, c, o…]` is the position in x of the maximum of a window, int64.

    Positions are row-major; with `column_major` the spatial axes are counted in reverse order.
    With `value` y is the maximum itself.  A window that lies in the padding entirely gives −1 and
    the lowest number.
    """
    x = tir.Buffer("x", x_shape, dtype)
    shape = (*x_shape[:2], *window.output_shape(x_shape[2:]))
    y = tir.Buffer("y", shape, dtype if value else "int64")
    best, found = tir.Buffer("best", (1,), dtype), tir.Buffer("found", (1,), "int64")
    at = (const(0),)
    loops = stages.loops_over(("n", "c", *spatial_names("o", window.rank)), shape)
    taps = stages.loops_over(spatial_names("k", window.rank), window.kernel)
    places = window.positions(loops[2:], taps)
    lead = stages.indices_of(loops[:2])
    element = tir.Load(x, (*lead, *places))
    is_better: tir.Expr = tir.Comparison("gt", element, tir.Load(best, at))
    is_better = tir.Binary("or", compared("lt", tir.Load(found, at), 0), is_better)
    place = tir.IndexValue(_place(x_shape, lead, places, column_major))
    update: tir.Stmt = tir.If(
        is_better, (tir.Store(best, at, element), tir.Store(found, at, place))
    )
    inside = simplify_predicate(
        window.inside(places, x_shape[2:]), stages.ranges_of((*loops, *taps))
    )
    if inside != TRUE:
        update = tir.If(inside, (update,))
    body = (
        tir.Allocate(best),
        tir.Allocate(found),
        tir.Store(best, at, stages.neutral(tir.ReduceOp.MAX, dtype)),
        tir.Store(found, at, stages.literal(-1, "int64")),
        *tir.nest(taps, (update,)),
        tir.Store(y, stages.indices_of(loops), tir.Load(best if value else found, at)),
    )
    return stages.nest_kernel("max_pool_place", (x,), y, loops, body)


def _place(
    x_shape: Shape, lead: Sequence[IndexExpr], places: Sequence[IndexExpr], column_major: bool
) -> IndexExpr:
    spatial = x_shape[2:]
    if column_major:
        places, spatial = places[::-1], spatial[::-1]
    return stages.linearize((*lead, *places), (*x_shape[:2], *spatial))
