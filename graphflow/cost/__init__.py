"""The cost model: the only place that prices kernels, conversions and fills.

In: work as data (`Work`, `ConversionWork`, `TileProblem`) and a `Target`.  Out: cycles of one core,
by which recipes choose a tiling; seconds of all threads (`CostModel`), by which flow chooses
variants and copies.  What always holds: nothing here knows layouts, kernel IR or operators.
"""

from graphflow.cost.charges import (
    EVENLY_SHARED,
    FEW_ROWS,
    charge,
    fetches_ahead,
    idle_lanes,
    shared_line_cycles,
    uneven_shares,
)
from graphflow.cost.cost_model import NO_TIMINGS, CostModel, Price, Timings
from graphflow.cost.cycles import (
    GATHERED,
    INTEGER_PRODUCTS,
    MASKED_REDUCTION,
    MOST_STRIDE,
    UNPACKED,
    conversion_cycles,
    gathering_cycles,
    in_pieces,
    move_cycles,
    operation_cycles,
    rounding_cycles,
    rows_worth_weights,
    transposing_cycles,
)
from graphflow.cost.near import NEAR, clearly_less, first_of_cheapest, plain_first
from graphflow.cost.panel_cuts import MOST_VECTORS, best_rows, widest_first
from graphflow.cost.passes import PER_ROW, number_cycles, vector_cycles
from graphflow.cost.roofline import WAKING
from graphflow.cost.run_lengths import choose_run, run_tiling
from graphflow.cost.step_loads import (
    SHUFFLED,
    AlongRow,
    BroadcastRows,
    DotRows,
    OwnVectors,
    OwnWindows,
    SlidingRows,
)
from graphflow.cost.tiles import (
    BORDER_GROUPS,
    broadcast_misses,
    fits_sets,
    missed_lines,
    near_buffer,
    near_plane,
    near_weights,
    panel_cycles,
    tiling_cycles,
)
from graphflow.cost.tilings import (
    MOST_ROWS,
    BroadcastMisses,
    Panels,
    Step,
    StepLoads,
    TileProblem,
    Tiling,
)
from graphflow.cost.timing_table import Timing, TimingTable
from graphflow.cost.transformed_tiles import (
    TileBands,
    TransformedTiles,
    fits_stack,
    iterations,
    tile_band_cycles,
)
from graphflow.cost.work import NO_WORK, ConversionWork, Work

__all__ = [
    "BORDER_GROUPS",
    "EVENLY_SHARED",
    "FEW_ROWS",
    "GATHERED",
    "INTEGER_PRODUCTS",
    "MASKED_REDUCTION",
    "MOST_ROWS",
    "MOST_STRIDE",
    "MOST_VECTORS",
    "NEAR",
    "NO_TIMINGS",
    "NO_WORK",
    "PER_ROW",
    "SHUFFLED",
    "UNPACKED",
    "WAKING",
    "AlongRow",
    "BroadcastMisses",
    "BroadcastRows",
    "ConversionWork",
    "CostModel",
    "DotRows",
    "OwnVectors",
    "OwnWindows",
    "Panels",
    "Price",
    "SlidingRows",
    "Step",
    "StepLoads",
    "TileBands",
    "TileProblem",
    "Tiling",
    "Timing",
    "TimingTable",
    "Timings",
    "TransformedTiles",
    "Work",
    "best_rows",
    "broadcast_misses",
    "charge",
    "choose_run",
    "clearly_less",
    "conversion_cycles",
    "fetches_ahead",
    "first_of_cheapest",
    "fits_sets",
    "fits_stack",
    "gathering_cycles",
    "idle_lanes",
    "in_pieces",
    "iterations",
    "missed_lines",
    "move_cycles",
    "near_buffer",
    "near_plane",
    "near_weights",
    "number_cycles",
    "operation_cycles",
    "panel_cycles",
    "plain_first",
    "rounding_cycles",
    "rows_worth_weights",
    "run_tiling",
    "shared_line_cycles",
    "tile_band_cycles",
    "tiling_cycles",
    "transposing_cycles",
    "uneven_shares",
    "vector_cycles",
    "widest_first",
]
