"""The choice of a register tile: how many rows (mr) and vectors (nr) one tile holds.

In: a `TileProblem` and the target.  Out: the `Tiling` with the fewest cycles by the cost model, and
those cycles.  What always holds: tilings whose cycles differ by rounding alone are ordered, the
wider tile before the narrower one, and of equally wide ones the one with more rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import prod

from graphflow import cost
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import instructions_of
from graphflow.cost import Panels, TileProblem, Tiling
from graphflow.kernels.recipes.analysis.roles import Roles


@lru_cache(maxsize=10_000)
def choose_tiling(problem: TileProblem, target: Target) -> tuple[Tiling, float]:
    """The best tiling, and the least cycles of one core for all planes; ties go to wider tiles.

    Tilings are compared by what the processor can do at its peak.  The cycles, on which prices of
    plans rest, are those of the best tiling, or where prices have lower rates, of the one that
    would be best at these.  For a load or a latency that multiply-adds hide at the lower rates may
    not be hidden at the peak.

    What is charged in the comparison (`cost.charge`, `cost.exchange_charge`,
    `cost.shared_line_cycles`) is not in the cycles returned; nor are, where rows may share vectors
    instead, the `idle_lanes` of narrow vectors.
    """
    peak = target.at_peak
    tiling, cycles = _best(problem, peak)
    if peak == target:
        return tiling, cycles
    if target.priced_at_peak:
        return tiling, cost.tiling_cycles(problem, tiling, target)
    return tiling, _best(problem, target)[1]


@lru_cache(maxsize=10_000)
def _best(problem: TileProblem, target: Target) -> tuple[Tiling, float]:
    """The tiling with the fewest cycles in the comparison, and its cycles without what is charged
    only there."""
    best = _cheapest(problem, problem.loads.tilings(problem, target), target)
    cycles = cost.tiling_cycles(problem, best, target)
    with_tails = [
        t for nr in cost.widest_first(problem, target) for t in _with_tails(problem, nr, target)
    ]
    if not with_tails:
        return best, cycles
    other = _cheapest(problem, with_tails, target)
    apart = _compared(problem, best, target) * cost.idle_lanes(problem, best, target)
    if apart <= _compared(problem, other, target):
        return best, cycles
    # Not dearer than the other, whose price leaves out the lanes that are idle.
    return other, min(cycles, cost.tiling_cycles(problem, other, target))


def _cheapest(problem: TileProblem, candidates: Iterable[Tiling], target: Target) -> Tiling:
    return cost.first_of_cheapest((_compared(problem, each, target), each) for each in candidates)


def _compared(problem: TileProblem, tiling: Tiling, target: Target) -> float:
    """The cycles by which tilings are compared."""
    cycles = cost.tiling_cycles(problem, tiling, target) * cost.charge(problem, tiling, target)
    cycles += cost.exchange_charge(problem, tiling, target)
    return cycles + cost.shared_line_cycles(problem, tiling, target)


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


def with_epilogue(cycles: float, roles: Roles, target: Target) -> float:
    """The cycles of reductions with those of what follows them, or of a kernel without any with
    those of functions of each element, and of bytes that are made of each other.

    The units that divide run beside reductions, unless dividing takes longer than these.
    """
    vectors = prod(roles.output.shape) / target.computed_lanes(roles.output.dtype)
    operations = (*roles.epilogue, *roles.functions)
    beside = [name for name in operations if roles.reduction and name in cost.DIVIDING]
    others = [name for name in operations if not roles.reduction or name not in cost.DIVIDING]
    divided, other = (vectors * cost.vector_cycles(names, target) for names in (beside, others))
    if not roles.reduction:
        other += cost.chained_rounding_cycles(roles.roundings, vectors)
    return max(cycles, divided) + other
