"""Determinants of square matrices, by Gaussian elimination with partial pivoting.

In: a shape whose last two extents are equal.  Out: a PrimFunc with a serial loop over the columns.
Which row holds the pivot depends on data, and an index cannot be loaded from memory, so rows are
exchanged by selects.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import compared, divide, multiply, subtract
from graphflow.kernels.definitions.stages import Shape


def determinant(x_shape: Shape, dtype: str = "float32") -> tir.PrimFunc:
    """`y[…] = det x[…, :, :]`; that of an empty matrix is 1."""
    stages.require_floats("det", dtype)
    if len(x_shape) < 2 or x_shape[-1] != x_shape[-2]:
        raise InvalidModel(f"a tensor of shape {x_shape} holds no square matrices")
    n = x_shape[-1]
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape[:-2], dtype)
    loops = stages.loops_over("b", y.shape)
    batch = stages.indices_of(loops)
    rows = _RowElimination(n, dtype)
    copied = stages.loops_over("c", (n, n))
    at = stages.indices_of(copied)
    column = Var("k")
    body: tir.Body = (
        *tir.nest(copied, (tir.Store(rows.work, at, tir.Load(x, (*batch, *at))),)),
        _put(rows.product, stages.literal(1, dtype)),
        rows.over(
            column,
            const(0),
            (*rows.find_pivot(column), *rows.exchange(column), *rows.eliminate(column)),
        ),
        tir.Store(y, batch, _got(rows.product)),
    )
    block = tir.Block("determinant", tir.nest(loops, body))
    return stages.kernel_of_stages(
        "determinant", (x,), (y,), (*map(tir.Allocate, rows.buffers), block)
    )


def _got(scalar: tir.Buffer) -> tir.Expr:
    return tir.Load(scalar, (const(0),))


def _put(scalar: tir.Buffer, value: tir.Expr) -> tir.Store:
    return tir.Store(scalar, (const(0),), value)


class _RowElimination:
    """The state of the elimination: the rows of the matrix, and the pivot of the current column."""

    def __init__(self, n: int, dtype: str) -> None:
        self.n = n
        self.dtype = dtype
        self.work = tir.Buffer("work", (n, n), dtype)
        self.old = tir.Buffer("old", (n,), dtype)
        self.product = tir.Buffer("product", (1,), dtype)
        self.best = tir.Buffer("best", (1,), dtype)
        self.ratio = tir.Buffer("ratio", (1,), dtype)
        self.place = tir.Buffer("place", (1,), "int64")
        self.buffers = (self.work, self.old, self.product, self.best, self.ratio, self.place)

    def over(self, var: Var, start: IndexExpr, body: tir.Body) -> tir.For:
        return tir.For(var, start, const(self.n), tir.LoopKind.SERIAL, body)

    def element(self, row: IndexExpr, column: IndexExpr) -> tir.Expr:
        return tir.Load(self.work, (row, column))

    def find_pivot(self, k: Var) -> tir.Body:
        """`place` = the first row from k on whose element in column k has the largest magnitude."""
        row = Var("s")
        size = tir.Unary("abs", self.element(row, k))
        larger = compared("gt", size, _got(self.best))
        return (
            _put(self.best, tir.Unary("abs", self.element(k, k))),
            _put(self.place, tir.IndexValue(k)),
            self.over(row, k + 1, (
                _put(self.place, tir.Select(larger, tir.IndexValue(row), _got(self.place))),
                _put(self.best, tir.Select(larger, size, _got(self.best))),
            )),
        )  # fmt: skip

    def exchange(self, k: Var) -> tir.Body:
        """Exchange row k with the pivot's row, and multiply the product by the pivot and the
        sign."""
        saved, row, at = Var("f"), Var("e"), Var("g")
        chosen = tir.Comparison("eq", tir.IndexValue(row), _got(self.place))
        moved = tir.Comparison("ne", tir.IndexValue(k), _got(self.place))
        pivot = self.element(k, k)
        signed = tir.Select(moved, tir.Unary("neg", pivot), pivot)
        upper = tir.Select(chosen, self.element(row, at), self.element(k, at))
        lower = tir.Select(chosen, tir.Load(self.old, (at,)), self.element(row, at))
        return (
            self.over(saved, k, (tir.Store(self.old, (saved,), self.element(k, saved)),)),
            self.over(row, k + 1, (
                self.over(at, k, (
                    tir.Store(self.work, (k, at), upper),
                    tir.Store(self.work, (row, at), lower),
                )),
            )),
            _put(self.product, multiply(_got(self.product), signed)),
        )  # fmt: skip

    def eliminate(self, k: Var) -> tir.Body:
        """Subtract multiples of row k from the rows below."""
        row, at = Var("r"), Var("q")
        pivot = self.element(k, k)
        # A column of zeros has made the product zero: what the rows hold then does not matter.
        ratio = tir.Select(
            compared("ne", pivot, 0),
            divide(self.element(row, k), pivot),
            stages.literal(0, self.dtype),
        )
        less = subtract(self.element(row, at), multiply(_got(self.ratio), self.element(k, at)))
        return (
            self.over(row, k + 1, (
                _put(self.ratio, ratio),
                self.over(at, k + 1, (tir.Store(self.work, (row, at), less),)),
            )),
        )  # fmt: skip
