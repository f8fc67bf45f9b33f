"""Tiles of dot products: which kernels they claim, and what they compute at ragged ends."""

import pytest

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS, restricted_to_avx2
from graphflow.base.target import Target
from graphflow.codegen import host_target
from graphflow.cost import BrainRows, DotRows
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.recipes import KernelVariant, Tiled
from graphflow.kernels.recipes.tile_kinds.dot_tiles import BrainTile, DotTile, PairTile
from graphflow.layout import Equal
from graphflow.lower import lower_call
from support.kernels.brain_products import brain_conv, brain_matmul, check_brain
from support.kernels.covering_variants import covering
from support.kernels.integer_products import check, conv, matmul, variants, without_matrices
from support.placing import call_of

VNNI, WORDS = PROCESSORS["zen4"], PROCESSORS["haswell"]
BYTE_FACTORS, WORD_FACTORS = ("uint8", "int8"), ("int16", "int16")


def dots(func: tir.PrimFunc, target: Target) -> list[KernelVariant]:
    """The variants in tiles of dot products."""
    return [
        v
        for v in variants(func, target)
        if isinstance(v.recipe, Tiled) and type(v.recipe.kind) in (DotTile, PairTile)
    ]


TARGETS = {"words": restricted_to_avx2(host_target())}
if "+avx512vnni" in host_target().features.split(","):
    TARGETS["bytes"] = without_matrices(host_target())


def types_for(name: str) -> tuple[str, str]:
    return BYTE_FACTORS if name == "bytes" else WORD_FACTORS


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(7, 33, 17), (5, 3, 16), (20, 18, 24), (1, 5, 5), (15, 64, 70)]
)
def test_matrix_products(rows: int, depth: int, columns: int, name: str) -> None:
    """Depths that are no whole number of groups, and columns that fill no vector."""
    func, target = matmul(rows, depth, columns, types_for(name)), TARGETS[name]
    for variant in dots(func, target):
        assert "dot" in check(func, variant, target) or name == "words"


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("channels", [3, 8, 17])
def test_convolutions(channels: int, name: str) -> None:
    """All layouts, with and without a halo, and room for a whole group of channels."""
    types, target = types_for(name), TARGETS[name]
    func = conv((1, channels, 6, 7), (9, channels, 3, 3), types, pads=(1, 1, 1, 1))
    found = dots(func, target)
    assert found
    for variant in covering(found, turn=channels):
        check(func, variant, target)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_left_of_a_depth_is_summed_where_padding_is_written(name: str) -> None:
    """Both sums are under the condition of the channels that exist."""
    types, target = types_for(name), TARGETS[name]
    func = conv((1, 17, 3, 20), (42, 17, 3, 3), types, pads=(1, 1, 1, 1))
    found = [v for v in dots(func, target) if v.layouts["y"].is_padded]
    assert found
    for variant in covering(found):
        check(func, variant, target, pad=0)


def test_a_group_with_room_is_summed_whole() -> None:
    """The weights behind the third channel are zeros, so the data there may be anything."""
    func = conv((1, 3, 6, 6), (16, 3, 3, 3), BYTE_FACTORS)
    roomy = [v for v in dots(func, VNNI) if v.layouts["x"].physical_shape[-1] == 4]
    assert roomy
    for variant in roomy:
        assert variant.demands == {"w": Equal(tir.Literal(0, "int8"))}
        text = tir.to_text(lower_call(call_of(func, variant), VNNI, "k").func)
        assert "dot4_16" in text and "dot3_16" not in text


def test_a_group_without_room_is_cheaper_to_give_room() -> None:
    func = conv((1, 3, 32, 32), (16, 3, 3, 3), BYTE_FACTORS)
    cycles = {v.layouts["x"].physical_shape[-1]: v.work.cycles for v in dots(func, VNNI)}
    assert cycles[4] < cycles[3]


@pytest.mark.parametrize(
    ("types", "target"),
    [(("int8", "int8"), VNNI), (BYTE_FACTORS, WORDS), (("uint8", "uint8"), VNNI)],
)
def test_types_without_an_instruction(types: tuple[str, str], target: Target) -> None:
    assert dots(matmul(16, 16, 16, types), target) == []


def test_kinds_of_instructions() -> None:
    (byte,), (word,) = (
        dots(matmul(16, 16, 16, BYTE_FACTORS), VNNI),
        dots(matmul(16, 16, 16, WORD_FACTORS), WORDS),
    )
    assert isinstance(byte.recipe, Tiled) and type(byte.recipe.kind) is DotTile
    assert isinstance(word.recipe, Tiled) and type(word.recipe.kind) is PairTile
    assert byte.layouts["b"].physical_shape[-1] == 4 and word.layouts["b"].physical_shape[-1] == 2


def test_terms_that_some_positions_leave_out_are_not_summed_together() -> None:
    """One channel: the taps along a row are next to each other, and the border leaves some out."""
    shape = (1, 1, 6, 6), (16, 1, 3, 3)
    assert dots(conv(*shape, BYTE_FACTORS, pads=(1, 1, 1, 1)), VNNI) == []
    assert dots(conv(*shape, BYTE_FACTORS), VNNI)


