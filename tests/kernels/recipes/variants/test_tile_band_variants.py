"""Tests of kernels that multiply transformed tiles: their claims, and what variants compute."""

from functools import lru_cache

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.cost import CostModel, fits_stack, iterations, transformed_lanes
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.filtered_convolution import (
    filtered_convolution,
    transformed_weights,
)
from graphflow.kernels.definitions.windows.plain_convolution import plain_convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.lowering import KernelTask
from graphflow.kernels.lowering.task import make_here
from graphflow.kernels.recipes import (
    FilteredTiles,
    KernelVariant,
    kernel_variants,
    refused_variants,
)
from graphflow.kernels.recipes.analysis.filtered_stages import filtered_stages
from graphflow.kernels.recipes.variants.tile_band_variants import cheapest_bands
from support.kernels.attributed_convolutions import attributed_convolution
from support.kernels.covering_variants import covering
from support.kernels.narrow_products import narrow
from support.native import Native
from support.placing import place, unplace
from support.targets import in_turn, processors

CONSTANTS = frozenset({"w", "u"})


def definition(
    channels: int, outputs: int, size: tuple[int, ...], tile: int, lanes: int = 1
) -> tir.PrimFunc:
    shapes = (1, channels, *size), (outputs, channels, *(3 for _ in size))
    func = attributed_convolution(*shapes, pads=(1, 1) * len(size), bias=True)
    return filtered_convolution(func, plain_convolution(func), tile, lanes).func


def variants(func: tir.PrimFunc, target: Target) -> tuple[KernelVariant, ...]:
    return kernel_variants(func, CONSTANTS, target)


@pytest.mark.parametrize("target", ["zen4", "haswell", "sapphirerapids"])
def test_bands_fit_the_stack_of_a_thread(target: str) -> None:
    processor = PROCESSORS[target]
    for channels, size, tile in ((64, 224, 4), (512, 28, 4), (512, 14, 2), (256, 56, 4)):
        found = filtered_stages(definition(channels, channels, (size, size), tile))
        assert found is not None
        bands = cheapest_bands(found.work, processor.computed_lanes("float32"), processor)
        assert bands is not None
        assert fits_stack(found.work, bands, processor)


@processors()
@pytest.mark.parametrize(
    ("channels", "outputs", "size"), [(32, 32, 8), (96, 208, 14), (64, 256, 7), (32, 128, 28)]
)
def test_there_are_several_bands_or_groups(
    channels: int, outputs: int, size: int, target: Target
) -> None:
    for tile in (2, 4):
        found = filtered_stages(definition(channels, outputs, (size, size), tile))
        assert found is not None
        bands = cheapest_bands(found.work, target.computed_lanes("float32"), target)
        assert bands is not None
        assert iterations(found.work, bands) > 1


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "reason"),
    [
        (20, 32, (8, 8), "20 and 32 channels do not fill two or more vectors of 16"),
        (32, 20, (8, 8), "32 and 20 channels"),
        (8, 32, (8, 8), "8 and 32 channels"),
        (32, 32, (4, 8), "a single row or column of tiles"),
        (32, 32, (4,), "a single row or column of tiles"),
    ],
    ids=["input channels", "output channels", "one vector", "one row of tiles", "one tile"],
)
def test_there_is_no_variant_for_other_shapes(
    channels: int, outputs: int, size: tuple[int, ...], reason: str
) -> None:
    func, target = definition(channels, outputs, size, 4), PROCESSORS["zen4"]
    assert not variants(func, target)
    (refused,) = refused_variants(func, CONSTANTS, target)
    assert reason in str(refused.reason)


@pytest.mark.parametrize(
    ("channels", "target", "lanes"),
    [
        ((20, 20), "zen4", 8),
        ((40, 80), "zen4", 8),
        ((172, 12), "zen4", 8),
        ((58, 58), "zen4", 16),
        ((64, 64), "zen4", 16),
        ((8, 32), "zen4", 16),
        ((20, 20), "sapphirerapids", 16),
        ((20, 20), "zen3", 8),
    ],
)
def test_half_vectors_are_taken_where_they_take_half_the_time_and_have_fewer_zeros(
    channels: tuple[int, int], target: str, lanes: int
) -> None:
    assert transformed_lanes(channels, PROCESSORS[target]) == lanes


def test_many_channels_are_cheaper_in_tiles_and_few_tiles_of_many_weights_are_not() -> None:
    target = PROCESSORS["sapphirerapids"]
    cost = CostModel(target, 2)

    def price(func: tir.PrimFunc) -> float:
        return min(cost.kernel_seconds(v.work) for v in kernel_variants(func, CONSTANTS, target))

    def plain(channels: int, size: int) -> float:
        shapes = (1, channels, size, size), (channels, channels, 3, 3)
        return price(attributed_convolution(*shapes, pads=(1, 1, 1, 1), bias=True))

    assert price(definition(128, 128, (28, 28), 4)) < plain(128, 28) / 1.5
    assert price(definition(512, 512, (7, 7), 4)) > plain(512, 7)


CONVOLUTIONS = {
    "whole vectors": (32, 32, 4, host_target(), (10, 9), 4),
    "ragged": (20, 37, 9, host_target(), (10, 9), 2),
    "ragged outputs": (32, 18, 6, avx2_target(), (10, 9), 2),
    "ragged inputs": (17, 32, 6, avx2_target(), (10, 9), 4),
    "sequence": (32, 32, 4, host_target(), (99,), 2),
    "ragged sequence": (20, 37, 9, host_target(), (50,), 4),
    "short sequence": (32, 18, 6, avx2_target(), (13,), 4),
    "long sequence": (16, 32, 4, avx2_target(), (640,), 2),
}
"""Channels, outputs, how many variants they have, a target, the size of the image, and the size of
tile that the ordinary run takes; the slow run takes the other one."""


