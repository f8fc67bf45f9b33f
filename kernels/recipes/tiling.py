"""Choosing a register tile by shape: how many pixels and vectors one tile holds.

In: a `TileProblem` and the target.  Out: the `Tiling` that the cost model finds cheapest, and its
estimated cycles.  What it cannot tell apart is decided here, by a stated order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from graphflow.base.target import Target
from graphflow.cost import (
    BORDER_GROUPS,
    Panel,
    TileProblem,
    TileRow,
    Tiling,
    first_of_cheapest,
    most_pixels,
    row_cycles,
    tiling_cycles,
    uneven,
)

MOST_VECTORS = 8
"""The most vectors of a tile; with more, too few pixels share what is loaded."""


@lru_cache(maxsize=10_000)
def choose_tiling(problem: TileProblem, target: Target) -> tuple[Tiling, float]:
    """The cheapest tiling and its estimated cycles for the whole output; ties go to wider tiles.

    How many threads there will be is not known here: few rows for them to share count against a
    tiling, and are not in its cycles.
    """
    vectors = -(-problem.channels // target.computed_lanes(problem.dtype))
    widest_first = range(min(vectors, MOST_VECTORS), 0, -1)
    best = first_of_cheapest(
        (tiling_cycles(problem, tiling, target) * uneven(problem, tiling), tiling)
        for count in widest_first
        for tiling in _tilings(problem, count, target)
    )
    return best, tiling_cycles(problem, best, target)


def _tilings(problem: TileProblem, vectors: int, target: Target) -> Iterator[Tiling]:
    """The tilings into groups of so many vectors."""
    lanes = target.computed_lanes(problem.dtype)
    narrow = problem.channels % lanes
    groups = -(-problem.channels // (vectors * lanes))
    if problem.along is not None:
        for pixels in range(1, most_pixels(problem.row, vectors, target) + 1):
            if groups > BORDER_GROUPS or not problem.along.borders:
                yield _in_panels(problem, vectors, target, True, pixels)
        return
    yield _in_panels(problem, vectors, target, True)
    if 0 < narrow <= lanes // 2 and not problem.whole_vectors:
        yield _in_panels(problem, vectors, target, False)
    if groups > 1 and not (problem.whole_vectors and -(-problem.channels // lanes) % vectors):
        # Else the last group would reach past the padding that may be written.
        pixels = _best_pixels(problem.row, vectors, lanes, target)
        yield Tiling((Panel(groups, vectors, lanes, pixels),), panel_outermost=True)


def _in_panels(
    problem: TileProblem, vectors: int, target: Target, whole_lanes: bool, pixels: int = 0
) -> Tiling:
    """Equal groups, then a narrower one, then a few lanes unless those are to be a whole vector.

    Each has the given number of pixels, or if that is 0 those that are best for it.
    """
    lanes = target.computed_lanes(problem.dtype)
    whole, rest = divmod(problem.channels, vectors * lanes)
    panels = []
    if whole:
        many = pixels or _best_pixels(problem.row, vectors, lanes, target)
        panels.append(Panel(whole, vectors, lanes, many))
    full, narrow = divmod(rest, lanes)
    if narrow and whole_lanes:
        full, narrow = full + 1, 0
    if full:
        many = pixels or _best_pixels(problem.row, full, lanes, target)
        panels.append(Panel(1, full, lanes, many))
    if narrow:
        width = _power_of_two(narrow)
        many = pixels or _best_pixels(problem.row, 1, width, target)
        panels.append(Panel(1, 1, width, many))
    return Tiling(tuple(panels))


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


@lru_cache(maxsize=10_000)
def _best_pixels(row: TileRow, vectors: int, lanes: int, target: Target) -> int:
    """The pixels of the cheapest tile of so many vectors; of equal ones the most pixels."""
    most_first = range(most_pixels(row, vectors, target), 0, -1)
    panels = (Panel(1, vectors, lanes, pixels) for pixels in most_first)
    return first_of_cheapest((row_cycles(row, panel, target), panel.pixels) for panel in panels)
