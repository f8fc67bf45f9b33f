"""What is charged in a comparison of tilings, beyond the cycles of their tiles.

In: a `TileProblem`, a `Tiling` of it, and the target.  Out: factors on the cycles, cycles beside
them, whether weights are fetched ahead and whether panels wait for rows.  Prices of plans leave
these out: they were fitted without them, and two depend on the number of threads, which is not
known when a tiling is chosen.
"""

from __future__ import annotations

from graphflow.base.target import Target
from graphflow.cost.roofline import exchange_cycles
from graphflow.cost.tiles import awaits_lines, panel_cycles, vector_share
from graphflow.cost.tilings import TileProblem, Tiling

READ_AGAIN = 1.3
"""The factor on cycles where a panel of weights does not stay in the second-level cache, so that
each tile of rows reads it from the third one.  Measured with AVX-512 on 49 rows of 3,072 and 4,608
steps, where it is 1.3 to 1.5."""

ROWS_AWAITED = 5.0
"""How many rows of outputs a core computes while it waits for a panel of weights from memory, where
nothing fetched that panel before.  Measured with AVX-512 on 49 and 196 rows: 5 to 10."""

MASKED_LOADS = 1.2
"""The factor on cycles where the vectors that each row of a tile loads are masked, because the last
panel reaches past the columns.  Measured with AVX-512 on depthwise 3×3 convolutions of 116 and 232
channels, where it is 1.15 to 1.8."""

SHARED_LINE = 260.0
"""Cycles to write to a cache line of which another core writes the rest meanwhile.  Measured with
AVX-512 on two cores of an Intel server: 196 rows of 116 channels in four panels, of which each core
had two, took some 15 µs longer than with panels inside."""

FEW_ROWS = 16
"""From this many planes on, any number of threads shares them about evenly."""

EVENLY_SHARED = 1.03
"""The most by which the cycles of a product may grow where its rows are cut into blocks, so that
threads share them about evenly."""

FOLLOWED_ROWS = 16
"""Rows that a core writes side by side while its prefetchers follow each.  Measured on a Cascade
Lake: 512 rows of 12.8 KB in vectors take 335 µs in blocks of up to 13 rows, 610 to 2,100 in blocks
of 64 and all together."""

PARTS_APART = 1.3
"""The factor on cycles where a panel reads a part of each position of an image that the
second-level cache does not hold, so that prefetchers meet lines with gaps.  Measured on a Cascade
Lake: a max pool of 64 channels at 111×111 takes some 400 µs in two panels, and with its neighbours
220 less in one."""

ROWS_JOINED = 1.03
"""The factor on the cycles of rows of an image that are joined, by which they are compared with
those of rows by themselves: these let threads share the image as it lies in memory."""


