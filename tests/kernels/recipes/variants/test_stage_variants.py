"""Variants of kernels whose stages meet: for which definitions and layouts, and their prices."""

from collections.abc import Callable

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.target import Target
from graphflow.codegen import avx2_target
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.reductions import normalization, reduction
from graphflow.kernels.recipes import KernelVariant, Padding, RefusedVariant, SharedLoops
from graphflow.kernels.recipes.variants.stage_variants import ROWS, stage_variants
from graphflow.models import ModelBuilder
from graphflow.tir import PrimFunc
from support.models.peer_sessions import peer_session
from support.schedule_checks import kernel
from support.targets import in_turn

pytestmark = pytest.mark.decisions

TARGET = avx2_target()


def recipes(definition: PrimFunc) -> dict[str, SharedLoops]:
    """By the layout of the output."""
    found: dict[str, SharedLoops] = {}
    for variant in stage_variants(definition, TARGET):
        assert isinstance(variant, KernelVariant) and isinstance(variant.recipe, SharedLoops)
        found[variant.name.split(",")[0]] = variant.recipe
    return found


NONE: dict[str, Callable[[], PrimFunc]] = {
    "one stage without a reduction": lambda: elementwise.unary("exp", (4, 8)),
    "no elements": lambda: reduction.softmax((0, 8), (1,)),
    "no terms": lambda: reduction.reduce("sum", (4, 0), (1,)),
}


@pytest.mark.parametrize("name", NONE)
def test_other_definitions_have_none(name: str) -> None:
    assert not list(stage_variants(NONE[name](), TARGET))


def test_a_definition_whose_stages_cannot_meet_says_why() -> None:
    body = """
t = alloc(i32[4, 6])
with block("copy"):
    for c in serial(0, 4):
        for r in serial(0, 6):
            t[c, r] = x[c, r]
with block("turned"):
    for i in serial(0, 4):
        for j in serial(0, 6):
            y[i, j] = t[i, j] + t[3 - i, j]
"""
    func = kernel(body, "x: i32[4, 6], y: out[i32[4, 6]]")
    (refused,) = stage_variants(func, TARGET)
    assert isinstance(refused, RefusedVariant)


@pytest.mark.parametrize(
    ("rows", "columns", "several"),
    [(64, 133, ROWS), (64, 512, ROWS), (64, 520, 1), (7, 133, 1), (8, 133, ROWS), (1, 58, 1)],
)
def test_short_rows_are_handled_several_at_a_time(rows: int, columns: int, several: int) -> None:
    (recipe,) = recipes(reduction.softmax((rows, columns), (1,))).values()
    assert (recipe.lane_loop, recipe.rows) == (None, several)


def test_lanes_follow_the_layout() -> None:
    found = recipes(reduction.softmax((1, 24, 6, 10), (1,)))
    assert found["NCHW"].lane_loop is not None
    assert found["NHWC"].lane_loop is None


@in_turn("channels", (64, 37))
def test_lanes_run_along_short_images_that_are_reduced(target: Target, channels: int) -> None:
    """As rows of 49 elements, where tiles would gather the lanes of several images."""
    shape = (1, channels, 7, 7)
    images = reduction.reduce("mean", shape, (2, 3))
    found = [*stage_variants(images, target, across=False)]
    inside = [v for v in found if isinstance(v, KernelVariant)]
    assert [v.name.split(",")[0] for v in inside] == ["NCHW"]
    (recipe,) = (v.recipe for v in inside)
    assert isinstance(recipe, SharedLoops) and recipe.lane_loop is None and recipe.rows == ROWS
    b = ModelBuilder(0)
    b.node("ReduceMean", [b.input("x", shape)], ["y"], axes=[2, 3])
    b.output("y", shape=(1, channels, 1, 1))
    exe = gf.compile(b.model(), target=target)
    chosen = (choice.variant.recipe for choice in exe.compiled.plan.choices.values())
    assert any(isinstance(r, SharedLoops) and r.lane_loop is None for r in chosen)
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    (y,) = exe.run({"x": x}).values()
    np.testing.assert_allclose(y, x.mean((2, 3), keepdims=True), atol=1e-6)


