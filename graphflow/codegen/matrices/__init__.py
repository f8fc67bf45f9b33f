"""Matrix registers: products in them, and which sums stay in them while a loop runs."""

from graphflow.codegen.matrices.matrix_registers import (
    BYTES_OF_PRODUCTS,
    MATRIX_FACTORS,
    MatrixRegisters,
    MatrixWindow,
    factors_of,
    fits_matrices,
    is_matrix_product,
    matrix_product,
    matrix_window,
    product_named,
)
from graphflow.codegen.matrices.matrix_sums import begun_sums, sums_of_products

__all__ = [
    "BYTES_OF_PRODUCTS",
    "MATRIX_FACTORS",
    "MatrixRegisters",
    "MatrixWindow",
    "begun_sums",
    "factors_of",
    "fits_matrices",
    "is_matrix_product",
    "matrix_product",
    "matrix_window",
    "product_named",
    "sums_of_products",
]
