"""The variants of a compute definition on a target, derived from its access relations.

In: a compute definition, which of its inputs are constants, the target, and the kernel's context.
Out: its variants, in a stated order, and those that a schedule step refused, with the reasons.

What always holds: no kernel is built here, so a variant's contract is derived, not observed; tests
build the variants of small kernels and compare what analysis finds in them with the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.band_products import (
    RowBands,
    refused_row_bands,
    row_bands_of,
)
from graphflow.kernels.recipes.analysis.block_sums import block_sums
from graphflow.kernels.recipes.analysis.filtered_stages import filtered_stages
from graphflow.kernels.recipes.analysis.kernel_context import ALONE, KernelContext
from graphflow.kernels.recipes.analysis.known_contents import ContentsQuery
from graphflow.kernels.recipes.analysis.masked_scores import mask_inputs
from graphflow.kernels.recipes.analysis.roles import Roles, refused_roles
from graphflow.kernels.recipes.analysis.variant import (
    KernelVariant,
    RefusedVariant,
    Staged,
    View,
)
from graphflow.kernels.recipes.tiled_kernels import TiledKernel, offered_choices, tile_roles
from graphflow.kernels.recipes.variants.block_sum_variants import block_sum_variants
from graphflow.kernels.recipes.variants.halo import halo_query
from graphflow.kernels.recipes.variants.jammed_variants import jammed_variants
from graphflow.kernels.recipes.variants.matched_variants import layouts_of_found
from graphflow.kernels.recipes.variants.movement_variants import movement_variants
from graphflow.kernels.recipes.variants.plain_variants import foreign_variant, plain_variant
from graphflow.kernels.recipes.variants.row_band_variants import row_band_variants
from graphflow.kernels.recipes.variants.stage_variants import stage_variants
from graphflow.kernels.recipes.variants.tile_band_variants import tile_band_variants
from graphflow.kernels.recipes.variants.view_variants import offered_views, view_variants
from graphflow.layout import Layout
from graphflow.tir import PrimFunc

_Found: TypeAlias = "tuple[tuple[KernelVariant, ...], tuple[RefusedVariant, ...]]"
"""The variants of a definition, and those that a schedule step refused."""


def kernel_variants(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    context: KernelContext = ALONE,
) -> tuple[KernelVariant, ...]:
    """All variants of `definition`, in the same order for the same arguments.

    `constants` are the inputs whose values are known before the first run, which a recipe may
    pack.  Inputs are read in the layouts of families, and in those that the context offers.
    """
    return _variants(definition, constants, target, context)[0]


def refused_variants(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    context: KernelContext = ALONE,
) -> tuple[RefusedVariant, ...]:
    """The variants missing from `kernel_variants` for the same arguments because a step refused.

    Variants that cannot apply to such a kernel are not listed: tiles of one that moves elements.
    """
    return _variants(definition, constants, target, context)[1]


@lru_cache(maxsize=4096)
def contents_query(definition: PrimFunc) -> ContentsQuery:
    """The facts about input values that variants of a definition rest on, or prices depend on."""
    if filtered_stages(definition) is not None:
        return ContentsQuery()  # theirs rest on none
    bands = row_bands_of(definition)
    if isinstance(bands, RowBands):
        return ContentsQuery(masks=mask_inputs(bands.schedule.func, bands.row))
    return halo_query(definition)


def reads_offered(definition: PrimFunc) -> bool:
    """Whether some variant could read an input in a padded layout of no family.

    Such a layout is that of a view of a part of a blocked tensor.
    """
    return tile_roles(definition) is not None


@lru_cache(maxsize=4096)
def _variants(
    definition: PrimFunc, constants: frozenset[str], target: Target, context: KernelContext
) -> _Found:
    of_form = _of_known_form(definition, constants, target, context)
    if of_form is not None:
        return _sorted_out(of_form)
    variants, refused = _sorted_out(_of_any_form(definition, constants, target, context))
    distinct: dict[tuple[object, ...], KernelVariant] = {}
    for variant in variants:
        kind = isinstance(variant.recipe, View) and variant.recipe.outward
        claims = (
            variant.recipe if isinstance(variant.recipe, Staged) else type(variant.recipe),
            kind,
            tuple(variant.layouts.items()),
            tuple(variant.demands.items()),
        )
        if variant.work.cycles < distinct.setdefault(claims, variant).work.cycles:
            distinct[claims] = variant
    return tuple(distinct.values()), tuple(dict.fromkeys(refused))


def _of_known_form(
    definition: PrimFunc, constants: frozenset[str], target: Target, context: KernelContext
) -> Iterator[KernelVariant | RefusedVariant] | None:
    """The variants of a definition for whose form there are recipes of its own, and what is
    refused; None for other definitions.

    These are foreign sections, transformed tiles, sums of blocks, and two products for the same
    rows.
    """
    if definition.callee is not None:
        return iter((foreign_variant(definition, constants),))
    if filtered_stages(definition) is not None:
        return tile_band_variants(definition, constants, target)
    if block_sums(definition) is not None:
        found = block_sum_variants(definition, constants, target)
    elif refused_row_bands(definition) is None:
        found = row_band_variants(definition, constants, target, context)
    else:
        return None
    return chain((plain_variant(definition, constants, target),), found)


def _of_any_form(
    definition: PrimFunc, constants: frozenset[str], target: Target, context: KernelContext
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants of a definition as a view, in tiles of registers or stage by stage, and what is
    refused."""
    roles = tile_roles(definition)
    tiles = None if roles is None else TiledKernel(definition, roles, constants, target, context)
    reason = refused_roles(definition)
    if reason is not None:
        yield RefusedVariant("tiles of registers", reason)
    if offered := context.offered:
        for found in _variants(definition, constants, target, replace(context, offered=())):
            yield from found
        yield from offered_views(definition, target, dict(offered))
        if tiles is not None:
            yield from tiles.as_offered(offered)
            reads_once = _reads_once(tiles.roles, constants, target)
            for given in offered_choices(offered) if reads_once else ():
                yield from _along_the_reduction(definition, constants, target, dict(given))
        return
    yield from view_variants(definition, target, context.parts)
    if tiles is None:
        jammed = [*jammed_variants(definition, target, constants)]
        yield from jammed or [plain_variant(definition, constants, target)]
        for layouts in layouts_of_found(definition, target):
            yield plain_variant(definition, constants, target, layouts)
        yield from movement_variants(definition, constants, target)
        yield from stage_variants(definition, target, constants)
    else:
        yield from tiles.in_families()
        if tiles.roles.reduces_alone or _reads_once(tiles.roles, constants, target):
            yield from _along_the_reduction(definition, constants, target)


