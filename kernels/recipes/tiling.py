"""Choosing a register tile by shape: how many pixels and vectors one tile holds.

In: the channels and pixels of the output, the length of the reduction, the bytes of packed weights,
and the target.  Out: the `Tiling` with the fewest estimated cycles, and that estimate.  Lanes and
pixels are what the recipe makes of axes: where lanes run along a row of the data, the pixels are
channels, and their weights are broadcast.  The model counts, per step of the reduction, the
multiply-adds, the loads of vectors and of what is broadcast, and the latency of the accumulators;
and per tile the instructions that fill and store it, of which those under a mask may be slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from graphflow.base.target import Target
from graphflow.kernels.recipes.tile import Panel, Tiling

CONFLICT_CYCLES = 3.0
"""Cycles to load a pixel whose line was thrown out by another pixel's."""

TILE_OVERHEAD = 16.0
"""Cycles to enter and leave a tile, besides filling and storing its registers."""

NEST_OVERHEAD = 3.0
"""Cycles to leave one reduction of a tile and enter the next."""

LATENCY = 1.05
"""How much longer than its latency an accumulator waits, where there are just enough of them."""

FEW_ROWS = 16
"""So many rows are shared about evenly by any threads."""

L2_BYTES_PER_CYCLE = 28.0
"""How fast the weights of a group come where they do not stay in the first-level cache."""


UNALIGNED = 1.08
"""How much longer a step takes whose vectors of data begin anywhere in a cache line."""

LINE_BYTES = 64

LINE_CYCLES = 10.0
"""Cycles until a line is there that has to come from the second-level cache, each apart from the
last, so that nobody fetches it ahead."""

MOST_PIXELS = 28
"""The most pixels of a tile."""

MASKED = 0.15
"""The part by which a tile takes longer that meets a border within its lanes."""

BORDER_GROUPS = 2
"""Groups of lanes in a row that meet a border, the first and the last: there are to be others."""

MASK_REGISTERS = 3
"""Vectors that such a tile needs besides: the mask, the operand and the sum under it."""


class Along(NamedTuple):
    """What holds of lanes that run along a row of the data."""

    misses: float
    """For each line that a group of lanes spans: how often a step takes it from the second-level
    cache."""
    borders: bool
    """Whether some of the lanes of the first or the last group take no part in a step."""


class Row(NamedTuple):
    """The part of a plane that the pixels of a tile depend on; planes have few different ones."""

    pixels: int
    steps: int
    pixel_bytes: int
    nests: int
    along: Along | None = None


@dataclass(frozen=True, slots=True)
class Plane:
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
    along: Along | None = None
    """Given where the lanes run along the data, and the weights along the pixels."""

    @property
    def row(self) -> Row:
        """What is done for each row."""
        return Row(self.pixels, self.steps, self.pixel_bytes, self.nests, self.along)


