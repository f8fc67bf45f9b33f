"""Matrix products, determinants and inverses.

What always holds: where a run decides over how many elements a product adds, both factors have
zeros behind them.
"""

from __future__ import annotations

import numpy as np

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import filled_factors
from graphflow.frontends.nodes.forwarded import forwarded
from graphflow.kernels.definitions.linear_algebra import determinant, linear
from graphflow.tir import FLOATS


def _matmul(call: NodeCall) -> None:
    a, b = call.shape(0), call.shape(1)
    factors = filled_factors(call, len(a) - 1, max(len(b) - 2, 0))
    call.emit(linear.matmul(a, b, dtype=call.dtype()), factors)


def _gemm(call: NodeCall) -> None:
    transpose_a, transpose_b = call.flag("transA"), call.flag("transB")
    alpha, beta = (float(call.attribute(name, 1.0)) for name in ("alpha", "beta"))
    if not all(_is_of(factor, call.dtype()) for factor in (alpha, beta)):
        call.refuse(f"alpha {alpha} and beta {beta} of {call.dtype()}", "scale it in floats")
    func = linear.gemm(
        call.shape(0),
        call.shape(1),
        call.optional_shape(2),
        alpha=alpha,
        beta=beta,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        dtype=call.dtype(),
    )
    factors = filled_factors(call, 0 if transpose_a else 1, 1 if transpose_b else 0)
    call.emit(func, (*factors, *call.given_inputs[2:]))


def _is_of(factor: float, dtype: str) -> bool:
    """Whether a factor is a number of the type, and what is multiplied by it too."""
    if dtype in FLOATS:
        return True
    limits = np.iinfo(dtype)
    return factor.is_integer() and limits.min <= factor <= limits.max


MOST_INVERTED = 256
"""The most rows of a matrix that is inverted here: each column passes over the whole matrix, which
a second-level cache holds."""


def _inverse(call: NodeCall) -> None:
    """onnxruntime's Inverse."""
    shape = call.shape(0)
    if shape[-1:] > (MOST_INVERTED,):
        call.refuse(f"matrices of {shape[-1]} rows", "leave it to onnxruntime")
    call.emit(determinant.inverse(shape, call.dtype()))


OPERATORS: Emitters = {
    "com.microsoft.Inverse": _inverse,
    "Det": forwarded(determinant.determinant),
    "Gemm": _gemm,
    "MatMul": _matmul,
}
