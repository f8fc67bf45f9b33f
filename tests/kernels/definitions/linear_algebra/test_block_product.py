"""Rounding rows to bytes and products of these: against numpy, bit for bit."""

from typing import Any

import numpy as np
import pytest

from graphflow.kernels.definitions.linear_algebra.block_product import (
    block_product,
    grouped_weights,
    rounded_blocks,
)
from graphflow.kernels.definitions.linear_algebra.packed_product import PackedWeights
from graphflow.tir import interpret

Array = np.ndarray[Any, Any]


def numbers(packed: Array, bits: int) -> Array:
    """The weights of packed bytes [columns, blocks, bytes], as int64 [columns, blocks, block]."""
    places = packed[..., None] >> (np.arange(8 // bits) * bits) & (2**bits - 1)
    return places.reshape(*packed.shape[:2], -1).astype(np.int64)


def rounded_rows(x: Array, block: int) -> tuple[Array, Array, Array]:
    """What `rounded_blocks` gives of rows [rows, depth]."""
    rows, depth = x.shape
    blocks = -(-depth // block)
    whole = np.zeros((rows, blocks * block), np.float32)
    whole[:, :depth] = x
    whole = whole.reshape(rows, blocks, block)
    most = np.abs(whole).max(-1)
    with np.errstate(divide="ignore", over="ignore"):
        factors = np.where(most < 2.0**-120, np.float32(0), np.float32(127) / most)
    a = np.clip(np.rint(whole * factors[..., None]), -128, 127).astype(np.int8)
    return a, most / np.float32(127), a.sum(-1, dtype=np.int32)


@pytest.mark.parametrize(("depth", "block"), [(64, 32), (70, 32), (33, 16), (300, 256)])
def test_rows_are_rounded_by_the_largest_magnitude_of_each_block(depth: int, block: int) -> None:
    x = np.random.default_rng(0).standard_normal((5, depth)).astype(np.float32)
    x[1] = 0
    x[2] *= 1e-38  # a block whose scale has no reciprocal
    x[3, :block] = np.arange(block) - 127.5 / 2  # halves, which are rounded to even
    x[4, 0] = -1e30
    found = interpret(rounded_blocks(x.shape, block), {"x": x})
    for name, want in zip(("a", "steps", "sums"), rounded_rows(x, block), strict=True):
        np.testing.assert_array_equal(found[name], want)
    blocks = -(-depth // block)
    back = (found["a"] * found["steps"][..., None]).reshape(5, -1)[:, :depth]
    largest = np.repeat(found["steps"] * 127, block, -1)[:, :depth]
    assert (np.abs(back - x) <= largest * 1.001 / 254 + 1e-36).all()
    assert not found["a"].reshape(5, blocks * block)[:, depth:].any()


def test_a_block_with_nan_or_an_infinity_has_no_bytes_and_such_a_step() -> None:
    x = np.ones((2, 64), np.float32)
    x[0, 40], x[1, 3] = np.nan, np.inf
    found = interpret(rounded_blocks(x.shape, 32), {"x": x})
    assert np.isnan(found["steps"][0, 1])
    assert np.isinf(found["steps"][1, 0])
    np.testing.assert_array_equal(found["sums"], [[32 * 127, 0], [0, 32 * 127]])


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_grouped_weights_are_the_same_numbers_four_neighbours_in_four_bytes(bits: int) -> None:
    packed = np.random.default_rng(0).integers(0, 256, (3, 2, 4 * bits), np.uint8)
    grouped = grouped_weights(packed, bits)
    places = grouped.reshape(3, 2, bits, 1, 4) >> (np.arange(8 // bits) * bits)[:, None]
    np.testing.assert_array_equal((places & (2**bits - 1)).reshape(3, 2, 32), numbers(packed, bits))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_a_product_is_a_sum_of_integers_in_each_block(bits: int, has_zeros: bool) -> None:
    """With scales that are powers of two, so that the sum of blocks is exact too."""
    random, rows, columns, blocks, block = np.random.default_rng(0), 3, 5, 4, 16
    weights = PackedWeights(columns, blocks * block, bits, block, "uint8" if has_zeros else None)
    packed = random.integers(0, 256, weights.shape, np.uint8)
    arrays = {
        "a": random.integers(-128, 128, (rows, blocks, block)).astype(np.int8),
        "steps": 2.0 ** random.integers(-4, 1, (rows, blocks)).astype(np.float32),
        "b": grouped_weights(packed, bits),
        "scales": 2.0 ** random.integers(-4, 1, weights.scales).astype(np.float32),
        "bias": random.integers(-9, 9, columns).astype(np.float32),
    }
    arrays["sums"] = arrays["a"].sum(-1, dtype=np.int32)
    zeros = np.full(weights.scales, 2 ** (bits - 1), np.uint8)
    if has_zeros:
        zeros = arrays["zeros"] = random.integers(0, 2**bits, weights.scales, np.uint8)
    centred = numbers(packed, bits) - zeros[..., None]
    totals = np.einsum("mqk,nqk->mnq", arrays["a"].astype(np.int64), centred)
    scales = arrays["steps"][:, None].astype(np.float64) * arrays["scales"]
    want = (totals * scales).sum(-1) + arrays["bias"]
    found = interpret(block_product((rows,), weights, bias=True), arrays)["y"]
    np.testing.assert_array_equal(found, want.astype(np.float32))