@lru_cache(maxsize=10_000)
def choose_tiling(plane: Plane, target: Target) -> tuple[Tiling, float]:
    """The cheapest tiling and its estimated cycles for the whole output; ties go to wider tiles.

    How many threads there will be is not known here: few rows for them to share count against a
    tiling, and are not in its cycles.
    """
    best: tuple[float, int, Tiling] | None = None
    vectors = -(-plane.channels // target.lanes())
    for count in range(1, min(vectors, 8) + 1):
        for tiling in _tilings(plane, count, target):
            cost = _cycles(plane, tiling, target) * _uneven(plane, tiling)
            if best is None or (cost, -count) < best[:2]:
                best = (cost, -count, tiling)
    assert best is not None, "one vector a tile always fits"
    return best[2], _cycles(plane, best[2], target)


def _uneven(plane: Plane, tiling: Tiling) -> float:
    """How much longer it takes if some thread has half a row more than its share."""
    shared_evenly = tiling.panel_outermost or plane.rows >= FEW_ROWS
    return 1.0 if shared_evenly else 1 + 0.5 / plane.rows


def _tilings(plane: Plane, vectors: int, target: Target) -> Iterator[Tiling]:
    """The tilings into groups of so many vectors."""
    lanes = target.lanes()
    narrow = plane.channels % lanes
    if plane.along is not None:
        groups = -(-plane.channels // (vectors * lanes))
        for pixels in range(1, _room(plane.row, vectors, target) + 1):
            if groups > BORDER_GROUPS or not plane.along.borders:
                yield _in_panels(plane, vectors, target, True, pixels)
        return
    yield _in_panels(plane, vectors, target, True)
    if 0 < narrow <= lanes // 2 and not plane.whole_vectors:
        yield _in_panels(plane, vectors, target, False)
    groups = -(-plane.channels // (vectors * lanes))
    if groups > 1 and not (plane.whole_vectors and -(-plane.channels // lanes) % vectors):
        # Else the last group would reach past the padding that may be written.
        pixels = _best_pixels(plane.row, vectors, lanes, target)
        yield Tiling((Panel(groups, vectors, lanes, pixels),), panel_outermost=True)


def _in_panels(
    plane: Plane, vectors: int, target: Target, whole_lanes: bool, pixels: int = 0
) -> Tiling:
    """Equal groups, then a narrower one, then a few lanes unless those are to be a whole vector.

    Each has the given number of pixels, or if that is 0 those that are best for it.
    """
    lanes = target.lanes()
    whole, rest = divmod(plane.channels, vectors * lanes)
    panels = []
    if whole:
        many = pixels or _best_pixels(plane.row, vectors, lanes, target)
        panels.append(Panel(whole, vectors, lanes, many))
    full, narrow = divmod(rest, lanes)
    if narrow and whole_lanes:
        full, narrow = full + 1, 0
    if full:
        many = pixels or _best_pixels(plane.row, full, lanes, target)
        panels.append(Panel(1, full, lanes, many))
    if narrow:
        width = _power_of_two(narrow)
        many = pixels or _best_pixels(plane.row, 1, width, target)
        panels.append(Panel(1, 1, width, many))
    return Tiling(tuple(panels))


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _room(row: Row, vectors: int, target: Target) -> int:
    """The most pixels of which the registers hold so many vectors."""
    masks = MASK_REGISTERS if row.along is not None and row.along.borders else 0
    room = (target.vector_registers - 1 - vectors - masks) // vectors
    return max(1, min(room, row.pixels, MOST_PIXELS))


@lru_cache(maxsize=10_000)
def _best_pixels(row: Row, vectors: int, lanes: int, target: Target) -> int:
    room = len(_tiles(row, vectors, lanes, target))
    panels = (Panel(1, vectors, lanes, pixels) for pixels in range(1, room + 1))
    return -min((_row_cycles(row, panel, target), -panel.pixels) for panel in panels)[1]


def _row_cycles(row: Row, panel: Panel, target: Target) -> float:
    """Cycles for one group of channels over one row of pixels."""
    tiles = _tiles(row, panel.vectors, panel.lanes, target)
    whole, rest = divmod(row.pixels, panel.pixels)
    return whole * tiles[panel.pixels - 1] + (tiles[rest - 1] if rest else 0.0)


@lru_cache(maxsize=10_000)
def _tiles(row: Row, vectors: int, lanes: int, target: Target) -> tuple[float, ...]:
    """Cycles of a tile of one pixel, of two, and so on, as many as there is room for."""
    pixels = range(1, _room(row, vectors, target) + 1)
    return tuple(_tile_cycles(row, vectors, lanes, count, target) for count in pixels)


def _tile_cycles(row: Row, vectors: int, lanes: int, pixels: int, target: Target) -> float:
    share = max(lanes / target.lanes(), 0.5)
    multiply_adds = pixels * vectors * share / target.fmas_per_cycle
    each = 0.5 if fits_sets(row.pixel_bytes, pixels, target) else CONFLICT_CYCLES
    loads = vectors * share * target.cycles_per_vector_load + pixels * each
    weights = 4 * vectors * lanes
    if row.along is not None:
        multiply_adds, loads, weights = multiply_adds * UNALIGNED, loads * UNALIGNED, 4 * pixels
        spanned = max(1.0, vectors * lanes * 4 / LINE_BYTES)
        loads = max(loads, spanned * row.along.misses * LINE_CYCLES)
    step = max(multiply_adds, loads, target.fma_latency * LATENCY)
    if row.steps * weights > target.l1_bytes * 3 // 2:
        step = max(step, weights / L2_BYTES_PER_CYCLE)
    entering = TILE_OVERHEAD + (row.nests - 1) * NEST_OVERHEAD
    return row.steps * step + pixels * vectors * 2 * share + entering


def fits_sets(stride: int, pixels: int, target: Target) -> bool:
    """Whether the lines of all pixels, so many bytes apart, stay in the first cache meanwhile.

    Pixels a multiple of the cache's way size apart share one set, which holds as many lines as the
    cache has ways; two are left for everything else.
    """
    way = target.l1_bytes // target.l1_ways
    sets = max(1, way // gcd(way, stride) if stride else pixels)
    return -(-pixels // sets) <= target.l1_ways - 2


def _cycles(plane: Plane, tiling: Tiling, target: Target) -> float:
    row = sum(panel.count * _row_cycles(plane.row, panel, target) for panel in tiling.panels)
    row += plane.pixels * _mask_cycles(plane, tiling, target)
    passes = 1
    if plane.along is not None:
        passes = sum(panel.count for panel in tiling.panels)
        ends = dict.fromkeys((tiling.panels[0], tiling.panels[-1]) if plane.along.borders else ())
        masked = [
            min(BORDER_GROUPS, passes) / len(ends) * _row_cycles(plane.row, p, target) for p in ends
        ]
        row += MASKED * sum(masked)
    cycles = row * plane.rows
    if not tiling.panel_outermost and plane.weight_bytes > target.l2_bytes * 3 // 4:
        # Each row, or each group of a row, streams all weights from the next cache.
        cycles += plane.rows * passes * plane.weight_bytes / target.l3_bytes_per_cycle
    if tiling.panel_outermost:
        # Each group of channels reads the input again; it comes from the second-level cache.
        cycles *= 1.005
    return cycles


def _mask_cycles(plane: Plane, tiling: Tiling, target: Target) -> float:
    """What the stores of one pixel take under masks, beyond what is counted for every store.

    A mask known beforehand becomes stores of one, two, four … lanes.  Where the last of several
    groups reaches past the channels, all have the mask, for they run the same code.
    """
    if plane.whole_vectors:
        return 0.0
    more = target.cycles_per_masked_store - 1
    cycles, left = 0.0, plane.channels
    for panel in tiling.panels:
        rest = min(left, panel.count * panel.width) % panel.width
        if rest and panel.count > 1:
            cycles += panel.count * (panel.vectors - rest // panel.lanes) * more
        elif rest:
            cycles += min(more, 2.0 * ((rest % panel.lanes).bit_count() - 1))
        left -= panel.count * panel.width
    return cycles
