"""Recipes: the forms a compute definition can take, made by schedule primitives alone."""

from graphflow.kernels.recipes.alternative import (
    Alternative,
    Crossing,
    Foreign,
    Link,
    Padding,
    Recipe,
    RefusedVariant,
    Scheduled,
    Staged,
    Tiled,
    View,
)
from graphflow.kernels.recipes.alternatives import alternatives, refused_variants
from graphflow.kernels.recipes.build import Placements, build
from graphflow.kernels.recipes.given import given_forms, placed_form
from graphflow.kernels.recipes.halo import asked_of
from graphflow.kernels.recipes.keys import conversion_key, definition_key, fill_key, form_key
from graphflow.kernels.recipes.known import NOTHING, Asked, Known
from graphflow.kernels.recipes.movement import (
    MemoryKey,
    Run,
    crosses,
    flat_offset,
    memory_key,
    moved_bytes,
    moves_of,
    rewriting_of,
    run_of,
)
from graphflow.kernels.recipes.placing import Offers
from graphflow.kernels.recipes.scheduled import left_facts, lifted

__all__ = [
    "NOTHING",
    "Alternative",
    "Asked",
    "Crossing",
    "Foreign",
    "Known",
    "Link",
    "MemoryKey",
    "Offers",
    "Padding",
    "Placements",
    "Recipe",
    "RefusedVariant",
    "Run",
    "Scheduled",
    "Staged",
    "Tiled",
    "View",
    "alternatives",
    "asked_of",
    "build",
    "conversion_key",
    "crosses",
    "definition_key",
    "fill_key",
    "flat_offset",
    "form_key",
    "given_forms",
    "left_facts",
    "lifted",
    "memory_key",
    "moved_bytes",
    "moves_of",
    "placed_form",
    "refused_variants",
    "rewriting_of",
    "run_of",
]
