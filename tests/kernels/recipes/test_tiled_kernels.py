"""Tests of the kinds of tiles that a target adds to those of every target."""

import pytest

from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.kernels.definitions.linear_algebra.linear import matmul
from graphflow.kernels.recipes import KernelVariant, Tiled, kernel_variants
from graphflow.kernels.recipes.tile_kinds.dot_tiles import BrainMatrixTile, MatrixTile
from graphflow.kernels.recipes.tile_kinds.row_tiles import RowTile
from graphflow.kernels.recipes.tiled_kernels import IMAGE_TILES, image_tiles
from support.planning.own_tiles import NoTile, OwnTile

ZEN4 = PROCESSORS["zen4"]
PRODUCT = matmul((24, 40), (40, 64))


def adding(*kinds: object) -> Target:
    return replace(ZEN4, tile_kinds=kinds)


def tiled(target: Target) -> list[KernelVariant]:
    variants = kernel_variants(PRODUCT, frozenset({"b"}), target)
    return [v for v in variants if isinstance(v.recipe, Tiled)]


def test_kinds_of_a_target_are_asked_before_those_of_every_target() -> None:
    assert image_tiles(adding(OwnTile)) == (OwnTile, *image_tiles(ZEN4))
    assert {type(v.recipe.kind) for v in tiled(adding(OwnTile))} == {OwnTile}  # type: ignore[union-attr]


def without(*missing: object) -> tuple[object, ...]:
    return tuple(kind for kind in IMAGE_TILES if kind not in missing)


def test_kinds_that_a_target_lacks_are_not_asked() -> None:
    granite = PROCESSORS["graniterapids"]
    flushing = replace(granite, name="flushing", flushes_denormals=True)
    assert image_tiles(flushing) == IMAGE_TILES
    assert image_tiles(granite) == without(BrainMatrixTile)
    assert image_tiles(ZEN4) == without(BrainMatrixTile, MatrixTile)


def test_a_kind_that_claims_nothing_changes_nothing() -> None:
    assert tiled(adding(NoTile)) == tiled(ZEN4)


@pytest.mark.parametrize("kinds", [(OwnTile, OwnTile), (IMAGE_TILES[-1],)])
def test_each_kind_has_a_name_of_its_own(kinds: tuple[object, ...]) -> None:
    with pytest.raises(LayoutConflict, match="kinds of tiles share a name"):
        tiled(adding(*kinds))


@pytest.mark.parametrize("kind", ["a tile", OwnTile(), RowTile, Target])
def test_what_is_no_kind_of_image_tiles_is_refused(kind: object) -> None:
    with pytest.raises(LayoutConflict, match=r"give a subclass of graphflow\.kernels\.recipes\."):
        tiled(adding(kind))
