"""What each kind of tile loads in a step, its price, and the ways to cut it.

In: a `TilePlane`, the shape of a tile and the target.  Out: a `Step`, the registers that a tile
takes, and the tilings to be compared.  A kind says what the accumulators of a tile share:

- `BroadcastRows`: vectors that all rows use, and one element for each row.  A matrix product, a
  convolution with channels in the lanes.
- `DotRows`: the same for bytes, of which an instruction sums the products of four.
- `BrainRows`: the same for bfloat16 numbers, of which an instruction sums the products of two.
- `MatrixRows`: the same in matrix registers, 16 rows and groups of terms at a time.
- `OwnVectors`: one row's vectors are of no use to another one.  A depthwise convolution with
  channels in the lanes.
- `SlidingRows`: a vector of a row of the image serves all rows of the tile whose windows contain
  that row.  A depthwise convolution with positions in the lanes.
- `OwnWindows`: nothing.  A pooling with positions in the lanes.
- `AlongRow`: vectors of data that all rows use, and one weight for each row.  A convolution with
  positions in the lanes and channels in the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from graphflow.base.processors import MATRIX_GROUPS, MATRIX_ROWS
from graphflow.base.target import Target
from graphflow.cost.charges import FEW_ROWS
from graphflow.cost.cycles import pair_step_cycles
from graphflow.cost.panel_cuts import cuts_by_width, in_panels, in_pieces_of_a_row, widest_first
from graphflow.cost.tiles import (
    BORDER_GROUPS,
    FEW_REGISTERS,
    MASKED_BORDER,
    fits_sets,
    vector_share,
)
from graphflow.cost.tilings import (
    MOST_ROWS,
    Panels,
    Step,
    StepLoads,
    TilePlane,
    TileProblem,
    TileShape,
    Tiling,
)

CONFLICT_CYCLES = 3.0
"""Cycles to broadcast an element whose cache line was evicted by that of another row."""

BYTES_OF_SUM = 4
"""The bytes of which one instruction adds the products to a sum of 32 bits."""

ELEMENT_CYCLES = 0.5
"""Cycles to load what each row has of an operand where nothing is reduced, or to broadcast it to a
narrower vector, or from places in a line that differ."""

PUT_TOGETHER = 3.5
"""Cycles to put together and broadcast fewer than four bytes."""

UNALIGNED = 1.08
"""The factor on a step whose vectors of data begin anywhere in a cache line."""

SPILLED = 1.4
"""The factor on a step of a tile with sliding rows that goes over several channels, where there are
few registers: they do not hold the accumulators, the rows of data and the weights of all taps.
Measured with AVX2 on 3×3 convolutions of 16 to 64 channels, where it is 1.2 to 1.6."""

SHUFFLED = 1.15
"""The loads of a vector whose lanes are every second to fourth element, shuffles included, where
the taps of a window share what they load."""

MATRIX_COLUMNS = 4
"""The most registers of columns of a tile: four of sums leave four for the operands."""

MATRIX_ROW_LOAD = 0.35
"""Cycles that each row of an operand adds to the cycles of a product, one for each of its rows.
Measured on Granite Rapids: 17 cycles for a product of 16 rows, 21 with its loads."""

MATRIX_LATENCY = 40.0
"""The least cycles of a step of a tile in matrix registers: the latency of a product."""

MATRIX_FILLS = 4.0
"""The factor on the cycles to fill and to store sums, which go through memory behind their
reduction.  By it products of 32 terms are made in matrix registers, where they take 0.88 of the
time of dot products on Granite Rapids, and those of 24 terms are not, which take 1.0 to 1.2."""

OWN_REGISTERS = 4
"""Vector registers of an accumulator that loads vectors of its own: it, and those loaded for its
next taps."""


def _slowed(reducing: float, target: Target) -> float:
    """The factor on multiply-adds of a term that is reduced in so many cycles, 0 for a sum."""
    return max(1.0, reducing * target.fmas_per_cycle)


def register_rows(mr: int) -> int:
    """The rows of a matrix register in tiles of `mr` rows: one register has them, or two do."""
    return mr if mr <= MATRIX_ROWS else -(-mr // 2)


def register_groups(groups: int) -> int:
    """The groups of terms of a matrix register, where a reduction has so many: as many as there is
    room for of the numbers that divide them."""
    return next(n for n in range(min(groups, MATRIX_GROUPS), 0, -1) if groups % n == 0)


@dataclass(frozen=True)
class BroadcastRows(StepLoads):
    """The rows of a tile share the vectors that a step loads; for each, one element is broadcast.

    `stride` is the distance in bytes of the elements of neighbouring rows, 0 where the first-level
    cache holds those of any number of rows.  `taps` steps in a row broadcast elements of the same
    run of data: a tile of mr rows reads some mr + taps - 1 elements in that many steps.  `tap_step`
    taps later a row meets what the row after it meets now: the stride of the window.  Neighbouring
    positions of the data are `apart` bytes apart, 0 where that is not known.
    """

    stride: int = 0
    taps: int = 1
    tap_step: int = 1
    tail_ends: int | None = None
    apart: int = 0

    def registers_kept(self, wide: int, target: Target) -> int:
        """One element for the next tap, which LLVM loads once and keeps.

        With few registers only where every row meets what its neighbours meet; where it is every
        second element, loading it again costs less than fewer rows (7 % of a first convolution).
        """
        again = target.vector_registers <= FEW_REGISTERS and self.tap_step > 1
        return 0 if self.taps == 1 or again else 1

    def most_tail_rows(self, plane: TilePlane, panels: Panels, target: Target) -> int:
        """As `most_rows`; besides, one register holds the tail columns that are loaded, and the
        elements broadcast for the rows of a tail vector are kept until they are put together."""
        together = panels.tail_rows
        room = target.vector_registers - panels.nr_vectors - 1 - together
        each = panels.nr_vectors + (0 if self.taps == 1 else 1)
        groups = room // (each * together + 1)
        return min(groups, MOST_ROWS // together, plane.rows // together) * together

    def step(self, plane: TilePlane, tile: TileShape, target: Target) -> Step:
        """The vectors that all rows use, and a broadcast for each row."""
        near = fits_sets(self.stride, tile.mr, target)
        share = vector_share(plane, tile.lanes, target)
        alike = self.apart and self.apart % target.vector_bytes == 0
        whole = plane.steps > 1 and share == 1
        one = target.cycles_per_broadcast if alike and whole else ELEMENT_CYCLES
        each = one if near else CONFLICT_CYCLES
        tails = 1 if tile.tails else 0
        vectors = tile.nr_vectors * share + tails
        loads = vectors * target.cycles_per_vector_load + tile.mr * each
        return Step(loads, plane.item_bytes * (tile.nr_vectors + tails) * tile.lanes)

    def tilings(self, problem: TileProblem, target: Target) -> Iterator[Tiling]:
        """Panels of all widths."""
        return cuts_by_width(problem, target)


@dataclass(frozen=True)
class DotRows(BroadcastRows):
    """As `BroadcastRows`, with neighbouring terms added by one instruction: a step broadcasts
    `terms` bytes for each row, and each lane of a vector of weights has as many.

    `depth` is the extent of the innermost reduction loop, whose last step may have fewer terms.
    Without `room` for a whole group there, the bytes of that step are put together.
    """

    depth: int = 1
    terms: int = 4
    room: bool = True

    @property
    def adds_apart(self) -> bool:
        """Whether another instruction adds the products to the sums."""
        return self.terms < BYTES_OF_SUM

    def step(self, plane: TilePlane, tile: TileShape, target: Target) -> Step:
        """As of rows that share vectors; bytes that are put together take longer."""
        step = super().step(plane, tile, target)
        if self.adds_apart:
            pairs = pair_step_cycles(tile.mr, tile.nr_vectors, target)
            step = step._replace(loads=max(step.loads, pairs))
        if self.room or self.depth % self.terms == 0:
            return step
        share = 1 / -(-self.depth // self.terms)
        return step._replace(loads=step.loads + share * tile.mr * PUT_TOGETHER)

    def most_rows(self, plane: TilePlane, nr_vectors: int, target: Target) -> int:
        """As of rows that share vectors, less one register for a product that is added."""
        if not self.adds_apart:
            return super().most_rows(plane, nr_vectors, target)
        wide = nr_vectors * plane.registers
        free = target.vector_registers - 2 - wide
        return max(1, min(free // wide, plane.rows, MOST_ROWS))

    def steps(self, terms: int) -> int:
        """One for each group of neighbouring terms."""
        return terms // self.depth * -(-self.depth // self.terms)


@dataclass(frozen=True)
class BrainRows(DotRows):
    """As `DotRows`, of two bfloat16 numbers, with the rate that the target has for them."""

    @property
    def adds_apart(self) -> bool:
        """One instruction multiplies and adds."""
        return False

    def step(self, plane: TilePlane, tile: TileShape, target: Target) -> Step:
        """As of rows that share vectors, at that rate."""
        return super().step(plane, tile, target)._replace(slowdown=target.brain_dot_factor)


@dataclass(frozen=True)
class MatrixRows(DotRows):
    """As `DotRows`, in matrix registers: a step adds up `groups` groups of terms.

    A tile has one or two registers of rows, see `register_rows`, and up to four of columns.
    """

    groups: int = 1

    fills: ClassVar[float] = MATRIX_FILLS

    @property
    def adds_apart(self) -> bool:
        """One instruction multiplies and adds."""
        return False

    def step(self, plane: TilePlane, tile: TileShape, target: Target) -> Step:
        """A cycle for each row of a product, and a share of one for each row that is loaded."""
        loaded = tile.mr + tile.nr_vectors * self.groups
        cycles = tile.mr * tile.nr_vectors + MATRIX_ROW_LOAD * loaded
        octets = plane.item_bytes * tile.nr_vectors * tile.lanes * self.groups
        return Step(max(cycles, MATRIX_LATENCY), octets)

    def steps(self, terms: int) -> int:
        """One for each number of `groups`."""
        return terms // (self.terms * self.groups)

    def most_rows(self, plane: TilePlane, nr_vectors: int, target: Target) -> int:
        """Those of two registers."""
        return min(plane.rows, 2 * MATRIX_ROWS)

    def tilings(self, problem: TileProblem, target: Target) -> Iterator[Tiling]:
        """Tiles that cover the rows, so that all registers of rows have as many."""
        lanes = target.computed_lanes(problem.dtype)
        vectors = -(-problem.columns // lanes)
        for nr_vectors in range(min(vectors, MATRIX_COLUMNS), 0, -1):
            for mr in range(self.most_rows(problem.plane, nr_vectors, target), 1, -1):
                if not self._covers(problem.rows, nr_vectors, mr):
                    continue
                yield in_panels(problem, nr_vectors, target, True, mr)
                if vectors > nr_vectors and (
                    vectors % nr_vectors == 0 or not problem.whole_vectors
                ):
                    panel = Panels(-(-vectors // nr_vectors), nr_vectors, lanes, mr)
                    yield Tiling((panel,), panel_outermost=True)

    def _covers(self, rows: int, nr_vectors: int, mr: int) -> bool:
        """Whether tiles of `mr` rows, and one of the rows of a register, cover all rows."""
        of_register = register_rows(mr)
        if mr > of_register and nr_vectors > MATRIX_COLUMNS // 2:
            return False
        return mr % of_register == 0 and rows % mr % of_register == 0


@dataclass(frozen=True)
class OwnVectors(BroadcastRows):
    """Each row of a tile loads vectors of its own, beside those of packed weights, if any.

    Taps across rows meet `across` rows of the image at once.  Of the vectors, a share of
    `crossings` begins in one cache line and ends in the next.  A term is reduced in `reducing`
    cycles where that is no multiply-add, and not an addition either, which takes as long; else 0.
    """

    across: int = 1
    crossings: float = 0.0
    reducing: float = 0.0

    for_each_row: ClassVar[bool] = True

    def registers_kept(self, wide: int, target: Target) -> int:
        """The vectors of a row for its next tap; with few registers a single one of them where
        only every second tap meets what a neighbour met, and sums do not wait for it."""
        few = target.vector_registers <= FEW_REGISTERS and self.tap_step > 1
        return 0 if self.taps == 1 else 1 if few and not self.reducing else wide

    def step(self, plane: TilePlane, tile: TileShape, target: Target) -> Step:
        """Vectors of weights, and those of each row; what several taps meet is loaded once."""
        met = self.tap_step * (tile.mr - 1) + self.taps
        each = target.cycles_per_vector_load + self.crossings * target.cycles_per_crossing
        if tile.nr_vectors == 1 and self.apart and self.apart % target.line_bytes == 0:
            # The same part of as many lines; of two vectors, a line has both.
            each = max(each, target.cycles_per_bank)
        if not fits_sets(self.stride, met * self.across, target):
            each = max(each, CONFLICT_CYCLES)
        vectors = tile.nr_vectors * vector_share(plane, tile.lanes, target)
        own = min(met / self.taps, tile.mr) * each
        loads = vectors * (plane.weighted * target.cycles_per_vector_load + own)
        octets = plane.item_bytes * tile.nr_vectors * tile.lanes
        return Step(loads, octets, _slowed(self.reducing, target))

    @property
    def position_bytes(self) -> int:
        """Those that are known."""
        return self.apart

    def data_bytes(self, problem: TileProblem) -> int:
        """A position for each output, and for those that the stride leaves out."""
        return problem.planes * problem.rows * self.tap_step**2 * self.apart

    def lines_again(self, problem: TileProblem, tiling: Tiling, target: Target) -> float:
        """The lines of all rows of data that a row of outputs meets, where the first-level cache
        does not keep them until the next row of outputs meets them again.

        None for a maximum, which takes longer than its loads.
        """
        if self.across == 1 or not self.apart or self.reducing:
            return 0.0
        positions = self.tap_step * problem.rows
        met = self.across * positions + problem.rows
        row = min(problem.columns * problem.plane.item_bytes, self.apart)
        kept = tiling.panel_outermost or met * row <= target.l1_bytes
        lines = 0.0
        for panels in tiling.panels:
            each = max(1.0, panels.width * problem.plane.item_bytes / target.line_bytes)
            if not kept or not fits_sets(self.apart, met, target):
                lines += self.across * positions * panels.count * each
            if not tiling.panel_outermost:
                lines = min(lines, self.across * positions * row / target.line_bytes)
        return lines


@dataclass(frozen=True)
class SlidingRows(StepLoads):
    """The rows of a tile are rows of an image, whose taps across rows meet the same vectors.

    The steps are `taps` across rows, then `along` ones in a row of the data, in each of `runs`
    parts of the data that lie apart, such as input channels.  `borders` says whether some lanes
    take no part in some steps.
    """

    taps: int
    along: int
    runs: int
    borders: bool

    for_each_row: ClassVar[bool] = True

    def registers_kept(self, wide: int, target: Target) -> int:
        """The vectors of a row for the next tap."""
        return 0 if self.taps == 1 else wide

    def step(self, plane: TilePlane, tile: TileShape, target: Target) -> Step:
        """One weight, and each row of data once for all of its taps."""
        masked = UNALIGNED * (1 + MASKED_BORDER * self.borders)
        if self.runs > 1 and target.vector_registers <= FEW_REGISTERS:
            masked *= SPILLED
        return Step(masked * self._loads(plane, tile, target), plane.item_bytes, masked)

    def _loads(self, plane: TilePlane, tile: TileShape, target: Target) -> float:
        """The vectors of data begin anywhere in a line.  Their lines come from the second-level
        cache where what a tile reads does not stay in the first one until the next tile reads it.
        """
        share = vector_share(plane, tile.lanes, target)
        rows = tile.mr + self.taps - 1
        two_lines = 1 + target.vector_bytes / target.line_bytes
        vectors = rows * tile.nr_vectors * share / self.taps
        loads = target.cycles_per_broadcast + vectors * target.cycles_per_vector_load * two_lines
        width = tile.nr_vectors * tile.lanes * plane.item_bytes
        lines = rows * (1 + width // target.line_bytes)
        if self.runs * lines * target.line_bytes <= target.l1_bytes * 3 // 4:
            return loads
        return max(loads, lines / (self.taps * self.along) * target.l2_line_cycles)

    def tilings(self, problem: TileProblem, target: Target) -> Iterator[Tiling]:
        """Panels of all widths."""
        return cuts_by_width(problem, target)


@dataclass(frozen=True)
class OwnWindows(StepLoads):
    """Each accumulator loads `vectors` for itself in each step: nothing is shared.

    `reducing` is as of `OwnVectors`.
    """

    vectors: float
    reducing: float = 0.0

    def most_rows(self, plane: TilePlane, nr_vectors: int, target: Target) -> int:
        """As many as have `OWN_REGISTERS` for each accumulator; at least 1."""
        room = target.vector_registers // OWN_REGISTERS // (nr_vectors * plane.registers)
        return max(1, min(room, plane.rows))

    def step(self, plane: TilePlane, tile: TileShape, target: Target) -> Step:
        """The vectors of all accumulators."""
        share = vector_share(plane, tile.lanes, target)
        loads = tile.mr * tile.nr_vectors * share * self.vectors * target.cycles_per_vector_load
        octets = plane.item_bytes * tile.nr_vectors * tile.lanes
        return Step(loads, octets, _slowed(self.reducing, target))

    def tilings(self, problem: TileProblem, target: Target) -> Iterator[Tiling]:
        """Pieces with code of their own, in which it is known which lanes are at a border."""
        yield in_pieces_of_a_row(problem, target)


@dataclass(frozen=True)
class AlongRow(StepLoads):
    """The lanes run along a row of the data, and one weight is broadcast for each row of a tile.

    `misses` are the loads from the second-level cache in each step, for each cache line that a tile
    spans.  `borders` says whether some lanes of the first or the last panel take no part in a step.
    So many `phases` of the lanes are rows of one tile, for which alone it is known which taps each
    of them meets.
    """

    misses: float
    borders: bool
    phases: int = 1

    @property
    def masks_panels(self) -> bool:
        """Whether there are borders."""
        return self.borders

    def step(self, plane: TilePlane, tile: TileShape, target: Target) -> Step:
        """Vectors of data that begin anywhere in a cache line, and a weight for each row."""
        vectors = tile.nr_vectors * vector_share(plane, tile.lanes, target)
        loads = vectors * target.cycles_per_vector_load + tile.mr * target.cycles_per_broadcast
        width = tile.nr_vectors * tile.lanes * plane.item_bytes
        missed = max(1.0, width / target.line_bytes) * self.misses * target.l2_line_cycles
        return Step(max(loads * UNALIGNED, missed), plane.item_bytes * tile.mr, UNALIGNED)

    def tilings(self, problem: TileProblem, target: Target) -> Iterator[Tiling]:
        """Panels that all have the same rows, for the weights are packed by them.

        Where every panel meets a border, only tiles of several phases pay.  Of few planes they run
        outermost, where no border and no ragged panel needs masks, or where those that need them
        have code of their own.
        """
        lanes = target.computed_lanes(problem.dtype)
        for nr_vectors in widest_first(problem, target):
            panels, ragged = divmod(problem.columns, nr_vectors * lanes)
            panels += ragged > 0
            most = self.most_rows(problem.plane, nr_vectors, target)
            rows = range(self.phases, most + 1, self.phases)
            if panels > BORDER_GROUPS or not self.borders or self.phases > 1:
                yield from (in_panels(problem, nr_vectors, target, True, mr) for mr in rows)
            few = problem.planes < FEW_ROWS <= problem.planes * panels
            masked = ragged > 0 or self.borders
            if few and (not masked or problem.planes == 1):
                for mr in rows:
                    each = (Panels(panels, nr_vectors, lanes, mr),)
                    yield Tiling(each, panel_outermost=True, whole_apart=masked)

    def passes(self, tiling: Tiling) -> int:
        """Each panel reads all weights."""
        return sum(panels.count for panels in tiling.panels)
