"""Tiles that sum products of bytes with the processor's dot products of four of them.

As the tiles whose rows share vectors, but a step takes four neighbouring terms of the reduction:
four bytes are broadcast for each row, and the weights are packed so that each lane has its four
bytes next to each other, with zeros where the reduction ends within a group.

For example, a product of 64 unsigned by 64 × 48 signed bytes, K innermost in the data:

    y[m, n] += x[m, 4·k + b] * w[n // 48, k, n % 48, b]      w in panels of 3 vectors of 16 lanes

    for k in (0, 16):
        for row, vector:
            for lane in vectorized(0, 16): for b in (0, 4): …   one vpdpbusd
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from graphflow.arith import FloorMod, IndexExpr
from graphflow.base.target import Target
from graphflow.codegen import instructions_of
from graphflow.cost import DotRows
from graphflow.kernels.recipes.analysis.variant import Axes
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.kernels.recipes.schedules.tile_loops import whole_groups_apart
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile
from graphflow.layout import Layout
from graphflow.schedule import Schedule

TERMS = 4
"""The terms that one instruction sums in each lane."""


@dataclass(frozen=True)
class DotTile(ImageLoops, ImageTile):
    """Vectors of weights for all rows, and four bytes for each row."""

    terms: ClassVar[int] = TERMS

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> DotRows | None:
        """Applies to sums of products of unsigned and signed bytes, where the target has the
        instruction, the signed ones are packed, and neighbouring terms of the unsigned ones are
        next to each other in memory."""
        depth = _depth(tile)
        if depth == 0 or transposes:
            return None
        return DotRows(tile.conflicting_stride(), depth=depth, terms=TERMS)

    def loops(self, s: Schedule, axes: Axes, output: Layout) -> tuple[Schedule, Axes, Axes]:
        """The nest with whole groups of terms apart from the rest of the reduction."""
        return super().loops(whole_groups_apart(s, axes, TERMS), axes, output)


def _depth(tile: PlacedTile) -> int:
    """The extent of the reduction loop, or digit of one, along which the data is contiguous; 0
    where the instruction cannot sum along it."""
    roles = tile.roles
    packed = {buffer.name for buffer in tile.decided.packed}
    weights = [n for n in roles.factors if n in packed]
    data = [n for n in roles.factors if n not in packed]
    if len(weights) != 1 or len(data) != 1 or roles.sum_dtype != "int32":
        return 0
    if not _has_instruction(tile.target):
        return 0
    (weight,), (access,) = roles.reads[weights[0]], roles.reads[data[0]]
    if (access.buffer.dtype, weight.buffer.dtype) != ("uint8", "int8"):
        return 0
    if max(roles.phases, default=1) > 1 or not tile.rows_share_vectors:
        return 0
    extents = dict(roles.nest_of(access))
    for atom, stride in tile.strides(access).items():
        var = atom.numerator if isinstance(atom, FloorMod) else atom
        if stride == 1 and extents.get(var, 1) > 1:
            return _extent_of(atom, extents[var])
    return 0


def _extent_of(atom: IndexExpr, extent: int) -> int:
    """The extent of a loop or of a digit of one; 0 where the last digit is not whole, as its loop
    has a condition then."""
    if not isinstance(atom, FloorMod):
        return extent
    return 0 if extent % atom.divisor else atom.divisor


@lru_cache(maxsize=16)
def _has_instruction(target: Target) -> bool:
    """Whether the target sums products of `TERMS` bytes in each lane of a vector of 32-bit sums."""
    lanes = target.computed_lanes("int32")
    return any(
        [p.buffer.shape for p in each.params] == [(lanes,), (TERMS,), (lanes, TERMS)]
        for each in instructions_of(target)
    )
