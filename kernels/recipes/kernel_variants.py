"""The variants of a compute definition on a target, derived from its access relations.

In: a compute definition, which of its inputs are constants, what is known of their values, the
layouts in which inputs are offered, and the target.  Out: its variants, in a stated order, and
those that a schedule step refused, with the reasons.

What always holds: no kernel is built here, so a variant's contract is derived, not observed; tests
build the variants of small kernels and compare what analysis finds in them with the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, combinations, product
from math import prod
from types import MappingProxyType

from graphflow.base.errors import LayoutConflict
from graphflow.base.target import Target
from graphflow.cost import MASKED_REDUCTION, Work, operation_cycles
from graphflow.kernels.recipes.analysis.band_products import (
    RowBands,
    refused_row_bands,
    row_bands_of,
)
from graphflow.kernels.recipes.analysis.filtered_stages import filtered_stages
from graphflow.kernels.recipes.analysis.known_contents import NOTHING, ContentsQuery, KnownContents
from graphflow.kernels.recipes.analysis.masked_scores import mask_inputs
from graphflow.kernels.recipes.analysis.operand_layouts import (
    OfferedLayouts,
    Offers,
    SameAxisOrder,
    UserLayout,
    channel_order,
)
from graphflow.kernels.recipes.analysis.positions import touched
from graphflow.kernels.recipes.analysis.roles import Roles, refused_roles, roles_of
from graphflow.kernels.recipes.analysis.variant import (
    Foreign,
    KernelVariant,
    Padding,
    RefusedVariant,
    SharedLoops,
    Staged,
    Tiled,
    View,
)
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.kernels.recipes.tile_kinds.dot_tiles import BrainTile, DotTile, MatrixTile, PairTile
from graphflow.kernels.recipes.tile_kinds.memory_runs import MemoryRun, as_runs, asks_for_indices
from graphflow.kernels.recipes.tile_kinds.own_vector_tiles import OwnVectorTile, WidenedVectorTile
from graphflow.kernels.recipes.tile_kinds.row_tiles import RowTile, along_rows
from graphflow.kernels.recipes.tile_kinds.sliding_tiles import SlidingTile
from graphflow.kernels.recipes.tile_kinds.window_tiles import WindowTile
from graphflow.kernels.recipes.variants.halo import halo_query, halo_variants
from graphflow.kernels.recipes.variants.jammed_variants import jammed_variants
from graphflow.kernels.recipes.variants.matched_variants import (
    bytes_found,
    contiguous_loops,
    layouts_of_found,
)
from graphflow.kernels.recipes.variants.movement_variants import movement_variants
from graphflow.kernels.recipes.variants.operands import (
    decisions_of,
    loses_axes,
    may_transpose_first,
)
from graphflow.kernels.recipes.variants.row_band_variants import row_band_variants
from graphflow.kernels.recipes.variants.stage_variants import stage_variants
from graphflow.kernels.recipes.variants.tile_band_variants import tile_band_variants
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile
from graphflow.kernels.recipes.variants.tiled import tiled_variant
from graphflow.kernels.recipes.variants.transposing_moves import as_block_transpose
from graphflow.kernels.recipes.variants.view_variants import offered_views, view_variants
from graphflow.layout import (
    Demand,
    Family,
    Layout,
    families,
    pad_region_name,
    reduction_demand,
    row_major,
)
from graphflow.tir import PrimFunc, matched_variables, multiply_add_count, operation_count

IMAGE_TILES = (
    WindowTile,
    SlidingTile,
    WidenedVectorTile,
    OwnVectorTile,
    MatrixTile,
    DotTile,
    PairTile,
    BrainTile,
    BroadcastTile,
)
"""The kinds of tiles over the last two axes of an output, of which the first that applies is made.
`MemoryRun` and `RowTile` are made of their variants."""


@lru_cache(maxsize=256)
def image_tiles(target: Target) -> tuple[type[ImageTile], ...]:
    """The kinds of tiles for a target, in the order in which they are asked: its own come first.

    LayoutConflict where one of `Target.tile_kinds` is no `ImageTile`, or has the name of another
    one: timing tables know kinds by name.
    """
    known: tuple[type[ImageTile], ...] = (*map(_checked_kind, target.tile_kinds), *IMAGE_TILES)
    kinds = tuple(kind for kind in known if kind.is_of(target))
    names = [kind.__name__ for kind in kinds] + [MemoryRun.__name__, RowTile.__name__]
    if len(set(names)) < len(names):
        raise LayoutConflict(f"kinds of tiles share a name: {names}")
    return kinds


def _checked_kind(kind: object) -> type[ImageTile]:
    if not isinstance(kind, type) or not issubclass(kind, ImageTile):
        raise LayoutConflict(
            f"a target adds the kind of tiles {kind!r}; "
            "give a subclass of graphflow.kernels.recipes.ImageTile"
        )
    return kind


def kernel_variants(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    known: KnownContents = NOTHING,
    offered: Offers = (),
    parts: bool = True,
    runs: bool = True,
    joins: bool = True,
) -> tuple[KernelVariant, ...]:
    """All variants of `definition`, in the same order for the same arguments.

    `constants` are the inputs whose values are known before the first run, which a recipe may
    pack; `known` holds what is proven of the values of any input.  Inputs are read in the layouts
    of families, and in those `offered` for them, which may be of no family.  Without `parts` there
    are no views of a part of a larger tensor in padded layouts of no family; see `reads_offered`.
    Without `runs`, no variant treats all elements as one run, or rows of a product as blocks of
    them: such a kernel cannot leave out those that a run lacks.  Nor, and not without `joins`
    either, are rows joined that end within a vector (`along_rows`).
    """
    return _variants(definition, constants, target, known, offered, parts, runs, joins)[0]


def refused_variants(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    known: KnownContents = NOTHING,
    offered: Offers = (),
    parts: bool = True,
    runs: bool = True,
    joins: bool = True,
) -> tuple[RefusedVariant, ...]:
    """The variants missing from `kernel_variants` for the same arguments because a step refused.

    Variants that cannot apply to such a kernel are not listed: tiles of one that moves elements.
    """
    return _variants(definition, constants, target, known, offered, parts, runs, joins)[1]


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
    return _tileable(definition) is not None


@lru_cache(maxsize=4096)
def _variants(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    known: KnownContents,
    offered: Offers,
    parts: bool,
    runs: bool,
    joins: bool,
) -> tuple[tuple[KernelVariant, ...], tuple[RefusedVariant, ...]]:
    if definition.callee is not None:
        return (foreign_variant(definition, constants),), ()
    if filtered_stages(definition) is not None:
        return _in_tile_bands(definition, constants, target)
    if refused_row_bands(definition) is None:
        return _in_row_bands(definition, constants, target, known, offered)
    roles = _tileable(definition)
    reason = refused_roles(definition)
    refused = [] if reason is None else [RefusedVariant("tiles of registers", reason)]
    if offered:
        # All arguments, as other callers give them, for the cache compares them by position.
        family = (definition, constants, target, known, (), parts, runs, joins)
        variants = [*kernel_variants(*family)]
        refused += refused_variants(*family)
        _sort_out(offered_views(definition, target, dict(offered)), variants, refused)
        if roles is not None:
            variants += _as_offered(definition, roles, constants, target, offered, runs, joins)
            for given in _choices(offered) if _reads_once(roles, constants, target) else ():
                found = _along_the_reduction(definition, constants, target, dict(given))
                _sort_out(found, variants, refused)
    else:
        variants = []
        _sort_out(view_variants(definition, target, parts), variants, refused)
        if roles is None:
            jammed = [*jammed_variants(definition, target, constants)]
            variants += jammed or [plain_variant(definition, constants, target)]
            for layouts in layouts_of_found(definition, target):
                variants.append(plain_variant(definition, constants, target, layouts))
            variants += movement_variants(definition, constants, target)
            _sort_out(stage_variants(definition, target, constants), variants, refused)
        else:
            variants += _tiled(definition, roles, constants, target, known, runs, joins)
            if roles.reduces_alone or _reads_once(roles, constants, target):
                _sort_out(_along_the_reduction(definition, constants, target), variants, refused)
    distinct: dict[tuple[object, ...], KernelVariant] = {}
    for variant in variants:
        kind = isinstance(variant.recipe, View) and variant.recipe.outward
        claims = (
            variant.recipe if isinstance(variant.recipe, Staged) else type(variant.recipe),
            kind,
            tuple(variant.layouts.items()),
            tuple(variant.demands.items()),
        )
        distinct.setdefault(claims, variant)
    return tuple(distinct.values()), tuple(dict.fromkeys(refused))


def _in_tile_bands(
    definition: PrimFunc, constants: frozenset[str], target: Target
) -> tuple[tuple[KernelVariant, ...], tuple[RefusedVariant, ...]]:
    """The variants of a definition with transformed tiles, and what is refused."""
    variants, refused = list[KernelVariant](), list[RefusedVariant]()
    _sort_out(tile_band_variants(definition, constants, target), variants, refused)
    return tuple(variants), tuple(refused)


def _in_row_bands(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    known: KnownContents,
    offered: Offers,
) -> tuple[tuple[KernelVariant, ...], tuple[RefusedVariant, ...]]:
    """The variants of a definition with two products for the same rows, and what is refused."""
    variants, refused = [plain_variant(definition, constants, target)], list[RefusedVariant]()
    found = row_band_variants(definition, constants, target, known, offered)
    _sort_out(found, variants, refused)
    return tuple(variants), tuple(refused)


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
    for found in stage_variants(definition, target, constants, given):
        recipe = None if isinstance(found, RefusedVariant) else found.recipe
        if not isinstance(recipe, SharedLoops) or recipe.lane_loop is None:
            yield found


def _sort_out(
    found: Iterable[KernelVariant | RefusedVariant],
    variants: list[KernelVariant],
    refused: list[RefusedVariant],
) -> None:
    """Appends each of `found` to the list of its kind."""
    for item in found:
        if isinstance(item, RefusedVariant):
            refused.append(item)
        else:
            variants.append(item)


@lru_cache(maxsize=4096)
def _tileable(definition: PrimFunc) -> Roles | None:
    """The roles of a definition to which tiles apply, else None.

    An output of one element has no lanes, and an empty parameter no loops.
    """
    roles = roles_of(definition)
    empty = any(p.buffer.size == 0 for p in definition.params)
    return None if roles is None or empty or prod(roles.output.shape) == 1 else roles


def variants_in(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    out: Family | UserLayout,
    data: Family | UserLayout | OfferedLayouts,
) -> Iterator[KernelVariant]:
    """The tiled variants in layouts of no family; building them may be refused."""
    roles = _tileable(definition)
    variant = (
        None
        if roles is None
        else tiled_variant(roles, constants, out, data, target, image_tiles(target))
    )
    if roles is not None and variant is not None:
        yield from _with_demands(variant, roles)


def plain_variant(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    placed: Mapping[str, Layout] | None = None,
) -> KernelVariant:
    """The variant made stage by stage, its parameters as `placed` says, the others row-major.

    Only with matched loops are contiguous loops priced as vectors: other kernels in which there are
    some have variants of other recipes.
    """
    layouts = {p.buffer.name: row_major(p.buffer.shape) for p in definition.params}
    layouts |= placed or {}
    finds = bool(matched_variables(definition.body))
    at_once = contiguous_loops(definition, layouts, target) if finds else {}
    found = bytes_found(definition) if finds else {}
    cycles = operation_cycles(operation_count(definition, at_once))
    moved = touched(definition.params, layouts, constants, found)
    work = Work(2.0 * multiply_add_count(definition), cycles, 1, *moved)
    apart = [f"{n} {x.describe()}" for n, x in layouts.items() if n in (placed or {})]
    name = f"{', '.join(apart) or 'row-major'}, stage by stage"
    return KernelVariant(name, layouts, frozenset(), {}, Padding.NONE, Staged(), work, False)


def foreign_variant(definition: PrimFunc, constants: frozenset[str]) -> KernelVariant:
    """The only variant of a foreign section: row-major, priced by the memory it touches alone."""
    layouts = {p.buffer.name: row_major(p.buffer.shape) for p in definition.params}
    work = Work(0.0, 0.0, 1, *touched(definition.params, layouts, constants))
    name = f"row-major, by {definition.callee}"
    return KernelVariant(name, layouts, frozenset(), {}, Padding.NONE, Foreign(), work, False)


def _tiled(
    definition: PrimFunc,
    roles: Roles,
    constants: frozenset[str],
    target: Target,
    known: KnownContents,
    runs: bool,
    joins: bool,
) -> Iterator[KernelVariant]:
    rank = len(roles.output.shape)
    lanes = target.computed_lanes(roles.output.dtype)
    choices = families(rank, lanes, target)
    wider = {len(b.shape) for b in definition.inputs if loses_axes(roles, b)}
    others = [f for r in sorted(wider) for f in families(r, lanes, target)]
    # Narrower data may lie in blocks that hold several of the output's vectors.
    widths = {target.computed_lanes(b.dtype) for b in definition.inputs}
    others += [f for n in sorted(widths) if n > lanes for f in families(rank, n, target)]
    others += _in_whole_groups(roles, target)
    given = {f: tuple(f.instantiate(b.shape) for b in roles.inputs) for f in (*choices, *others)}
    joins = joins and runs and not asks_for_indices(definition)
    seen: set[tuple[Layout | tuple[Layout | None, ...] | None, ...]] = set()
    for out in choices:
        for data in given:
            placed = (out.instantiate(roles.output.shape), given[out], given[data])
            if placed in seen:
                continue  # nothing is padded, so two families are one
            seen.add(placed)
            for packed in (frozenset[str](), *_packed_in_run(roles, constants, out, target)):
                variant = tiled_variant(
                    roles, constants, out, data, target, image_tiles(target), packed, runs
                )
                if variant is not None:
                    if runs:
                        variant = as_runs(variant, roles, definition, target)
                    variant = as_block_transpose(variant, definition, target)
                    yield from _with_demands(variant, roles)
                    yield from along_rows(variant, roles, constants, target, joins)
                    if data is out:
                        remade = partial(_without_borders, roles, constants, out, target)
                        yield from halo_variants(variant, roles, known, remade)
        for data in choices:
            yield from _transposing_first(roles, constants, out, data, target)


def _without_borders(
    roles: Roles, constants: frozenset[str], out: Family, target: Target, name: str, layout: Layout
) -> KernelVariant | None:
    """The variant that reads the input `name` in a layout with a halo, of a kind that needs it;
    None where there is no such kind, or another one is cheaper."""
    kinds = image_tiles(target)
    if not any(kind.by_price for kind in kinds) or not roles.sums_integers:
        return None
    given, halo = OfferedLayouts(((name, layout),)), frozenset((name,))
    variant = tiled_variant(roles, constants, out, given, target, kinds, halo=halo)
    kind = variant.recipe.kind if variant and isinstance(variant.recipe, Tiled) else None
    return variant if isinstance(kind, ImageTile) and kind.by_price else None


def _transposing_first(
    roles: Roles, constants: frozenset[str], out: Family, data: Family, target: Target
) -> Iterator[KernelVariant]:
    """The variants that read one factor of a product across the lanes, in the layout of `data`.

    Nothing where that is the layout which the other variants read it in.
    """
    decided = decisions_of(roles, constants, out, target)
    for buffer in roles.inputs if decided is not None else ():
        layout = data.instantiate(buffer.shape)
        if buffer.name in constants or layout is None or decided is None:
            continue
        if layout != decided.layouts.get(buffer.name) and may_transpose_first(
            roles, decided, buffer.name, layout, target
        ):
            given = OfferedLayouts(((buffer.name, layout),))
            variant = tiled_variant(roles, constants, out, given, target, image_tiles(target))
            if variant is not None:
                yield variant


def _packed_in_run(
    roles: Roles, constants: frozenset[str], out: Family, target: Target
) -> Iterator[frozenset[str]]:
    """The weights given at run time that a variant may read in a packed layout, if there are any.

    These are factors of a sum of products that neither the rows of a tile nor other axes outside
    the lanes depend on, so each element of them is read many times.
    """
    given = roles.factors - constants
    decided = decisions_of(roles, constants | given, out, target) if given else None
    if decided is None:
        return
    found = frozenset(b.name for b in decided.packed if len(b.shape) > 1) & given
    if found:
        yield found


def _as_offered(
    definition: PrimFunc,
    roles: Roles,
    constants: frozenset[str],
    target: Target,
    offered: Offers,
    runs: bool,
    joins: bool,
) -> Iterator[KernelVariant]:
    """Variants that read one or two inputs in layouts offered for them.

    They write a layout of a family or, where an offered one orders the channels otherwise, that
    same order.
    """
    lanes = target.computed_lanes(roles.output.dtype)
    joins = joins and runs and not asks_for_indices(definition)
    for given in _choices(offered):
        outs: list[Family | SameAxisOrder] = list(families(len(roles.output.shape), lanes, target))
        outs += [SameAxisOrder(layout) for _, layout in given if channel_order(layout) is not None]
        for out in outs:
            variant = tiled_variant(
                roles,
                constants,
                out,
                OfferedLayouts(given),
                target,
                image_tiles(target),
                cuts_rows=runs,
            )
            if variant is not None:
                if runs:
                    variant = as_runs(variant, roles, definition, target)
                variant = as_block_transpose(variant, definition, target)
                yield from _with_demands(variant, roles)
                yield from along_rows(variant, roles, constants, target, joins)


def _in_whole_groups(roles: Roles, target: Target) -> Iterator[Family]:
    """The families in which channels are in whole groups, as instructions sum them."""
    terms = {kind.factors[0]: kind.terms for kind in (DotTile, PairTile)}
    for name in sorted(roles.factors):
        buffer = roles.reads[name][0].buffer
        count = terms.get(buffer.dtype, 1)
        if len(buffer.shape) > 2 and buffer.shape[1] % count:
            yield from (
                family
                for family in families(len(buffer.shape), count, target)
                if family.construction.name == "channels_last_padded"
            )


def _choices(offered: Offers) -> Iterator[tuple[tuple[str, Layout], ...]]:
    """Each offered layout by itself, then each pair of them for two operands."""
    single = [[(name, layout) for layout in layouts] for name, layouts in offered]
    for choice in chain.from_iterable(single):
        yield (choice,)
    for first, second in combinations(single, 2):
        yield from product(first, second)


def _with_demands(variant: KernelVariant, roles: Roles) -> Iterator[KernelVariant]:
    """The variant; where it reduces over a padded axis, also one that reads the padding.

    A reduction whose terms are elements of an input needs no mask where the padding holds its
    neutral element, which the second variant demands.  Sums of products always run over the logical
    extent.
    """
    padded = _padded_reductions(variant, roles)
    if not padded:
        yield variant
        return
    masked = replace(variant.work, cycles=variant.work.cycles * MASKED_REDUCTION)
    yield replace(variant, work=masked)
    demands: dict[str, Demand] = {}
    for name in padded:
        assert roles.reduces_elements_by is not None
        demands[name] = reduction_demand(roles.reduces_elements_by, roles.output.dtype)[0]
    yield replace(variant, name=f"{variant.name}, over the padding", demands=demands)


def _padded_reductions(variant: KernelVariant, roles: Roles) -> list[str]:
    """The inputs whose elements are reduced along an axis that their layout pads."""
    if roles.reduces_elements_by is None:
        return []
    reduced = {v for v, _ in roles.reduction}
    found = []
    for name, reads in roles.reads.items():
        layout = variant.layouts[name]
        if not layout.is_padded or not reads:
            continue
        regions = {r.name for r in layout.regions()}
        along = [
            axis
            for axis, index in enumerate(reads[0].indices)
            if index in reduced and pad_region_name((axis,)) in regions
        ]
        if along:
            found.append(name)
    return found
