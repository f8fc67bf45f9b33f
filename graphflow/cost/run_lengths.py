"""Cycles of elementwise kernels that walk memory in runs, and the length of a run.

In: the elements that lie along one axis to all operands, and the target.  Out: the run, its tiling,
and cycles of one core.  A run is one iteration of the parallel loop: long enough that its own
overhead vanishes, short enough that threads get equal shares.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

from graphflow.base.target import Target
from graphflow.cost.charges import FEW_ROWS
from graphflow.cost.cycles import in_pieces
from graphflow.cost.near import first_of_cheapest
from graphflow.cost.tiles import (
    PIECE_CYCLES,
    TILE_OVERHEAD,
    register_cycles,
)
from graphflow.cost.tilings import Panels, Tiling

STEP_VECTORS = 4
"""Vectors of one step of a run: with them the loop's own instructions are a tenth of the work, and
the latency of a function of one vector hides behind the others'."""

STEP_OVERHEAD = 2.0
"""Cycles of one step of a run besides its vectors."""

PART_OF_ROW = 1.2
"""The factor on a run that ends inside of a row of which a vector holds several.  In runs of whole
rows each lane is always at the same place of a row, so that where rows are parts of longer ones,
as a Split leaves them, lanes are loaded and stored in few pieces: 1,575 pairs of bytes, each a half
of four, took 1.2 times as long in 18 runs of 175 as in 21 of 150."""


@lru_cache(maxsize=10_000)
def choose_run(
    extent: int, total: int, dtype: str, target: Target, row: int = 1
) -> tuple[int, float]:
    """The length of a run, a divisor of `extent`, and cycles for `total` elements.

    0 where there are none that threads could share: `extent` is all there is, and has no divisors.
    Where a vector holds several rows of the innermost axis, which has `row` elements, one of whole
    rows is preferred (`PART_OF_ROW`).
    """
    lanes = _lanes(dtype, target)
    runs = [
        run
        for run in _divisors(extent)
        if (run >= lanes and total // run >= FEW_ROWS) or run == extent <= STEP_VECTORS * lanes
    ]
    if not runs:
        return 0, 0.0
    in_rows = row < lanes and lanes % row == 0
    best = first_of_cheapest(
        (
            _cycles(run, total, dtype, target)
            * (1 + 0.5 * run / total)
            * (PART_OF_ROW if in_rows and run % row else 1),
            run,
        )
        for run in runs
    )
    return best, _cycles(best, total, dtype, target)


@lru_cache(maxsize=10_000)
def run_tiling(run: int, dtype: str, target: Target) -> Tiling:
    """The steps of a run: of several vectors, then the vectors and the lanes that are left."""
    lanes = _lanes(dtype, target)
    steps, rest = divmod(run, STEP_VECTORS * lanes)
    vectors, narrow = divmod(rest, lanes)
    panels = [Panels(steps, STEP_VECTORS, lanes, 1)] if steps else []
    if vectors:
        panels.append(Panels(1, vectors, lanes, 1))
    if narrow:
        panels.append(Panels(1, 1, 1 << (narrow - 1).bit_length(), 1))
    return Tiling(tuple(panels))


def _cycles(run: int, total: int, dtype: str, target: Target) -> float:
    lanes = _lanes(dtype, target)
    vectors, narrow = divmod(run, lanes)
    last = 0.0
    if narrow:
        stores = (narrow.bit_count() if in_pieces(target) else 1) - 1
        last = register_cycles(target) + PIECE_CYCLES * stores
    steps = -(-vectors // STEP_VECTORS)
    cycles = TILE_OVERHEAD + steps * STEP_OVERHEAD + vectors * register_cycles(target) + last
    return total // run * cycles


def _lanes(dtype: str, target: Target) -> int:
    return target.computed_lanes(dtype)


def _divisors(extent: int) -> list[int]:
    """The divisors of a number, the largest first."""
    small = [d for d in range(1, isqrt(extent) + 1) if extent % d == 0]
    return sorted({*small, *(extent // d for d in small)}, reverse=True)
