"""Tiles each of whose rows loads vectors of its own: depthwise convolutions with channels in lanes.

Neighbouring positions read other elements in the same lanes, so a vector serves one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphflow.cost import OwnVectors, crossing_share
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile
from graphflow.tir import DTYPES

MOST_UNROLLED = 7
"""The taps along a row that are unrolled at the most: each has code for all sums of a tile."""


@dataclass(frozen=True)
class OwnVectorTile(ImageLoops, ImageTile):
    """Vectors for each row."""

    shares_loads: ClassVar[bool] = False

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> OwnVectors | None:
        """Applies where some operand depends on the rows and on the lanes."""
        if tile.rows_share_vectors:
            return None
        steps = tile.operand_steps()
        taps, tap_step = (1, 1) if steps is None else steps.taps()
        across = max(1, tile.roles.steps // taps) if taps > 1 else 1
        return OwnVectors(
            tile.conflicting_stride(),
            taps,
            tap_step,
            apart=0 if steps is None else steps.apart() // tap_step,
            across=across,
            crossings=_crossings(tile),
            reducing=tile.reducing_cycles(),
        )


@dataclass(frozen=True)
class WidenedVectorTile(OwnVectorTile):
    """Vectors for each row, of elements that are widened where they are loaded: bytes and halves.

    The taps along a row are unrolled, so that a vector which several taps of several rows meet is
    loaded and widened once.  In loops each of them would widen it again, which takes as long as
    the product.
    """

    unrolled_taps: ClassVar[int] = 1

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> OwnVectors | None:
        """Applies where few taps along a row meet elements narrower than their sums."""
        access = tile.first_unpacked_read()
        found = super().claimed(tile, transposes)
        if access is None or found is None or not 1 < found.taps <= MOST_UNROLLED:
            return None
        narrow, wide = (DTYPES[t].itemsize for t in (access.buffer.dtype, tile.roles.sum_dtype))
        return found if narrow < wide else None


def _crossings(tile: PlacedTile) -> float:
    """The share of the vectors of data that begin in one cache line and end in the next."""
    access = tile.first_unpacked_read()
    if access is None:
        return 0.0
    size = DTYPES[access.buffer.dtype].itemsize
    strides = (k * size for k in tile.strides(access).values() if k != 1)
    return crossing_share(strides, tile.target)
