"""Determinants of square matrices, by Gaussian elimination with partial pivoting.

In: a shape whose last two extents are equal.  Out: a PrimFunc with a serial loop over the columns.
Which row holds the pivot depends on data, and an index cannot be loaded from memory, so rows are
exchanged by selects.
"""

from __future__ import annotations

from graphflow.arith import IndexExpr, Var, const
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.kernels.definitions.scalar_functions import compared, divide, multiply, subtract
from graphflow.kernels.definitions.stages import (
    Shape,
    indices_of,
    kernel,
    literal,
    loops_over,
)
from graphflow.tir import (
    FLOATS,
    Allocate,
    Block,
    Body,
    Buffer,
    Comparison,
    Expr,
    For,
    IndexValue,
    Load,
    LoopKind,
    PrimFunc,
    Select,
    Store,
    Unary,
    nest,
)


def determinant(x_shape: Shape, dtype: str = "float32") -> PrimFunc:
    """`y[…] = det x[…, :, :]`; that of an empty matrix is 1."""
    if dtype not in FLOATS:
        raise UnsupportedOp(f"det of {dtype} is not built; cast the input to float32")
    if len(x_shape) < 2 or x_shape[-1] != x_shape[-2]:
        raise InvalidModel(f"a tensor of shape {x_shape} holds no square matrices")
    n = x_shape[-1]
    x, y = Buffer("x", x_shape, dtype), Buffer("y", x_shape[:-2], dtype)
    loops = loops_over("b", y.shape)
    batch = indices_of(loops)
    rows = _RowElimination(n, dtype)
    copied = loops_over("c", (n, n))
    at = indices_of(copied)
    column = Var("k")
    body: Body = (
        *nest(copied, (Store(rows.work, at, Load(x, (*batch, *at))),)),
        _put(rows.product, literal(1, dtype)),
        rows.over(
            column,
            const(0),
            (*rows.find_pivot(column), *rows.exchange(column), *rows.eliminate(column)),
        ),
        Store(y, batch, _got(rows.product)),
    )
    block = Block("determinant", nest(loops, body))
    return kernel("determinant", (x,), (y,), (*map(Allocate, rows.buffers), block))


def _got(scalar: Buffer) -> Expr:
    return Load(scalar, (const(0),))


def _put(scalar: Buffer, value: Expr) -> Store:
    return Store(scalar, (const(0),), value)


class _RowElimination:
    """The state of the elimination: the rows of the matrix, and the pivot of the current column."""

    def __init__(self, n: int, dtype: str) -> None:
        self.n = n
        self.dtype = dtype
        self.work = Buffer("work", (n, n), dtype)
        self.old = Buffer("old", (n,), dtype)
        self.product = Buffer("product", (1,), dtype)
        self.best = Buffer("best", (1,), dtype)
        self.ratio = Buffer("ratio", (1,), dtype)
        self.place = Buffer("place", (1,), "int64")
        self.buffers = (self.work, self.old, self.product, self.best, self.ratio, self.place)

    def over(self, var: Var, start: IndexExpr, body: Body) -> For:
        return For(var, start, const(self.n), LoopKind.SERIAL, body)

    def element(self, row: IndexExpr, column: IndexExpr) -> Expr:
        return Load(self.work, (row, column))

    def find_pivot(self, k: Var) -> Body:
        """`place` = the first row from k on whose element in column k has the largest magnitude."""
        row = Var("s")
        size = Unary("abs", self.element(row, k))
        larger = compared("gt", size, _got(self.best))
        return (
            _put(self.best, Unary("abs", self.element(k, k))),
            _put(self.place, IndexValue(k)),
            self.over(row, k + 1, (
                _put(self.place, Select(larger, IndexValue(row), _got(self.place))),
                _put(self.best, Select(larger, size, _got(self.best))),
            )),
        )  # fmt: skip

    def exchange(self, k: Var) -> Body:
        """Exchange row k with the pivot's row, and multiply the product by the pivot and the
        sign."""
        saved, row, at = Var("f"), Var("e"), Var("g")
        chosen = Comparison("eq", IndexValue(row), _got(self.place))
        moved = Comparison("ne", IndexValue(k), _got(self.place))
        pivot = self.element(k, k)
        signed = Select(moved, Unary("neg", pivot), pivot)
        upper = Select(chosen, self.element(row, at), self.element(k, at))
        lower = Select(chosen, Load(self.old, (at,)), self.element(row, at))
        return (
            self.over(saved, k, (Store(self.old, (saved,), self.element(k, saved)),)),
            self.over(row, k + 1, (
                self.over(at, k, (
                    Store(self.work, (k, at), upper),
                    Store(self.work, (row, at), lower),
                )),
            )),
            _put(self.product, multiply(_got(self.product), signed)),
        )  # fmt: skip

    def eliminate(self, k: Var) -> Body:
        """Subtract multiples of row k from the rows below."""
        row, at = Var("r"), Var("q")
        pivot = self.element(k, k)
        # A column of zeros has made the product zero: what the rows hold then does not matter.
        ratio = Select(
            compared("ne", pivot, 0), divide(self.element(row, k), pivot), literal(0, self.dtype)
        )
        less = subtract(self.element(row, at), multiply(_got(self.ratio), self.element(k, at)))
        return (
            self.over(row, k + 1, (
                _put(self.ratio, ratio),
                self.over(at, k + 1, (Store(self.work, (row, at), less),)),
            )),
        )  # fmt: skip
