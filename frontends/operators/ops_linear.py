"""Matrix products and determinants."""

from __future__ import annotations

from graphflow.frontends.operators.call import Emitters
from graphflow.frontends.operators.forwarded import forwarded
from graphflow.kernels.definitions.linear_algebra import determinant, linear

OPERATORS: Emitters = {
    "Det": forwarded(determinant.determinant),
    "Gemm": forwarded(
        linear.gemm,
        inputs=2,
        optional=1,
        alpha=("alpha", 1.0),
        beta=("beta", 1.0),
        transpose_a=("transA", False),
        transpose_b=("transB", False),
    ),
    "MatMul": forwarded(linear.matmul, inputs=2),
}
