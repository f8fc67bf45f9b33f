"""Tests of the work that tiled variants are priced by."""

import pytest

from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS, restricted_to_avx2
from graphflow.base.target import Target
from graphflow.codegen import avx2_target
from graphflow.cost import UNPACKED, CostModel
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes import KernelVariant, Tiled, kernel_variants
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.kernels.recipes.tile_kinds.own_vector_tiles import OwnVectorTile
from graphflow.kernels.recipes.tile_kinds.sliding_tiles import SlidingTile
from graphflow.layout import row_major
from graphflow.tir import PrimFunc
from support.targets import USUAL

pytestmark = pytest.mark.decisions

TARGET = avx2_target()
FIXED = restricted_to_avx2(PROCESSORS[USUAL])
"""For numbers of blocks, which depend on registers and caches."""
PACKED = {"w", "b"}
"""The names of weights in the definitions."""
ONE_LOAD_EACH = 0.9 * UNPACKED / (2 * TARGET.lanes("float32"))
"""About the cycles of a multiply-add whose vector serves no other one, two done in a cycle."""


def plain(definition: PrimFunc, target: Target = TARGET) -> KernelVariant:
    """The first variant that reads and writes row-major."""
    constants = frozenset(b.name for b in definition.inputs if b.name in PACKED)
    data = [b for b in (*definition.inputs, *definition.outputs) if b.name not in PACKED]
    return next(
        v
        for v in kernel_variants(definition, constants, target)
        if all(v.layouts[b.name] == row_major(b.shape) for b in data)
    )


@pytest.mark.parametrize("lead", [(1,), (1, 1), (2,)])
def test_a_product_costs_the_same_per_row_whatever_its_rank_is(lead: tuple[int, ...]) -> None:
    """Its lanes run along columns, which is axis 1 only of a matrix."""
    flat = plain(linear.matmul((96, 64), (64, 80))).work.cycles
    deep = plain(linear.matmul((*lead, 96, 64), (64, 80))).work.cycles
    assert deep == pytest.approx(flat * lead[0], rel=0.05)


def test_operands_of_a_run_are_priced_alike() -> None:
    one = plain(linear.matmul((96, 64), (64, 80))).work.cycles
    apart = linear.matmul((3, 96, 64), (3, 64, 80))
    both = next(iter(kernel_variants(apart, frozenset(), TARGET)))
    assert both.work.cycles < 1.5 * 3 * one


def test_lanes_along_a_row_of_the_image_load_a_vector_for_each_multiply_add() -> None:
    """A trap: the rows of the tile are rows of the image, which have their own pixels."""
    work = plain(convolution.convolution((1, 32, 32, 32), (32, 32, 1, 1))).work
    assert work.cycles > ONE_LOAD_EACH * work.flops / 2


def test_taps_across_the_rows_of_a_tile_share_what_they_load() -> None:
    """Each row of the image is loaded once for the three taps that meet it."""
    variant = plain(convolution.convolution((1, 32, 32, 32), (32, 32, 3, 3)))
    assert isinstance(variant.recipe, Tiled) and isinstance(variant.recipe.kind, SlidingTile)
    work = variant.work
    assert ONE_LOAD_EACH / 3 < 2 * work.cycles / work.flops < ONE_LOAD_EACH


def test_a_window_slides_along_the_rows_and_no_other_axis_of_equal_stride() -> None:
    """Planes of two rows: a step of two rows is as far as one plane, which a halo ends."""
    definition = convolution.convolution(
        (1, 32, 2, 2, 2),
        (32, 1, 2, 2, 3),
        Window.of((2, 2, 3), pads=(2, 2, 0, 1, 2, 2), strides=(1, 2, 3)),
        groups=32,
    )
    for variant in kernel_variants(definition, frozenset({"w"}), TARGET):
        if isinstance(variant.recipe, Tiled):
            assert not isinstance(variant.recipe.kind, SlidingTile), variant.name


