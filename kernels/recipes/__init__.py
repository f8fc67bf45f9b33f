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
from graphflow.kernels.recipes.known import NOTHING, Known
from graphflow.kernels.recipes.movement import MemoryKey, crosses, memory_key, run_of
from graphflow.kernels.recipes.placing import Offers
from graphflow.kernels.recipes.scheduled import left_facts, lifted

__all__ = [
    "NOTHING",
    "Alternative",
    "Crossing",
    "Foreign",
    "Known",
    "Link",
    "MemoryKey",
    "Offers",
    "Padding",
    "Placements",
    "Recipe",
    "Scheduled",
    "Staged",
    "Tiled",
    "View",
    "Work",
    "alternatives",
    "asked_of",
    "build",
    "crosses",
    "given_forms",
    "left_facts",
    "lifted",
    "memory_key",
    "placed_form",
    "run_of",
]
