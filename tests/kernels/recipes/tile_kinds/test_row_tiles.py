"""Tiles along rows whose rows are cut into blocks."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS, restricted_to_avx2
from graphflow.base.target import Target
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes import KernelVariant, kernel_variants
from graphflow.kernels.recipes.analysis.variant import Tiled
from graphflow.kernels.recipes.kernel_schedule import kernel_schedule
from graphflow.kernels.recipes.tile_kinds.row_tiles import RowTile

WIDE = replace(PROCESSORS["cascadelake-server"], name="small", l2_bytes=8192)
"""A processor whose second-level cache holds the data of a kernel and not its output."""
NARROW = replace(restricted_to_avx2(WIDE), name="narrow")


def sequence(channels: int, length: int = 700) -> tir.PrimFunc:
    return convolution.convolution((1, 1, length), (channels, 1, 5), Window.of((5,), pads=(2, 2)))


def along_rows(definition: tir.PrimFunc, target: Target) -> KernelVariant:
    return next(
        v
        for v in kernel_variants(definition, frozenset({"w"}), target)
        if v.name.endswith("along rows")
    )


def blocks_of(variant: KernelVariant) -> int:
    assert isinstance(variant.recipe, Tiled) and isinstance(variant.recipe.kind, RowTile)
    return variant.recipe.kind.blocks


@pytest.mark.parametrize("target", [WIDE, NARROW])
def test_few_rows_are_written_from_end_to_end(target: Target) -> None:
    """Threads share the blocks, and each block goes through all panels."""
    definition = sequence(48)
    variant = along_rows(definition, target)
    blocks = blocks_of(variant)
    assert isinstance(variant.recipe, Tiled)
    assert blocks >= 3 and variant.work.rows == blocks
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    made = kernel_schedule(definition, placements, variant.recipe, target).func
    tir.verify(made, "scheduled")
    (shared,) = (x for x in tir.loops_of(made.body) if x.kind is tir.LoopKind.PARALLEL)
    assert shared.extent == blocks
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 1, 700)).astype(np.float32)
    w = random.standard_normal((48, 1, 5)).astype(np.float32)
    want = tir.interpret(definition, {"x": x, "w": w})["y"]
    rows = variant.recipe.tiling.panels[0].mr
    packed = w.reshape(48 // rows, rows, 1, 5).transpose(0, 2, 3, 1)
    assert packed.shape == variant.layouts["w"].physical_shape
    got = tir.interpret(made, {"x": x, "w": packed})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "length", "target"),
    [
        (16, 700, WIDE),  # prefetchers follow as many rows
        (48, 1400, WIDE),  # each block would read data that the cache does not hold
        (48, 700, replace(WIDE, l2_bytes=1 << 19)),  # the cache holds the output
        (48, 700, replace(WIDE, cycles_per_far_line=0.0)),  # nothing is known to be awaited
    ],
)
def test_rows_stay_together(channels: int, length: int, target: Target) -> None:
    assert blocks_of(along_rows(sequence(channels, length), target)) == 0
