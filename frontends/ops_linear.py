"""Matrix products and determinants."""

from __future__ import annotations

from collections.abc import Callable

from graphflow.frontends.call import NodeCall
from graphflow.kernels.definitions import determinant, linear


def _gemm(call: NodeCall) -> None:
    func = linear.gemm(
        call.shape(0),
        call.shape(1),
        call.shape(2) if call.has(2) else None,
        alpha=call.attribute("alpha", 1.0),
        beta=call.attribute("beta", 1.0),
        transpose_a=bool(call.attribute("transA", 0)),
        transpose_b=bool(call.attribute("transB", 0)),
        dtype=call.dtype(),
    )
    call.emit(func, call.given_inputs)


def _matmul(call: NodeCall) -> None:
    call.emit(linear.matmul(call.shape(0), call.shape(1), call.dtype()))


def _det(call: NodeCall) -> None:
    call.emit(determinant.determinant(call.shape(0), call.dtype()))


LINEAR: dict[str, Callable[[NodeCall], None]] = {"Det": _det, "Gemm": _gemm, "MatMul": _matmul}
