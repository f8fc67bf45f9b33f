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

from graphflow import cost
from graphflow.base.target import Target
from graphflow.codegen import instructions_of
from graphflow.cost import Panels, TileProblem, Tiling
from graphflow.kernels.recipes.analysis.roles import Roles


@lru_cache(maxsize=10_000)
def choose_tiling(problem: TileProblem, target: Target) -> tuple[Tiling, float]:
    """The best tiling, and its cycles of one core for all planes; ties go to wider tiles.

    Tilings are compared by what the processor can do at its peak (`Target.at_peak`) and with what
    `cost.charge` adds, since a load or a latency that multiply-adds hide at lower rates may not be
    hidden at the peak.  The cycles are those of this tiling at the rates of prices, without what is
    charged: prices of plans were fitted so.
    """
    tiling = _best(problem, target.at_peak)
    return tiling, cost.tiling_cycles(problem, tiling, target)


def _best(problem: TileProblem, target: Target) -> Tiling:
    """The tiling with the fewest cycles in the comparison.

    Where tail vectors are possible, the lanes that narrow vectors leave idle are charged too.
    """
    best = _cheapest(problem, problem.loads.tilings(problem, target), target)
    widths = cost.widest_first(problem, target)
    with_tails = [t for nr in widths for t in _with_tails(problem, nr, target)]
    if not with_tails:
        return best
    other = _cheapest(problem, with_tails, target)
    plain = _compared(problem, best, target) * cost.idle_lanes(problem, best, target)
    return best if plain <= _compared(problem, other, target) else other


def _cheapest(problem: TileProblem, candidates: Iterable[Tiling], target: Target) -> Tiling:
    return cost.first_of_cheapest((_compared(problem, each, target), each) for each in candidates)


def _compared(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """The cycles by which tilings are compared."""
    return cost.tiling_cycles(problem, tiling, target) * cost.charge(problem, tiling, target)


def _have_instruction(lanes: int, tail: int, target: Target) -> bool:
    """Whether the target has a multiply-add of rows of `tail` lanes that fill a vector."""
    rows = (lanes // tail, tail)
    return any(each.params[0].buffer.shape == rows for each in instructions_of(target))


def _with_tails(problem: TileProblem, nr_vectors: int, target: Target) -> Iterator[Tiling]:
    """Equal panels, and a last one whose tail columns several rows have in one vector."""
    lanes = target.computed_lanes(problem.dtype)
    full, narrow = divmod(problem.columns, lanes)
    if not narrow or problem.loads.tail_ends is None or full < nr_vectors:
        return
    if not _have_instruction(lanes, narrow, target):
        return
    last = full % nr_vectors or nr_vectors
    whole = (full - last) // nr_vectors
    panel = Panels(1, last, lanes, 1, narrow)
    most = problem.loads.most_tail_rows(problem.plane, panel, target)
    if not most:
        return
    # Fewer rows would meet fewer borders, but their sums would wait for each other.
    rows = range(most, most // 2, -panel.tail_rows)
    candidates = [replace(panel, mr=mr) for mr in rows]
    panel = cost.first_of_cheapest(
        (cost.panel_cycles(problem.plane, p, target), p) for p in candidates
    )
    panels = [panel]
    if whole:
        rows_of_whole = cost.best_rows(problem.plane, nr_vectors, lanes, target)
        panels.insert(0, Panels(whole, nr_vectors, lanes, rows_of_whole))
    yield Tiling(tuple(panels))


def epilogue_cycles(roles: Roles, target: Target) -> float:
    """Cycles of what follows the reductions; 0 for a kernel without any."""
    vectors = prod(roles.output.shape) / target.computed_lanes(roles.output.dtype)
    return vectors * cost.vector_cycles(roles.epilogue)
