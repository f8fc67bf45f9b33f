"""The choice of a register tile: how many rows (mr) and vectors (nr) one tile holds.

In: a `TileProblem` and the target.  Out: the `Tiling` with the fewest cycles by the cost model, and
those cycles.  What always holds: tilings whose cycles differ by rounding alone are ordered, the
wider tile before the narrower one, and of equally wide ones the one with more rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod

from graphflow.base.target import Target
from graphflow.codegen import instructions_of
from graphflow.cost import (
    BORDER_GROUPS,
    Panels,
    TilePlane,
    TileProblem,
    Tiling,
    charge,
    cycles_by_rows,
    first_of_cheapest,
    idle_lanes,
    in_pieces,
    most_rows,
    most_tail_rows,
    panel_cycles,
    tiling_cycles,
    vector_cycles,
)
from graphflow.kernels.recipes.analysis.roles import Roles

MOST_VECTORS = 8
"""The most vectors of a tile; with more, too few rows share the vectors that a step loads."""

MOST_PIECES = 4
"""The most panels that a row of windows is cut into: each has code of its own, in which it is known
which lanes lie outside the image."""


@lru_cache(maxsize=10_000)
def choose_tiling(problem: TileProblem, target: Target) -> tuple[Tiling, float]:
    """The best tiling, and the least cycles of one core for all planes; ties go to wider tiles.

    Tilings are compared by what the processor can do at its peak, and the cycles, on which prices
    of plans rest, are those of the tiling that would be best at the rates of the prices.  For a
    load or a latency that multiply-adds hide at the lower rates may not be hidden at the peak.

    What is charged in the comparison (`cost.charge`) is not in the cycles returned; nor are, where
    rows may share vectors instead, the `idle_lanes` of narrow vectors.
    """
    return _best(problem, target.at_peak)[0], _best(problem, target)[1]


@lru_cache(maxsize=10_000)
def _best(problem: TileProblem, target: Target) -> tuple[Tiling, float]:
    """The tiling with the fewest cycles in the comparison, and its cycles without what is charged
    only there."""
    vectors = -(-problem.columns // target.computed_lanes(problem.dtype))
    widest_first = range(min(vectors, MOST_VECTORS), 0, -1)
    if problem.own_loads:
        candidates = [_in_pieces(problem, -(-vectors // MOST_VECTORS), target)]
    else:
        candidates = [t for nr in widest_first for t in _tilings(problem, nr, target)]
    best = _cheapest(problem, candidates, target)
    cycles = tiling_cycles(problem, best, target)
    with_tails = [t for nr in widest_first for t in _with_tails(problem, nr, target)]
    if not with_tails:
        return best, cycles
    other = _cheapest(problem, with_tails, target)
    apart = _compared(problem, best, target) * idle_lanes(problem, best, target)
    if apart <= _compared(problem, other, target):
        return best, cycles
    # Not dearer than the other, whose price leaves out the lanes that are idle.
    return other, min(cycles, tiling_cycles(problem, other, target))


def _cheapest(problem: TileProblem, candidates: Iterable[Tiling], target: Target) -> Tiling:
    return first_of_cheapest((_compared(problem, each, target), each) for each in candidates)


def _compared(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """The cycles by which tilings are compared."""
    return tiling_cycles(problem, tiling, target) * charge(problem, tiling, target)


def _tilings(problem: TileProblem, nr_vectors: int, target: Target) -> Iterator[Tiling]:
    """The tilings into panels of `nr_vectors` vectors."""
    lanes = target.computed_lanes(problem.dtype)
    narrow = problem.columns % lanes
    panels = -(-problem.columns // (nr_vectors * lanes))
    if problem.along is not None:
        # All panels have the same mr, for the weights are packed by it.
        for mr in range(1, most_rows(problem.plane, nr_vectors, target) + 1):
            if panels > BORDER_GROUPS or not problem.along.borders:
                yield _in_panels(problem, nr_vectors, target, True, mr)
        return
    yield _in_panels(problem, nr_vectors, target, True)
    if 0 < narrow <= lanes // 2 and not problem.whole_vectors:
        yield _in_panels(problem, nr_vectors, target, False)
    if panels > 1 and not (problem.whole_vectors and -(-problem.columns // lanes) % nr_vectors):
        # Else the last panel would reach past the padding that may be written.
        mr = _best_rows(problem.plane, nr_vectors, lanes, target)
        ragged = problem.columns % (nr_vectors * lanes) > 0 and not problem.whole_vectors
        apart = ragged and in_pieces(target)  # else a mask costs nothing
        panel = Panels(panels, nr_vectors, lanes, mr)
        yield Tiling((panel,), panel_outermost=True, whole_apart=apart)


def _have_instruction(lanes: int, tail: int, target: Target) -> bool:
    """Whether the target has a multiply-add of rows of `tail` lanes that fill a vector."""
    rows = (lanes // tail, tail)
    return any(each.params[0].buffer.shape == rows for each in instructions_of(target))


def _with_tails(problem: TileProblem, nr_vectors: int, target: Target) -> Iterator[Tiling]:
    """Equal panels, and a last one whose tail columns several rows have in one vector."""
    lanes = target.computed_lanes(problem.dtype)
    full, narrow = divmod(problem.columns, lanes)
    if not narrow or problem.shared_ends is None or full < nr_vectors:
        return
    if not _have_instruction(lanes, narrow, target):
        return
    last = full % nr_vectors or nr_vectors
    whole = (full - last) // nr_vectors
    panel = Panels(1, last, lanes, 1, narrow)
    most = most_tail_rows(problem.plane, panel, target)
    if not most:
        return
    # Fewer rows would meet fewer borders, but their sums would wait for each other.
    rows = range(most, most // 2, -panel.tail_rows)
    candidates = [replace(panel, mr=mr) for mr in rows]
    panel = first_of_cheapest((panel_cycles(problem.plane, p, target), p) for p in candidates)
    panels = [panel]
    if whole:
        rows_of_whole = _best_rows(problem.plane, nr_vectors, lanes, target)
        panels.insert(0, Panels(whole, nr_vectors, lanes, rows_of_whole))
    yield Tiling(tuple(panels))


def has_few_pieces(columns: int, dtype: str, target: Target) -> bool:
    """Whether a row of windows is short enough to be cut into panels with code of their own."""
    return columns <= MOST_PIECES * MOST_VECTORS * target.computed_lanes(dtype)


def _in_pieces(problem: TileProblem, pieces: int, target: Target) -> Tiling:
    """`pieces` panels of about equal width, each of which is cut off the row by itself."""
    lanes = target.computed_lanes(problem.dtype)
    vectors = -(-problem.columns // lanes)
    widths = [vectors // pieces + (k < vectors % pieces) for k in range(pieces)]
    rows = {width: _best_rows(problem.plane, width, lanes, target) for width in widths}
    return Tiling(tuple(Panels(1, width, lanes, rows[width]) for width in widths))


def _in_panels(
    problem: TileProblem, nr_vectors: int, target: Target, whole_lanes: bool, mr: int = 0
) -> Tiling:
    """Equal panels, then a narrower one, then a few lanes unless those are to be a whole vector.

    Each is computed in tiles of `mr` rows, or if that is 0 of as many as are cheapest for it.
    """
    lanes = target.computed_lanes(problem.dtype)
    whole, rest = divmod(problem.columns, nr_vectors * lanes)
    panels = []
    if whole:
        rows = mr or _best_rows(problem.plane, nr_vectors, lanes, target)
        panels.append(Panels(whole, nr_vectors, lanes, rows))
    full, narrow = divmod(rest, lanes)
    if narrow and whole_lanes:
        full, narrow = full + 1, 0
    if full:
        rows = mr or _best_rows(problem.plane, full, lanes, target)
        panels.append(Panels(1, full, lanes, rows))
    if narrow:
        width = _power_of_two(narrow)
        rows = mr or _best_rows(problem.plane, 1, width, target)
        panels.append(Panels(1, 1, width, rows))
    return Tiling(tuple(panels))


def _power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()


@lru_cache(maxsize=10_000)
def _best_rows(plane: TilePlane, nr_vectors: int, lanes: int, target: Target) -> int:
    """The rows of the cheapest tile `nr_vectors` wide; of equally cheap tiles the most rows."""
    cycles = cycles_by_rows(plane, nr_vectors, lanes, target)
    return first_of_cheapest((cycles[mr - 1], mr) for mr in range(len(cycles), 0, -1))


def epilogue_cycles(roles: Roles, target: Target) -> float:
    """Cycles of what follows the reductions; 0 for a kernel without any."""
    vectors = prod(roles.output.shape) / target.computed_lanes(roles.output.dtype)
    return vectors * vector_cycles(roles.epilogue)
