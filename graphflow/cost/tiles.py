"""Cycles of a register tile: multiply-adds, loads, latency, and the cache that each operand is in.

In: a `TileProblem`, a `Tiling` of it, and the target.  Out: cycles of one core.

The terms are those of BLIS; `tilings` says what they mean here.  For each step the model counts
multiply-adds, loads of vectors, broadcasts, and the latency of the accumulators; for each tile the
instructions that fill and store it, of which those under a mask may be slow.  A vector has as many
lanes as it computes elements of the accumulators' type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import gcd, prod

from graphflow.base.target import Target
from graphflow.cost.cycles import streaming_cycles
from graphflow.cost.tilings import (
    BroadcastMisses,
    Panels,
    TilePlane,
    TileProblem,
    TileShape,
    Tiling,
)

TILE_OVERHEAD = 16.0
"""Cycles to enter and leave a tile, besides filling and storing its registers."""

NEST_OVERHEAD = 3.0
"""Cycles to leave one reduction nest of a tile and enter the next."""

NARROWEST = 0.5
"""The least share of a whole vector's cycles that a narrower vector takes."""

REGISTER_LOADS = 2.0
"""Loads that take as long as filling one register of a tile before its reduction and storing it
afterwards."""

LATENCY = 1.05
"""The wait for an accumulator over its latency, where a tile has just as many as hide it."""

MULTIPLY_ADDS_AHEAD = 250
"""Multiply-adds that a core begins before those ahead of them end: with as few in a tile, those of
the next tile hide the latency of its sums.  Cores since Skylake and Zen 2 hold 224 to 512
instructions; measured on depthwise convolutions with AVX2, whose tiles have 63 to 175."""

MASKED_BORDER = 0.15
"""The share by which a tile takes longer that meets a border within its lanes."""

FEW_REGISTERS = 16
"""The vector registers of AVX2; AVX-512 has twice as many."""

PIECE_CYCLES = 2.0
"""Cycles of each store of one, two, four … lanes, which a mask known beforehand is split into."""

INPUT_AGAIN = 1.005
"""The factor where each panel reads the input again: it comes from the second-level cache."""

BORDER_GROUPS = 2
"""The number of panels in a row of an image that meet a border: the first and the last."""

ROWS_APART, ROWS_SPILLED = 1.2, 1.4
"""The factors on a tile at a border whose rows share vectors, which are taken apart and put
together there in each step: with many registers and with few.  Measured on 3×3 and 5×5
convolutions, where the first is 1.0 to 1.2."""


def register_cycles(target: Target) -> float:
    """Cycles to fill one vector register and to store it: they go through the load and store ports,
    which move a vector of 32 bytes in half the time of one of 64."""
    return REGISTER_LOADS * target.cycles_per_vector_load