def test_a_count_takes_no_lanes() -> None:
    body = """
total = alloc(f32[16])
with block("sum"):
    for i in serial(0, 16):
        total[i] = f32(0.0)
    for i_1 in serial(0, 16):
        for j in serial(0, 64):
            total[i_1] += x[i_1, j]
with block("given"):
    for k in serial(0, 16):
        y[k] = select(data(index(k, i64) < count[()]), total[k], f32(0.0))
"""
    params = "x: f32[16, 64], count: i64[()], y: out[f32[16]]"
    func = kernel(body, params)
    lanes = {recipe.lanes for recipe in recipes(func).values()}
    assert lanes == {TARGET.computed_lanes("float32")}


@pytest.mark.parametrize(("columns", "vectors"), [(8, 1), (63, 1), (64, 2), (127, 2), (128, 4)])
def test_blocks_across_rows_are_as_wide_as_gives_four_of_them(columns: int, vectors: int) -> None:
    recipe, *_ = recipes(reduction.softmax((1, 5, columns), (1,))).values()
    assert recipe.lane_loop is not None
    assert recipe.vectors == vectors


@pytest.mark.parametrize(
    ("shape", "lanes"),
    [((6, 20, 4), 4), ((6, 20, 5), 8), ((6, 20, 8), 8), ((1, 5, 4, 4), 8), ((4, 5, 1, 4), 4)],
)
def test_vectors_are_no_longer_than_the_row_that_they_run_along(
    shape: tuple[int, ...], lanes: int
) -> None:
    """Images of 4×4 are rows of 16, as their lines follow each other in memory."""
    recipe, *_ = recipes(reduction.softmax(shape, (1,))).values()
    assert (recipe.lane_loop is not None, recipe.lanes, recipe.vectors) == (True, lanes, 1)


def test_lanes_that_no_element_fills_are_paid_for() -> None:
    def cycles(columns: int) -> float:
        found, *_ = stage_variants(reduction.softmax((6, 20, columns), (1,)), TARGET)
        assert isinstance(found, KernelVariant)
        return found.work.cycles

    assert cycles(5) == pytest.approx(cycles(8)) == pytest.approx(cycles(9) / 2)


