"""Movement kernels that transpose, made in square blocks that go through vector registers.

In: a tiled variant of a definition that only moves elements.  Out: the same variant as a
`BlockTranspose`, where the source is contiguous along another axis than the output.

A register tile gathers each of its vectors from as many lines of the source.  A block reads these
lines in vectors and transposes them in registers.
"""

from __future__ import annotations

from graphflow.arith import IndexExpr, Var, terms_of, variables
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import conversion_cycles
from graphflow.kernels.recipes.analysis.positions import conversion_work, flat_offset, transposes
from graphflow.kernels.recipes.analysis.variant import (
    BlockTranspose,
    KernelVariant,
    Padding,
    Recipe,
    Staged,
    Tiled,
)
from graphflow.kernels.recipes.variants.view_variants import read_as
from graphflow.layout import Layout
from graphflow.tir import Load, PrimFunc, Store, moves_of


def as_block_transpose(
    variant: KernelVariant, definition: PrimFunc, target: Target
) -> KernelVariant:
    """The variant in square blocks, where it transposes and that is estimated to be faster.

    As it is where the definition computes anything or has several moves, where the output is
    padded, and where nothing is transposed.
    """
    moves = moves_of(definition)
    if not moves or len(moves) > 1 or not isinstance(variant.recipe, Tiled):
        return variant
    store, load, _ = moves[0]
    output = variant.layouts[store.buffer.name]
    if output.is_padded:
        return variant
    if _copies_runs(output, store, variant.layouts[load.buffer.name], load):
        return variant
    read = read_as(variant.layouts[load.buffer.name], store, load)
    if not isinstance(read, Layout) or not transposes(read, output, store.buffer.dtype):
        return variant
    cycles = conversion_cycles(conversion_work(read, output, store.buffer.dtype), target)
    if cycles >= variant.work.cycles:
        return variant
    work = replace(variant.work, cycles=cycles)
    return replace(variant, recipe=BlockTranspose(), padding=Padding.NONE, work=work)


def _copies_runs(output: Layout, store: Store, source: Layout, load: Load) -> bool:
    """Whether the innermost axis of the output, of more than one element, is so in the source too.

    Then nothing is transposed, whatever the layout that `read_as` would find.  Positions in memory
    tell, and are known from other variants; the layout with its inverse takes ten times as long.
    """
    positions = [
        flat_offset(layout, access.indices) for layout, access in ((output, store), (source, load))
    ]
    return any(
        n > 1 and all(_by_one(v, position) for position in positions)
        for v, n in zip(store.indices, store.buffer.shape, strict=True)
    )


def _by_one(index: IndexExpr, position: IndexExpr) -> bool:
    """Whether `index` is a variable in which `position` is linear with the coefficient one."""
    if not isinstance(index, Var):
        return False
    terms, _ = terms_of(position)
    return [(atom, k) for atom, k in terms if index in variables(atom)] == [(index, 1)]


def conversion_recipe(source: Layout, target: Layout, dtype: str) -> Recipe:
    """The recipe of a conversion that is executed in each run."""
    return BlockTranspose() if transposes(source, target, dtype) else Staged()
