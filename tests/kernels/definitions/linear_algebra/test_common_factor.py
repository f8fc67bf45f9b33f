"""Tests of shares of a softmax that scale a sum of products: where they do, and the result."""

import numpy as np

from graphflow.graph.fusion import BoundKernel, fuse_kernels
from graphflow.kernels.definitions.linear_algebra.common_factor import with_factors_behind
from graphflow.kernels.definitions.linear_algebra.linear import matmul
from graphflow.kernels.definitions.reductions.reduction import softmax
from graphflow.tir import PrimFunc, buffers_of, interpret, verify


def weighted(axis: int = 2, outputs: tuple[str, ...] = ("y",)) -> PrimFunc:
    """The values v weighted by a softmax of x along an axis."""
    shape = (2, 4, 4)
    first = BoundKernel(softmax(shape, (axis,)), ("x",), ("p",))
    second = BoundKernel(matmul(shape, (2, 4, 3)), ("p", "v"), ("y",))
    return fuse_kernels("weighted", (first, second), outputs).func


def test_the_sum_is_scaled_and_the_weights_are_not() -> None:
    func = weighted()
    made = with_factors_behind(func)
    verify(made, "definition")
    assert len(buffers_of(made)) == len(buffers_of(func))
    assert "weighted" in {buffer.name for buffer in buffers_of(made)}
    rng = np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal(b.shape).astype(np.float32) for b in func.inputs}
    (want,), (got,) = interpret(func, arrays).values(), interpret(made, arrays).values()
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_weights_that_are_read_outside_stay() -> None:
    func = weighted(outputs=("p", "y"))
    assert with_factors_behind(func) is func


def test_a_factor_that_differs_between_the_terms_stays() -> None:
    """Of a softmax along the rows, each term of a sum has a share of its own."""
    func = weighted(axis=1)
    assert with_factors_behind(func) is func


def test_other_kernels_stay() -> None:
    func = softmax((3, 5), (1,))
    assert with_factors_behind(func) is func
