"""Tiles that multiply matrices of bytes in matrix registers (AMX).

As tiles of dot products, but a step takes up to 16 groups of four terms, and the sums of up to 16
rows are in one register.  The weights are packed as for dot products: the groups of a panel, of 16
lanes each, are the rows of a matrix.  The data is read where it lies, its rows as far apart as
neighbouring positions are.  The sums begin in memory and end there.

For example, a product of 28 × 256 unsigned by 256 × 32 signed bytes in two registers of 14 rows by
two of 16 columns:

    sums: 28 × 32 in the thread's memory, filled with what they begin with
    for k in (0, 4):
        for rows in (0, 2): for columns in (0, 2):
            matrix_product_14x16(sums[14 × 16], x[14 × 64], w[16 × 16 × 4])     one tdpbusd
    for row in (0, 28): y[row] = what follows of sums[row]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphflow.arith import IndexExpr, Var, terms_of, variables
from graphflow.codegen import multiplies_matrices
from graphflow.cost import MatrixRows, register_groups
from graphflow.kernels.recipes.tile_kinds.dot_tiles import DotTile, summed_depth
from graphflow.kernels.recipes.variants.tile_geometry import PlacedTile

FEWEST_GROUPS = 2
"""The fewest groups of a matrix; with one it would be an outer product."""


@dataclass(frozen=True)
class MatrixTile(DotTile):
    """Matrices of weights, and rows of bytes."""

    by_price: ClassVar[bool] = True
    in_matrices: ClassVar[bool] = True

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> MatrixRows | None:
        """Applies where `DotTile` does, the target has matrix registers, the reduction is a whole
        number of groups, and the rows of the data are a matrix in memory: neighbouring positions
        follow each other, and none meets a border."""
        depth, _ = summed_depth(tile, cls.factors, cls.terms)
        groups, rest = divmod(depth, cls.terms)
        if not multiplies_matrices(tile.target) or transposes or rest or groups < FEWEST_GROUPS:
            return None
        step = register_groups(groups)
        if step < FEWEST_GROUPS or not _rows_are_a_matrix(tile):
            return None
        return MatrixRows(depth=depth, terms=cls.terms, groups=step)


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
