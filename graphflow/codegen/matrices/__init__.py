"""Matrix registers: products in them, and which sums stay in them while a loop runs."""

from graphflow.codegen.matrices.matrix_registers import (
    MATRIX_LANES,
    MOST_GROUPS,
    MOST_MATRIX_ROWS,
    MatrixRegisters,
    MatrixWindow,
    is_matrix_product,
    matrix_product,
    matrix_window,
    product_named,
)
from graphflow.codegen.matrices.matrix_sums import sums_of_products

__all__ = [
    "MATRIX_LANES",
    "MOST_GROUPS",
    "MOST_MATRIX_ROWS",
    "MatrixRegisters",
    "MatrixWindow",
    "is_matrix_product",
    "matrix_product",
    "matrix_window",
    "product_named",
    "sums_of_products",
]
