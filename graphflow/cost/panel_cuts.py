"""The ways to cut the columns of a problem into panels, of which the cheapest is chosen.

In: a `TileProblem`, the width of a panel and the target.  Out: `Tiling`s, in each panel with the
rows that are cheapest for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from graphflow.base.target import Target
from graphflow.cost.cycles import in_pieces
from graphflow.cost.near import first_of_cheapest
from graphflow.cost.tiles import cycles_by_rows
from graphflow.cost.tilings import Panels, TilePlane, TileProblem, Tiling

MOST_VECTORS = 8
"""The most vectors of a tile; with more, too few rows share the vectors that a step loads."""


def widest_first(problem: TileProblem, target: Target) -> range:
    """The widths of a panel, in vectors, from the widest on."""
    vectors = -(-problem.columns // target.computed_lanes(problem.dtype))
    return range(min(vectors, MOST_VECTORS), 0, -1)


def cuts_by_width(problem: TileProblem, target: Target) -> Iterator[Tiling]:
    """The cuts into equal panels and narrower ones behind, and those with panels outermost."""
    lanes = target.computed_lanes(problem.dtype)
    narrow = problem.columns % lanes
    for nr_vectors in widest_first(problem, target):
        yield in_panels(problem, nr_vectors, target, True)
        if 0 < narrow <= lanes // 2 and not problem.whole_vectors:
            yield in_panels(problem, nr_vectors, target, False)
        panels = -(-problem.columns // (nr_vectors * lanes))
        if panels > 1 and not (problem.whole_vectors and -(-problem.columns // lanes) % nr_vectors):
            # Else the last panel would reach past the padding that may be written.
            mr = best_rows(problem.plane, nr_vectors, lanes, target)
            ragged = problem.columns % (nr_vectors * lanes) > 0 and not problem.whole_vectors
            apart = ragged and in_pieces(target)  # else a mask costs nothing
            panel = Panels(panels, nr_vectors, lanes, mr)
            yield Tiling((panel,), panel_outermost=True, whole_apart=apart)


def in_pieces_of_a_row(problem: TileProblem, target: Target) -> Tiling:
    """As few panels of about equal width as are not too wide, each cut off the row by itself."""
    lanes = target.computed_lanes(problem.dtype)
    vectors = -(-problem.columns // lanes)
    pieces = -(-vectors // MOST_VECTORS)
    widths = [vectors // pieces + (k < vectors % pieces) for k in range(pieces)]
    rows = {width: best_rows(problem.plane, width, lanes, target) for width in widths}
    return Tiling(tuple(Panels(1, width, lanes, rows[width]) for width in widths))


def in_panels(
    problem: TileProblem, nr_vectors: int, target: Target, whole_lanes: bool, mr: int = 0
) -> Tiling:
    """Equal panels, then a narrower one, then a few lanes unless those are to be a whole vector.

    Each is computed in tiles of `mr` rows, or if that is 0 of as many as are cheapest for it.
    """
    lanes = target.computed_lanes(problem.dtype)
    whole, rest = divmod(problem.columns, nr_vectors * lanes)
    full, narrow = divmod(rest, lanes)
    if narrow and whole_lanes:
        full, narrow = full + 1, 0
    cuts = [(whole, nr_vectors, lanes), (min(full, 1), full, lanes)]
    cuts.append((min(narrow, 1), 1, power_of_two(narrow)))
    return Tiling(
        tuple(
            Panels(count, wide, of, mr or best_rows(problem.plane, wide, of, target))
            for count, wide, of in cuts
            if count
        )
    )


def power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()


@lru_cache(maxsize=10_000)
def best_rows(plane: TilePlane, nr_vectors: int, lanes: int, target: Target) -> int:
    """The rows of the cheapest tile `nr_vectors` wide; of equally cheap tiles the most rows."""
    cycles = cycles_by_rows(plane, nr_vectors, lanes, target)
    return first_of_cheapest((cycles[mr - 1], mr) for mr in range(len(cycles), 0, -1))
