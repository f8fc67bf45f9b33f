"""Tiles that sum products of narrow numbers with the processor's dot products: of four bytes, or of
two numbers of 16 bits.

As the tiles whose rows share vectors, but a step takes four neighbouring terms of the reduction:
four bytes are broadcast for each row, and the weights are packed so that each lane has its four
bytes next to each other, with zeros where the reduction ends within a group.

For example, a product of 64 unsigned by 64 × 48 signed bytes, K innermost in the data:

    y[m, n] += x[m, 4·k + b] * w[n // 48, k, n % 48, b]      w in panels of 3 vectors of 16 lanes

    for k in (0, 16):
        for row, vector:
            for lane in vectorized(0, 16): for b in (0, 4): …   one vpdpbusd

`MatrixTile` does the same in matrix registers (AMX): a step takes up to 16 groups of four terms,
and the sums of up to 16 rows are in one register.  The groups of a panel, of 16 lanes each, are the
rows of a matrix.  The data is read where it lies, its rows as far apart as neighbouring positions
are.  The sums end in memory, and begin there where their rows do not all begin with the same.  For
example, a product of 28 × 256 by 256 × 32 bytes in two registers of 14 rows by two of 16 columns:

    sums: 28 × 32 in the thread's memory, for row in (0, 28): sums[row] = the bias
    for k in (0, 4):
        for rows in (0, 2): for columns in (0, 2):
            matrix_product_14x16(sums[14 × 16], x[14 × 64], w[16 × 16 × 4])     one tdpbusd
    for row in (0, 28): y[row] = what follows of sums[row]

`BrainMatrixTile` does it for numbers of bfloat16, in groups of two terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphflow.arith import FloorMod, IndexExpr, Var, terms_of, variables
from graphflow.base.target import Target
from graphflow.codegen import multiplies_matrices
from graphflow.cost import BrainRows, DotRows, MatrixRows, register_groups
from graphflow.kernels.recipes.analysis.byte_sums import BYTE_TERMS
from graphflow.kernels.recipes.analysis.narrow_sums import FLOAT_SUM, SUM, sums_terms
from graphflow.kernels.recipes.analysis.roles import Roles, overhang
from graphflow.kernels.recipes.analysis.variant import Axes
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.kernels.recipes.schedules.tile_loops import whole_groups_apart
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile
from graphflow.layout import Demand, Equal, Layout
from graphflow.schedule import Schedule
from graphflow.tir import Access, Literal

WORD_TERMS = 2
"""The terms of 16-bit numbers that one instruction sums in each lane."""

FEWEST_GROUPS = 2
"""The fewest groups of a matrix; with one it would be an outer product."""

NOTHING = (0, False)
"""The depth of what the instruction does not sum."""


@dataclass(frozen=True)
class DotTile(ImageLoops, ImageTile):
    """Vectors of weights for all rows, and four bytes for each row."""

    terms: ClassVar[int] = BYTE_TERMS
    factors: ClassVar[tuple[str, str]] = ("uint8", "int8")
    """The types of the data and of the weights."""
    sums: ClassVar[str] = SUM
    """The type of the sums."""

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> DotRows | None:
        """Applies to sums of products of unsigned and signed bytes, where the target has the
        instruction, the signed ones are packed, and neighbouring terms of the unsigned ones are
        next to each other in memory."""
        depth, room = summed_depth(tile, cls.factors, cls.terms, cls.sums)
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
        depth, room = summed_depth(tile, cls.factors, cls.terms, cls.sums)
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


@dataclass(frozen=True)
class BrainTile(DotTile):
    """The same for bfloat16 numbers, two for each row, in sums of float32.

    Where the reduction ends within a group, the last term is added by itself: zeros beside it would
    meet whatever the padding of the data holds, which may be infinite.
    """

    by_price: ClassVar[bool] = True
    terms: ClassVar[int] = WORD_TERMS
    factors: ClassVar[tuple[str, str]] = ("bfloat16", "bfloat16")
    sums: ClassVar[str] = FLOAT_SUM

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> BrainRows | None:
        """Applies as `DotTile` does, to sums of products of bfloat16 numbers."""
        depth, _ = summed_depth(tile, cls.factors, cls.terms, cls.sums)
        if depth == 0 or transposes:
            return None
        return BrainRows(tile.conflicting_stride(), depth=depth, terms=cls.terms)

    @classmethod
    def demands(cls, tile: PlacedTile) -> dict[str, Demand]:
        """None: no padding is read."""
        return {}


def summed_depth(
    tile: PlacedTile, factors: tuple[str, str], terms: int, sum_dtype: str
) -> tuple[int, bool]:
    """The extent of the reduction loop, or digit of one, along which the data is contiguous, and
    whether the layout of the data has room for whole groups; 0 where the instruction cannot sum
    along it."""
    roles = tile.roles
    packed = {buffer.name for buffer in tile.decided.packed}
    weights = [n for n in roles.factors if n in packed]
    data = [n for n in roles.factors if n not in packed]
    if len(weights) != 1 or len(data) != 1 or roles.sum_dtype != sum_dtype:
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


@dataclass(frozen=True)
class MatrixTile(DotTile):
    """Matrices of weights, and rows of bytes."""

    by_price: ClassVar[bool] = True
    in_matrices: ClassVar[bool] = True

    @classmethod
    def is_of(cls, target: Target) -> bool:
        """Whether it has such products in matrix registers."""
        return multiplies_matrices(target, cls.factors)

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> MatrixRows | None:
        """Applies where `DotTile` does, the reduction is a whole number of groups, and the rows of
        the data are a matrix in memory: neighbouring positions follow each other, and none meets a
        border."""
        depth, _ = summed_depth(tile, cls.factors, cls.terms, cls.sums)
        groups, rest = divmod(depth, cls.terms)
        if transposes or rest or groups < FEWEST_GROUPS:
            return None
        step = register_groups(groups)
        if step < FEWEST_GROUPS or not _rows_are_a_matrix(tile):
            return None
        return MatrixRows(depth=depth, terms=cls.terms, groups=step)


@dataclass(frozen=True)
class BrainMatrixTile(MatrixTile):
    """The same for bfloat16 numbers, two in a group, in sums of float32."""

    terms: ClassVar[int] = WORD_TERMS
    factors: ClassVar[tuple[str, str]] = BrainTile.factors
    sums: ClassVar[str] = FLOAT_SUM


def _rows_are_a_matrix(tile: PlacedTile) -> bool:
    """Whether the rows of a tile are the rows of a matrix of the data: one axis of its box goes on
    by one with each row, and no other axis nor condition depends on the row."""
    row, decided = tile.row, tile.decided
    if row is None or decided.group or tile.ends_at_borders():
        return False
    packed = {buffer.name for buffer in decided.packed}
    names = [name for name in tile.roles.factors if name not in packed]
    access = tile.roles.reads[names[0]][0]
    along = [axis for axis, e in enumerate(access.indices) if row in variables(e)]
    if len(along) != 1:
        return False
    (axis,) = along
    places = tile.layouts[names[0]].index_map
    position = places.inputs[axis]
    placed = [e for e in places.outputs if position in variables(e)]
    return (
        len(placed) == 1 and _follows(access.indices[axis], row) and _follows(placed[0], position)
    )


def _follows(index: IndexExpr, var: Var) -> bool:
    """Whether an index goes on by one with a variable."""
    return [(atom, step) for atom, step in terms_of(index)[0] if var in variables(atom)] == [
        (var, 1)
    ]