def test_channels_share_the_pixels_that_the_lanes_load() -> None:
    """In one dimension the rows of the tile are channels: a vector of pixels serves them all."""
    work = plain(convolution.convolution((1, 32, 64), (32, 32, 3))).work
    assert work.cycles < ONE_LOAD_EACH * work.flops / 2


def test_lanes_of_one_group_share_the_pixel_that_is_broadcast() -> None:
    """The image depends on the group of a lane, not on the lane: rows do not slide over it."""
    definition = convolution.convolution(
        (1, 64, 12, 12), (64, 32, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1)), groups=2
    )
    grouped = next(
        v for v in kernel_variants(definition, frozenset({"w"}), TARGET) if v.name == "NHWC"
    )
    assert isinstance(grouped.recipe, Tiled)
    assert grouped.recipe.kind.group == 32
    assert not isinstance(grouped.recipe.kind, SlidingTile)
    multiply_adds = grouped.work.flops / 2 / TARGET.lanes("float32")
    assert grouped.work.cycles < 1.25 * multiply_adds / TARGET.fmas_per_cycle


@pytest.mark.parametrize(("lanes", "registers"), [(8, 16), (16, 32)])
def test_positions_that_fill_vectors_are_no_reason_to_leave_weights_unpacked(
    lanes: int, registers: int
) -> None:
    """Lanes along the positions would broadcast weights from another cache line in each step."""
    target = Target(f"{lanes} lanes", "", "", 4 * lanes, registers)
    for positions in (lanes - 1, lanes, lanes + 1, 4 * lanes):
        for depth, columns in ((256, 1024), (512, 128), (128, 128), (312, 312)):
            product = linear.matmul((1, positions, depth), (depth, columns))
            variants = kernel_variants(product, frozenset("b"), target)
            assert "b" in min(variants, key=lambda v: v.work.cycles).private


@pytest.mark.parametrize(
    ("definition", "waits"),
    [
        pytest.param(
            convolution.convolution(
                (1, 64, 56, 56), (64, 64, 3, 3), Window.of((3, 3), dilations=(2, 2))
            ),
            True,
            id="three taps of a line",
        ),
        pytest.param(
            convolution.convolution((1, 512, 3199), (512, 512, 3), Window.of((3,), strides=(2,))),
            True,
            id="every second position",
        ),
        pytest.param(
            convolution.transposed_convolution(
                (1, 128, 28, 28), (128, 64, 4, 4), (56, 56), strides=(2, 2), pads_begin=(1, 1)
            ),
            True,
            id="every second tap",
        ),
        pytest.param(
            convolution.convolution((1, 3, 56, 56), (64, 3, 7, 7)), False, id="few channels"
        ),
    ],
)
def test_taps_of_rows_of_many_channels_are_awaited(definition: PrimFunc, waits: bool) -> None:
    """The first-level cache has lost the lines of a row-major image when the next tile reads them;
    pixels whose channels are together are read line after line."""
    target = PROCESSORS[USUAL]  # one for which such lines were measured
    variants = kernel_variants(definition, frozenset({"w"}), target)
    cycles = {variant.name: variant.work.cycles for variant in variants}
    channels_last = "NWC" if len(definition.outputs[0].shape) == 3 else "NHWC"
    apart = cycles[f"{channels_last.replace('C', '').replace('N', 'NC')} → {channels_last}"]
    assert (apart > 1.05 * cycles[channels_last]) == waits


def blocks_of(variant: KernelVariant) -> int:
    """The blocks into which the rows of a variant's tiles are cut."""
    assert isinstance(variant.recipe, Tiled) and isinstance(variant.recipe.kind, BroadcastTile)
    return variant.recipe.kind.blocks


def test_rows_of_a_tall_product_are_cut_into_blocks_that_threads_share() -> None:
    """Each block is read once for all panels."""
    variant = plain(linear.matmul((4096, 64), (64, 64)))
    assert isinstance(variant.recipe, Tiled)
    assert blocks_of(variant) == 16 and not variant.recipe.tiling.panel_outermost
    assert variant.work.rows == 16


