"""Recipes: the variants a compute definition can take, and the schedules that make them.

In: a compute definition (`PrimFunc`), facts about its inputs, and the target.  Out: its
`KernelVariant`s, which flow chooses among; for the one chosen, the schedule of its kernel.  What
always holds: kernels are made by schedule primitives alone, so each step is proven.
"""

from graphflow.kernels.recipes.analysis.band_products import (
    ONE_PASS,
    refused_row_bands,
    summed_operands,
)
from graphflow.kernels.recipes.analysis.kernel_context import KernelContext
from graphflow.kernels.recipes.analysis.keys import (
    conversion_key,
    definition_key,
    fill_key,
    variant_key,
)
from graphflow.kernels.recipes.analysis.known_contents import NOTHING, KnownContents
from graphflow.kernels.recipes.analysis.masked_scores import MOST_EXCLUDED, MaskInput
from graphflow.kernels.recipes.analysis.narrow_sums import sums_terms
from graphflow.kernels.recipes.analysis.operand_layouts import Offers
from graphflow.kernels.recipes.analysis.parallel_loops import shared_loop
from graphflow.kernels.recipes.analysis.partial_results import (
    Cut,
    axis_order,
    parts_shape,
    reduced_element,
    with_partial_results,
)
from graphflow.kernels.recipes.analysis.positions import (
    MemoryKey,
    conversion_work,
    copy_run,
    memory_key,
    moved_bytes,
    transposes,
)
from graphflow.kernels.recipes.analysis.roles import SHARED_NAME
from graphflow.kernels.recipes.analysis.shared_loops import joined_stages
from graphflow.kernels.recipes.analysis.variant import (
    Axes,
    BlockTiles,
    BlockTranspose,
    FilteredTiles,
    Foreign,
    KernelVariant,
    Link,
    Padding,
    Recipe,
    RefusedVariant,
    Scheduled,
    SharedLoops,
    Staged,
    Tiled,
    View,
)
from graphflow.kernels.recipes.found_schedules import (
    FoundSchedule,
    best_found,
    is_made_by_recipe,
    point_key,
    search_key,
    timed_searches,
)
from graphflow.kernels.recipes.kernel_schedule import Placements, kernel_schedule
from graphflow.kernels.recipes.kernel_variants import (
    contents_query,
    kernel_variants,
    reads_offered,
    refused_variants,
)
from graphflow.kernels.recipes.reduction_sketch import REDUCTION
from graphflow.kernels.recipes.scheduled import left_facts, lifted, scheduled_variants
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.kernels.recipes.schedules.on_host import on_host
from graphflow.kernels.recipes.schedules.stored_reductions import iteration_cuts
from graphflow.kernels.recipes.schedules.tile_bands import remember_bands
from graphflow.kernels.recipes.user_layouts import given_variants, placed_variant
from graphflow.kernels.recipes.variants.row_band_variants import LEFT_OUT
from graphflow.kernels.recipes.variants.tile_band_variants import (
    TRANSFORMED_TILES,
    recipe_of_bands,
)
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile
from graphflow.kernels.recipes.variants.transposing_moves import conversion_recipe

__all__ = [
    "LEFT_OUT",
    "MOST_EXCLUDED",
    "NOTHING",
    "ONE_PASS",
    "REDUCTION",
    "SHARED_NAME",
    "TRANSFORMED_TILES",
    "Axes",
    "BlockTiles",
    "BlockTranspose",
    "Cut",
    "FilteredTiles",
    "Foreign",
    "FoundSchedule",
    "ImageLoops",
    "ImageTile",
    "KernelContext",
    "KernelVariant",
    "KnownContents",
    "Link",
    "MaskInput",
    "MemoryKey",
    "Offers",
    "Padding",
    "PlacedTile",
    "Placements",
    "Recipe",
    "RefusedVariant",
    "Scheduled",
    "SharedLoops",
    "Staged",
    "Tiled",
    "View",
    "axis_order",
    "best_found",
    "contents_query",
    "conversion_key",
    "conversion_recipe",
    "conversion_work",
    "copy_run",
    "definition_key",
    "fill_key",
    "given_variants",
    "is_made_by_recipe",
    "iteration_cuts",
    "joined_stages",
    "kernel_schedule",
    "kernel_variants",
    "left_facts",
    "lifted",
    "memory_key",
    "moved_bytes",
    "on_host",
    "parts_shape",
    "placed_variant",
    "point_key",
    "reads_offered",
    "recipe_of_bands",
    "reduced_element",
    "refused_row_bands",
    "refused_variants",
    "remember_bands",
    "scheduled_variants",
    "search_key",
    "shared_loop",
    "summed_operands",
    "sums_terms",
    "timed_searches",
    "transposes",
    "variant_key",
    "with_partial_results",
]