@pytest.mark.parametrize(
    ("factors", "target", "name"),
    [
        (BYTE_FACTORS, VNNI, "byte_product16"),
        (WORD_FACTORS, WORDS, "i16_product8"),
        (("uint8", "int16"), WORDS, "u8_product8"),
    ],
)
def test_depthwise_sums_are_products_in_lanes(
    factors: tuple[str, str], target: Target, name: str
) -> None:
    func = conv((1, 32, 6, 6), (32, 1, 3, 3), factors, groups=32, pads=(1, 1, 1, 1))
    assert dots(func, target) == []
    last = [v for v in variants(func, target) if v.name == "NHWC"]
    text = tir.to_text(lower_call(call_of(func, last[0]), target, "k").func)
    assert name in text


def test_steps_are_groups_of_terms() -> None:
    assert DotRows(depth=33).steps(9 * 33) == 9 * 9
    assert DotRows(depth=8, terms=2).steps(8) == 4


def test_without_the_feature_nothing_is_claimed() -> None:
    features = VNNI.features.replace(",+avx512vnni", "")
    without = replace(VNNI, name="without", features=features)
    assert dots(matmul(16, 16, 16, BYTE_FACTORS), without) == []
    assert dots(matmul(16, 16, 16, WORD_FACTORS), without), "words have AVX-512's instruction"


def test_data_that_is_read_again_behind_the_sum() -> None:
    func = tir.parse("""
    @primfunc
    def product(a: u8[16, 16], b: i8[16, 16], y: out[i32[16, 16]]):
        total = alloc(i32[16, 16])
        with block("product"):
            for i in serial(0, 16):
                for j in serial(0, 16):
                    total[i, j] = i32(0)
                    for k in serial(0, 16):
                        total[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
        with block("sum"):
            for p in serial(0, 16):
                for q in serial(0, 16):
                    y[p, q] = total[p, q] + cast(i32, a[p, q])
    """)
    target = TARGETS.get("bytes", VNNI)
    for variant in dots(func, target):
        if target is not VNNI:
            assert "dot4_16" in check(func, variant, target)


# bfloat16 ---------------------------------------------------------------------------------------

FLUSHING = replace(without_matrices(host_target()), name="flushing", flushes_denormals=True)
ZEN4, GRANITE = (
    replace(PROCESSORS[name], name=f"{name}-flushing", flushes_denormals=True)
    for name in ("zen4", "graniterapids")
)


def brain_tiles(func: tir.PrimFunc, target: Target) -> list[KernelVariant]:
    return [
        v
        for v in variants(func, target)
        if isinstance(v.recipe, Tiled) and v.recipe.kind is not None
        if isinstance(v.recipe.kind, BrainTile)
    ]


HAS_BRAIN_DOTS = "+avx512bf16" in host_target().features.split(",")
needs_brain_dots = pytest.mark.skipif(not HAS_BRAIN_DOTS, reason="this machine has no vdpbf16ps")


@needs_brain_dots
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(7, 33, 17), (5, 3, 16), (20, 18, 24), (1, 5, 5), (15, 64, 70)]
)
def test_matrix_products_of_brain_floats(rows: int, depth: int, columns: int) -> None:
    """Depths that are no whole number of pairs, and columns that fill no vector."""
    func = brain_matmul(rows, depth, columns)
    found = brain_tiles(func, FLUSHING)
    assert found or depth < 2
    for variant in found:
        text = check_brain(func, variant, FLUSHING)
        assert "brain_pair" in text
        assert "scratch" not in text  # the last term is added in registers, too


@needs_brain_dots
@pytest.mark.parametrize(
    ("x", "w", "more"),
    [
        ((1, 16, 6, 7), (32, 16, 1, 1), {}),
        ((1, 8, 6, 7), (9, 8, 3, 3), {"pads": (1, 1, 1, 1)}),
        ((1, 17, 9, 9), (16, 17, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
        ((1, 3, 11, 11), (16, 3, 3, 3), {"strides": (2, 2)}),
    ],
)
def test_convolutions_of_brain_floats(
    x: tuple[int, ...], w: tuple[int, ...], more: dict[str, object]
) -> None:
    func = brain_conv(x, w, **more)
    found = brain_tiles(func, FLUSHING)
    assert found
    for variant in covering(found):
        check_brain(func, variant, FLUSHING)


def test_brain_floats_need_a_target_that_flushes_denormals() -> None:
    func = brain_matmul(16, 64, 64)
    assert brain_tiles(func, PROCESSORS["zen4"]) == []
    assert brain_tiles(func, ZEN4)
    narrow_target = replace(restricted_to_avx2(ZEN4), name="narrow-flushing")
    assert brain_tiles(func, narrow_target) == []


def test_where_the_instruction_is_slow_it_is_not_used() -> None:
    """On Granite Rapids it adds half of the products that two multiply-adds would."""
    func = brain_matmul(64, 256, 256)
    assert brain_tiles(func, ZEN4) and brain_tiles(func, GRANITE) == []
    tiles = [v.work.cycles for v in brain_tiles(func, ZEN4)]
    plain = variants(linear.matmul((64, 256), (256, 256)), ZEN4)
    assert min(tiles) < 0.6 * min(v.work.cycles for v in plain)


def test_the_rows_of_brain_floats_have_the_registers_of_floats() -> None:
    rows, floats = BrainRows(depth=64, terms=2), DotRows(depth=64, terms=4)
    assert not rows.adds_apart and rows.steps(65 * 64) == 65 * 32
    assert not floats.adds_apart and DotRows(depth=64, terms=2).adds_apart
