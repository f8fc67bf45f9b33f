"""Sums of products of integers: which instructions of the target take them.

In: a kernel whose operands have layouts.  Out: whether the target has the instruction.  What always
holds: instructions are known by their definitions (`codegen.instructions_of`), not by name.
"""

from __future__ import annotations

from functools import lru_cache

from graphflow.base.target import Target
from graphflow.codegen import instructions_of
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile, PlacedTile
from graphflow.tir import PrimFunc

SUM = "int32"


def multiplies_in_lanes(tile: PlacedTile, kind: type[ImageTile]) -> bool:
    """Whether one instruction sums the products of two vectors of narrow integers, as tiles need
    whose rows load vectors of their own."""
    if kind.shares_loads or tile.roles.sum_dtype != SUM:
        return False
    dtypes = tuple(sorted(tile.roles.reads[n][0].buffer.dtype for n in tile.roles.factors))
    lanes = tile.target.computed_lanes(SUM)
    return dtypes in _factors_of(tile.target, ((lanes,), (lanes,), (lanes,)))


def sums_terms(target: Target, dtypes: tuple[str, str], terms: int) -> bool:
    """Whether one instruction sums so many products of these types in each lane of a vector."""
    lanes = target.computed_lanes(SUM)
    shapes = ((lanes,), (terms,), (lanes, terms))
    return tuple(sorted(dtypes)) in _factors_of(target, shapes)


@lru_cache(maxsize=64)
def _factors_of(target: Target, shapes: tuple[tuple[int, ...], ...]) -> frozenset[tuple[str, ...]]:
    """The types of the factors of instructions of a target whose operands have these shapes."""
    return frozenset(
        tuple(sorted(p.buffer.dtype for p in each.params[1:]))
        for each in instructions_of(target)
        if _is_sum(each) and tuple(p.buffer.shape for p in each.params) == shapes
    )


def _is_sum(definition: PrimFunc) -> bool:
    return definition.params[0].buffer.dtype == SUM
