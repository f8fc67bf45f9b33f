"""How the rows and lanes of a tile step through its operands.

In: a kernel with the layouts of its operands (`PlacedTile`).  Out: which operands are broadcast,
gathered, or met again by the next taps of a window, and how far apart the rows of a tile are in
memory.  Each kind of tile decides by these whether it applies.

All of it follows from one expression for each access: the position in memory, in elements, and how
far it goes on with each loop.  For example, tiles of a 3×3 convolution of 32 channels in NHWC,
whose lanes are output channels o and whose rows are positions w of an image row of 18 elements:

    y[h, w, o] += x[h + r, w + s, c] * weight[o, c, r, s]

    x is at 576·(h + r) + 32·(w + s) + c      goes on by 32 with the row w, by 0 with the lane o:
                                              one element for each row is broadcast
    weight does not depend on w               a vector of it serves all rows

In a depthwise convolution the channel is in the lanes, and x is at 576·(h + r) + 32·(w + s) + o: it
goes on by 1 with the lane o and by 32 with the row w, so that each row loads vectors of its own.
The taps s go on by 32 too: what row w + 1 meets at tap s, row w meets one tap later.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import ClassVar, NamedTuple

from graphflow import arith
from graphflow.base.target import Target
from graphflow.cost import (
    MOST_ROWS,
    BroadcastMisses,
    StepLoads,
    broadcast_misses,
    fits_sets,
    vector_cycles,
)
from graphflow.kernels.recipes.analysis.contiguity import goes_on
from graphflow.kernels.recipes.analysis.positions import flat_offset
from graphflow.kernels.recipes.analysis.roles import Roles, meets_borders, overhang
from graphflow.kernels.recipes.analysis.variant import TileKind
from graphflow.kernels.recipes.variants.operands import OutputDecisions, axes_outside
from graphflow.layout import Demand, Layout
from graphflow.tir import DTYPES, Access


class OperandSteps(NamedTuple):
    """How the rows of a tile and the loops of its reduction, the `nest`, step through an operand.

    `strides` are in elements, by loop.
    """

    access: Access
    row: arith.Var
    strides: dict[arith.IndexExpr, int]
    nest: list[tuple[arith.Var, int]]

    def apart(self) -> int:
        """The bytes between what neighbouring rows of a tile meet."""
        return self.strides.get(self.row, 0) * DTYPES[self.access.buffer.dtype].itemsize

    def taps(self) -> tuple[int, int]:
        """How many steps in a row meet the same data in neighbouring rows of a tile, and how many
        steps later a row meets what the next one meets now; (1, 1) where none do.

        (3, 1) for three taps that go on like the rows, as in the depthwise convolution above, and
        (3, 2) where its windows are two elements apart: then the rows go on by 64, the taps by 32.
        """
        row_stride = self.strides.get(self.row, 0)
        loops = [(self.strides.get(var, 0), extent) for var, extent in self.nest]
        tap_stride, taps = min(loops, default=(0, 1))
        if not row_stride or not tap_stride or row_stride % tap_stride:
            return 1, 1
        meet = tap_stride * taps > row_stride
        return (taps, row_stride // tap_stride) if meet else (1, 1)


class PlacedTile(NamedTuple):
    """A kernel whose operands have layouts; those of packed weights follow from the tile."""

    roles: Roles
    decided: OutputDecisions
    layouts: Mapping[str, Layout]
    target: Target
    halo: frozenset[str] = frozenset()
    """The operands around which the layout has places for all that windows reach."""

    @property
    def row(self) -> arith.Var | None:
        """The loop over the rows of a tile; None where there is no axis beside the lanes."""
        outside = axes_outside(self.decided)
        return self.roles.axes[outside[-1]] if outside else None

    @property
    def rows_share_vectors(self) -> bool:
        """Whether the rows of a tile share the vectors that its lanes load in a step.

        That is where no operand depends on both, as in a matrix product: each vector serves as many
        multiply-adds as the tile has rows.  False for the image of a convolution whose lanes run
        along a row of the image and whose tiles hold several of these rows.
        """
        return _rows_share_vectors(self.roles, self.decided)

    @property
    def joinable(self) -> int:
        """How many axes around that of the rows are one run of memory with it, innermost first:
        each access goes on at the end of the axes inside, or stays where it is, and no window
        reaches beyond the data, where what it meets depends on the place in a row."""
        outside = axes_outside(self.decided)
        flats = self._positions()
        if len(outside) < 2 or any(self.roles.phases[axis] > 1 for axis in outside):
            return 0
        *around, row = outside
        extent, count = self.roles.output.shape[row], 0
        if self._meets_border(row):
            return 0
        for axis in reversed(around):
            outer, inner = self.roles.axes[axis], self.roles.axes[row]
            if self._meets_border(axis) or not all(goes_on(f, outer, inner, extent) for f in flats):
                break
            extent, count = extent * self.roles.output.shape[axis], count + 1
        return count

    def _positions(self) -> list[arith.IndexExpr]:
        """Where in memory each access is, of operands that are not packed, and of the output."""
        reads = [a for n, reads in self.roles.reads.items() if n in self.layouts for a in reads]
        found = [flat_offset(self.layouts[a.buffer.name], a.indices) for a in reads]
        return [*found, flat_offset(self.decided.output, self.roles.axes)]

    def _meets_border(self, axis: int) -> bool:
        """Whether a window along an axis of the output reaches beyond the data."""
        return any(meets_borders(self.roles, reads, axis) for reads in self.roles.reads.values())

    def is_gathered(self, name: str) -> bool:
        """Whether neighbouring lanes load elements of an operand that are neither equal nor
        adjacent."""
        decided = self.decided
        layout = self.layouts[name]
        return _is_gathered(self.roles, name, layout, decided.lane, decided.second_channel)

    @property
    def is_scattered(self) -> bool:
        """Whether neighbouring lanes store elements of the output that are not adjacent."""
        roles, decided = self.roles, self.decided
        flat = flat_offset(decided.output, roles.axes)
        return _growth(flat, roles.axes[decided.lane], decided.second_channel) != 1

    def strides(self, access: Access) -> dict[arith.IndexExpr, int]:
        """How many elements further in memory an access is for each loop, or digit of one."""
        layout = self.layouts[access.buffer.name]
        terms, _ = arith.terms_of(flat_offset(layout, access.indices))
        return {atom: abs(stride) for atom, stride in terms}

    def first_unpacked_read(self) -> Access | None:
        """The first access of the first operand that is reduced and is not packed."""
        names = (name for name in _reduced_inputs(self.roles) if name in self.layouts)
        return next((self.roles.reads[name][0] for name in names), None)

    def conflicting_stride(self) -> int:
        """Bytes between the elements that neighbouring rows broadcast, where these may evict each
        other from the first-level cache; 0 where it holds those of any number of rows, and where
        there are none."""
        access = self.first_unpacked_read()
        if self.row is None or access is None:
            return 0
        stride = self.strides(access).get(self.row, 0) * DTYPES[access.buffer.dtype].itemsize
        return 0 if fits_sets(stride, MOST_ROWS, self.target) else stride

    def broadcast_misses(self) -> BroadcastMisses | None:
        """The first operand whose elements are broadcast from other cache lines in each step, and
        must be waited for; None where there is none."""
        if self.row is None:
            return None
        broadcast = (
            name
            for name in _reduced_inputs(self.roles)
            if name in self.layouts and not self.roles.depends_on(name, self.decided.lane)
        )
        misses = (self._misses_of(self.roles.reads[name][0], self.row) for name in broadcast)
        return next((each for each in misses if each is not None), None)

    def _misses_of(self, access: Access, row: arith.Var) -> BroadcastMisses | None:
        """What is waited for where an access is broadcast, its rows along the loop `row`."""
        size = DTYPES[access.buffer.dtype].itemsize
        strides = {atom: size * stride for atom, stride in self.strides(access).items()}
        nest = [
            (stride, steps)
            for v, n in self.roles.nest_of(access)
            for stride, steps in _loops_in_memory(strides, v, n)
            if steps > 1
        ]
        row_stride = next((stride for stride, _ in _loops_in_memory(strides, row, 1)), 0)
        whole = self.layouts[access.buffer.name].bytes(access.buffer.dtype)
        return broadcast_misses(row_stride, nest, whole, self.target)

    def operand_steps(self) -> OperandSteps | None:
        """How the rows and the reduction go through the first operand that is reduced; None where
        there are no rows or no such operand, and where each lane is loaded by itself."""
        access = self.first_unpacked_read()
        if self.row is None or access is None or self.is_gathered(access.buffer.name):
            return None
        nest = [(v, n) for v, n in self.roles.nest_of(access) if n > 1]
        return OperandSteps(access, self.row, self.strides(access), nest)

    def reducing_cycles(self) -> float:
        """The cycles to reduce a vector by its maximum or minimum, 0 for sums."""
        operator = self.roles.reduces_elements_by
        if operator is None or not operator.selects:
            return 0.0
        return vector_cycles((operator.value,), self.target)

    def ends_at_borders(self) -> int:
        """The ends of a run of rows, 0 to 2, at which windows reach beyond the data."""
        reached = [
            reach
            for name, reads in self.roles.reads.items()
            if name not in self.halo
            for access in reads[:1]
            for index, reach in zip(access.indices, overhang(self.roles, name), strict=True)
            if self.row is not None and self.row in arith.variables(index)
        ]
        return max((sum(side > 0 for side in reach) for reach in reached), default=0)


class ImageTile(TileKind):
    """A kind of tile whose rows and lanes are the last two axes of the output."""

    by_price: ClassVar[bool] = False
    """Whether tiles of this kind are made only where they are cheaper than those of the next one
    that applies."""
    gathers_lanes: ClassVar[bool] = True
    """Whether lanes whose elements lie apart are loaded one by one."""

    @abstractmethod
    def __init__(
        self, group: int, group_rows: int, transposed: tuple[str, ...], fetched: tuple[str, ...]
    ) -> None: ...

    @classmethod
    def is_of(cls, target: Target) -> bool:
        """Whether a target has what tiles of this kind need."""
        return True

    @classmethod
    @abstractmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> StepLoads | None:
        """The price of the tile's steps in this kind; None where the kind does not apply.

        `transposes` says that an operand may be transposed before the tiles read it.
        """

    @classmethod
    def demands(cls, tile: PlacedTile) -> dict[str, Demand]:
        """What the tiles require of the padding of operands, by name."""
        return {}


def _loops_in_memory(
    strides: Mapping[arith.IndexExpr, int], var: arith.Var, extent: int
) -> Iterator[tuple[int, int]]:
    """The loops through memory that a loop of this extent is, each with its stride and its extent:
    one for each atom of an access with the variable.

    `(p + t) // 2` of a transposed convolution goes on with every second tap t.
    """
    for atom, stride in strides.items():
        if var not in arith.variables(atom):
            continue
        if isinstance(atom, arith.FloorDiv):
            yield stride, -(-extent // atom.divisor)
        elif isinstance(atom, arith.FloorMod):
            yield stride, min(extent, atom.divisor)
        else:
            yield stride, extent


@lru_cache(maxsize=4096)
def _reduced_inputs(roles: Roles) -> tuple[str, ...]:
    """The inputs that are read along the loops of a reduction."""
    loops = {v for v, _ in roles.reduction}
    return tuple(
        name
        for name, reads in roles.reads.items()
        if reads and any(arith.variables(e) & loops for e in reads[0].indices)
    )


@lru_cache(maxsize=10_000)
def _rows_share_vectors(roles: Roles, decided: OutputDecisions) -> bool:
    """See `PlacedTile.rows_share_vectors`.

    The image of a convolution in groups depends on the group of a lane, which does not count: it is
    the same for all lanes of a tile.
    """
    outside = axes_outside(decided)
    if not outside:
        return True
    row, lane = roles.axes[outside[-1]], roles.axes[decided.lane]
    last = decided.group - 1 if decided.group else roles.output.shape[decided.lane] - 1

    def differs_by_row(access: Access) -> bool:
        return any(row in arith.variables(e) for e in access.indices)

    def differs_by_lane(access: Access) -> bool:
        return any(
            lane in arith.variables(e) and not _is_same_for_lanes(e, lane, last)
            for e in access.indices
        )

    return not any(
        differs_by_row(access) and differs_by_lane(access)
        for reads in roles.reads.values()
        for access in reads
        if roles.nest_of(access)
    )


def _is_same_for_lanes(index: arith.IndexExpr, lane: arith.Var, last: int) -> bool:
    """Whether an index is the same for the lanes 0 to `last`, as `lane // (last + 1)` is."""
    return all(
        isinstance(atom, arith.FloorDiv) and atom.numerator is lane and atom.divisor > last
        for atom, _ in arith.terms_of(index)[0]
        if lane in arith.variables(atom)
    )


@lru_cache(maxsize=10_000)
def _is_gathered(roles: Roles, name: str, layout: Layout, lane: int, second: int) -> bool:
    """Whether the first two lanes load elements of an operand that are neither equal nor adjacent.

    The first two tell for all, because lanes never begin inside a block.
    """
    var = roles.axes[lane]
    flats = {flat_offset(layout, access.indices) for access in roles.reads[name]}
    return any(_growth(flat, var, second) not in (0, 1) for flat in flats)


def _growth(flat: arith.IndexExpr, var: arith.Var, count: int) -> int:
    """The growth of an expression from the origin to `count` along one variable."""
    grown = 0
    for atom, k in arith.terms_of(flat)[0]:
        used = arith.variables(atom)
        if var in used:
            origin = dict.fromkeys(used, 0)
            grown += k * (
                arith.evaluate(atom, {**origin, var: count}) - arith.evaluate(atom, origin)
            )
    return grown


def fills_vectors(output: Layout) -> bool:
    """Whether the last vector of a row covers padding of the output anyhow."""
    return ends_in_block(output) or output.is_padded


def ends_in_block(layout: Layout) -> bool:
    """Whether the innermost physical axis runs within blocks of a logical one."""
    return any(isinstance(e, arith.FloorMod) for e in layout.index_map.outputs[-1:])