@in_turn("columns", [4, 5, 8, 12])
def test_short_rows_are_reduced_across(target: Target, columns: int) -> None:
    b = ModelBuilder()
    b.output(b.node("Softmax", [b.input("x", (6, 20, columns))], axis=1))
    model = b.model()
    exe = gf.compile(model, target=target)
    x = np.random.default_rng(0).standard_normal((6, 20, columns), np.float32)
    (expected,) = peer_session(model).run(None, {"x": x})
    (found,) = exe.run({"x": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_a_padded_output_keeps_its_padding() -> None:
    for variant in stage_variants(reduction.softmax((1, 21, 5, 7), (3,)), TARGET):
        assert isinstance(variant, KernelVariant)
        padded = variant.layouts["y"].is_padded
        assert (variant.padding is Padding.KEPT) is padded


def test_prices_grow_with_the_work() -> None:
    """Twice the rows cost twice as much, and more operations in a stage more."""

    def cycles(definition: PrimFunc) -> float:
        found = [v for v in stage_variants(definition, TARGET) if isinstance(v, KernelVariant)]
        return found[0].work.cycles

    small, large = (
        cycles(reduction.softmax((64, 80), (1,))),
        cycles(reduction.softmax((128, 80), (1,))),
    )
    assert large == pytest.approx(2 * small)
    normal = normalization.layer_normalization((64, 80), 1, (80,), (80,))
    assert 0 < cycles(reduction.reduce("max", (64, 80), (1,))) < cycles(normal) < small


def transposing(definition: PrimFunc) -> dict[tuple[str, str], SharedLoops]:
    """By the layouts of x and y, the recipes with lanes across lines of memory."""
    found: dict[tuple[str, str], SharedLoops] = {}
    for variant in stage_variants(definition, TARGET):
        assert isinstance(variant, KernelVariant) and isinstance(variant.recipe, SharedLoops)
        if variant.recipe.transposed:
            layouts = variant.layouts["x"].describe(), variant.layouts["y"].describe()
            found[layouts] = variant.recipe
    return found


def test_lanes_across_lines_cross_what_does_not_lie_along_them() -> None:
    """Rows of 32 elements are short: a row alone is a few vectors, and added up at the end."""
    found = transposing(normalization.layer_normalization((1, 4096, 32), 2, (32,), (32,)))
    transposed = {layouts: recipe.transposed for layouts, recipe in found.items()}
    assert transposed["NCW", "NCW"] == ("x", "y")
    assert transposed["NCW", "NCW8c"] == transposed["NCW", "NWC"] == ("x",)
    assert transposed["NCW8c", "NCW"] == ("y",)
    assert all(recipe.lane_loop == 0 and recipe.vectors == 4 for recipe in found.values())


@pytest.mark.parametrize(("columns", "rows"), [(64, "NCW"), (512, "NCW")])
def test_long_rows_keep_their_lanes_where_they_lie_in_memory(columns: int, rows: str) -> None:
    """Of two variants in the same layouts only the cheaper one is offered."""
    definition = normalization.layer_normalization((1, 256, columns), 2, (columns,), (columns,))
    placed = [
        tuple(layout for _, layout in variant.layouts.items())
        for variant in stage_variants(definition, TARGET)
        if isinstance(variant, KernelVariant)
    ]
    assert len(set(placed)) == len(placed)
    assert (rows, rows) not in transposing(definition)


@pytest.mark.parametrize("rows", [197, 4])
def test_rows_that_fill_no_whole_vectors_cross_nothing(rows: int) -> None:
    assert not transposing(normalization.layer_normalization((1, rows, 32), 2, (32,), (32,)))


def test_lines_that_the_near_cache_does_not_hold_are_not_crossed() -> None:
    assert not transposing(normalization.layer_normalization((1, 64, 4096), 2, (4096,), (4096,)))


def test_elements_of_two_bytes_are_not_crossed() -> None:
    definition = unary_then_sum("int16")
    assert transposing(unary_then_sum("int32"))
    assert not transposing(definition)


def unary_then_sum(dtype: str) -> PrimFunc:
    """Each element of 64 rows of 16 less the sum of its row."""
    body = f"""
t = alloc({dtype}[64])
with block("clear"):
    for c in serial(0, 64):
        t[c] = {dtype}(0)
with block("sums"):
    for r in serial(0, 64):
        for k in serial(0, 16):
            t[r] += x[r, k]
with block("less"):
    for i in serial(0, 64):
        for j in serial(0, 16):
            y[i, j] = x[i, j] - t[i]
"""
    short = dtype.replace("int", "i")
    body = body.replace(dtype, short)
    return kernel(body, f"x: {short}[64, 16], y: out[{short}[64, 16]]")


@in_turn("width", [64, 40])
def test_keys_that_a_row_reads_once_are_read_where_they_lie(target: Target, width: int) -> None:
    """One token's scores: lanes along the width, so keys are not transposed for them."""
    b = ModelBuilder()
    q, k, v = (b.input(n, (1, 3, e, width)) for n, e in (("q", 1), ("k", 50), ("v", 50)))
    turned = b.node("Transpose", [k], perm=[0, 1, 3, 2])
    shares = b.node("Softmax", [b.node("MatMul", [q, turned])], axis=-1)
    b.output(b.node("MatMul", [shares, v]))
    model = b.model()
    exe = gf.compile(model, target=target, options=gf.Options(threads=2, poison=True))
    assert not {k, turned} & {made.value for made in exe.compiled.plan.conversions}
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.standard_normal(t.shape).astype(np.float32) for t in exe.inputs}
    (expected,) = peer_session(model).run(None, inputs)
    (found,) = exe.run(inputs).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