@pytest.mark.parametrize(
    ("channels", "outputs", "kinds", "target", "size", "tile"),
    [
        pytest.param(*case, tile, id=f"{name}-{tile}", marks=[pytest.mark.slow] * (tile != usual))
        for name, (*case, usual) in CONVOLUTIONS.items()
        for tile in (2, 4)
    ],
)
def test_each_variant_computes_the_convolution(
    channels: int, outputs: int, kinds: int, target: Target, size: tuple[int, ...], tile: int
) -> None:
    lanes = transformed_lanes((channels, outputs), target)
    func = definition(channels, outputs, size, tile, lanes)
    random = np.random.default_rng(0)
    arrays = {
        "x": random.standard_normal((1, channels, *size), np.float32),
        "w": random.standard_normal((outputs, channels, *(3 for _ in size)), np.float32),
        "b": random.standard_normal(outputs, np.float32),
    }
    arrays["w"] /= np.float32(17)
    plain = convolution.convolution(
        arrays["x"].shape,
        arrays["w"].shape,
        Window.of(arrays["w"].shape[2:], pads=(1, 1) * len(size)),
        bias=True,
    )
    (expected,) = tir.interpret(plain, arrays).values()
    weights = transformed_weights(arrays["w"].shape, tile, lanes=lanes)
    (arrays["u"],) = tir.interpret(weights, {"w": arrays["w"]}).values()
    found = variants(func, target)
    assert len(found) == kinds
    for variant in covering(found, turn=tile // 4):
        assert isinstance(variant.recipe, FilteredTiles)
        placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
        task = KernelTask("kernel", func, placements, variant.recipe, target)
        (kernel,) = make_here({"kernel": task}).values()
        assert kernel.instead_of is None
        placed = {
            name: place(variant.layouts[name], array, np.nan) for name, array in arrays.items()
        }
        slices = ((0, kernel.extent),)
        y = Native(kernel.func, target)(placed, slices)["y"]
        np.testing.assert_allclose(unplace(variant.layouts["y"], y), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("outputs", "target", "condition"),
    [
        (18, avx2_target(), "if o_untiledii_last < 2:"),
        (16, avx2_target(), ""),
        (18, PROCESSORS["zen4"], "if o_untiledii_last < 2:"),
    ],
    ids=["ragged", "whole vectors", "ragged, wide"],
)
def test_only_the_last_vector_of_outputs_is_stored_under_a_mask(
    outputs: int, target: Target, condition: str
) -> None:
    func = definition(32, outputs, (8, 8), 2, target.computed_lanes("float32"))
    variant = variants(func, target)[0]
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    task = KernelTask("kernel", func, placements, variant.recipe, target)
    (kernel,) = make_here({"kernel": task}).values()
    lines = [line.strip() for line in tir.to_text(kernel.func).splitlines()]
    assert [x for x in lines if x.startswith("if") and "o_untiled" in x] == [condition] * (
        condition != ""
    )


@lru_cache
def sums_of_integers(
    channels: int, outputs: int, size: tuple[int, ...]
) -> tuple[tir.PrimFunc, dict[str, np.ndarray], np.ndarray]:
    """A definition, its operands, and what the plain convolution makes of them."""
    shapes = (1, channels, *size), (outputs, channels, *(3 for _ in size))
    plain = attributed_convolution(*shapes, pads=(1, 1) * len(size), bias=True, dtype="int32")
    plain = narrow(plain, ("int16", "int16"))
    func = filtered_convolution(plain, plain_convolution(plain), 2, 8).func
    random = np.random.default_rng(0)
    arrays = {
        "x": random.choice([-255, 255, 0, 3], shapes[0]).astype(np.int16),
        "w": random.choice([-255, 255, -128, 127], shapes[1]).astype(np.int16),
        "b": random.integers(-(2**31), 2**31, outputs).astype(np.int32),
    }
    (expected,) = tir.interpret(plain, arrays).values()
    weights = transformed_weights(shapes[1], 2, "int16", 8)
    (arrays["u"],) = tir.interpret(weights, {"w": arrays.pop("w")}).values()
    return func, arrays, expected


SUMS = ((32, 32, (5, 5)), (96, 64, (5, 5)), (27, 45, (5, 5)), (32, 32, (21,)), (27, 45, (21,)))
"""Channels, outputs and extents: one slice and several, rows and sequences, whole and ragged."""


@in_turn("sums", SUMS)
def test_each_variant_adds_up_the_same_integers(
    sums: tuple[int, int, tuple[int, ...]], target: Target
) -> None:
    channels, outputs, size = sums
    func, arrays, expected = sums_of_integers(channels, outputs, size)
    found = kernel_variants(func, frozenset({"u"}), target)
    assert found
    for variant in covering(found, turn=channels):
        placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
        task = KernelTask("kernel", func, placements, variant.recipe, target)
        (kernel,) = make_here({"kernel": task}).values()
        assert kernel.instead_of is None
        assert "pair2_" in tir.to_text(kernel.func)
        placed = {name: place(variant.layouts[name], array, 0) for name, array in arrays.items()}
        y = Native(kernel.func, target)(placed, ((0, kernel.extent),))["y"]
        np.testing.assert_array_equal(unplace(variant.layouts["y"], y), expected)
