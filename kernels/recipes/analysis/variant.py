"""A variant of a kernel as data: the contract that flow decides by, and the recipe that keeps it.

What always holds: a variant is known before its kernel is built.  Building it
(`kernel_schedule`) either gives a kernel that keeps the contract, or raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, TypeAlias

from msgspec import Struct

from graphflow.cost import TileBands, Tiling, Work
from graphflow.layout import Demand, Layout
from graphflow.schedule import Handle, Refusal, Schedule
from graphflow.tir import PrimFunc

ACCUMULATORS = 4
"""Vectors that a reduction adds up side by side by default: an addition takes four cycles."""


class Padding(Enum):
    """What a variant leaves in the padding of its output.

    KEPT: what was there before, because the kernel cannot write the padding.  NONE: what was there
    before, unless the call asks for a constant, which any kernel but one with KEPT can write.
    UNDEF: anything.  EVALUATED: the value of its expression for what the padding of its inputs
    holds, because its loops run over the padding as over every other element.
    """

    KEPT = "kept"
    NONE = "none"
    UNDEF = "undef"
    EVALUATED = "evaluated"


Axes: TypeAlias = tuple[Handle, ...]
"""Loops of a nest, innermost last.  A loop that runs once may be gone."""


class TileKind(ABC):
    """What the rows and lanes of a register tile are, and how its loops are made.

    There is a module in `tile_kinds/` for each: its claim, its price (`cost.StepLoads`) and its
    builder.
    """

    has_rows: ClassVar[bool] = True
    """Whether a tile has several rows, which are next to the lanes in the nest."""
    shares_loads: ClassVar[bool] = True
    """Whether what a step loads serves several rows of a tile."""
    masks_panels: ClassVar[bool] = False
    """Whether borders are met within the lanes of the first and the last panel."""
    unrolled_taps: ClassVar[int] = 0
    """How many of the reduction loops, from the innermost out, are unrolled."""
    terms: ClassVar[int] = 1
    """How many neighbouring terms of a reduction an instruction sums in each lane."""
    in_matrices: ClassVar[bool] = False
    """Whether the sums of a tile are in matrix registers; see `cost.register_rows`."""
    cuts_rows: ClassVar[bool] = False
    """Whether the rows may be cut into blocks that threads share."""

    @property
    def blocks_outermost(self) -> bool:
        """Whether blocks of rows run outside of panels that are outermost otherwise."""
        return False

    @property
    def turns(self) -> int:
        """How many neighbouring rows store neighbouring elements by turns; 1 where none do."""
        return 1

    @property
    def group(self) -> int:
        """The channels of a group, which no tile crosses; 0 where there are no groups."""
        return 0

    @abstractmethod
    def loops(self, s: Schedule, axes: Axes, output: Layout) -> tuple[Schedule, Axes, Axes]:
        """The nest over the output's `axes` in order, its loops, and those of the reduction."""

    def operands_ready(self, s: Schedule, around: Handle, loops: Axes, lanes: int) -> Schedule:
        """The schedule in which each iteration of `around` prepares what its tiles read."""
        return s

    def with_rows(self, blocks: int, joined: int, outermost: bool) -> TileKind:
        """The kind with its rows in so many blocks, if it `cuts_rows`: of equal size, but for the
        last, which may lack rows; and with so many axes around the rows joined with theirs.  Blocks
        are `outermost` where they run outside of panels that are outermost otherwise."""
        return self

    def fetched_ahead(self, s: Schedule, panel: Handle, tiles: Axes) -> Schedule:
        """The schedule in which the tiles of a panel fetch what those of the next one read."""
        return s


class Tiled(Struct, frozen=True):
    """A kernel made by the register tile (`tile.py`), of this kind, cut as the `tiling` says.

    The recipe assumes of the inputs in `finite` and in `excludes_negative_zero` what
    `KnownContents` says of them; whoever plans it must have proven that.
    """

    kind: TileKind
    tiling: Tiling
    finite: tuple[str, ...] = ()
    excludes_negative_zero: tuple[str, ...] = ()

    @property
    def rests_on(self) -> frozenset[str]:
        """The inputs of whose contents the kernel assumes something."""
        return frozenset((*self.finite, *self.excludes_negative_zero))


class Staged(Struct, frozen=True):
    """A kernel made stage by stage (`staged.py`): each nest keeps its order, and its innermost loop
    becomes lanes where its iterations are proven independent.

    So many `rows`, iterations of the outermost loop, run together (`jammed_rows.py`).  A kernel of
    one row may be `in_phases`, behind each of which the threads that share it meet
    (`row_phases.py`)."""

    rows: int = 1
    in_phases: bool = False


