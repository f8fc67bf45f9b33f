"""The variant of sums of blocks in register tiles, with its price.

In: a definition with sums of blocks (`analysis/block_sums.py`), which of its inputs are constants,
and the target.  Out: its variant, with the tiles that take the fewest cycles; the reason, where its
weights are no constants.

What always holds: no variant reads or writes padding of anything but its own constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from graphflow import cost, tir
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.block_sums import BlockSums, block_sums
from graphflow.kernels.recipes.analysis.byte_sums import BYTE_TERMS
from graphflow.kernels.recipes.analysis.narrow_sums import sums_terms
from graphflow.kernels.recipes.analysis.positions import touched
from graphflow.kernels.recipes.analysis.variant import (
    BlockTiles,
    KernelVariant,
    Padding,
    RefusedVariant,
)
from graphflow.kernels.recipes.variants.packing import AxisDigit, packed_weights
from graphflow.layout import Layout, row_major
from graphflow.schedule import Refusal

NAME = "sums of blocks in tiles"

OPERATIONS = 3
"""What sums four products without an instruction for it: products, their sums, and the last sum."""


def block_sum_variants(
    definition: tir.PrimFunc, constants: frozenset[str], target: Target
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variant of a definition with sums of blocks, or why it has none."""
    found = block_sums(definition)
    if found is None:
        return
    private = frozenset(b.name for b in (found.weights, *found.by_column))
    if not private <= constants:
        yield RefusedVariant(NAME, Refusal("", "its weights are no constants"))
        return
    if min(found.lane[1], found.blocks[1]) < 2:
        yield RefusedVariant(NAME, Refusal("", "it has a single column, or a single block"))
        return
    lanes = target.computed_lanes(found.total.dtype)
    work = _work(found, target)
    rows, vectors = cost.cheapest_block_tile(work, lanes, target)
    layouts = _layouts(definition, found, vectors * lanes)
    yield KernelVariant(
        name=f"row-major, {NAME} of {rows} × {vectors * lanes}",
        layouts=layouts,
        private=private,
        demands={},
        padding=Padding.NONE,
        recipe=BlockTiles(rows, vectors, lanes),
        work=cost.Work(
            2.0 * work.planes * work.rows * work.columns * work.blocks * work.terms,
            cost.block_sum_cycles(work, rows, vectors, lanes, target),
            -(-work.columns // (vectors * lanes)) * work.planes,
            *touched(definition.params, layouts, constants),
        ),
        vectorized=True,
    )


def _work(found: BlockSums, target: Target) -> cost.BlockSumWork:
    extents = sorted(extent for _, extent in found.rows) or [1]
    terms = prod(extent for _, extent in found.terms)
    *planes, rows = extents
    columns, blocks = found.lane[1], found.blocks[1]
    at_once = sums_terms(target, ("uint8", "int8"), BYTE_TERMS)
    operations = 1 if at_once else OPERATIONS
    return cost.BlockSumWork(
        columns, rows, prod(planes), blocks, terms, BYTE_TERMS, found.places, operations
    )


def _layouts(definition: tir.PrimFunc, found: BlockSums, width: int) -> dict[str, Layout]:
    """Row-major, with what belongs to columns in panels of `width`."""
    layouts = {p.buffer.name: row_major(p.buffer.shape) for p in definition.params}
    by_block = (AxisDigit(1),)
    order = (*by_block, AxisDigit(2))
    layouts[found.weights.name] = packed_weights(
        found.weights.shape, 0, width, order, terms=BYTE_TERMS
    )
    for buffer in found.by_column:
        layouts[buffer.name] = packed_weights(buffer.shape, 0, width, by_block)
    return layouts
