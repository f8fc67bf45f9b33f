"""The variants of a kernel that tiles of registers compute, in layouts of families and in others.

In: a definition with roles, its constants, the target, and the layouts to try.  Out: the variants,
in a stated order, each with the first kind of tiles that applies to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain, combinations, product
from math import prod

from msgspec import Struct

from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import MASKED_REDUCTION
from graphflow.kernels.recipes.analysis.kernel_context import ALONE, KernelContext
from graphflow.kernels.recipes.analysis.operand_layouts import (
    OfferedLayouts,
    Offers,
    SameAxisOrder,
    UserLayout,
    channel_order,
)
from graphflow.kernels.recipes.analysis.roles import Roles, roles_of
from graphflow.kernels.recipes.analysis.variant import KernelVariant, Tiled
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.kernels.recipes.tile_kinds.dot_tiles import (
    BrainMatrixTile,
    BrainTile,
    DotTile,
    MatrixTile,
    PairTile,
)
from graphflow.kernels.recipes.tile_kinds.memory_runs import MemoryRun, as_runs, asks_for_indices
from graphflow.kernels.recipes.tile_kinds.own_vector_tiles import OwnVectorTile, WidenedVectorTile
from graphflow.kernels.recipes.tile_kinds.row_tiles import RowTile, along_rows
from graphflow.kernels.recipes.tile_kinds.sliding_tiles import SlidingTile
from graphflow.kernels.recipes.tile_kinds.window_tiles import WindowTile
from graphflow.kernels.recipes.variants.halo import halo_variants
from graphflow.kernels.recipes.variants.operands import (
    decisions_of,
    loses_axes,
    may_transpose_first,
)
from graphflow.kernels.recipes.variants.tile_geometry import ImageTile
from graphflow.kernels.recipes.variants.tiled import tiled_variant
from graphflow.kernels.recipes.variants.transposing_moves import as_block_transpose
from graphflow.layout import Demand, Family, Layout, families, pad_region_name, reduction_demand
from graphflow.tir import PrimFunc

IMAGE_TILES = (
    WindowTile,
    SlidingTile,
    WidenedVectorTile,
    OwnVectorTile,
    MatrixTile,
    DotTile,
    PairTile,
    BrainMatrixTile,
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


@lru_cache(maxsize=4096)
def tile_roles(definition: PrimFunc) -> Roles | None:
    """The roles of a definition to which tiles of registers apply, else None.

    An output of one element has no lanes, and an empty parameter no loops.
    """
    roles = roles_of(definition)
    empty = any(p.buffer.size == 0 for p in definition.params)
    return None if roles is None or empty or prod(roles.output.shape) == 1 else roles


class TiledKernel(Struct, frozen=True):
    """A definition to which tiles apply."""

    definition: PrimFunc
    roles: Roles
    constants: frozenset[str]
    target: Target
    context: KernelContext = ALONE

    def in_families(self) -> Iterator[KernelVariant]:
        """The variants that write and read layouts of families."""
        roles, target = self.roles, self.target
        rank, lanes = self._rank_and_lanes
        choices = families(rank, lanes, target)
        inputs = self.definition.inputs
        wider = {len(b.shape) for b in inputs if loses_axes(roles, b)}
        others = [f for r in sorted(wider) for f in families(r, lanes, target)]
        # Narrower data may lie in blocks that hold several of the output's vectors.
        widths = {target.computed_lanes(b.dtype) for b in inputs}
        others += [f for n in sorted(widths) if n > lanes for f in families(rank, n, target)]
        others += self._in_whole_groups()
        given = {
            f: tuple(f.instantiate(b.shape) for b in roles.inputs) for f in (*choices, *others)
        }
        seen: set[tuple[Layout | tuple[Layout | None, ...] | None, ...]] = set()
        for out in choices:
            for data in given:
                placed = (out.instantiate(roles.output.shape), given[out], given[data])
                if placed in seen:
                    continue  # nothing is padded, so two families are one
                seen.add(placed)
                for packed in (frozenset[str](), *self._packed_in_run(out)):
                    variant = self.variant(out, data, packed, self.context.runs)
                    if variant is not None:
                        variant = self._as_moves(variant)
                        yield from self._with_rows(variant)
                        if data is out:
                            remade = partial(self._without_borders, out)
                            yield from halo_variants(variant, roles, self.context.known, remade)
            for data in choices:
                yield from self._transposing_first(out, data)

    def as_offered(self, offered: Offers) -> Iterator[KernelVariant]:
        """Variants that read one or two inputs in layouts offered for them.

        They write a layout of a family or, where an offered one orders the channels otherwise, that
        same order.
        """
        rank, lanes = self._rank_and_lanes
        for given in offered_choices(offered):
            outs: list[Family | SameAxisOrder] = list(families(rank, lanes, self.target))
            outs += [
                SameAxisOrder(layout) for _, layout in given if channel_order(layout) is not None
            ]
            for out in outs:
                variant = self.variant(out, OfferedLayouts(given), cuts_rows=self.context.runs)
                if variant is not None:
                    yield from self._with_rows(self._as_moves(variant))

    @property
    def _rank_and_lanes(self) -> tuple[int, int]:
        output = self.roles.output
        return len(output.shape), self.target.computed_lanes(output.dtype)

    def variant(
        self,
        out: Family | SameAxisOrder | UserLayout,
        data: Family | UserLayout | OfferedLayouts,
        packed: frozenset[str] = frozenset(),
        cuts_rows: bool = False,
        halo: frozenset[str] = frozenset(),
    ) -> KernelVariant | None:
        """The variant that writes `out` and reads `data`, as of `tiled_variant`."""
        kinds = image_tiles(self.target)
        return tiled_variant(
            self.roles, self.constants, out, data, self.target, kinds, packed, cuts_rows, halo
        )

    def _as_moves(self, variant: KernelVariant) -> KernelVariant:
        """The variant, as runs through memory or as transposed blocks where it only moves."""
        if self.context.runs:
            sized = self.context.sized
            variant = as_runs(variant, self.roles, self.definition, self.target, sized)
        return as_block_transpose(variant, self.definition, self.target)

    def _with_rows(self, variant: KernelVariant) -> Iterator[KernelVariant]:
        """The variant, and those with lanes along the rows of its image."""
        joins = self.context.joins and self.context.runs
        joins = joins and not asks_for_indices(self.definition)
        yield from _with_demands(variant, self.roles)
        yield from along_rows(variant, self.roles, self.constants, self.target, joins)

    def _without_borders(self, out: Family, name: str, layout: Layout) -> KernelVariant | None:
        """The variant that reads the input `name` in a layout with a halo, of a kind that needs it;
        None where there is no such kind, or another one is cheaper."""
        if not any(kind.by_price for kind in image_tiles(self.target)):
            return None
        if not self.roles.sums_integers:
            return None
        given, halo = OfferedLayouts(((name, layout),)), frozenset((name,))
        variant = self.variant(out, given, halo=halo)
        kind = variant.recipe.kind if variant and isinstance(variant.recipe, Tiled) else None
        return variant if isinstance(kind, ImageTile) and kind.by_price else None

    def _transposing_first(self, out: Family, data: Family) -> Iterator[KernelVariant]:
        """The variants that read one factor of a product across the lanes, in the layout of `data`.

        Nothing where that is the layout which the other variants read it in.
        """
        decided = decisions_of(self.roles, self.constants, out, self.target)
        for buffer in self.roles.inputs if decided is not None else ():
            layout = data.instantiate(buffer.shape)
            if buffer.name in self.constants or layout is None or decided is None:
                continue
            if layout != decided.layouts.get(buffer.name) and may_transpose_first(
                self.roles, decided, buffer.name, layout, self.target
            ):
                variant = self.variant(out, OfferedLayouts(((buffer.name, layout),)))
                if variant is not None:
                    yield variant

    def _packed_in_run(self, out: Family) -> Iterator[frozenset[str]]:
        """The weights given at run time that a variant may read in a packed layout, if there are
        any.

        These are factors of a sum of products that neither the rows of a tile nor other axes
        outside the lanes depend on, so each element of them is read many times.
        """
        given = self.roles.factors - self.constants
        decided = (
            decisions_of(self.roles, self.constants | given, out, self.target) if given else None
        )
        if decided is None:
            return
        found = frozenset(b.name for b in decided.packed if len(b.shape) > 1) & given
        if found:
            yield found

    def _in_whole_groups(self) -> Iterator[Family]:
        """The families in which channels are in whole groups, as instructions sum them."""
        terms = {kind.factors[0]: kind.terms for kind in (DotTile, PairTile)}
        for name in sorted(self.roles.factors):
            buffer = self.roles.reads[name][0].buffer
            count = terms.get(buffer.dtype, 1)
            if len(buffer.shape) > 2 and buffer.shape[1] % count:
                yield from (
                    family
                    for family in families(len(buffer.shape), count, self.target)
                    if family.construction.name == "channels_last_padded"
                )


def tiled_in(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    out: Family | UserLayout,
    data: Family | UserLayout | OfferedLayouts,
) -> Iterator[KernelVariant]:
    """The tiled variants in layouts of no family; building them may be refused."""
    roles = tile_roles(definition)
    if roles is not None:
        variant = TiledKernel(definition, roles, constants, target).variant(out, data)
        if variant is not None:
            yield from _with_demands(variant, roles)


def offered_choices(offered: Offers) -> Iterator[tuple[tuple[str, Layout], ...]]:
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
