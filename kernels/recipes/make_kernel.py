"""Making a kernel: the recipe of a variant, run on the compute definition."""

from __future__ import annotations

from functools import lru_cache

from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.kernels.recipes.scheduled import finished
from graphflow.kernels.recipes.staged import crossing, staged
from graphflow.kernels.recipes.tiled_kernel import tiled
from graphflow.kernels.recipes.variant import (
    Crossing,
    Foreign,
    Recipe,
    Scheduled,
    Staged,
    Tiled,
    View,
)
from graphflow.layout import Layout
from graphflow.schedule import PadValue, Schedule
from graphflow.tir import PrimFunc

Placements = tuple[tuple[str, Layout, PadValue], ...]
"""For each parameter its layout, and what its padding holds (inputs) or gets (outputs)."""


@lru_cache(maxsize=4096)
def build(definition: PrimFunc, placements: Placements, recipe: Recipe, target: Target) -> Schedule:
    """The schedule that makes the kernel of `definition` with its parameters placed so."""
    match recipe:
        case Tiled():
            placed = {name: (layout, pad) for name, layout, pad in placements}
            output = definition.outputs[0].name
            return tiled(definition, placed, output, recipe)
        case Staged():
            return staged(definition, placements, target)
        case Crossing():
            return crossing(definition, target)
        case Scheduled():
            return finished(recipe, placements, target)
        case Foreign():
            raise ScheduleError(f"{definition.name} is computed by {definition.callee}, no kernel")
        case View():
            raise ScheduleError(f"{definition.name} is a view: there is no kernel to make")
