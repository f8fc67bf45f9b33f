"""Kernels that a plan will likely have, before it is known.

In: the expansions of a graph.  Out: definitions in transformed tiles, and their recipes.  What
always holds: nothing is decided here; a plan that has other kernels is as right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from graphflow.base.target import Target
from graphflow.graph import Expansions, constant_inputs
from graphflow.kernels.recipes import FilteredTiles, recipe_of_bands
from graphflow.tir import PrimFunc

Foresee: TypeAlias = "Callable[[PrimFunc, FilteredTiles], None]"
"""What is told such kernels, the first nodes' first."""


def foreseen_kernels(
    expansions: Expansions, target: Target
) -> Iterator[tuple[PrimFunc, FilteredTiles]]:
    """For each node that has definitions in transformed tiles the one of the fewest cycles, with
    its recipe, which no layout decides."""
    graph = expansions.graph
    for found in expansions.of_node.values():
        definitions = [expansion.node for expansion in found]
        made = [recipe_of_bands(n.func, constant_inputs(graph, n), target) for n in definitions]
        options = [
            (recipe[0], k, definitions[k].func, recipe[1])
            for k, recipe in enumerate(made)
            if recipe is not None
        ]
        if options:
            _, _, definition, recipe = min(options, key=lambda option: option[:2])
            yield definition, recipe