def charge(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """The factor on the cycles of a tiling, 1 or more, by which it is compared with others."""
    charged = _imbalance(problem, tiling) * _masked_loads(problem, tiling)
    charged *= _awaited_weights(problem, tiling, target)
    return charged * (PARTS_APART if _reads_parts_apart(problem, tiling, target) else 1.0)


def _imbalance(problem: TileProblem, tiling: Tiling) -> float:
    """The factor on cycles, 1 or more, where some thread has half a plane more than its share: for
    any number of threads that is taken to be so."""
    return 1.0 if tiling.panel_outermost else uneven_shares(problem.planes)


def uneven_shares(count: int) -> float:
    """The factor on cycles, 1 or more, of so many equal iterations that threads share."""
    return 1.0 if count >= FEW_ROWS else 1 + 0.5 / count


def _masked_loads(problem: TileProblem, tiling: Tiling) -> float:
    """The factor on cycles, 1 or more, where all panels have the masks that the last one needs."""
    ragged = tiling.panel_outermost and problem.columns % tiling.panels[0].width
    masked = problem.loads.for_each_row and ragged and not tiling.whole_apart
    return MASKED_LOADS if masked and not problem.whole_vectors else 1.0


def _reads_parts_apart(problem: TileProblem, tiling: Tiling, target: Target) -> bool:
    """Whether each row of a tile reads a part of a position, of data whose lines are awaited."""
    size = problem.loads.data_bytes(problem)
    width = min(panels.width for panels in tiling.panels) * problem.plane.item_bytes
    return width < problem.loads.position_bytes and awaits_lines(size, target)


def _awaited_weights(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """The factor on cycles, 1 or more, where tiles wait for the weights of their panel.

    A panel of one tile reads its weights once, at the speed of memory, however wide it is.
    """
    held = _panels_held(problem, tiling, target)
    if not tiling.panel_outermost or panel_tiles(problem, tiling) == 1 or held >= 2:
        return 1.0
    return 1 + ROWS_AWAITED / (problem.rows * problem.planes) if held else READ_AGAIN


def _panels_held(problem: TileProblem, tiling: Tiling, target: Target) -> int:
    """The panels of weights that stay in the second-level cache at once, an eighth of it left."""
    size = problem.steps * tiling.panels[0].width * problem.plane.item_bytes
    return target.l2_bytes * 7 // 8 // size if problem.weight_bytes else 2


def panel_tiles(problem: TileProblem, tiling: Tiling) -> int:
    """The tiles of one of the panels."""
    return problem.planes * -(-problem.rows // tiling.panels[0].mr)


def shared_line_cycles(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """Cycles in which threads that share panels wait for lines to which they both write.

    There is one in each row of outputs where the panels of one thread end and those of another one
    begin, if rows are no whole lines; counted is one such place, as with two threads.
    """
    row = problem.columns * problem.plane.item_bytes
    if not tiling.panel_outermost or problem.whole_vectors or row % target.line_bytes == 0:
        return 0.0
    return problem.rows * problem.planes * min(tiling.panels[0].count - 1, 1) * SHARED_LINE


def exchange_charge(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """Cycles in which threads that share panels wait for operands that other threads wrote.

    Threads mostly share rows of an image, so with panels inside each reads what it wrote.  Counted
    are two threads, each of which waits for half of the operands: cycles are those of both.
    """
    if not tiling.shares_panels:
        return 0.0
    return target.exchange_awaited * exchange_cycles(problem.unpacked_bytes, target)


def fetches_ahead(problem: TileProblem, tiling: Tiling, target: Target) -> bool:
    """Whether the tiles of a panel prefetch the weights of the next panel meanwhile.

    They do if there are several panels, and several tiles of each: the second-level cache holds the
    weights of two panels, and what comes from memory need not be waited for.  Weights that the
    first-level cache holds are fetched soon enough as they are used.
    """
    several = tiling.panel_outermost and tiling.panels[0].count > 1
    several = several and panel_tiles(problem, tiling) > 1
    many = problem.weight_bytes > target.l1_bytes
    return several and many and _panels_held(problem, tiling, target) >= 2


def near_rows(problem: TileProblem, target: Target) -> bool:
    """Whether the second-level cache keeps the rows of a plane beside the panels that read them: an
    element for each step of each row, and two thirds left for weights and outputs."""
    return problem.rows * problem.steps * problem.plane.item_bytes <= target.l2_bytes // 3


def awaits_rows(problem: TileProblem, tiling: Tiling, target: Target) -> bool:
    """Whether each panel waits for the rows of its tiles: panels run outermost, these are no
    `near_rows`, and the target is known to wait (`far_rows_awaited`)."""
    far = target.far_rows_awaited > 0 and not near_rows(problem, target)
    return tiling.shares_panels and far


def awaited_row_cycles(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """Cycles in which tiles wait for the beginnings of rows that the second-level cache lacks
    (`awaits_rows`); else those in which each panel of a plane waits for the beginning of its
    weights."""
    far = awaits_rows(problem, tiling, target)
    waiting = panel_tiles(problem, tiling) if far else problem.planes
    return target.far_rows_awaited * tiling.panels[0].count * waiting


def near_steps(weight_bytes: int, target: Target) -> int:
    """How many steps ahead of their use a tile fetches lines of packed weights into the first-level
    cache: 0 where that holds all weights, and for targets that gain nothing by it."""
    return target.near_steps if weight_bytes > target.l1_bytes else 0


def idle_lanes(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """The factor on cycles, 1 or more, where multiply-adds of narrow vectors leave lanes idle.

    It is charged only where other tilings have rows that share vectors instead.
    """
    if problem.loads.tail_ends is None:
        return 1.0
    counted = idle = 0.0
    for panels in tiling.panels:
        cycles = panels.count * panel_cycles(problem.plane, panels, target)
        share = vector_share(problem.plane, panels.lanes, target)
        counted += cycles
        idle += cycles * max(0.0, target.narrowest_share / share - 1)
    return 1 + idle / counted


def awaited_store_cycles(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """Cycles in which stores wait for lines of outputs that the second-level cache does not hold.

    They do where a panel goes on from row to row through more rows than prefetchers follow: then
    each panel begins a line in every row, mostly in a page of its own.
    """
    apart = sum(panels.count for panels in tiling.panels) > 1 and problem.rows > FOLLOWED_ROWS
    size = problem.planes * problem.rows * problem.columns * problem.plane.item_bytes
    if not apart or not awaits_lines(size, target):
        return 0.0
    return size / target.line_bytes * target.cycles_per_far_line
