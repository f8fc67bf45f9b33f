"""The variants of kernels that multiply transformed tiles, with their prices.

In: a definition with such stages, which of its inputs are constants, and the target.  Out: a
variant for each pair of layouts of the image and of the output that keep channels in vectors, with
the bands that are cheapest; the reason, where channels do not fill two vectors or an image has a
single row or column of tiles.  Nothing for other kernels.

What always holds: no variant reads or writes padding, so nothing is demanded of any.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod

from graphflow import tir
from graphflow.arith import FloorMod, IndexExpr, Var
from graphflow.base.dtypes import HALVES
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import (
    TileBands,
    TransformedTiles,
    Work,
    awaited_weights,
    first_of_cheapest,
    fits_stack,
    iterations,
    plane_elements,
    smaller_runs,
    tile_band_cycles,
    transformed_lanes,
    typical_runs,
    uneven_shares,
)
from graphflow.kernels.recipes.analysis.filtered_stages import FilteredStages, filtered_stages
from graphflow.kernels.recipes.analysis.narrow_sums import sums_terms
from graphflow.kernels.recipes.analysis.positions import touched
from graphflow.kernels.recipes.analysis.variant import (
    FilteredTiles,
    KernelVariant,
    Padding,
    RefusedVariant,
)
from graphflow.layout import IndexMap, Layout, families, logical_vars, row_major
from graphflow.schedule import Refusal

TRANSFORMED_TILES = "in transformed tiles"
"""The name of variants that multiply transformed tiles."""


def tile_band_variants(
    definition: tir.PrimFunc, constants: frozenset[str], target: Target
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants of a definition with transformed tiles, or why it has none."""
    found = filtered_stages(definition)
    if found is None:
        return
    lanes = _lanes(found, target)
    bands = _bands(found, constants, lanes, target)
    if isinstance(bands, str):
        yield RefusedVariant(TRANSFORMED_TILES, Refusal("", bands))
        return
    work, recipe = found.work, _recipe(found, bands, lanes, target)
    cycles, awaited = tile_band_cycles(work, bands, target), awaited_weights(work)
    fewer = smaller_runs(work, bands, target)
    seen: set[tuple[Layout, Layout]] = set()
    choices = families(len(found.x.shape), lanes, target)
    for data, out in product(choices, choices):
        read, left = data.instantiate(found.x.shape), out.instantiate(found.y.shape)
        if read is None or left is None or (read, left) in seen:
            continue
        seen.add((read, left))
        if not (_in_vectors(read, bands.data_lanes) and _in_vectors(left, lanes)):
            continue
        layouts = _layouts(definition, found, read, left, bands)
        read_bytes, written, fixed = touched(definition.params, layouts, constants)
        rows = iterations(work, bands)
        weights = [b for b in (found.u, found.w) if b is not None]
        # Plain ones are read where an element is large alone.
        plain = sum(layouts[b.name].bytes(b.dtype) for b in weights[1:])
        read_bytes, fixed = read_bytes - plain, fixed - plain
        used = Work(_flops(found), cycles, rows, read_bytes, written, fixed, awaited)
        of = "×".join([str(found.tile)] * found.axes)
        names = dict.fromkeys((read.describe(), left.describe()))
        name = f"{' → '.join(names)}, {TRANSFORMED_TILES} of {of}"
        private = frozenset(b.name for b in weights)
        # Threads share the loop over bands alone, which stores no constant to padding.
        padding = Padding.KEPT if left.is_padded else Padding.NONE
        yield KernelVariant(name, layouts, private, {}, padding, recipe, used, True, fewer)


def recipe_of_bands(
    definition: tir.PrimFunc, constants: frozenset[str], target: Target
) -> tuple[float, FilteredTiles] | None:
    """The recipe that all variants of a definition with transformed tiles have, and its cycles;
    None where it has no such variant."""
    found = filtered_stages(definition)
    if found is None:
        return None
    lanes = _lanes(found, target)
    bands = _bands(found, constants, lanes, target)
    if isinstance(bands, str):
        return None
    return tile_band_cycles(found.work, bands, target), _recipe(found, bands, lanes, target)


def _recipe(found: FilteredStages, bands: TileBands, lanes: int, target: Target) -> FilteredTiles:
    image, outputs = (buffer.shape[1] % lanes > 0 for buffer in (found.x, found.y))
    return FilteredTiles(bands, plane_elements(found.work, bands, target), (image, outputs))


def _lanes(found: FilteredStages, target: Target) -> int:
    """The lanes of the vectors that the channels of a kernel fill, or those of a whole vector."""
    lanes = target.computed_lanes("float32")
    if found.work.terms > 1:
        return lanes
    own = transformed_lanes(found.channels, target)
    return lanes if any(count % own for count in found.channels) else own


def _bands(
    found: FilteredStages, constants: frozenset[str], lanes: int, target: Target
) -> TileBands | str:
    """The bands of a kernel, or why it has none."""
    inputs, outputs = found.channels
    given = found.x.shape[1], found.y.shape[1]
    if not {b.name for b in (found.u, found.w) if b is not None} <= constants:
        return "its weights are no constants"
    if inputs % lanes or outputs % lanes or min(inputs, outputs) < 2 * lanes:
        return f"its {given[0]} and {given[1]} channels do not fill two or more vectors of {lanes}"
    if min(found.tiles) < 2:
        return "an image has a single row or column of tiles"
    if found.guards and found.y.dtype not in ("float32", *HALVES):
        return f"its output has elements of {found.y.dtype}"
    if found.work.terms > 1 and not sums_terms(target, (found.u.dtype,) * 2, found.work.terms):
        return f"the target has no sums of products of {found.u.dtype}"
    none = f"no band of its tiles and {inputs} and {outputs} channels fits the stack of a thread"
    return cheapest_bands(found.work, lanes, target) or none


