"""Tiles each of whose rows loads vectors of its own: depthwise convolutions with channels in lanes.

Neighbouring positions read other elements in the same lanes, so a vector serves one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphflow.cost import OwnVectors
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile


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
        return OwnVectors(tile.conflicting_stride(), taps, tap_step)
