"""Tests of inputs with a known number behind the elements of a run: which reductions end there."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.kernels.definitions.data_dependent.compaction import counted_slices
from graphflow.kernels.definitions.elementwise import binary
from graphflow.kernels.definitions.reductions.reduction import softmax
from graphflow.kernels.lowering import filled_axes, fills_of
from graphflow.kernels.lowering.filled_axes import FilledAxis, with_reduction_conditions
from graphflow.kernels.lowering.sized_rows import BoxAxis
from graphflow.layout import row_major

PRODUCT = """
@primfunc
def product(a: f32[3, 8], b: f32[8, 4], y: out[f32[3, 4]]):
    for i in serial(0, 3):
        for j in vectorized(0, 4):
            y[i, j] = f32(0.0)
        for k in serial(0, 2):
            for k_1 in unrolled(0, 4):
                for j_1 in vectorized(0, 4):
                    y[i, j_1] += a[i, 4*k + k_1] * b[4*k + k_1, j_1]
"""

A = FilledAxis("n", 8, 0.0, BoxAxis("a", (3, 8), 1))
B = FilledAxis("n", 8, 0.0, BoxAxis("b", (8, 4), 0))


def limited(text: str, *axes: FilledAxis) -> tuple[tir.PrimFunc, list[str]]:
    made, params = with_reduction_conditions(tir.parse(text.strip()), axes, ())
    tir.verify(made, "lowered")
    counted = map(tir.counted_index, tir.loops_of(made.body))
    firsts = [str(found[0]) for found in counted if found is not None]
    assert [p.size for p in params] == ["n"] * bool(firsts)
    return made, firsts


def test_the_axes_that_a_definition_fills() -> None:
    assert fills_of(counted_slices((3, 8), 1, 0, "float32")) == {1: ("count", 0.0)}
    assert fills_of(softmax((3, 8), (1,), "float32", (1,))) == {1: ("count0", 0.0)}
    assert fills_of(softmax((3, 8), (1,))) == {}
    assert fills_of(binary("mul", (3, 8), (3, 8), "float32")) == {}


def test_filled_axes_of_a_box() -> None:
    assert filled_axes(row_major((3, 8)), "a", {1: ("n", 0.0)}) == (A,)


@pytest.mark.parametrize("size", range(9))
def test_a_product_ends_at_the_size_where_both_factors_are_zeros_behind(size: int) -> None:
    made, firsts = limited(PRODUCT, A, B)
    assert firsts == ["4*k"]
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 8), (8, 4)))
    a[:, size:], b[size:] = 0, 0
    found = tir.interpret(made, {"a": a, "b": b, "size": np.array(size, np.int64)})["y"]
    np.testing.assert_allclose(found, a @ b, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        (PRODUCT, (A,)),  # zero times what b has there may be NaN
        (PRODUCT, (A, FilledAxis("n", 8, 1.0, B.place))),
        (PRODUCT.replace("b[4*k + k_1,", "b[7 - 4*k - k_1,"), (A, B)),
        (PRODUCT.replace("a[i, 4*k + k_1] *", "a[i, 4*k + k_1] +"), (A, B)),
        (PRODUCT.replace("y[i, j_1] += ", "y[i, j_1] = "), (A, B)),
    ],
)
def test_what_is_not_neutral_behind_the_size_is_reduced(
    text: str, axes: tuple[FilledAxis, ...]
) -> None:
    assert limited(text, *axes)[1] == []
