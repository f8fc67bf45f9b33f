"""Tiles whose lanes run along the windows of a pooling: each accumulator loads for itself.

No row or column of the tile shares what is loaded, and nothing is broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from graphflow.arith import IndexExpr, Var, terms_of, variables
from graphflow.cost import MOST_STRIDE, MOST_VECTORS, SHUFFLED, OwnWindows
from graphflow.kernels.recipes.analysis.positions import flat_offset
from graphflow.kernels.recipes.analysis.roles import Roles
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile
from graphflow.tir import Access

MOST_PIECES = 4
"""The most panels that a row of windows is cut into: each has code of its own, in which it is known
which lanes lie outside the image."""


@dataclass(frozen=True)
class WindowTile(ImageLoops, ImageTile):
    """Vectors for each accumulator."""

    gathers_lanes: ClassVar[bool] = False

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> OwnWindows | None:
        """Applies where the lanes run along windows.

        Not where other operands than elements of the windows are reduced, and not for rows that are
        too long for pieces with code of their own.  The lanes of a window are at most `MOST_STRIDE`
        apart.
        """
        roles, lane = tile.roles, tile.decided.lane
        lanes = tile.target.computed_lanes(roles.output.dtype)
        is_long = roles.output.shape[lane] > MOST_PIECES * MOST_VECTORS * lanes
        if roles.factors or tile.decided.group or is_long:
            return None
        var, read = roles.axes[lane], _windows_along(roles, lane)
        flats = (flat_offset(tile.layouts[a.buffer.name], a.indices) for a in read)
        steps = [_coefficient(flat, var) for flat in flats]
        if not steps or not all(1 <= step <= MOST_STRIDE for step in steps):
            return None
        return OwnWindows(SHUFFLED if max(steps) > 1 else 1.0, tile.reducing_cycles())


@lru_cache(maxsize=10_000)
def _windows_along(roles: Roles, lane: int) -> tuple[Access, ...]:
    """The reads in reductions, where each is of a window that slides along the axis `lane`.

    Empty where some are not.
    """
    var, loops = roles.axes[lane], {v for v, _ in roles.reduction}
    read = tuple(a for reads in roles.reads.values() for a in reads if roles.nest_of(a))
    slides = (any({var} < {*variables(e)} & {var, *loops} for e in a.indices) for a in read)
    return read if all(slides) else ()


def _coefficient(flat: IndexExpr, var: Var) -> int:
    """The coefficient of a variable in an expression that is linear in it; else 0."""
    terms = [(atom, k) for atom, k in terms_of(flat)[0] if var in variables(atom)]
    return terms[0][1] if len(terms) == 1 and terms[0][0] is var else 0
