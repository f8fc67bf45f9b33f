"""Cycles of a register tile: multiply-adds, loads, latency, and what lies in which cache.

In: a `TileProblem`, how it is tiled, and the target.  Out: cycles of one core.  Per step of the
reduction the model counts the multiply-adds, the loads of vectors and of what is broadcast, and the
latency of the accumulators; and per tile the instructions that fill and store it, of which those
under a mask may be slow.  Lanes and pixels are what the recipe makes of axes: where lanes run along
a row of the data, the pixels are channels, and their weights are broadcast.  A vector has as many
lanes as it computes elements of the accumulators' type.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from graphflow.base.dtypes import DTYPES
from graphflow.base.target import COMPUTED_BYTES, Target
from graphflow.cost.cycles import streaming_cycles

CONFLICT_CYCLES = 3.0
"""Cycles to load a pixel whose line was thrown out by another pixel's."""

BROADCAST_CYCLES = 0.5
"""Cycles to load a pixel, which is broadcast to all lanes, from the first cache."""

TILE_OVERHEAD = 16.0
"""Cycles to enter and leave a tile, besides filling and storing its registers."""

NEST_OVERHEAD = 3.0
"""Cycles to leave one reduction of a tile and enter the next."""

REGISTER_CYCLES = 2.0
"""Cycles to fill one register of a tile before its reduction, and to store it behind."""

NARROWEST = 0.5
"""The share of a whole vector's cycles that a narrower one takes at least."""

LATENCY = 1.05
"""How much longer than its latency an accumulator waits, where there are just enough of them."""

UNALIGNED = 1.08
"""How much longer a step takes whose vectors of data begin anywhere in a cache line."""

MASKED_BORDER = 0.15
"""The part by which a tile takes longer that meets a border within its lanes."""

PIECE_CYCLES = 2.0
"""Cycles of each store of one, two, four … lanes, where a mask known beforehand becomes these."""

INPUT_AGAIN = 1.005
"""How much longer it takes if each group of channels reads the input again: it comes from the
second-level cache."""

BORDER_GROUPS = 2
"""Groups of lanes in a row that meet a border, the first and the last."""

MOST_PIXELS = 28
"""The most pixels of a tile."""

MASK_REGISTERS = 3
"""Vectors that a tile at a border needs besides: the mask, the operand and the sum under it."""

FEW_ROWS = 16
"""So many rows are shared about evenly by any threads."""


class AlongRow(NamedTuple):
    """What holds of lanes that run along a row of the data."""

    misses: float
    """For each line that a group of lanes spans: how often a step takes it from the second-level
    cache."""
    borders: bool
    """Whether some of the lanes of the first or the last group take no part in a step."""


class TileRow(NamedTuple):
    """The part of a problem that the pixels of a tile depend on; problems have few different ones.

    `item_bytes` is the size of what a lane sums up, of which a vector takes so many `registers`.
    """

    pixels: int
    steps: int
    pixel_bytes: int
    nests: int
    item_bytes: int
    registers: int
    along: AlongRow | None = None


