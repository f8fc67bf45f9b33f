"""Tiles whose rows are rows of an image, which slide over the taps across them.

With positions of a row in the lanes, a vector of the image serves all rows of the tile whose
windows contain it: in a window of 3 × 3, four rows of outputs read six rows of the image, not
twelve.  So the loop over the taps across rows is innermost of the reduction, and unrolled.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from graphflow import tir
from graphflow.arith import terms_of, variables
from graphflow.base.errors import ScheduleError
from graphflow.cost import SlidingRows
from graphflow.kernels.recipes.analysis.roles import overhang
from graphflow.kernels.recipes.analysis.variant import Axes
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile
from graphflow.layout import Layout
from graphflow.schedule import Handle, Schedule


@dataclass(frozen=True)
class SlidingTile(ImageLoops, ImageTile):
    """Vectors for all rows whose windows contain them."""

    unrolled_taps: ClassVar[int] = 1

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> SlidingRows | None:
        """Applies where a window slides along the rows of a tile.

        Equal strides along two axes of the data are a coincidence, which a halo ends.
        """
        steps = tile.operand_steps()
        if steps is None or steps.taps() != (1, 1) or tile.rows_share_vectors:
            return None
        access, axis, strides, nest = steps
        row = strides.get(axis, 0)
        together = {v for e in access.indices if axis in variables(e) for v in variables(e)}
        taps = [n for v, n in nest if strides.get(v, 0) == row and v in together]
        if not taps or not row:
            return None
        borders = any(
            reach != (0, 0) and tile.roles.axes[tile.decided.lane] in variables(index)
            for index, reach in zip(
                access.indices, overhang(tile.roles, access.buffer.name), strict=True
            )
        )
        along = prod(n for v, n in nest if strides.get(v, 0) < row)
        runs = prod(n for v, n in nest if strides.get(v, 0) > row)
        return SlidingRows(taps[0], along, runs, borders)

    def loops(self, s: Schedule, axes: Axes, output: Layout) -> tuple[Schedule, Axes, Axes]:
        """The nest with the taps across rows innermost of the reduction."""
        s, axes, reduction = super().loops(s, axes, output)
        taps = _taps_across(s, axes, reduction)
        return s, axes, (*(place for place in reduction if place is not taps), taps)


def _taps_across(s: Schedule, axes: Axes, reduction: Axes) -> Handle:
    """The loop of a reduction that steps through the data like the rows of a tile do.

    The data is the operand that both the rows and the lanes of a tile step through.  ScheduleError
    where there is no such loop.
    """
    row, lane = (s.loop(axis).var for axis in s.present(axes)[-2:])
    for access in tir.accesses(s.func.body):
        if access.kind is not tir.AccessKind.READ:
            continue
        flat = access.buffer.flat_index(access.indices)
        steps = dict(terms_of(flat)[0])
        if {row, lane} <= variables(flat):
            for place in reduction:
                var = s.loop(place).var
                if var in steps and steps[var] == steps.get(row):
                    return place
    raise ScheduleError(f"no loop of the reduction steps through the data like {row}")
