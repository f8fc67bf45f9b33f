"""Determinants and inverses of square matrices, by elimination with partial pivoting.

In: a shape whose last two extents are equal.  Out: a PrimFunc with a serial loop over the columns,
whose pivots are found by their magnitude: the row that holds one is that of a matched loop.
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
    rows = _RowElimination(_order("det", x_shape, dtype), dtype)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape[:-2], dtype)
    product, k = tir.Buffer("product", (), dtype), Var("k")
    pivot, moved = rows.element(k, k), compared("ne", tir.IndexValue(k), tir.Load(rows.place, ()))
    signed = tir.Select(moved, tir.Unary("neg", pivot), pivot)
    step = (
        *rows.find_pivot(k),
        rows.exchange(k, k),
        tir.Store(product, (), multiply(tir.Load(product, ()), signed)),
        rows.eliminate_below(k),
    )
    loops = stages.loops_over("b", y.shape)
    batch = stages.indices_of(loops)
    body = (
        tir.Allocate(product),
        *rows.copied_from(x, batch),
        tir.Store(product, (), stages.literal(1, dtype)),
        rows.over(k, const(0), step),
        tir.Store(y, batch, tir.Load(product, ())),
    )
    block = tir.Block("determinant", tir.nest(loops, body))
    return stages.kernel_of_stages("determinant", (x,), (y,), (block,))


def inverse(x_shape: Shape, dtype: str = "float32") -> tir.PrimFunc:
    """`y[…, :, :]` is the inverse of `x[…, :, :]`; infinities and NaN where there is none.

    Gauss-Jordan elimination in place: the columns of the identity take those of the matrix.  They
    are exchanged in the end as the rows were, in reverse order.
    """
    n = _order("inverse", x_shape, dtype)
    rows = _RowElimination(n, dtype)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    places = tir.Buffer("places", (n,), "int64")
    k, back = Var("k"), Var("back")
    step = (
        *rows.find_pivot(k),
        rows.exchange(k, const(0)),
        tir.Store(places, (k,), tir.Load(rows.place, ())),
        *rows.eliminate_around(k),
    )
    last = const(n - 1) - back
    loops, written = stages.loops_over("b", x_shape[:-2]), stages.loops_over("w", (n, n))
    batch, at = stages.indices_of(loops), stages.indices_of(written)
    body = (
        tir.Allocate(places),
        *rows.copied_from(x, batch),
        rows.over(k, const(0), step),
        rows.over(back, const(0), (rows.exchange_columns(last, tir.Load(places, (last,))),)),
        *tir.nest(written, (tir.Store(y, (*batch, *at), rows.element(*at)),)),
    )
    block = tir.Block("inverse", tir.nest(loops, body))
    return stages.kernel_of_stages("inverse", (x,), (y,), (block,))


def _order(name: str, x_shape: Shape, dtype: str) -> int:
    """The number of rows of each matrix; InvalidModel where these are not square."""
    stages.require_floats(name, dtype)
    if len(x_shape) < 2 or x_shape[-1] != x_shape[-2]:
        raise InvalidModel(f"a tensor of shape {x_shape} holds no square matrices")
    return x_shape[-1]


class _RowElimination:
    """The rows of a matrix while its columns are eliminated, and the place of a column's pivot."""

    def __init__(self, n: int, dtype: str) -> None:
        self.n, self.dtype = n, dtype
        self.work = tir.Buffer("work", (n, n), dtype)
        self.best, self.ratio, self.old = (
            tir.Buffer(name, (), dtype) for name in ("best", "ratio", "old")
        )
        self.place = tir.Buffer("place", (), "int64")

    def copied_from(self, x: tir.Buffer, batch: tuple[IndexExpr, ...]) -> tir.Body:
        """Allocates the state, and copies a matrix into it."""
        copied = stages.loops_over("copied", (self.n, self.n))
        at = stages.indices_of(copied)
        return (
            *map(tir.Allocate, (self.work, self.old, self.best, self.ratio, self.place)),
            *tir.nest(copied, (tir.Store(self.work, at, tir.Load(x, (*batch, *at))),)),
        )

    def over(self, var: Var, start: IndexExpr, body: tir.Body) -> tir.For:
        """A loop over rows or columns from `start` on."""
        return tir.For(var, start, const(self.n), tir.LoopKind.SERIAL, body)

    def element(self, row: IndexExpr, column: IndexExpr) -> tir.Expr:
        """An element of the matrix."""
        return tir.Load(self.work, (row, column))

    def find_pivot(self, k: Var) -> tir.Body:
        """`place` = the first row from k on whose element in column k has the largest magnitude."""
        row = Var("s")
        size = tir.Unary("abs", self.element(row, k))
        best, place = tir.Load(self.best, ()), tir.Load(self.place, ())
        larger = compared("gt", size, best)
        return (
            tir.Store(self.best, (), tir.Unary("abs", self.element(k, k))),
            tir.Store(self.place, (), tir.IndexValue(k)),
            self.over(row, k + 1, (
                tir.Store(self.place, (), tir.Select(larger, tir.IndexValue(row), place)),
                tir.Store(self.best, (), tir.Select(larger, size, best)),
            )),
        )  # fmt: skip

    def exchange(self, k: Var, start: IndexExpr) -> tir.Stmt:
        """Exchange row k with the pivot's row, from column `start` on."""
        row, at = Var("e"), Var("g")
        moved = self.over(at, start, self._exchanged((k, at), (row, at)))
        return stages.matched(row, self.n, tir.Load(self.place, ()), (moved,))

    def exchange_columns(self, k: IndexExpr, place: tir.Expr) -> tir.Stmt:
        """Exchange column k with the one at `place`."""
        column, row = Var("l"), Var("m")
        moved = self.over(row, const(0), self._exchanged((row, k), (row, column)))
        return stages.matched(column, self.n, place, (moved,))

    def _exchanged(
        self, one: tuple[IndexExpr, IndexExpr], other: tuple[IndexExpr, IndexExpr]
    ) -> tir.Body:
        return (
            tir.Store(self.old, (), self.element(*one)),
            tir.Store(self.work, one, self.element(*other)),
            tir.Store(self.work, other, tir.Load(self.old, ())),
        )

    def eliminate_below(self, k: Var) -> tir.Stmt:
        """Subtract multiples of row k from the rows below, behind column k."""
        row, pivot = Var("r"), self.element(k, k)
        # A column of zeros has made the product zero: what the rows hold then does not matter.
        ratio = tir.Select(
            compared("ne", pivot, 0),
            divide(self.element(row, k), pivot),
            stages.literal(0, self.dtype),
        )
        set_ratio = tir.Store(self.ratio, (), ratio)
        return self.over(row, k + 1, (set_ratio, self._less(row, k, k + 1)))

    def eliminate_around(self, k: Var) -> tir.Body:
        """Make column k that of the inverse: divide row k by the pivot, and subtract multiples of
        it from all other rows, where the column of the identity stands in place of column k."""
        row, at, one = Var("q"), Var("d"), stages.literal(1, self.dtype)
        ratio, zero = tir.Load(self.ratio, ()), stages.literal(0, self.dtype)
        subtracted = (
            tir.Store(self.ratio, (), self.element(row, k)),
            tir.Store(self.work, (row, k), zero),
            self._less(row, k, const(0)),
        )
        is_other = tir.Comparison("ne", tir.IndexValue(row), tir.IndexValue(k))
        return (
            tir.Store(self.ratio, (), divide(one, self.element(k, k))),
            tir.Store(self.work, (k, k), one),
            self.over(at, const(0), (
                tir.Store(self.work, (k, at), multiply(self.element(k, at), ratio)),
            )),
            self.over(row, const(0), (tir.If(is_other, subtracted),)),
        )  # fmt: skip

    def _less(self, row: Var, k: Var, start: IndexExpr) -> tir.Stmt:
        """Subtract `ratio` times row k from a row, from column `start` on."""
        at = Var("t")
        product = multiply(tir.Load(self.ratio, ()), self.element(k, at))
        less = subtract(self.element(row, at), product)
        return self.over(at, start, (tir.Store(self.work, (row, at), less),))