@dataclass(frozen=True, slots=True)
class TileProblem:
    """What has to be tiled: `channels` along the lanes, `pixels` along the axis before them,
    `rows` of such planes, a reduction of `steps`, and packed weights of `weight_bytes`."""

    channels: int
    pixels: int
    rows: int
    steps: int
    weight_bytes: int
    pixel_bytes: int
    """Distance in memory between neighbouring pixels of the operand that is broadcast; 0 where any
    number of them fits the first cache."""
    whole_vectors: bool
    """Whether the last vector covers padding anyhow, so that a narrow one gains nothing."""
    nests: int = 1
    """How many loops the steps are in, one behind the other."""
    along: AlongRow | None = None
    """Given where the lanes run along the data, and the weights along the pixels."""
    dtype: str = "float32"
    """The element type of the output, which decides how many lanes a vector has."""
    sum_dtype: str = ""
    """The element type of the accumulators, where that is not the output's."""

    @property
    def row(self) -> TileRow:
        """What is done for each row."""
        lane, item = (
            max(COMPUTED_BYTES, DTYPES[dtype].itemsize)
            for dtype in (self.dtype, self.sum_dtype or self.dtype)
        )
        return TileRow(
            self.pixels,
            self.steps,
            self.pixel_bytes,
            self.nests,
            item,
            -(-item // lane),
            self.along,
        )


@dataclass(frozen=True, slots=True)
class Panel:
    """`count` neighbouring groups of `vectors` × `lanes` channels, `pixels` computed at a time."""

    count: int
    vectors: int
    lanes: int
    pixels: int

    @property
    def width(self) -> int:
        """Channels of one group."""
        return self.vectors * self.lanes


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the output plane of pixels × channels is cut.

    `panels` cover the channels in order; the last may reach past them.  `panel_outermost` runs the
    groups of the (then only) panel outside all other loops, which keeps one group of weights near;
    otherwise they run inside the outer axes, which reads the input once.  `write_padding` lets the
    last vector write the padding of the output, where it may.
    """

    panels: tuple[Panel, ...]
    panel_outermost: bool = False
    write_padding: bool = False


def most_pixels(row: TileRow, vectors: int, target: Target) -> int:
    """The most pixels of which the registers hold so many vectors."""
    masks = MASK_REGISTERS if row.along is not None and row.along.borders else 0
    wide = vectors * row.registers
    room = (target.vector_registers - 1 - wide - masks) // wide
    return max(1, min(room, row.pixels, MOST_PIXELS))


def fits_sets(stride: int, pixels: int, target: Target) -> bool:
    """Whether the lines of all pixels, so many bytes apart, stay in the first cache meanwhile.

    Pixels a multiple of the cache's way size apart share one set, which holds as many lines as the
    cache has ways; two are left for everything else.
    """
    way = target.l1_bytes // target.l1_ways
    sets = max(1, way // gcd(way, stride) if stride else pixels)
    return -(-pixels // sets) <= target.l1_ways - 2


def missed_lines(apart: tuple[tuple[int, int], ...], taps: int, target: Target) -> float:
    """How often a step along a row takes a line from the second-level cache, not from the first.

    `apart` are the loops of the reduction that step from line to line, each with its stride in
    bytes and its extent; the `taps` of one line follow each other.  What one tile reads the next
    one reads again: it is still in the first cache if it fits there, and if its lines are not all
    in a few sets.
    """
    lines = 2
    for _, extent in apart:
        lines *= extent
    fits = target.line_bytes * lines <= target.l1_bytes * 3 // 4
    if fits and all(fits_sets(stride, extent, target) for stride, extent in apart):
        return 0.0
    return 1 / taps


def tiling_cycles(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """Cycles of one core for the whole output."""
    row = sum(panel.count * row_cycles(problem.row, panel, target) for panel in tiling.panels)
    row += problem.pixels * _mask_cycles(problem, tiling, target)
    passes = 1
    if problem.along is not None:
        passes = sum(panel.count for panel in tiling.panels)
        row += _border_cycles(problem, tiling, passes, target)
    cycles = row * problem.rows
    if not tiling.panel_outermost and not near_weights(problem.weight_bytes, target):
        # Each row, or each group of a row, streams all weights from the next cache.
        cycles += problem.rows * passes * streaming_cycles(problem.weight_bytes, False, target)
    return cycles * INPUT_AGAIN if tiling.panel_outermost else cycles


def uneven(problem: TileProblem, tiling: Tiling) -> float:
    """How much longer it takes if some thread has half a row more than its share.

    How many threads there will be is not known here.
    """
    shared_evenly = tiling.panel_outermost or problem.rows >= FEW_ROWS
    return 1.0 if shared_evenly else 1 + 0.5 / problem.rows


def near_weights(weight_bytes: int, target: Target) -> bool:
    """Whether packed weights stay in the second-level cache, beside what they are applied to."""
    return weight_bytes <= target.l2_bytes * 3 // 4


def row_cycles(row: TileRow, panel: Panel, target: Target) -> float:
    """Cycles for one group of channels over one row of pixels."""
    tiles = _tiles(row, panel.vectors, panel.lanes, target)
    whole, rest = divmod(row.pixels, panel.pixels)
    return whole * tiles[panel.pixels - 1] + (tiles[rest - 1] if rest else 0.0)


@lru_cache(maxsize=10_000)
def _tiles(row: TileRow, vectors: int, lanes: int, target: Target) -> tuple[float, ...]:
    """Cycles of a tile of one pixel, of two, and so on, as many as there is room for."""
    pixels = range(1, most_pixels(row, vectors, target) + 1)
    return tuple(_tile_cycles(row, vectors, lanes, count, target) for count in pixels)


def _tile_cycles(row: TileRow, vectors: int, lanes: int, pixels: int, target: Target) -> float:
    share = max(lanes * row.item_bytes / target.vector_bytes, NARROWEST)
    multiply_adds = pixels * vectors * share / target.fmas_per_cycle
    near = fits_sets(row.pixel_bytes, pixels, target)
    each = BROADCAST_CYCLES if near else CONFLICT_CYCLES
    loads = vectors * share * target.cycles_per_vector_load + pixels * each
    weights = row.item_bytes * vectors * lanes
    if row.along is not None:
        multiply_adds, loads = multiply_adds * UNALIGNED, loads * UNALIGNED
        weights = row.item_bytes * pixels
        spanned = max(1.0, vectors * lanes * row.item_bytes / target.line_bytes)
        loads = max(loads, spanned * row.along.misses * target.l2_line_cycles)
    step = max(multiply_adds, loads, target.fma_latency * LATENCY)
    if row.steps * weights > target.l1_bytes * 3 // 2:
        step = max(step, streaming_cycles(weights, True, target))
    entering = TILE_OVERHEAD + (row.nests - 1) * NEST_OVERHEAD
    return row.steps * step + pixels * vectors * REGISTER_CYCLES * share + entering


def _border_cycles(problem: TileProblem, tiling: Tiling, passes: int, target: Target) -> float:
    """What the groups of a row that meet a border take longer than others."""
    bordered = problem.along is not None and problem.along.borders
    ends = dict.fromkeys((tiling.panels[0], tiling.panels[-1]) if bordered else ())
    masked = [
        min(BORDER_GROUPS, passes) / len(ends) * row_cycles(problem.row, panel, target)
        for panel in ends
    ]
    return MASKED_BORDER * sum(masked)


def _mask_cycles(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """What the stores of one pixel take under masks, beyond what is counted for every store.

    A mask known beforehand becomes stores of one, two, four … lanes.  Where the last of several
    groups reaches past the channels, all have the mask, for they run the same code.
    """
    if problem.whole_vectors:
        return 0.0
    more = target.cycles_per_masked_store - 1
    cycles, left = 0.0, problem.channels
    for panel in tiling.panels:
        rest = min(left, panel.count * panel.width) % panel.width
        if rest and panel.count > 1:
            cycles += panel.count * (panel.vectors - rest // panel.lanes) * more
        elif rest:
            cycles += min(more, PIECE_CYCLES * ((rest % panel.lanes).bit_count() - 1))
        left -= panel.count * panel.width
    return cycles
