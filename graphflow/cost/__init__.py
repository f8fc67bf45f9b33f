"""What work costs: the only place of prices and of what they are made of.

In: work as data (`Work`, `Rewriting`, `TileProblem`) and a `Target`.  Out: cycles, for recipes that
choose between ways of making a kernel; seconds, for whoever chooses between kernels and copies
(`CostModel`).  Knows no layouts, no IR and no operator.
"""

from graphflow.cost.cost_model import NO_TIMINGS, CostModel, Price, Timings
from graphflow.cost.cycles import (
    GATHERED,
    MASKED_REDUCTION,
    UNPACKED,
    in_pieces,
    move_cycles,
    operation_cycles,
    rows_worth_weights,
)
from graphflow.cost.near import NEAR, clearly_less, first_of_cheapest, plain_first
from graphflow.cost.tiles import (
    BORDER_GROUPS,
    MOST_PIXELS,
    AlongRow,
    Panel,
    TileProblem,
    TileRow,
    Tiling,
    fits_sets,
    missed_lines,
    most_pixels,
    near_weights,
    row_cycles,
    tiling_cycles,
    uneven,
)
from graphflow.cost.timing_table import Timing, TimingTable
from graphflow.cost.work import NO_WORK, Rewriting, Work

__all__ = [
    "BORDER_GROUPS",
    "GATHERED",
    "MASKED_REDUCTION",
    "MOST_PIXELS",
    "NEAR",
    "NO_TIMINGS",
    "NO_WORK",
    "UNPACKED",
    "AlongRow",
    "CostModel",
    "Panel",
    "Price",
    "Rewriting",
    "TileProblem",
    "TileRow",
    "Tiling",
    "Timing",
    "TimingTable",
    "Timings",
    "Work",
    "clearly_less",
    "first_of_cheapest",
    "fits_sets",
    "in_pieces",
    "missed_lines",
    "most_pixels",
    "move_cycles",
    "near_weights",
    "operation_cycles",
    "plain_first",
    "row_cycles",
    "rows_worth_weights",
    "tiling_cycles",
    "uneven",
]