@pytest.mark.parametrize("columns", [64, 60])
def test_few_panels_of_a_product_share_their_rows_among_threads(columns: int) -> None:
    """Also columns that end within a vector."""
    variant = plain(linear.matmul((96, 512), (512, columns)), FIXED)
    assert isinstance(variant.recipe, Tiled) and variant.recipe.tiling.panel_outermost
    panels = variant.recipe.tiling.panels[0].count
    assert panels < 8 <= blocks_of(variant) * panels == variant.work.rows


def test_threads_share_rows_where_data_from_other_cores_costs_more_than_weights() -> None:
    """With panels outermost each thread reads what other threads wrote, where these shared rows."""
    near = replace(FIXED, name="near", exchange_awaited=0.0)
    far = replace(FIXED, name="far", exchange_awaited=1.0)
    outermost = plain(linear.matmul((96, 512), (512, 64)), near)
    inside = plain(linear.matmul((96, 512), (512, 64)), far)
    assert isinstance(outermost.recipe, Tiled) and outermost.recipe.tiling.panel_outermost
    assert isinstance(inside.recipe, Tiled) and not inside.recipe.tiling.panel_outermost
    assert (outermost.work.exchanged, inside.work.exchanged) == (4 * 96 * 512, 0)
    seconds = [CostModel(target, 2).kernel_seconds(outermost.work) for target in (near, far)]
    assert seconds[1] > seconds[0]


@pytest.mark.parametrize("rows", [64, 61])
def test_sums_between_rows_and_lanes_are_cut_into_blocks(rows: int) -> None:
    variant = plain(reduction.reduce("sum", (rows, 197, 58), (1,), keepdims=True), FIXED)
    assert isinstance(variant.recipe, Tiled)
    assert variant.recipe.kind.blocks > 1  # type: ignore[attr-defined]
    assert variant.work.rows >= 7


@pytest.mark.parametrize("rows", [97, 197])
def test_the_last_block_lacks_rows_where_no_blocks_are_of_equal_size(rows: int) -> None:
    variant = plain(linear.matmul((rows, 58), (58, 58)))
    blocks = blocks_of(variant)
    assert variant.work.rows >= 8
    assert rows % blocks and -(-rows // -(-rows // blocks)) == blocks


COVE = PROCESSORS["graniterapids"]


@pytest.mark.parametrize("target", [COVE, restricted_to_avx2(COVE)], ids=["AVX-512", "AVX2"])
def test_blocks_of_rows_that_a_cache_holds_run_around_panels(target: Target) -> None:
    """512 rows of 768 are 1.5 MiB, so each of the panels would read them from a farther cache."""
    definition = linear.matmul((512, 768), (768, 3072))
    near, whole = plain(definition, target), plain(definition, replace(target, far_rows_awaited=0))
    for variant in (near, whole):
        assert isinstance(variant.recipe, Tiled) and variant.recipe.tiling.panel_outermost
    assert blocks_of(near) in (3, 4, 5) and near.recipe.kind.blocks_outermost  # type: ignore
    assert not blocks_of(whole) and not whole.recipe.kind.blocks_outermost  # type: ignore
    panels = near.recipe.tiling.panels[0].count  # type: ignore[union-attr]
    assert near.work.rows == blocks_of(near) * panels
    assert near.work.exchanged == 0 < whole.work.exchanged


@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [
        pytest.param(192, 768, 3072, id="the cache holds all rows"),
        pytest.param(1500, 384, 384, id="the cache holds all weights"),
        pytest.param(512, 3072, 768, id="the cache holds few rows"),
    ],
)
def test_blocks_of_rows_do_not_run_around_panels_where(rows: int, terms: int, columns: int) -> None:
    recipe = plain(linear.matmul((rows, terms), (terms, columns)), COVE).recipe
    assert isinstance(recipe, Tiled) and not recipe.kind.blocks_outermost


