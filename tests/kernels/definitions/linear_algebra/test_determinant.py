"""Tests of inverses and determinants by elimination: interpreted and natively, against numpy."""

import numpy as np
import pytest

import graphflow as gf
from graphflow import tir
from graphflow.base.errors import InvalidModel
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.kernels.definitions.linear_algebra.determinant import determinant, inverse
from support.targets import in_turn

SHAPES = ((3, 3), (1, 1), (4, 2, 2), (2, 3, 4, 4), (2, 17, 17), (64, 64))

both = pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])


def matrices(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Orthogonal matrices with rows of other sizes, so that no pivot is in the first row."""
    rng = np.random.default_rng(len(shape))
    sizes = np.linspace(0.5, 2, shape[-1])
    return (np.linalg.qr(rng.standard_normal(shape))[0] * sizes).astype(dtype)


@in_turn("dtype shape", ["float32", "float64"], SHAPES)
def test_inverses_and_determinants(shape: tuple[int, ...], dtype: str, target: Target) -> None:
    x = matrices(shape, dtype)
    exact = 1e-5 if dtype == "float32" else 1e-12
    for func, expected in (
        (inverse(shape, dtype), np.linalg.inv(x.astype(float))),
        (determinant(shape, dtype), np.linalg.det(x.astype(float))),
    ):
        found = gf.build(func, target=target).run({"x": x})["y"]
        np.testing.assert_allclose(found, expected, rtol=exact, atol=exact * abs(expected).max())
        if x.size < 100:
            interpreted = tir.interpret(func, {"x": x})["y"]
            np.testing.assert_allclose(interpreted, found, rtol=exact, atol=exact)


def test_zeros_on_the_diagonal_are_no_pivots() -> None:
    x = np.array([[0, 0, 2], [4, 0, 0], [0, 8, 0]], np.float32)
    assert (gf.build(inverse((3, 3))).run({"x": x})["y"] == np.linalg.inv(x)).all()
    assert gf.build(determinant((3, 3))).run({"x": x})["y"] == 64


def test_singular_matrices_have_no_finite_inverse() -> None:
    x = np.ones((2, 2), np.float32)
    assert not np.isfinite(gf.build(inverse((2, 2))).run({"x": x})["y"]).any()
    assert gf.build(determinant((2, 2))).run({"x": x})["y"] == 0


@pytest.mark.parametrize("define", [inverse, determinant])
def test_matrices_have_to_be_square(define: object) -> None:
    with pytest.raises(InvalidModel, match="no square matrices"):
        define((2, 3))  # type: ignore[operator]
