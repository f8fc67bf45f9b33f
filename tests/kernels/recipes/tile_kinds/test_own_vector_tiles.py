"""Tiles whose rows load vectors of their own: where elements are widened once for several taps."""

import pytest

from graphflow import tir
from graphflow.base.processors import PROCESSORS, restricted_to_avx2
from graphflow.base.target import Target
from graphflow.codegen import host_target
from graphflow.kernels.recipes import KernelVariant, Tiled
from graphflow.kernels.recipes.tile_kinds.own_vector_tiles import (
    MOST_UNROLLED,
    OwnVectorTile,
    WidenedVectorTile,
)
from support.kernels.integer_products import check, conv, variants
from support.targets import in_turn

TARGET = PROCESSORS["zen4"]
BYTES, FLOATS = ("uint8", "int8"), ("int32", "int32")


def depthwise(taps: int, types: tuple[str, str], stride: int = 1) -> tir.PrimFunc:
    """32 channels of an image of 9 × 30, each with a window of its own."""
    pads = (1, taps // 2, 1, taps // 2)
    shapes = (1, 32, 9, 30), (32, 1, 3, taps)
    return conv(*shapes, types, groups=32, pads=pads, strides=(1, stride))


def own_vectors(func: tir.PrimFunc, target: Target) -> list[KernelVariant]:
    """The variants in tiles whose rows load vectors of their own."""
    found = [v for v in variants(func, target) if isinstance(v.recipe, Tiled)]
    return [v for v in found if isinstance(v.recipe.kind, OwnVectorTile)]


@pytest.mark.parametrize(
    ("taps", "types", "stride", "kind"),
    [
        (3, BYTES, 1, WidenedVectorTile),
        (3, BYTES, 2, WidenedVectorTile),
        (MOST_UNROLLED, BYTES, 1, WidenedVectorTile),
        (MOST_UNROLLED + 2, BYTES, 1, OwnVectorTile),
        (3, FLOATS, 1, OwnVectorTile),
    ],
)
def test_where_taps_meet_elements_that_are_widened(
    taps: int, types: tuple[str, str], stride: int, kind: type
) -> None:
    found = {type(v.recipe.kind) for v in own_vectors(depthwise(taps, types, stride), TARGET)}
    assert kind in found
    assert kind is WidenedVectorTile or found == {OwnVectorTile}


@in_turn("stride", (1, 2), targets=(host_target(), restricted_to_avx2(host_target())))
def test_what_they_compute(stride: int, target: Target) -> None:
    func = depthwise(3, BYTES, stride)
    found = [v for v in own_vectors(func, target) if type(v.recipe.kind) is WidenedVectorTile]
    assert found
    for variant in found:
        check(func, variant, target)
