"""Making a kernel: the recipe of a variant, run on its compute definition.

In: a definition, a layout and padding for each parameter, a recipe and the target.  Out: the
schedule of the kernel.
"""

from __future__ import annotations

from functools import lru_cache

from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.jammable_rows import jammable_rows
from graphflow.kernels.recipes.analysis.partial_results import partial_results
from graphflow.kernels.recipes.analysis.variant import (
    BlockTiles,
    BlockTranspose,
    FilteredTiles,
    Foreign,
    Recipe,
    Scheduled,
    SharedLoops,
    Staged,
    Tiled,
    View,
)
from graphflow.kernels.recipes.scheduled import finished
from graphflow.kernels.recipes.schedules.block_tiles import in_block_tiles
from graphflow.kernels.recipes.schedules.jammed_rows import jammed
from graphflow.kernels.recipes.schedules.lines_ahead import lines_ahead
from graphflow.kernels.recipes.schedules.register_nests import steps_together
from graphflow.kernels.recipes.schedules.row_phases import row_in_phases
from graphflow.kernels.recipes.schedules.rows_ahead import rows_ahead
from graphflow.kernels.recipes.schedules.stage_lanes import met_at_shared_loops
from graphflow.kernels.recipes.schedules.staged import (
    block_transpose,
    in_lanes_and_threads,
    in_layouts,
    staged,
)
from graphflow.kernels.recipes.schedules.stored_reductions import reduced_where_stored
from graphflow.kernels.recipes.schedules.target_instructions import (
    byte_sums_in_instructions,
    in_instructions,
)
from graphflow.kernels.recipes.schedules.tile_bands import in_tile_bands
from graphflow.kernels.recipes.schedules.tiled_kernel import tiled
from graphflow.kernels.recipes.schedules.weights_ahead import steps_ahead
from graphflow.layout import Layout
from graphflow.schedule import PadValue, Schedule
from graphflow.tir import PrimFunc

Placements = tuple[tuple[str, Layout, PadValue], ...]
"""Name, layout and padding of each parameter: what it holds (an input) or gets (an output)."""


@lru_cache(maxsize=4096)
def kernel_schedule(
    definition: PrimFunc, placements: Placements, recipe: Recipe, target: Target
) -> Schedule:
    """The schedule of the kernel that `recipe` makes of `definition`.

    ScheduleError where a step is refused, and for recipes that make no kernel: a view, and what a
    callee computes.  Partial results of the output are made where the kernel stores it.
    """
    if isinstance(recipe, Tiled) and (found := partial_results(definition)) is not None:
        main, results = found
        output = main.outputs[0].name
        parts = {one.parts.name for one in results}
        layout, own = _placed(output, placements), tuple(p for p in placements if p[0] not in parts)
        made = kernel_schedule(main, own, recipe, target)
        (stored,) = (b.shape for b in made.func.outputs if b.name == output)
        physical = tuple(one.in_memory(layout, stored) for one in results)
        return made.apply(reduced_where_stored, output, physical)
    match recipe:
        case Tiled():
            placed = {name: (layout, pad) for name, layout, pad in placements}
            output = definition.outputs[0].name
            s = lines_ahead(tiled(definition, placed, output, recipe), target)
            s = steps_ahead(s, recipe.tiling, target)
            return in_instructions(steps_together(s, target), target)
        case Staged():
            if recipe.in_phases:
                s = row_in_phases(in_layouts(definition, placements))
                s = in_lanes_and_threads(s, target)
            elif jammable_rows(definition) is None:
                s = staged(definition, placements, target)
            else:
                s = in_layouts(definition, placements).attempt_all(jammed, recipe.rows, target)
                s = in_lanes_and_threads(s, target)
            return byte_sums_in_instructions(s, target)
        case SharedLoops():
            met = met_at_shared_loops(definition, placements, recipe, target)
            return rows_ahead(met, target)
        case FilteredTiles():
            s = steps_together(in_tile_bands(definition, placements, recipe), target)
            return in_instructions(s, target) if recipe.bands.terms > 1 else s
        case BlockTiles():
            return in_instructions(in_block_tiles(definition, placements, recipe), target)
        case BlockTranspose():
            return block_transpose(definition, placements, target)
        case Scheduled():
            return finished(recipe, placements, target)
        case Foreign():
            raise ScheduleError(f"{definition.name} is computed by {definition.callee}, no kernel")
        case View():
            raise ScheduleError(f"{definition.name} is a view: there is no kernel to make")


def _placed(name: str, placements: Placements) -> Layout:
    return next(layout for placed, layout, _ in placements if placed == name)
