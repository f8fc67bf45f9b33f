"""Recipes: the forms a compute definition can take, made by schedule primitives alone."""

from graphflow.kernels.recipes.alternative import (
    Alternative,
    Crossing,
    Foreign,
    Link,
    Padding,
    Recipe,
    Scheduled,
    Staged,
    Tiled,
    View,
    Work,
)
from graphflow.kernels.recipes.alternatives import alternatives
from graphflow.kernels.recipes.build import Placements, build
from graphflow.kernels.recipes.given import given_forms, placed_form
from graphflow.kernels.recipes.halo import asked_of
from graphflow.kernels.recipes.known import NOTHING, Asked, Known
from graphflow.kernels.recipes.movement import (
    MemoryKey,
    Run,
    crosses,
    flat_offset,
    memory_key,
    run_of,
)
from graphflow.kernels.recipes.placing import Offers
from graphflow.kernels.recipes.scheduled import left_facts, lifted
from graphflow.kernels.recipes.tile import Panel, Tiling

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
    "Panel",
    "Placements",
    "Recipe",
    "Run",
    "Scheduled",
    "Staged",
    "Tiled",
    "Tiling",
    "View",
    "Work",
    "alternatives",
    "asked_of",
    "build",
    "crosses",
    "flat_offset",
    "given_forms",
    "left_facts",
    "lifted",
    "memory_key",
    "placed_form",
    "run_of",
]
