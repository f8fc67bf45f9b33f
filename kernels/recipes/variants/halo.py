"""Variants that read a halo of neutral elements instead of testing for the border.

In: a variant made by the register tile, and the roles of its kernel.  Out: the same variant with a
halo around one input, as wide as the kernel's windows reach beyond it, and a demand on what the
halo holds: the neutral element of the reduction.

What always holds: terms read from the halo leave the reduction unchanged.  For a sum of products
that is a halo of zeros, and only where the other factor is proven finite (0 times infinity is NaN)
and the sum is proven not to start at −0.0 (−0.0 + 0.0 is 0.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import copysign

from graphflow.base.dtypes import FLOATING
from graphflow.base.fields import replace
from graphflow.kernels.recipes.analysis.known_contents import ContentsQuery, KnownContents
from graphflow.kernels.recipes.analysis.roles import Roles, overhang, roles_of
from graphflow.kernels.recipes.analysis.variant import KernelVariant, Tiled
from graphflow.layout import Demand, Layout, reduction_demand
from graphflow.tir import FLOATS, Literal, PrimFunc, ReduceOp


def halo_variants(
    variant: KernelVariant,
    roles: Roles,
    known: KnownContents,
    without_borders: Callable[[str, Layout], KernelVariant | None],
) -> Iterator[KernelVariant]:
    """The variant with a halo around each input in turn whose windows reach beyond it.

    `without_borders` makes the variant that needs such a halo, of an input in such a layout; it is
    in place of the one with a halo, if there is one.  Nothing for an input whose halo is not proven
    to leave the reduction unchanged, or whose layout cannot have one.
    """
    if not isinstance(variant.recipe, Tiled) or not variant.vectorized:
        return
    for name in roles.reads:
        reach = overhang(roles, name)
        demand = _neutral(roles, name, known)
        layout = variant.layouts[name]
        if demand is None or not any(before or after for before, after in reach):
            continue
        wide = _with_halo(layout, reach)
        if wide is None:
            continue
        dtype = roles.reads[name][0].buffer.dtype
        extra = wide.bytes(dtype) - layout.bytes(dtype)
        found = without_borders(name, wide) or variant
        assert isinstance(found.recipe, Tiled)
        yield replace(
            found,
            name=f"{variant.name}, halo of {name}",
            layouts={**found.layouts, name: wide},
            demands={**found.demands, name: demand},
            recipe=replace(
                found.recipe,
                finite=tuple(sorted(known.finite & roles.factors - {name})),
                excludes_negative_zero=tuple(
                    sorted(known.excludes_negative_zero & {str(roles.start)})
                ),
            ),
            work=replace(found.work, read=variant.work.read + extra),
        )


def halo_query(definition: PrimFunc) -> ContentsQuery:
    """The facts about input values that a variant of `definition` with a halo would rest on."""
    roles = roles_of(definition)
    if roles is None:
        return ContentsQuery()
    wide = [name for name in roles.factors if any(map(any, overhang(roles, name)))]
    beside = {other for name in wide for other in roles.factors - {name}}
    starts = {roles.start} if wide and isinstance(roles.start, str) else set()
    floats = frozenset(b.name for b in definition.inputs if b.dtype in FLOATING)
    return ContentsQuery(finite=floats & beside, excludes_negative_zero=floats & starts)


def _neutral(roles: Roles, name: str, known: KnownContents) -> Demand | None:
    """The demand on the halo of the input `name`; None where no value is proven to be neutral."""
    dtype = roles.sum_dtype or roles.output.dtype
    if roles.reduces_elements_by is not None:
        return reduction_demand(roles.reduces_elements_by, dtype)[0]
    if dtype in FLOATS and not _starts_above(roles.start, known):
        return None
    others = {n for n in roles.factors - {name} if roles.reads[n][0].buffer.dtype in FLOATING}
    if name in roles.factors and others <= known.finite:
        return reduction_demand(ReduceOp.ADD, roles.reads[name][0].buffer.dtype)[0]
    return None


def _starts_above(start: Literal | str | None, known: KnownContents) -> bool:
    """Whether a sum is proven to start at something else than −0.0."""
    if isinstance(start, Literal):
        return copysign(1.0, start.value) > 0 or start.value != 0
    return start in known.excludes_negative_zero


def _with_halo(layout: Layout, reach: tuple[tuple[int, int], ...]) -> Layout | None:
    """The layout with a halo of `reach` elements before and after each logical axis.

    None where an axis that needs one is not a physical axis as it is.
    """
    before = [0] * len(layout.physical_shape)
    after = list(before)
    places = {v: k for k, v in enumerate(layout.index_map.outputs)}
    for var, (front, behind) in zip(layout.index_map.inputs, reach, strict=True):
        if not front and not behind:
            continue
        if var not in places:
            return None
        before[places[var]], after[places[var]] = front, behind
    return layout.halo(before, after)
