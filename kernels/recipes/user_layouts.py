"""Variants in layouts that a user gave, which may be any.

In: a compute definition, and layouts for some of its parameters.  Out: variants that have a
parameter in one of them: views; tiled ones; and where no tiled one can be built, one made stage by
stage, whose loops follow the logical order and leave padding alone.

What always holds: each variant that is executed was built once, so flow may choose it; one that
cannot be built is returned as refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from graphflow.arith import TRUE
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.operand_layouts import OfferedLayouts, Offers, UserLayout
from graphflow.kernels.recipes.analysis.variant import KernelVariant, Padding, RefusedVariant
from graphflow.kernels.recipes.kernel_schedule import Placements, kernel_schedule
from graphflow.kernels.recipes.tiled_kernels import tiled_in
from graphflow.kernels.recipes.variants.plain_variants import plain_variant
from graphflow.kernels.recipes.variants.view_variants import offered_views
from graphflow.layout import Equal, Family, Layout, families
from graphflow.schedule import PadValue, Refusal
from graphflow.tir import PrimFunc, Store, Undef, sites


@lru_cache(maxsize=4096)
def given_variants(
    definition: PrimFunc, constants: frozenset[str], target: Target, given: Offers
) -> tuple[KernelVariant | RefusedVariant, ...]:
    """The variants that have a parameter in a layout `given` for it, and those that a step refused.

    Nothing for a kernel of several outputs.
    """
    layouts = dict(given)
    if len(definition.outputs) != 1:
        return ()
    output = definition.outputs[0]
    inputs = {b.name: layouts[b.name] for b in definition.inputs if b.name in layouts}
    found: list[KernelVariant | RefusedVariant] = [*offered_views(definition, target, inputs)]
    for out, read in _combinations(definition, constants, target, layouts):
        data = out if read is None else read
        tiled = [
            _usable(definition, variant, target)
            for variant in tiled_in(definition, constants, target, out, data)
        ]
        found += tiled
        if not any(isinstance(variant, KernelVariant) for variant in tiled):
            placed: dict[str, Layout] = {}
            if isinstance(out, UserLayout):
                same = (b for b in definition.inputs if b.shape == output.shape)
                placed = {b.name: out.layout for b in same if b.name not in constants}
                placed[output.name] = out.layout
            if isinstance(read, OfferedLayouts):
                placed |= dict(read.of)
            plain = plain_variant(definition, constants, target, placed)
            found.append(_usable(definition, plain, target))
    return tuple(found)


@lru_cache(maxsize=4096)
def placed_variant(
    definition: PrimFunc, placed: tuple[tuple[str, Layout], ...], target: Target
) -> KernelVariant | RefusedVariant | None:
    """The variant made stage by stage with parameters in the layouts `placed`, or its refusal.

    None for a foreign section.
    """
    if definition.callee is not None:
        return None
    return _usable(definition, plain_variant(definition, frozenset(), target, dict(placed)), target)


def _combinations(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    layouts: Mapping[str, tuple[Layout, ...]],
) -> Iterator[tuple[Family | UserLayout, OfferedLayouts | None]]:
    """Each layout of the output, with an input in a layout given for it or with none (None)."""
    output = definition.outputs[0]
    outs = [UserLayout(layout) for layout in layouts.get(output.name, ())]
    for out in outs:
        yield out, None
    for buffer in definition.inputs:
        if buffer.name in constants:
            continue
        for layout in layouts.get(buffer.name, ()):
            for family in families(len(output.shape), target.computed_lanes(output.dtype), target):
                yield family, OfferedLayouts(((buffer.name, layout),))
            for out in outs:
                yield out, OfferedLayouts(((buffer.name, layout),))


def _usable(
    definition: PrimFunc, variant: KernelVariant, target: Target
) -> KernelVariant | RefusedVariant:
    """The variant, built once to see that its recipe can make it; refused where it cannot.

    One that claims to run over its output's padding, and stores under a condition when built,
    claims only to leave anything there.
    """
    output = definition.outputs[0].name
    written = len(definition.outputs) == 1 and variant.layouts[output].is_padded
    try:
        made = kernel_schedule(
            definition, _placements(definition, variant, "undef"), variant.recipe, target
        )
        if written:
            kernel_schedule(definition, _placements(definition, variant, 0), variant.recipe, target)
    except ScheduleError as error:
        return RefusedVariant(variant.name, Refusal.of(error))
    whole = all(
        site.domain.where == TRUE
        for site in sites(made.func.body)
        if isinstance(site.stmt, Store) and site.stmt.buffer.name == output
        and not isinstance(site.stmt.value, Undef)
    )  # fmt: skip
    if variant.padding is Padding.EVALUATED and not whole:
        return replace(variant, padding=Padding.UNDEF)
    return variant


def _placements(definition: PrimFunc, variant: KernelVariant, pad: PadValue) -> Placements:
    """The placements of a variant whose output's padding gets `pad`."""
    found: list[tuple[str, Layout, PadValue]] = []
    first = definition.outputs[0].name
    for param in definition.params:
        name = param.buffer.name
        layout, demand = variant.layouts[name], variant.demands.get(name)
        held: PadValue = pad if name == first else "undef"
        if isinstance(demand, Equal):
            held = demand.literal.value
        found.append((name, layout, held if layout.is_padded else None))
    return tuple(found)