def _flops(found: FilteredStages) -> float:
    """The operations of the sums that the kernel stands for."""
    return 2.0 * found.y.size * found.x.shape[1] * found.work.taps


def _in_vectors(layout: Layout, lanes: int) -> bool:
    """Whether a layout has whole vectors of neighbouring channels, and no other padding than in the
    last of these."""
    channel = logical_vars(len(layout.logical_shape))[1]
    last = layout.index_map.outputs[-1]
    padded = prod(layout.physical_shape) - prod(layout.logical_shape)
    rest = -layout.logical_shape[1] % lanes
    if padded not in (0, prod(layout.logical_shape) // layout.logical_shape[1] * rest):
        return False
    if isinstance(last, FloorMod):
        return last.numerator is channel and last.divisor % lanes == 0
    return isinstance(last, Var) and last.name == channel.name


def _layouts(
    definition: tir.PrimFunc, found: FilteredStages, read: Layout, left: Layout, bands: TileBands
) -> dict[str, Layout]:
    layouts = {
        buffer.name: left if buffer.shape == found.y.shape else row_major(buffer.shape)
        for buffer in (p.buffer for p in definition.params)
    }
    layouts[found.x.name] = read
    layouts[found.u.name] = in_order_of_use(found.u.shape, bands)
    if found.w is not None:
        layouts[found.w.name] = _outputs_last(found.w.shape)
    return layouts


@lru_cache(maxsize=1024)
def in_order_of_use(shape: tuple[int, ...], bands: TileBands) -> Layout:
    """Transformed weights [a, b, c, o] in the order in which an iteration reads them."""
    width, group, part = bands.vectors * bands.lanes, bands.group, bands.slice
    terms = bands.terms

    def place(a: IndexExpr, b: IndexExpr, c: IndexExpr, o: IndexExpr) -> tuple[IndexExpr, ...]:
        outer = (o // group, c // part, a, b, o % group // width)
        if terms == 1:
            return (*outer, c % part, o % width)
        return (*outer, c % part // terms, o % width, c % terms)

    return Layout.of(IndexMap.from_function(4, place, shape), shape)


@lru_cache(maxsize=1024)
def _outputs_last(shape: tuple[int, ...]) -> Layout:
    """Weights [o, c, k…] with the output channels in the lanes."""

    def place(o: IndexExpr, c: IndexExpr, *taps: IndexExpr) -> tuple[IndexExpr, ...]:
        return (*taps, c, o)

    return Layout.of(IndexMap.from_function(len(shape), place, shape), shape)


@lru_cache(maxsize=1024)
def cheapest_bands(work: TransformedTiles, lanes: int, target: Target) -> TileBands | None:
    """The bands in which a kernel takes the fewest cycles; None where none fits the stack.

    There are several iterations: the recipe computes the stages of a band in the loop over them,
    and threads share nothing of a single one.
    """
    options = [
        bands
        for bands in _all_bands(work, lanes, target)
        if fits_stack(work, bands, target) and iterations(work, bands) > 1
    ]
    if not options:
        return None
    return first_of_cheapest((_charged(work, bands, target), bands) for bands in options)


def _charged(work: TransformedTiles, bands: TileBands, target: Target) -> float:
    """Cycles, with a charge where threads cannot share the iterations evenly; of several typical
    runs their product, so that each counts by what it loses."""
    cycles = []
    for run in typical_runs(work):
        of_run = replace(bands, rows=min(bands.rows, run.rows))
        charge = uneven_shares(iterations(run, of_run))
        cycles.append(tile_band_cycles(run, of_run, target) * charge)
    return prod(cycles)


MOST_CHANNELS = 256
"""The most channels of a group, and of a slice.  The fewest are two vectors."""


def _all_bands(work: TransformedTiles, lanes: int, target: Target) -> Iterator[TileBands]:
    # One register holds what is broadcast, and another one products that are added afterwards.
    room = target.vector_registers - work.terms
    slices, groups = (
        [n for n in _divisors(count) if n % lanes == 0 and 2 * lanes <= n <= MOST_CHANNELS]
        for count in work.channels
    )
    for vectors in (1, 2, 3, 4):
        most = min(work.columns, room // vectors - 1)
        rows_of_registers = {-(-work.columns // -(-work.columns // n)) for n in range(1, most + 1)}
        for tiles, rows, group, sliced in product(
            sorted(rows_of_registers), _divisors(work.rows), groups, slices
        ):
            if group % (vectors * lanes) == 0:
                wide = lanes * work.terms
                # Several vectors, as the recipe needs the loop over them.
                data_lanes = wide if sliced % wide == 0 and sliced > wide else lanes
                yield TileBands(rows, group, sliced, tiles, vectors, lanes, data_lanes, work.terms)


@lru_cache(maxsize=256)
def _divisors(n: int) -> tuple[int, ...]:
    return tuple(k for k in range(1, n + 1) if n % k == 0)
