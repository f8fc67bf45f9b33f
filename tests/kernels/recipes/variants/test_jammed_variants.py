"""Tests of the variants whose rows run together: `kernels/recipes/variants/jammed_variants.py`."""

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


@pytest.mark.parametrize("quantized", [False, True])
def test_a_single_row_is_computed_stage_by_stage_or_in_phases(quantized: bool) -> None:
    plain, shared = kernel_variants(layer(1, quantized), frozenset({"weights"}), host_target())
    assert plain.recipe == Staged() and plain.work.rows == 1
    assert shared.recipe == Staged(in_phases=True)
    assert shared.work.rows == 128 // recurrent_kernel.LANES
    assert shared.work.meetings == 5
    # Each thread quantizes the state for itself.
    assert (shared.work.repeated > 0) is quantized


@pytest.mark.parametrize(
    ("definition", "meetings"),
    [
        (recurrent.gru(recurrent_kernel.Recurrence(5, 1, 64, (SIGMOID, TANH))), 10),
        (
            recurrent.gru(
                recurrent_kernel.Recurrence(5, 1, 64, (SIGMOID, TANH)), linear_before_reset=True
            ),
            5,
        ),
        (recurrent.rnn(recurrent_kernel.Recurrence(5, 1, 64, (TANH,))), 5),
    ],
)
def test_threads_meet_once_for_each_product_of_a_state(definition: PrimFunc, meetings: int) -> None:
    *_, shared = kernel_variants(definition, frozenset({"weights"}), host_target())
    assert shared.work.meetings == meetings


def test_a_single_panel_is_not_shared() -> None:
    definition = recurrent.rnn(recurrent_kernel.Recurrence(5, 1, 16, (TANH,)))
    (variant,) = kernel_variants(definition, frozenset({"weights"}), host_target())
    assert variant.recipe == Staged()


@pytest.mark.parametrize(("units", "threads", "in_phases"), [(32, 2, False), (256, 2, True)])
def test_phases_are_chosen_where_they_save_more_than_meetings_take(
    units: int, threads: int, in_phases: bool
) -> None:
    model = CostModel(host_target(), threads)
    definition = recurrent.rnn(recurrent_kernel.Recurrence(100, 1, units, (TANH,)))
    plain, shared = (
        model.kernel_seconds(variant.work)
        for variant in kernel_variants(definition, frozenset({"weights"}), host_target())
    )
    assert (shared < plain) is in_phases
