"""Tests of scales taken out of a sum, on kernels as text."""

import pytest

from graphflow.kernels.definitions.linear_algebra.unscaled_sum import (
    NotUnscalable,
    scaled_product,
    sum_of_products,
    unscaled,
)
from graphflow.kernels.definitions.movements.movement import copy
from graphflow.tir import PrimFunc, parse, to_text, verify

TEXT = """
@primfunc
def product(x: u8[4, 6], s: f32[()], w: i8[6, 3], u: f32[{scales}], c: i32[3], y: out[f32[4, 3]]):
    with block("product"):
        for i in serial(0, 4):
            for j in serial(0, 3):
                y[i, j] = {start}
                for k in serial(0, 6):
                    y[i, j] += cast(f32, cast(i32, x[i, k])) * s[()] * {operand}
"""
OPERAND = "(cast(f32, cast(i32, w[k, j])) * u[{at}])"


def kernel(start: str = "f32(0.0)", at: str = "j", operand: str = OPERAND) -> PrimFunc:
    scales = 6 if at == "k" else 3
    return parse(TEXT.format(start=start, scales=scales, operand=operand.format(at=at)))


def test_the_scales_are_behind_the_sum() -> None:
    func = kernel()
    found = scaled_product(func)
    made = unscaled(func, found, begins=False)
    verify(made, "definition")
    text = to_text(made)
    assert "total[i, j] += cast(i32, x[i, k]) * cast(i32, w[k, j])" in text
    assert "y[s0, s1] = cast(f32, total[s0, s1]) * (s[()] * u[s1])" in text
    assert found.product.terms == 6
    assert [b.name for b in made.inputs] == ["x", "s", "w", "u"]


def test_a_first_value_of_integers_begins_the_sum() -> None:
    func = kernel("cast(f32, c[j]) * u[j]")
    found = scaled_product(func)
    assert found.start_factors is not None
    text = to_text(unscaled(func, found, begins=True))
    assert "total[i, j] = c[j]" in text
    behind = to_text(unscaled(func, found, begins=False))
    assert "(s[()] * u[s1]) + cast(f32, c[s1]) * u[s1]" in behind


@pytest.mark.parametrize(
    "func, reason",
    [
        (lambda: kernel(at="k"), "varies along its loop k"),
        (lambda: kernel(operand="u[j]"), "is no integer times a scale"),
    ],
)
def test_kernels_that_are_refused(func: object, reason: str) -> None:
    with pytest.raises(NotUnscalable, match=reason):
        scaled_product(func())  # type: ignore[operator]


def test_a_kernel_without_a_sum_is_refused() -> None:
    with pytest.raises(NotUnscalable, match="has 0 sums"):
        sum_of_products(copy((2, 3)))
