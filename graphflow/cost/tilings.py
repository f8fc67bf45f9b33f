"""What a register tile computes, and how a problem is cut into tiles.

In: what a recipe knows of a kernel.  Out: a `TileProblem` and a `Tiling` of it, which `tiles`
prices.

The terms are those of BLIS.  A problem is a number of `planes`, each a matrix product of `rows` ×
`columns` outputs over `steps` terms.  Columns run along the lanes of vectors; a tile holds `mr`
rows of `nr_vectors` vectors in registers, while each step loads those vectors and broadcasts one
element for each row.  Which axes of a kernel these are is the recipe's choice.  Mostly the columns
are the channels, the rows the positions in a row of an image.  Where the lanes run along that row
of the image (`LanesAlongRow`), the columns are the positions, the rows the channels, and the
elements broadcast are the weights.  A pooling has no weights: where its lanes run along a row of
the image, each accumulator loads vectors of its own (`own_loads`), and nothing is broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from graphflow.base.dtypes import DTYPES
from graphflow.base.target import COMPUTED_BYTES


class LanesAlongRow(NamedTuple):
    """A problem whose lanes run along a row of the data, so that the weights are broadcast."""

    misses: float
    """Loads from the second-level cache in each step, for each cache line that a tile spans."""
    borders: bool
    """Whether some lanes of the first or the last panel take no part in a step."""


class SlidingRows(NamedTuple):
    """A problem whose tiles have rows of an image, and lanes along them, without packed weights.

    The steps are taps across rows, then `along` ones in a row of the data, in each of `runs` parts
    of the data that lie apart, such as input channels.  `borders` says whether some lanes take no
    part in some steps.
    """

    along: int
    runs: int
    borders: bool


class BroadcastApart(NamedTuple):
    """An operand of which a step broadcasts neighbouring elements for the rows of a tile, and each
    step those of other cache lines.

    The next tile of rows reads the rest of these lines; `misses` of each line, 0 to 1, come from a
    farther cache again by then.  `size` is that of the operand in bytes.
    """

    misses: float
    size: int


class TilePlane(NamedTuple):
    """The part of a problem that the cycles of one plane depend on: many problems share it.

    `item_bytes` is the size of an accumulator's element, and a vector of them takes `registers`
    vector registers.  Each step is `weighted` where it loads packed weights.
    """

    rows: int
    steps: int
    broadcast_stride: int
    nests: int
    item_bytes: int
    registers: int
    along: LanesAlongRow | None = None
    taps: int = 1
    own_vectors: bool = False
    sliding: SlidingRows | None = None
    own_loads: float = 0.0
    tap_step: int = 1
    shared_ends: int | None = None
    weighted: bool = False
    apart: BroadcastApart | None = None


@dataclass(frozen=True)
class TileProblem:
    """What is tiled: `planes` of `rows` × `columns` outputs, each a reduction of `steps` terms.

    `weight_bytes` is the size of all packed weights.
    """

    columns: int
    rows: int
    planes: int
    steps: int
    weight_bytes: int
    broadcast_stride: int
    """Bytes in memory between the elements that are broadcast for neighbouring rows; 0 where the
    first-level cache holds those of any number of rows."""
    whole_vectors: bool
    """Whether the last vector covers padding anyhow, so that a narrower one gains nothing."""
    nests: int = 1
    """How many reduction nests, one after the other, the steps are divided among."""
    along: LanesAlongRow | None = None
    """Given where the lanes run along the data and the rows along the weights."""
    dtype: str = "float32"
    """The element type of the output, which decides how many lanes a vector has."""
    shared_ends: int | None = None
    """Given where several rows may have their last few columns in one vector, for which there are
    instructions: the number of ends of a run of rows, 0 to 2, whose tiles meet a border.  There the
    rows of a vector differ, and each is computed by itself."""
    sum_dtype: str = ""
    """The element type of the accumulators; empty where it is the output's."""
    taps: int = 1
    """How many steps in a row broadcast elements of the same run of data: a tile of mr rows reads
    some mr + taps - 1 elements in that many steps."""
    own_vectors: bool = False
    """Whether each row of a tile loads vectors of its own, instead of one element to broadcast."""
    sliding: SlidingRows | None = None
    """Given where the taps are those across the rows of a tile."""
    own_loads: float = 0.0
    """Given where the lanes run along the windows of a pooling: the vectors that each accumulator
    loads for itself in each step, for no row or column of a tile shares them."""
    tap_step: int = 1
    """How many taps later a row of a tile meets what the row after it meets now: the stride of the
    window."""
    apart: BroadcastApart | None = None
    """Given where the steps lie apart in memory, and the rows of a tile next to each other."""

    @cached_property
    def plane(self) -> TilePlane:
        """What is computed for each plane."""
        lane, item = (
            max(COMPUTED_BYTES, DTYPES[dtype].itemsize)
            for dtype in (self.dtype, self.sum_dtype or self.dtype)
        )
        return TilePlane(
            self.rows,
            self.steps,
            self.broadcast_stride,
            self.nests,
            item,
            -(-item // lane),
            self.along,
            self.taps,
            self.own_vectors,
            self.sliding,
            self.own_loads,
            self.tap_step,
            self.shared_ends,
            self.weight_bytes > 0,
            self.apart,
        )


@dataclass(frozen=True, slots=True)
class Panels:
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


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the rows × columns of a plane are cut into tiles.

    `panels` cover the columns in order; the last panel may reach past them.  `panel_outermost` runs
    the panels (all of one width then) outside all other loops, which keeps the weights of one panel
    in a near cache; otherwise they run inside the outer axes, which reads the input once.  With
    `whole_apart`, panels that the columns fill have code of their own there, which has no masks.
    `write_padding` lets the last vector write the padding of the output, where it may.  `sliding`
    unrolls the loop of the reduction that steps through the data like the rows of a tile, innermost
    of the reduction, so that a tile loads each row of data once for all taps that meet it.  With
    `run`, the panels are the steps along that many elements, which lie next to each other in
    memory, and there are no rows.
    """

    panels: tuple[Panels, ...]
    panel_outermost: bool = False
    write_padding: bool = False
    sliding: bool = False
    run: int = 0
    whole_apart: bool = False

    def pieces(self, planes: int) -> int:
        """The number of pieces of so many planes that threads can share: panels that run outermost
        are shared as well."""
        return planes * (self.panels[0].count if self.panel_outermost else 1)
