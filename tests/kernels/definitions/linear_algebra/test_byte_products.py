"""Products of bytes: their parts, the classes of border positions, and what is refused."""

from typing import Any

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import Predicate, Var, const, evaluate, holds, predicate_variables
from graphflow.kernels.definitions.linear_algebra.byte_products import (
    ByteProduct,
    NotSeparable,
    borders_of,
    byte_product,
    sums_of,
)
from graphflow.kernels.definitions.linear_algebra.unscaled_sum import sum_of_products
from graphflow.tir import parse
from support.kernels.attributed_convolutions import attributed_convolution

MATMUL = """
@primfunc
def product(a: u8[4, 6], b: i8[6, 5], z: u8[4], q: i8[6], y: out[i32[4, 5]]):
    with block("product"):
        for i in serial(0, 4):
            for j in serial(0, 5):
                y[i, j] = i32(0)
                for k in serial(0, 6):
                    y[i, j] += {left} * {right}
"""


def matmul(left: str, right: str) -> ByteProduct | None:
    return byte_product(sum_of_products(parse(MATMUL.format(left=left, right=right))))


def convolved(size: int, kernel: int, **attributes: Any) -> ByteProduct:
    """A convolution whose operands are bytes."""
    func = attributed_convolution(
        (1, 2, size, size), (3, 2, kernel, kernel), dtype="int32", **attributes
    )
    narrow = {
        b: tir.Buffer(b.name, b.shape, t)
        for b, t in zip(func.inputs, ("uint8", "int8"), strict=True)
    }

    def change(e: tir.Expr) -> tir.Expr:
        if isinstance(e, tir.Load) and e.buffer in narrow:
            return tir.Cast(tir.Load(narrow[e.buffer], e.indices), "int32")
        return e

    body = tir.map_expressions(func.body, change)
    params = [tir.Param(narrow.get(p.buffer, p.buffer), p.role) for p in func.params]
    found = byte_product(sum_of_products(tir.PrimFunc("conv", tuple(params), body)))
    assert found is not None
    return found


def test_factors_and_loops() -> None:
    found = matmul("(cast(i32, a[i, k]) - cast(i32, z[i]))", "cast(i32, b[k, j])")
    assert found is not None
    assert (found.left.name, found.right.name) == ("a", "b")
    assert found.left.zero is not None and found.left.uniform_zero is None
    assert found.right.uniform_zero == 0
    assert [v.name for v, _ in found.outer] == ["i", "j"]
    assert [v.name for v, _ in found.inner] == ["k"]


def test_a_zero_point_along_the_sum_is_refused() -> None:
    with pytest.raises(NotSeparable, match="zero point of b varies along the sum"):
        matmul("cast(i32, a[i, k])", "(cast(i32, b[k, j]) - cast(i32, q[k]))")


@pytest.mark.parametrize("left", ["cast(i32, a[i, k]) + i32(1)", "i32(3)"])
def test_other_products_are_none_of_bytes(left: str) -> None:
    assert matmul(f"({left})", "cast(i32, b[k, j])") is None


@pytest.mark.parametrize(
    ("size", "kernel", "attributes"),
    [
        (9, 3, {"pads": (1, 1, 1, 1)}),
        (10, 3, {"pads": (0, 0, 1, 1), "strides": (2, 2)}),
        (12, 5, {"pads": (2, 2, 2, 2), "strides": (2, 2)}),
        (12, 3, {"pads": (3, 3, 3, 3), "dilations": (3, 3)}),
        (3, 5, {"pads": (2, 2, 2, 2)}),  # every position is at a border
    ],
)
def test_classes_have_the_terms_of_their_positions(
    size: int, kernel: int, attributes: dict[str, tuple[int, ...]]
) -> None:
    found = convolved(size, kernel, **attributes)
    borders = borders_of(found)
    assert [border.axis for border in borders] == [2, 3]
    for border in borders:
        own = [c for c in found.where if holds_about(c, border.var)]
        for position in range(border.extent):
            place = evaluate(border.class_of(const(position)), {})
            for tap in range(kernel):
                values = {border.var: position, border.taps[0][0]: tap}
                assert border.mask[place, tap] == all(holds(c, values) for c in own)


def holds_about(condition: Predicate, var: Var) -> bool:
    return var in predicate_variables(condition)


def test_sums_have_an_element_for_each_class() -> None:
    found = convolved(9, 3, pads=(1, 1, 1, 1))
    term = tir.Cast(found.right.load, "int32")
    sums = sums_of(found, term, tir.Literal(0, "int32"), borders_of(found), "sums")
    assert sums.result.buffer.shape == (3, 3, 3)
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (3, 2, 3, 3)).astype(np.int8)
    got = tir.interpret(sums.func, {"w": w, **sums.masks})["sums"]
    wide = w.astype(np.int64)
    np.testing.assert_array_equal(got[1, 1], wide.sum((1, 2, 3)))
    np.testing.assert_array_equal(got[0, 2], wide[:, :, 1:, :2].sum((1, 2, 3)))
