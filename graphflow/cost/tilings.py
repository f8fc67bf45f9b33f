"""What a register tile computes, and how a problem is cut into tiles.

In: what a recipe knows of a kernel.  Out: a `TileProblem` and a `Tiling` of it, which `tiles`
prices.

The terms are those of BLIS.  A problem is a number of `planes`, each a matrix product of `rows` ×
`columns` outputs over `steps` terms.  Columns run along the lanes of vectors; a tile holds `mr`
rows of `nr_vectors` vectors in registers.  Which axes of a kernel these are is the recipe's choice:
mostly the columns are the channels, the rows the positions in a row of an image.  What the
accumulators of a tile load in a step, and what of it they share, is its kind (`StepLoads`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, NamedTuple

from msgspec import Struct

from graphflow.base.dtypes import DTYPES
from graphflow.base.fields import replace
from graphflow.base.target import COMPUTED_BYTES, Target

MOST_ROWS = 28
"""The most rows of a tile, however many registers there are."""

MASK_REGISTERS = 3
"""Vector registers that a tile at a border needs besides: the mask, the operand and the sum under
it."""


class BroadcastMisses(NamedTuple):
    """What a tile waits for that broadcasts an element for each row, in each step from other lines.

    For example, elements of float32 whose rows are next to each other and whose steps are 4 KiB
    apart: a step of six rows takes 24 bytes of a line, and the next tiles of rows take the rest of
    it.  `misses` of each line, 0 to 1, come from a farther cache again by then.  `size` is that of
    the operand in bytes, which says from which cache; neighbouring rows are `row_stride` bytes
    apart.
    """

    misses: float
    size: int
    row_stride: int


class TileShape(NamedTuple):
    """One tile: `mr` rows of `nr_vectors` vectors of `lanes` columns.

    `tails` is the number of vectors that hold the tails of its rows; see `Panels`.
    """

    nr_vectors: int
    lanes: int
    mr: int
    tails: int = 0


class Step(NamedTuple):
    """What a step of a tile takes beside its multiply-adds."""

    loads: float
    """Cycles of its loads and broadcasts."""
    weight_bytes: float
    """Bytes of packed weights that it reads."""
    slowdown: float = 1.0
    """The factor on its multiply-adds: above 1 where operands begin anywhere in a cache line, or
    where they take several instructions."""


class StepLoads(ABC):
    """How the accumulators of a tile get their operands in each step, and what that costs.

    There is a class for each kind of tile (`step_loads.py`).
    """

    for_each_row: ClassVar[bool] = False
    """Whether each row of a tile loads vectors of its own, which no other row uses."""

    fills: ClassVar[float] = 1.0
    """The factor on the cycles to fill the registers of a tile and to store them: 1 for vector
    registers."""

    @property
    def tail_ends(self) -> int | None:
        """The ends of a run of rows, 0 to 2, whose tiles meet a border; None where there are no
        tail vectors.  At a border the rows of one differ, and each is computed by itself."""
        return None

    @property
    def masks_panels(self) -> bool:
        """Whether some lanes of the first or the last panel take no part in some steps."""
        return False

    @abstractmethod
    def step(self, plane: TilePlane, tile: TileShape, target: Target) -> Step:
        """What a step of a tile takes."""

    @abstractmethod
    def tilings(self, problem: TileProblem, target: Target) -> Iterator[Tiling]:
        """The tilings to be compared, the widest panels first; without those of tail vectors."""

    def steps(self, terms: int) -> int:
        """The steps of a reduction over so many terms: one for each."""
        return terms

    def registers_kept(self, wide: int, target: Target) -> int:
        """The registers in which a row of `wide` registers keeps what its next taps meet."""
        return 0

    def most_rows(self, plane: TilePlane, nr_vectors: int, target: Target) -> int:
        """The most rows of a tile `nr_vectors` wide whose accumulators the registers hold.

        One register is left for the element that is broadcast, and `nr_vectors` for the vectors
        loaded.  At least 1.
        """
        wide = nr_vectors * plane.registers
        free = target.vector_registers - 1 - wide - (MASK_REGISTERS if self.masks_panels else 0)
        room = free // (wide + self.registers_kept(wide, target))
        return max(1, min(room, plane.rows, MOST_ROWS))

    def most_tail_rows(self, plane: TilePlane, panels: Panels, target: Target) -> int:
        """The most rows of a tile with tail vectors; 0 where there is no such tile."""
        return 0

    def passes(self, tiling: Tiling) -> int:
        """How often a plane reads all weights."""
        return 1

    @property
    def position_bytes(self) -> int:
        """The bytes between neighbouring positions of data of which each row of a tile loads
        vectors of its own; 0 where there are none, or where that is not known."""
        return 0

    def data_bytes(self, problem: TileProblem) -> int:
        """About the bytes of such data, whose windows have the same stride along both axes."""
        return 0

    def lines_again(self, problem: TileProblem, tiling: Tiling, target: Target) -> float:
        """Cache lines of data that a plane loads although another plane did."""
        return 0.0


class TilePlane(NamedTuple):
    """The part of a problem that the cycles of one plane depend on: many problems share it.

    `item_bytes` is the size of an accumulator's element, and a vector of them takes `registers`
    vector registers.  Each step is `weighted` where it loads packed weights; `inside` is the share
    of the steps that are executed.
    """

    rows: int
    steps: int
    nests: int
    item_bytes: int
    registers: int
    weighted: bool
    loads: StepLoads
    misses: BroadcastMisses | None
    inside: float


class TileProblem(Struct, frozen=True, dict=True):
    """What is tiled: `planes` of `rows` × `columns` outputs, each a reduction of `steps` terms.

    `weight_bytes` is the size of all packed weights, `unpacked_bytes` that of all other operands.
    """

    columns: int
    rows: int
    planes: int
    steps: int
    weight_bytes: int
    loads: StepLoads
    whole_vectors: bool = False
    """Whether the last vector covers padding anyhow, so that a narrower one gains nothing."""
    nests: int = 1
    """How many reduction nests, one after the other, the steps are divided among."""
    dtype: str = "float32"
    """The element type of the output, which decides how many lanes a vector has."""
    sum_dtype: str = ""
    """The element type of the accumulators; empty where it is the output's."""
    misses: BroadcastMisses | None = None
    """What is awaited where the steps lie apart in memory, and the rows of a tile together."""
    inside: float = 1.0
    """The share of the steps that are executed: tiles leave out what meets no data."""
    unpacked_bytes: int = 0

    @cached_property
    def plane(self) -> TilePlane:
        """What is computed for each plane."""
        lane, item = (
            max(COMPUTED_BYTES, DTYPES[dtype].itemsize)
            for dtype in (self.dtype, self.sum_dtype or self.dtype)
        )
        weighted = self.weight_bytes > 0
        counts = (self.rows, self.steps, self.nests, item, -(-item // lane))
        return TilePlane(*counts, weighted, self.loads, self.misses, self.inside)


def in_blocks(problem: TileProblem, blocks: int) -> TileProblem:
    """A problem of one plane with its rows in so many planes, of which the last may lack some."""
    return replace(problem, planes=blocks, rows=-(-problem.rows // blocks))


class Panels(Struct, frozen=True):
    """`count` neighbouring panels of equal width, computed in tiles of `mr` rows.

    A panel is `nr_vectors` vectors of `lanes` columns wide.  It may have `tail` columns behind
    them, so few that one vector holds the tails of `tail_rows` rows: with 16 lanes and 20 columns,
    a tail is 4 columns, and a vector holds those of 4 rows.
    """

    count: int
    nr_vectors: int
    lanes: int
    mr: int
    tail: int = 0

    @property
    def width(self) -> int:
        """Columns of one panel: nr, in the terms of BLIS."""
        return self.nr_vectors * self.lanes + self.tail

    @property
    def tail_rows(self) -> int:
        """The rows whose tails one vector holds; 1 where there are none."""
        return self.lanes // self.tail if self.tail else 1


class Tiling(Struct, frozen=True):
    """How the rows × columns of a plane are cut into tiles.

    `panels` cover the columns in order; the last panel may reach past them.  `panel_outermost` runs
    the panels (all of one width then) outside all other loops, which keeps the weights of one panel
    in a near cache; otherwise they run inside the outer axes, which reads the input once.  With
    `whole_apart`, panels that the columns fill have code of their own there, which has no masks.
    `write_padding` lets the last vector write the padding of the output, where it may.
    """

    panels: tuple[Panels, ...]
    panel_outermost: bool = False
    write_padding: bool = False
    whole_apart: bool = False

    @property
    def shares_panels(self) -> bool:
        """Whether threads share panels, each of which reads the data of all rows."""
        return self.panel_outermost and self.panels[0].count > 1

    def pieces(self, planes: int) -> int:
        """The number of pieces of so many planes that threads can share: panels that run outermost
        are shared as well."""
        return planes * (self.panels[0].count if self.panel_outermost else 1)