@pytest.mark.parametrize(
    ("rows", "columns"),
    [pytest.param(96, 1024, id="panels enough"), pytest.param(1, 64, id="one row")],
)
def test_rows_are_not_cut_where(rows: int, columns: int) -> None:
    assert not blocks_of(plain(linear.matmul((rows, 512), (512, columns))))


def test_positions_with_a_border_are_not_cut() -> None:
    definition = convolution.convolution((1, 32, 64), (64, 32, 3), Window.of((3,), pads=(1, 1)))
    for variant in kernel_variants(definition, frozenset({"w"}), TARGET):
        if isinstance(variant.recipe, Tiled):
            assert not getattr(variant.recipe.kind, "blocks", 0), variant.name


@pytest.mark.parametrize(
    ("size", "window", "joined"),
    [
        pytest.param(7, Window.of((1, 1)), 1, id="rows of half a tile"),
        pytest.param(14, Window.of((1, 1)), 0, id="rows of a whole tile"),
        pytest.param(7, Window.of((3, 3), pads=(1,) * 4), 0, id="a border"),
    ],
)
def test_rows_of_an_image_are_joined_where_weights_are_read_for_few(
    size: int, window: Window, joined: int
) -> None:
    shape = (256, 832, *window.kernel)
    definition = convolution.convolution((1, 832, size, size), shape, window)
    variants = kernel_variants(definition, frozenset({"w"}), PROCESSORS["cascadelake-server"])
    best = min(variants, key=lambda variant: variant.work.cycles)
    assert getattr(best.recipe.kind, "joined", 0) == joined  # type: ignore[union-attr]


def test_lanes_along_what_a_stride_spreads_compute_all_taps() -> None:
    """Each of 16 taps meets two lanes of a vector along the output; along channels all or none."""
    definition = convolution.transposed_convolution(
        (1, 64, 96), (64, 32, 16), (768,), strides=(8,), pads_begin=(4,)
    )
    across = next(
        v
        for v in kernel_variants(definition, frozenset({"w"}), TARGET)
        if v.layouts["y"].describe() == "NWC"
    )
    assert plain(definition).work.cycles > 6 * across.work.cycles


@pytest.mark.parametrize("stride", [2, 8])
def test_lanes_with_taps_of_their_own_take_cycles_each(stride: int) -> None:
    """Lanes along the output of weights that a run gives: each is tested and loaded by itself."""
    channels, size, taps = 16, 256, 2 * stride
    definition = convolution.transposed_convolution(
        (1, channels, size), (channels, 1, taps), (stride * size,), strides=(stride,)
    )
    lanes = stride * size * channels * taps
    for width in (8, 16):
        target = Target(f"{width} lanes", "", "", 4 * width, 32)
        cheapest = min(v.work.cycles for v in kernel_variants(definition, frozenset(), target))
        along = min(v.work.cycles for v in kernel_variants(definition, frozenset("w"), target))
        assert cheapest >= lanes and along < cheapest / width


@pytest.mark.parametrize(("heads", "blocks"), [(32, 8), (8, 0), (2, 0)])
def test_vectors_times_matrices_of_their_own_are_shared_as_they_lie_in_memory(
    heads: int, blocks: int
) -> None:
    """Threads that took panels would each read a part of every matrix.  Not where fewer could share
    the work: the tiles of 8 heads have 4 panels, and are 2 blocks of rows."""
    definition = linear.matmul((1, heads, 1, 512), (1, heads, 512, 64))
    variant = next(
        v
        for v in kernel_variants(definition, frozenset(), FIXED)
        if all(v.layouts[b.name] == row_major(b.shape) for b in definition.inputs)
    )
    assert isinstance(variant.recipe, Tiled)
    assert isinstance(variant.recipe.kind, OwnVectorTile)
    assert variant.recipe.kind.blocks == blocks
    assert variant.recipe.tiling.panel_outermost == (blocks == 0)
    assert variant.work.rows == (blocks or variant.recipe.tiling.panels[0].count)