def _reads_once(roles: Roles, constants: frozenset[str], target: Target) -> bool:
    """Whether a reduction reads each element of some operand once, as a matrix times a vector does.

    A tile shares none of its loads then.  False where no reduced loop fills a vector, and for
    constants, which are packed so that lanes across the reduction are contiguous.
    """
    lanes = target.computed_lanes(roles.output.dtype)
    if max((extent for _, extent in roles.reduction), default=1) < lanes:
        return False
    axes = [axis for axis, extent in enumerate(roles.output.shape) if extent > 1]
    return any(
        all(roles.depends_on(name, axis) for axis in axes)
        for name, reads in roles.reads.items()
        if name not in constants and any(map(roles.nest_of, reads))
    )


def _along_the_reduction(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    given: Mapping[str, Layout] = MappingProxyType({}),
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants of a reduction whose lanes run along the axes it reduces over.

    Those whose lanes run along other axes are left out: register tiles do that as fast.
    """
    return stage_variants(definition, target, constants, given, across=False)


def _sorted_out(found: Iterable[KernelVariant | RefusedVariant]) -> _Found:
    """The variants among `found`, and what is refused, each in its order."""
    variants, refused = list[KernelVariant](), list[RefusedVariant]()
    for item in found:
        if isinstance(item, RefusedVariant):
            refused.append(item)
        else:
            variants.append(item)
    return tuple(variants), tuple(refused)
