"""Tiles whose rows share the vectors that a step loads: matrix products and most convolutions.

For each row of the tile one element is broadcast.  It is the kind of all tiles for which there is
no other one.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphflow.cost import BroadcastRows
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile, fills_vectors


@dataclass(frozen=True)
class BroadcastTile(ImageLoops, ImageTile):
    """Vectors for all rows, and one element for each row."""

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> BroadcastRows:
        """Applies always.  Without transposed operands, rows may share tail vectors."""
        steps = tile.operand_steps()
        taps, tap_step = (1, 1) if steps is None else steps.taps()
        ends = None if transposes or not _has_tail_vectors(tile) else tile.ends_at_borders()
        apart = 0 if steps is None else steps.apart() // tap_step
        return BroadcastRows(tile.conflicting_stride(), taps, tap_step, ends, apart)


def _has_tail_vectors(tile: PlacedTile) -> bool:
    """Whether several rows of a tile may have their last columns in one vector.

    The instructions for that add to float32 sums the products of a vector of columns, which the
    rows share, and an element for each row.
    """
    roles, decided = tile.roles, tile.decided
    floats = {roles.output.dtype, roles.sum_dtype or roles.output.dtype} == {"float32"}
    products = bool(roles.factors) and roles.multiply_adds > 0
    return floats and products and not (decided.group or fills_vectors(decided.output))
