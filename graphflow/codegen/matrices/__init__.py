"""Matrix registers: products in them, and which sums stay in them while a loop runs."""

from graphflow.codegen.matrices.matrix_registers import (
    MatrixRegisters,
    MatrixWindow,
    fits_matrices,
    is_matrix_product,
    matrix_product,
    matrix_window,
    product_named,
)
from graphflow.codegen.matrices.matrix_sums import begun_sums, sums_of_products

__all__ = [
    "MatrixRegisters",
    "MatrixWindow",
    "begun_sums",
    "fits_matrices",
    "is_matrix_product",
    "matrix_product",
    "matrix_window",
    "product_named",
    "sums_of_products",
]