class SharedLoops(Struct, frozen=True):
    """A kernel of several stages that meet at shared loops (`stage_lanes.py`), in vectors of
    `lanes` elements: a point of the sketch in `reduction_sketch.py`.

    Lanes run along the loops that the stages keep to themselves; an iteration handles `rows` of the
    innermost shared loop, and a reduction adds up `accumulators` vectors side by side.  Or, where
    `lane_loop` is a number, they run along the shared loop with this number, counted from the
    outermost, and an iteration handles `vectors` of them.  The parameters in `transposed` are
    contiguous across those lanes; what an iteration reads or writes of them is transposed, from or
    into a buffer of the thread.  Where `tile` is not 0, stages that sum products keep so many of
    the elements that they sum, for all lanes, in registers; and where it `leaves_out` keys, a band
    runs its loops over keys before those that its mask excludes (`excluded_keys.py`).
    """

    lanes: int
    rows: int = 1
    lane_loop: int | None = None
    vectors: int = 1
    transposed: tuple[str, ...] = ()
    accumulators: int = ACCUMULATORS
    tile: int = 0
    leaves_out: bool = False


class FilteredTiles(Struct, frozen=True):
    """A kernel that multiplies transformed tiles: its stages meet at `bands` of them, see
    `tile_bands.py`.

    In memory of the thread, the transformed tiles and the sums of each position of a tile are
    `plane_elements` apart.  `last_apart` says of the image and of the outputs whether the last
    vector, which the channels do not fill, has code of its own, so that the others have no mask: of
    the image where tiles meet a border.
    """

    bands: TileBands
    plane_elements: tuple[int, int]
    last_apart: tuple[bool, bool] = (False, False)


class BlockTiles(Struct, frozen=True):
    """A kernel of sums of blocks in tiles of so many `rows` and `vectors` (`block_tiles.py`)."""

    rows: int
    vectors: int
    lanes: int


class BlockTranspose(Struct, frozen=True):
    """A copy that transposes: as `Staged`, but in square blocks that go through registers.

    It is made of conversions between layouts, and of kernels that only move elements."""


class Scheduled(Struct, frozen=True):
    """A kernel that a user scheduled, whose marked stages are lifted out (`scheduled.py`).

    It assumes of the inputs in `finite` that they hold neither NaN nor infinities.
    """

    kernel: PrimFunc
    finite: tuple[str, ...] = ()


class Foreign(Struct, frozen=True):
    """No kernel: the callee that the definition names computes the outputs."""


class Link(Struct, frozen=True):
    """The place of one tensor, the view, inside the storage of another one, the owner.

    `input` names the input that is the view, or of an outward view the owner.  `window` is the
    view's layout in the owner's box, None where the view is no box there; `offset` is the element
    of the owner's box at which the view begins, None where it does not lie there in one piece.  At
    least one of them is given.  By itself the view keeps the layout of its edge type.
    """

    input: str
    window: Layout | None
    offset: int | None


class View(Struct, frozen=True):
    """No kernel: inputs and output share one storage, so nothing is executed.

    The inputs are views of the output, with a link for each; if `outward`, the output is a view of
    the one input.
    """

    links: tuple[Link, ...]
    outward: bool = False


Recipe: TypeAlias = (
    Tiled
    | Staged
    | SharedLoops
    | FilteredTiles
    | BlockTiles
    | BlockTranspose
    | Scheduled
    | Foreign
    | View
)


class RefusedVariant(Struct, frozen=True):
    """A variant that cannot be made: its name, and the reason that a schedule step gave."""

    variant: str
    reason: Refusal


class KernelVariant(Struct, frozen=True):
    """One way to compute a definition: its contract, its work, and the recipe that makes it.

    `layouts` has a layout for every parameter.  `private` are the constant inputs that the recipe
    packs for itself, in a layout that no edge type names.  `demands` holds what the padding of an
    input must satisfy; the kernel relies on the padding of no other input.  `padding` is what it
    leaves in that of its output.  `work` is what one run does.  `vectorized` says whether its
    lanes run along channels, or along rows with weights packed for that; reports give the share of
    the operations that are done so.
    """

    name: str
    layouts: Mapping[str, Layout]
    private: frozenset[str]
    demands: Mapping[str, Demand]
    padding: Padding
    recipe: Recipe
    work: Work
    vectorized: bool
    smaller_runs: tuple[float, ...] = ()
    """Where sides of an output are counted and runs of fewer elements take more than their share:
    by how much, for each of `PARTS` of the sides but the first."""
