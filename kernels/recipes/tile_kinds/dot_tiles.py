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
from typing import ClassVar

from graphflow.arith import FloorMod, IndexExpr, Var, variables
from graphflow.cost import DotRows
from graphflow.kernels.recipes.analysis.integer_sums import sums_terms
from graphflow.kernels.recipes.analysis.roles import Roles, overhang
from graphflow.kernels.recipes.analysis.variant import Axes
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.kernels.recipes.schedules.tile_loops import whole_groups_apart
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile
from graphflow.layout import Demand, Equal, Layout
from graphflow.schedule import Schedule
from graphflow.tir import Access, Literal

BYTE_TERMS, WORD_TERMS = 4, 2
"""The terms that one instruction sums in each lane: of bytes, and of 16-bit integers."""

NOTHING = (0, False)
"""The depth of what the instruction does not sum."""


@dataclass(frozen=True)
class DotTile(ImageLoops, ImageTile):
    """Vectors of weights for all rows, and four bytes for each row."""

    terms: ClassVar[int] = BYTE_TERMS
    factors: ClassVar[tuple[str, str]] = ("uint8", "int8")
    """The types of the data and of the weights."""

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> DotRows | None:
        """Applies to sums of products of unsigned and signed bytes, where the target has the
        instruction, the signed ones are packed, and neighbouring terms of the unsigned ones are
        next to each other in memory."""
        depth, room = summed_depth(tile, cls.factors, cls.terms)
        if depth == 0 or transposes:
            return None
        return DotRows(
            tile.conflicting_stride(),
            depth=depth,
            terms=cls.terms,
            room=room,
        )

    @classmethod
    def demands(cls, tile: PlacedTile) -> dict[str, Demand]:
        """Weights of zero where the last group of terms is whole in memory alone: whatever the
        padding of the data holds, it adds nothing."""
        depth, room = summed_depth(tile, cls.factors, cls.terms)
        if depth % cls.terms == 0 or not room:
            return {}
        weights = (b for b in tile.decided.packed if b.name in tile.roles.factors)
        return {b.name: Equal(Literal(0, b.dtype)) for b in weights}

    def loops(self, s: Schedule, axes: Axes, output: Layout) -> tuple[Schedule, Axes, Axes]:
        """The nest with whole groups of terms apart from the rest of the reduction."""
        return super().loops(whole_groups_apart(s, axes, self.terms), axes, output)


@dataclass(frozen=True)
class PairTile(DotTile):
    """The same for integers of 16 bits, two for each row, with a multiplication and an addition."""

    terms: ClassVar[int] = WORD_TERMS
    factors: ClassVar[tuple[str, str]] = ("int16", "int16")


def summed_depth(tile: PlacedTile, factors: tuple[str, str], terms: int) -> tuple[int, bool]:
    """The extent of the reduction loop, or digit of one, along which the data is contiguous, and
    whether the layout of the data has room for whole groups; 0 where the instruction cannot sum
    along it."""
    roles = tile.roles
    packed = {buffer.name for buffer in tile.decided.packed}
    weights = [n for n in roles.factors if n in packed]
    data = [n for n in roles.factors if n not in packed]
    if len(weights) != 1 or len(data) != 1 or roles.sum_dtype != "int32":
        return NOTHING
    reads = [[a for a in roles.reads[n] if roles.nest_of(a)] for n in (*weights, *data)]
    if [len(found) for found in reads] != [1, 1]:
        return NOTHING
    ((weight,), (access,)) = reads
    dtypes = (access.buffer.dtype, weight.buffer.dtype)
    if dtypes != factors or not sums_terms(tile.target, factors, terms):
        return NOTHING
    if max(roles.phases, default=1) > 1 or not tile.rows_share_vectors:
        return NOTHING
    extents = dict(roles.nest_of(access))
    for atom, stride in tile.strides(access).items():
        var = atom.numerator if isinstance(atom, FloorMod) else atom
        if not isinstance(var, Var) or extents.get(var, 1) == 1:
            continue
        if stride == 1 and not _leaves_out(roles, access, var):
            extent = _extent_of(atom, extents[var])
            box = tile.layouts[access.buffer.name].physical_shape
            return extent, box[-1] >= -(-extent // terms) * terms
    return NOTHING


def _leaves_out(roles: Roles, access: Access, var: IndexExpr) -> bool:
    """Whether some positions leave out iterations of a loop, whose terms are apart then."""
    reach = overhang(roles, access.buffer.name)
    return any(
        var in variables(index) and any(beyond)
        for index, beyond in zip(access.indices, reach, strict=True)
    )


def _extent_of(atom: IndexExpr, extent: int) -> int:
    """The extent of a loop or of a digit of one; 0 where the last digit is not whole, as its loop
    has a condition then."""
    if not isinstance(atom, FloorMod):
        return extent
    return 0 if extent % atom.divisor else atom.divisor
