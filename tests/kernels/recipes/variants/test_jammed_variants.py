"""Tests of the variants whose rows run together: `kernels/recipes/variants/jammed_variants.py`."""

from __future__ import annotations

import pytest

from graphflow.codegen import host_target
from graphflow.cost import CostModel
from graphflow.kernels.definitions import recurrent, recurrent_kernel
from graphflow.kernels.recipes import Staged, kernel_variants
from graphflow.tir import PrimFunc

SIGMOID, TANH = (recurrent.ACTIVATIONS[name][1] for name in ("sigmoid", "tanh"))


def layer(batch: int, quantized: bool = False) -> PrimFunc:
    r = recurrent_kernel.Recurrence(5, batch, 128, (SIGMOID, TANH, TANH))
    return recurrent.lstm(r, quantized=quantized)


@pytest.mark.parametrize(("batch", "threads", "rows"), [(16, 2, 4), (16, 8, 2), (13, 2, 1)])
def test_the_price_decides_how_many_rows_are_in_a_block(
    batch: int, threads: int, rows: int
) -> None:
    """With AVX-512 four rows hide the loads of 128 × 512 weights; 13 has no divisor below nine."""
    if host_target().vector_registers < 32:
        pytest.skip("the figures are those of AVX-512")
    model = CostModel(host_target(), threads)
    found = kernel_variants(layer(batch), frozenset({"weights"}), host_target())
    best = min(found, key=lambda variant: model.kernel_seconds(variant.work))
    assert best.recipe == Staged(rows)
    assert best.work.rows == batch // rows


@pytest.mark.parametrize("quantized", [False, True])
def test_a_single_row_is_priced_as_one_of_several(quantized: bool) -> None:
    model = CostModel(host_target(), 1)

    def seconds(batch: int) -> float:
        first, *_ = kernel_variants(layer(batch, quantized), frozenset({"weights"}), host_target())
        assert first.recipe == Staged() and first.vectorized
        return model.kernel_seconds(first.work)

    assert 8 * seconds(1) == pytest.approx(seconds(8), rel=0.1)


def test_a_single_row_is_computed_stage_by_stage() -> None:
    (variant,) = kernel_variants(layer(1), frozenset({"weights"}), host_target())
    assert variant.recipe == Staged() and variant.work.rows == 1
