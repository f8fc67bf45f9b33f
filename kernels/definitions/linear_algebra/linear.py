"""Matrix products.

In: logical shapes and attributes.  Out: a PrimFunc with one reduction stage, and one more where the
product is scaled before something is added.
"""

from __future__ import annotations

from graphflow.arith import Var
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.elementwise import broadcast, broadcast_indices
from graphflow.kernels.definitions.stages import Loop, Shape
from graphflow.tir import Binary, Buffer, Expr, Load, PrimFunc, ReduceOp


def gemm(
    a_shape: Shape,
    b_shape: Shape,
    c_shape: Shape | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str = "float32",
) -> PrimFunc:
    """`y[i, j] = alpha · Σ_k A[i, k] · B[k, j] + beta · c`, c broadcast to (M, N).

    A is `a` or its transpose, B likewise.  With alpha 1 the sum starts from `beta · c`.
    """
    if len(a_shape) != 2 or len(b_shape) != 2:
        raise InvalidModel(f"Gemm needs two matrices, not shapes {a_shape} and {b_shape}")
    rows, depth = reversed(a_shape) if transpose_a else a_shape
    depth_b, columns = reversed(b_shape) if transpose_b else b_shape
    if depth != depth_b:
        raise InvalidModel(f"inner extents differ: {depth} of {a_shape}, {depth_b} of {b_shape}")
    if c_shape is not None and broadcast([(rows, columns), c_shape]) != (rows, columns):
        raise InvalidModel(f"shape {c_shape} does not broadcast to ({rows}, {columns})")
    a, b = Buffer("a", a_shape, dtype), Buffer("b", b_shape, dtype)
    y = Buffer("y", (rows, columns), dtype)
    c = None if c_shape is None else Buffer("c", c_shape, dtype)
    inputs = (a, b) if c is None else (a, b, c)
    i, j, k = Var("i"), Var("j"), Var("k")
    loops: tuple[Loop, ...] = ((i, rows), (j, columns))
    at_a, at_b = (k, i) if transpose_a else (i, k), (j, k) if transpose_b else (k, j)
    product = Binary("mul", Load(a, at_a), Load(b, at_b))
    if alpha == 1.0:
        init = None if c is None else _summand(c, loops, beta)
        stage = stages.reduction_stage(
            "gemm", ReduceOp.ADD, y, loops, ((k, depth),), product, init=init
        )
        return stages.kernel_of_stages("gemm", inputs, (y,), (stage,))
    total = Buffer("total", y.shape, dtype)
    stage = stages.reduction_stage("gemm", ReduceOp.ADD, total, loops, ((k, depth),), product)
    outer: tuple[Loop, ...] = ((Var("p"), rows), (Var("q"), columns))
    value: Expr = Binary("mul", stages.literal(alpha, dtype), stages.element(total, outer))
    if c is not None:
        value = Binary("add", value, _summand(c, outer, beta))
    scale = stages.elementwise_stage("gemm_scale", y, outer, value)
    return stages.kernel_of_stages("gemm", inputs, (y,), (stage, scale))


def _summand(c: Buffer, loops: tuple[Loop, ...], beta: float) -> Expr:
    value = Load(c, broadcast_indices(c.shape, loops))
    return value if beta == 1.0 else Binary("mul", stages.literal(beta, c.dtype), value)


def matmul(a_shape: Shape, b_shape: Shape, dtype: str = "float32") -> PrimFunc:
    """numpy's `matmul`: leading axes broadcast; the axis that is added to a vector is not in the
    result."""
    if not a_shape or not b_shape:
        raise InvalidModel(f"MatMul of a scalar (shapes {a_shape} and {b_shape}); use Mul")
    row_axis, column_axis = len(a_shape) > 1, len(b_shape) > 1
    depth, depth_b = a_shape[-1], b_shape[-2] if column_axis else b_shape[0]
    if depth != depth_b:
        raise InvalidModel(f"inner extents differ: {depth} of {a_shape}, {depth_b} of {b_shape}")
    batch = broadcast([a_shape[:-2], b_shape[:-2]])
    lead: tuple[Loop, ...] = tuple((Var(f"n{axis}"), extent) for axis, extent in enumerate(batch))
    row: tuple[Loop, ...] = ((Var("i"), a_shape[-2]),) if row_axis else ()
    column: tuple[Loop, ...] = ((Var("j"), b_shape[-1]),) if column_axis else ()
    loops = (*lead, *row, *column)
    a, b = Buffer("a", a_shape, dtype), Buffer("b", b_shape, dtype)
    y = Buffer("y", tuple(extent for _, extent in loops), dtype)
    k = Var("k")
    at_a = (*broadcast_indices(a_shape[:-2], lead), *stages.indices_of(row), k)
    at_b = (*broadcast_indices(b_shape[:-2], lead), k, *stages.indices_of(column))
    product = Binary("mul", Load(a, at_a), Load(b, at_b))
    stage = stages.reduction_stage("matmul", ReduceOp.ADD, y, loops, ((k, depth),), product)
    return stages.kernel_of_stages("matmul", (a, b), (y,), (stage,))
