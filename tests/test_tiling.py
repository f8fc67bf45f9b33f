"""Choosing a register tile: what makes one tiling cheaper than another."""

from __future__ import annotations

from dataclasses import replace

from graphflow.kernels.recipes.tiling import Plane, choose_tiling
from graphflow.target import Target

EIGHT_LANES = Target(
    "eight lanes", "", "", vector_bytes=32, vector_registers=16,
    fmas_per_cycle=2.0, cycles_per_vector_load=0.5,
)  # fmt: skip
PLANE = Plane(
    channels=1280, pixels=7, rows=7, steps=112, weight_bytes=1280 * 112 * 4, pixel_bytes=448,
    whole_vectors=False,
)  # fmt: skip


def test_groups_outermost_that_do_not_divide_the_channels_pay_for_masked_stores() -> None:
    tiling, cheap = choose_tiling(PLANE, EIGHT_LANES)
    assert tiling.panel_outermost and PLANE.channels % tiling.panels[0].width
    slow = replace(EIGHT_LANES, cycles_per_masked_store=12.0)
    tiling, dear = choose_tiling(PLANE, slow)
    assert sum(p.count * p.width for p in tiling.panels) == PLANE.channels
    assert 0.95 * cheap < dear < 1.1 * cheap


def test_vectors_that_may_write_padding_need_no_mask() -> None:
    padded = replace(PLANE, channels=1276, whole_vectors=True)
    slow = replace(EIGHT_LANES, cycles_per_masked_store=12.0)
    assert choose_tiling(padded, EIGHT_LANES) == choose_tiling(padded, slow)


def test_the_last_channels_pay_where_they_do_not_fill_a_vector() -> None:
    odd = replace(PLANE, channels=13, rows=16)
    slow = replace(EIGHT_LANES, cycles_per_masked_store=12.0)
    more = choose_tiling(odd, slow)[1] - choose_tiling(odd, EIGHT_LANES)[1]
    assert 0 < more <= 2 * 11 * odd.pixels * odd.rows


def test_a_mask_known_beforehand_costs_its_pieces() -> None:
    """Twenty channels are three vectors, the last one half full, not two and a narrow one."""
    slow = replace(EIGHT_LANES, cycles_per_masked_store=12.0)
    plane = replace(PLANE, channels=20, pixels=128, steps=180, weight_bytes=0, pixel_bytes=80)
    (panel,) = choose_tiling(plane, slow)[0].panels
    assert (panel.count, panel.vectors, panel.lanes) == (1, 3, 8)


def test_weights_that_leave_the_first_cache_are_used_for_more_pixels() -> None:
    plane = replace(PLANE, channels=80, pixels=32, rows=32, steps=720, pixel_bytes=320)
    assert choose_tiling(plane, EIGHT_LANES)[0].panels[0].pixels > 2