def fits_sets(stride: int, count: int, target: Target) -> bool:
    """Whether `count` cache lines that are `stride` bytes apart stay in the first-level cache.

    Lines a multiple of the cache's way size apart share one set, which holds as many lines as the
    cache has ways; two ways are left for everything else.
    """
    way = target.l1_bytes // target.l1_ways
    sets = max(1, way // gcd(way, stride) if stride else count)
    return -(-count // sets) <= target.l1_ways - 2


L2_WAY = 128 * 1024
"""Bytes of a way of the second-level cache: of Zen 4, and of Intel's since Skylake."""

FAR_LINE_CYCLES = 45.0
"""Cycles for a line from the third-level cache that no prefetcher sees.  Measured on a Zen 4: keys
and values of 512 positions, 256 bytes each that are 2 KiB apart, took 46 more than side by side."""


def far_row_cycles(operands: Sequence[tuple[int, int, int]], target: Target) -> float:
    """Cycles to load operands again that the second-level cache does not hold; 0 where it does.

    Each is a stride in bytes, the bytes of a row, and how many rows.  Rows whose stride a power
    of two divides share few sets of the cache, and the other sets are as good as occupied.  Rows
    side by side are seen by a prefetcher.
    """
    held = sum(count * max(row, gcd(L2_WAY, stride)) for stride, row, count in operands)
    if held <= target.l2_bytes * 3 // 4:
        return 0.0
    apart = ((row, count) for stride, row, count in operands if stride > row)
    return sum(count * -(-row // target.line_bytes) * FAR_LINE_CYCLES for row, count in apart)


def crossing_share(strides: Iterable[int], target: Target) -> float:
    """The share of whole vectors that begin in one cache line and end in the next: 0 to 1.

    They begin at sums of multiples of the `strides`, in bytes, in memory that begins with a line.
    """
    return max(0, target.vector_bytes - gcd(target.line_bytes, *strides)) / target.line_bytes


def missed_lines(nest: Iterable[tuple[int, int]], target: Target, beside: int = 0) -> float:
    """Cache lines that a step takes from the second-level cache, for each that it spans: 0 to 1.

    `nest` are the loops of the reduction around what is read, each with its stride in bytes and its
    extent.  Those that step from line to line are apart; the taps of one line follow each other.
    What one tile reads the next one reads again: it is still in the first-level cache if it takes
    three quarters of it, and no more than all of it together with the `beside` bytes of other
    operands that a tile reads, and if its lines are not all in a few sets.
    """
    apart, taps, lines = [], 1, 2
    for stride, extent in nest:
        if stride < target.line_bytes:
            taps *= extent
        else:
            apart.append((stride, extent))
            lines *= extent
    size = target.line_bytes * lines
    fits = size <= min(target.l1_bytes * 3 // 4, target.l1_bytes - beside)
    if fits and all(fits_sets(stride, extent, target) for stride, extent in apart):
        return 0.0
    return 1 / taps


def broadcast_misses(
    row_stride: int, nest: Sequence[tuple[int, int]], size: int, target: Target
) -> BroadcastMisses | None:
    """What is awaited of an operand of `size` bytes that a tile broadcasts, None if nothing is.

    Neighbouring rows of the tile are `row_stride` bytes apart, and `nest` are the loops of the
    reduction, each with its stride in bytes and its extent.  Nothing is awaited where rows do not
    share cache lines, where a loop goes on from line to line, which a prefetcher sees, and where
    the first-level cache keeps the lines beside a vector of weights for each step.
    """
    rows_share = 0 < row_stride < target.line_bytes
    goes_on = any(k < target.line_bytes <= k * extent for k, extent in nest)
    if not rows_share or goes_on:
        return None
    weights = target.vector_bytes * prod(extent for _, extent in nest)
    misses = missed_lines(nest, target, weights)
    return BroadcastMisses(misses, size, row_stride) if misses else None


def tiling_cycles(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """Cycles of one core for all planes of a problem."""
    plane = sum(
        panels.count * panel_cycles(problem.plane, panels, target) for panels in tiling.panels
    )
    plane += problem.rows * _mask_cycles(problem, tiling, target)
    plane += _returning_cycles(problem, tiling, target)
    plane += target.cycles_per_fill * problem.loads.lines_again(problem, tiling, target)
    passes = problem.loads.passes(tiling)
    if problem.loads.masks_panels:
        plane += _border_cycles(problem, tiling, passes, target)
    cycles = plane * problem.planes
    if not tiling.panel_outermost and not near_weights(problem.weight_bytes, target):
        # Each plane, or each panel of a plane, streams all weights from the third-level cache.
        cycles += problem.planes * passes * streaming_cycles(problem.weight_bytes, False, target)
    return cycles * INPUT_AGAIN if tiling.panel_outermost else cycles


def _returning_cycles(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """Cycles in which the first tile of each panel in a plane awaits weights that the first-level
    cache has lost since the plane before, which used all of them."""
    if tiling.panel_outermost or problem.weight_bytes <= target.l1_bytes:
        return 0.0
    row = problem.steps * problem.inside * problem.plane.item_bytes
    each = ((panels.count, row * panels.nr_vectors * panels.lanes) for panels in tiling.panels)
    held = sum(count * size for count, size in each if size <= target.l1_bytes)
    return target.l2_awaited * streaming_cycles(held, True, target)


def near_weights(weight_bytes: int, target: Target) -> bool:
    """Whether packed weights stay in the second-level cache, with a quarter of it left for data."""
    return weight_bytes <= target.l2_bytes * 3 // 4


def repeated_cycles(part: int, whole: int, target: Target) -> float:
    """Cycles to load `part` bytes of `whole` ones that a kernel goes through again and again.

    0 where the first-level cache holds all of them."""
    if whole <= target.l1_bytes:
        return 0.0
    return streaming_cycles(part, near_weights(whole, target), target)


def near_buffer(size: int, target: Target) -> bool:
    """Whether a buffer of the thread that is written and read again stays in the first-level cache,
    with half of it left for what else is touched.
    """
    return size <= target.l1_bytes // 2


def near_plane(size: int, target: Target) -> bool:
    """Whether what all tiles of a plane read again stays in the second-level cache, with half of it
    left for the rest."""
    return size <= target.l2_bytes // 2


def awaits_lines(size: int, target: Target) -> bool:
    """Whether computing waits for lines of an operand of `size` bytes whose rows no prefetcher
    follows: it is no `near_plane`, and the target is known to wait (`cycles_per_far_line`)."""
    return target.cycles_per_far_line > 0 and not near_plane(size, target)


def panel_cycles(plane: TilePlane, panels: Panels, target: Target) -> float:
    """Cycles for one of the panels over all rows of one plane."""
    if panels.tail:
        return _tail_cycles(plane, panels, target)
    return cycles_by_rows(plane, panels.nr_vectors, panels.lanes, target)[panels.mr - 1]


@lru_cache(maxsize=10_000)
def cycles_by_rows(
    plane: TilePlane, nr_vectors: int, lanes: int, target: Target
) -> tuple[float, ...]:
    """Cycles for a panel over all rows of one plane in tiles of one row, of two, and so on.

    As many as there are registers for.
    """
    rows = range(1, plane.loads.most_rows(plane, nr_vectors, target) + 1)
    tiles = [_tile_cycles(plane, TileShape(nr_vectors, lanes, mr), target) for mr in rows]
    return tuple([
        plane.rows // mr * tiles[mr - 1] + (tiles[plane.rows % mr - 1] if plane.rows % mr else 0.0)
        for mr in rows
    ])  # fmt: skip


def _tail_cycles(plane: TilePlane, panels: Panels, target: Target) -> float:
    """Cycles for a panel over all rows of one plane; rows that are left over share as they can.

    The tiles at the ends that meet a border come first here.
    """
    wide, lanes, together = panels.nr_vectors, panels.lanes, panels.tail_rows
    count, rest = divmod(plane.rows, panels.mr)
    cycles, ends = 0.0, plane.loads.tail_ends or 0
    few = target.vector_registers <= FEW_REGISTERS
    factor = ROWS_SPILLED if few else ROWS_APART
    for rows, number in ((rest, 1 if rest else 0), (panels.mr, count)):
        at_border = min(number, ends)
        ends -= at_border
        apart = _tile_cycles(plane, TileShape(wide + 1, lanes, rows), target)
        if rows % together:
            cycles += number * apart
            continue
        shared = _tile_cycles(plane, TileShape(wide, lanes, rows, rows // together), target)
        cycles += at_border * apart * factor + (number - at_border) * shared
    return cycles


def vector_share(plane: TilePlane, lanes: int, target: Target) -> float:
    """The cycles of a vector of so many lanes, as a share of those of a whole vector."""
    return max(lanes * plane.item_bytes / target.vector_bytes, NARROWEST)


def _tile_cycles(plane: TilePlane, tile: TileShape, target: Target) -> float:
    """Cycles of one tile."""
    share = vector_share(plane, tile.lanes, target)
    multiply_adds = (tile.mr * tile.nr_vectors * share + tile.tails) / target.fmas_per_cycle
    if tile.tails:
        multiply_adds += (tile.mr - tile.tails) * target.cycles_per_blend
    loads, weights, slowdown = plane.loads.step(plane, tile, target)
    begun = plane.steps * tile.mr * tile.nr_vectors / MULTIPLY_ADDS_AHEAD
    latency = target.fma_latency * LATENCY * min(1.0, begun)
    if share < 1:
        latency *= target.narrow_latency
    step = max(multiply_adds * slowdown, loads, latency)
    streamed = streaming_cycles(weights, True, target)
    if plane.steps * weights > target.l1_bytes * 3 // 2:
        step = max(step, streamed)
    if plane.weighted and plane.steps * weights > target.l1_bytes:
        step += target.l2_awaited * streamed
    if plane.misses is not None:
        step += _awaited_lines(plane.misses, tile.mr, target)
    entering = TILE_OVERHEAD + (plane.nests - 1) * NEST_OVERHEAD
    # Tails are filled and stored row by row.
    registers = tile.mr * (tile.nr_vectors * share + (1 if tile.tails else 0))
    filling = registers * register_cycles(target) * plane.loads.fills
    computing, around = plane.steps * plane.inside * step, filling + entering
    # Runs through memory, with which tiles without sums are compared, have few operations beside.
    short = target.tiles_beside * (1 - begun) if plane.steps > 1 else 0.0
    beside = max(short, target.long_tiles_beside) * min(computing, around)
    return computing + around - beside


def _awaited_lines(awaited: BroadcastMisses, mr: int, target: Target) -> float:
    """Cycles that a step waits for the lines of what it broadcasts.

    No prefetcher sees that they are next, so they are not hidden behind the multiply-adds.
    """
    spanned = 1 + mr * awaited.row_stride / target.line_bytes
    lines = spanned * awaited.misses * target.line_bytes
    return streaming_cycles(lines, near_weights(awaited.size, target), target)


def _border_cycles(problem: TileProblem, tiling: Tiling, passes: int, target: Target) -> float:
    """Cycles for a plane that its panels at a border take longer than the others."""
    ends = dict.fromkeys((tiling.panels[0], tiling.panels[-1]))
    masked = [
        min(BORDER_GROUPS, passes) / len(ends) * panel_cycles(problem.plane, panels, target)
        for panels in ends
    ]
    return MASKED_BORDER * sum(masked)


def _mask_cycles(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """Cycles that the masked stores of one row take beyond what is counted for every store.

    A mask known beforehand becomes stores of one, two, four … lanes.  Where the last of several
    panels reaches past the columns, all have the mask, for they run the same code.
    """
    if problem.whole_vectors:
        return 0.0
    more = target.cycles_per_masked_store - 1
    cycles, left = 0.0, problem.columns
    for panels in tiling.panels:
        rest = min(left, panels.count * panels.width) % panels.width
        if rest and panels.count > 1:
            cycles += panels.count * (panels.nr_vectors - rest // panels.lanes) * more
        elif rest:
            cycles += min(more, PIECE_CYCLES * ((rest % panels.lanes).bit_count() - 1))
        left -= panels.count * panels.width
    return cycles
