"""The weights of the next panel that the tiles of a panel fetch."""

from itertools import product

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import Var, evaluate
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_ir, host_target
from graphflow.cost import Panels, Tiling
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes import Tiled, kernel_variants
from graphflow.kernels.recipes.kernel_schedule import kernel_schedule
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.kernels.recipes.variants.packing import AxisDigit, packed_weights
from graphflow.layout import row_major
from graphflow.schedule import Schedule, constant_extent
from support.native import Native
from support.schedule_checks import inputs_of

TARGETS = {"host": host_target(), "avx2": avx2_target()}
AVX2 = avx2_target()


def fetching(definition: tir.PrimFunc, panel: Panels, target: Target) -> tuple[Schedule, Schedule]:
    """A kernel whose panels run outermost, and the one whose tiles fetch its weights ahead."""
    weights = definition.inputs[1]
    lane = 0 if len(weights.shape) == 4 else 1
    others = (axis for axis in (2, 3, 1, 0) if axis < len(weights.shape) and axis != lane)
    order = tuple(map(AxisDigit, others))
    variant = next(
        v
        for v in kernel_variants(definition, frozenset({weights.name}), target)
        if isinstance(v.recipe, Tiled) and (lane or v.name == "NHWC")
    )
    layouts = dict(variant.layouts)
    layouts[weights.name] = packed_weights(weights.shape, lane, panel.width, order)
    placements = tuple((name, layout, None) for name, layout in layouts.items())
    tiling = Tiling((panel,), panel_outermost=True)
    plain, ahead = (
        kernel_schedule(
            definition, placements, Tiled(BroadcastTile(fetched=fetched), tiling), target
        )
        for fetched in ((), (weights.name,))
    )
    return plain, ahead


def fetched(func: tir.PrimFunc) -> list[tuple[int, ...]]:
    """The first element of each line that the kernel fetches, again for each time."""
    found: list[tuple[int, ...]] = []

    def run(body: tir.Body, values: dict[Var, int]) -> None:
        for stmt in body:
            if isinstance(stmt, tir.Call):
                if stmt.definition == tir.PREFETCH16:
                    (window,) = stmt.windows
                    found.append(tuple(evaluate(start, values) for start in window.starts))
            elif isinstance(stmt, tir.For):
                if any(call.definition == tir.PREFETCH16 for call in tir.calls_in(stmt.body)):
                    start, stop = evaluate(stmt.start, values), evaluate(stmt.stop, values)
                    for number in range(start, stop):
                        run(stmt.body, {**values, stmt.var: number})
            else:
                for inner in tir.sub_bodies(stmt):
                    run(inner, values)

    run(func.body, {})
    return found


def check(plain: Schedule, made: Schedule, target: Target) -> str:
    """The text of a kernel, which computes natively what the one without prefetches does."""
    tir.verify(made.func, "scheduled")
    inputs = {
        name: np.random.default_rng(1).standard_normal(x.shape).astype(x.dtype)
        for name, x in inputs_of(plain.func).items()
    }
    want = tir.interpret(plain.func, inputs)["y"]
    np.testing.assert_array_equal(tir.interpret(made.func, inputs)["y"], want)
    (shared,) = (x for x in tir.loops_of(made.func.body) if x.kind is tir.LoopKind.PARALLEL)
    got = Native(made.func, target)(inputs, ((0, constant_extent(shared)),))["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return tir.to_text(made.func)


def lines(panels: range, *extents: range) -> set[tuple[int, ...]]:
    return set(product(panels, *extents))


def test_the_tiles_of_a_panel_fetch_each_line_of_the_next_one_a_part_each() -> None:
    """Fifteen tiles fetch two lines of each of forty steps in the order of memory: seven or eight
    successive steps fetch the same line."""
    plain, made = fetching(linear.matmul((30, 40), (40, 96)), Panels(3, 4, 8, 2), AVX2)
    assert not made.refusals
    text = check(plain, made, AVX2)
    step, line = "(40*o0o + k) // 15", "16*(((80*o0o + 2*k) // 15) % 2)"
    assert f"prefetch16(b[min(2, panel + 1), {step}, {line}:{line} + 16])" in text
    found = fetched(made.func)
    assert set(found) == lines(range(1, 3), range(40), range(0, 32, 16))
    assert len(found) == 3 * 15 * 40  # fifteen tiles for three panels, each in forty steps
    assert found[: 15 * 40] == sorted(found[: 15 * 40])


def test_each_line_is_fetched_by_steps_that_no_line_divides() -> None:
    plain, made = fetching(linear.matmul((30, 42), (42, 64)), Panels(2, 4, 8, 2), AVX2)
    check(plain, made, AVX2)
    assert set(fetched(made.func)) == lines(range(1, 2), range(42), range(0, 32, 16))


def test_a_few_more_tiles_than_lines_share_these_evenly() -> None:
    """Seven tiles fetch four lines of each step."""
    plain, made = fetching(linear.matmul((7, 40), (40, 128)), Panels(2, 8, 8, 1), AVX2)
    text = check(plain, made, AVX2)
    assert "prefetch16(b[1, (40*o0o + k) // 7, 16*(((160*o0o + 4*k) // 7) % 4):" in text
    found = fetched(made.func)
    assert set(found) == lines(range(1, 2), range(40), range(0, 64, 16))


def test_few_tiles_fetch_several_lines_in_each_step() -> None:
    plain, made = fetching(linear.matmul((8, 40), (40, 96)), Panels(2, 6, 8, 4), AVX2)
    check(plain, made, AVX2)
    found = fetched(made.func)
    assert set(found) == lines(range(1, 2), range(40), range(0, 48, 16))
    assert len(found) == 2 * 2 * 40 * 2


def test_blocks_of_rows_are_shared_and_their_tiles_fetch_each_line() -> None:
    """Two blocks of fifteen rows for each of three panels; the tiles of both count."""
    definition = linear.matmul((30, 40), (40, 96))
    weights = packed_weights((40, 96), 1, 32, (AxisDigit(0),))
    plain = {name: row_major(shape) for name, shape in (("a", (30, 40)), ("y", (30, 96)))}
    placements = tuple((name, x, None) for name, x in {**plain, "b": weights}.items())
    tiling = Tiling((Panels(3, 4, 8, 3),), panel_outermost=True)
    whole, cut = (
        kernel_schedule(
            definition, placements, Tiled(BroadcastTile(fetched=("b",), blocks=n), tiling), AVX2
        )
        for n in (0, 2)
    )
    check(whole, cut, AVX2)
    (shared,) = (x for x in tir.loops_of(cut.func.body) if x.kind is tir.LoopKind.PARALLEL)
    assert constant_extent(shared) == 6
    assert set(fetched(cut.func)) == lines(range(1, 3), range(40), range(0, 32, 16))


def test_rows_that_are_no_whole_number_of_lines_end_in_a_line_that_overlaps() -> None:
    plain, made = fetching(linear.matmul((30, 40), (40, 96)), Panels(4, 3, 8, 2), AVX2)
    check(plain, made, AVX2)
    assert {place[-1] for place in fetched(made.func)} == {0, 8}


def test_rows_shorter_than_a_line_are_not_fetched_and_the_reason_is_kept() -> None:
    plain, made = fetching(linear.matmul((30, 40), (40, 24)), Panels(3, 1, 8, 5), AVX2)
    assert not fetched(made.func) and made.func == plain.func
    assert any("lies inside it" in refusal.reason for refusal in made.refusals)


@pytest.mark.parametrize("name", TARGETS)
def test_a_convolution_with_borders_fetches_each_line(name: str) -> None:
    """Tiles in the middle fetch also the steps that the first row of tiles leaves out."""
    target = TARGETS[name]
    lanes = target.computed_lanes("float32")
    definition = convolution.convolution(
        (1, 3, 9, 9), (4 * lanes, 3, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1))
    )
    plain, made = fetching(definition, Panels(2, 2, lanes, 4), target)
    check(plain, made, target)
    window = range(3)
    found = set(fetched(made.func))
    assert found >= lines(range(1, 2), window, window, window, range(0, 2 * lanes, 16))
    assert "call void @llvm.prefetch.p0" in emit_ir(made.func, "k", target)


def near(
    depth: int, width: int, target: Target, dtype: str = "float32"
) -> tuple[Schedule, Schedule]:
    """A product of 14 rows whose tiles fetch nothing, and the one whose steps fetch lines that are
    used 8 steps later."""
    weights = packed_weights((depth, 96), 1, width, (AxisDigit(0),))
    plain = {name: row_major(shape) for name, shape in (("a", (14, depth)), ("y", (14, 96)))}
    placements = tuple((name, x, None) for name, x in {**plain, "b": weights}.items())
    lanes = target.computed_lanes(dtype)
    tiling = Tiling((Panels(96 // width, width // lanes, lanes, 4),), panel_outermost=True)
    definition = linear.matmul((14, depth), (depth, 96), dtype)
    without, made = (
        kernel_schedule(
            definition,
            placements,
            Tiled(BroadcastTile(), tiling),
            replace(target, near_steps=n, steps_per_iteration=1),
        )
        for n in (0, 8)
    )
    return without, made


def near_lines(func: tir.PrimFunc) -> list[str]:
    text = tir.to_text(func).splitlines()
    return [line.strip() for line in text if line.strip().startswith("prefetch16_near(")]


@pytest.mark.parametrize("name", TARGETS)
def test_steps_fetch_what_later_steps_of_their_tile_read(name: str) -> None:
    plain, made = near(200, 32, replace(TARGETS[name], name="near"))
    text = check(plain, made, TARGETS[name])
    assert "for k in serial(0, 192):" in text and "for k_last in serial(192, 200):" in text
    first, second, *rest = near_lines(made.func)
    assert first == "prefetch16_near(b[panel, k + 8, 0:16])"
    assert second == 'prefetch16_near(b[panel, k + 8, 16:32], name="prefetch16_near_2")'
    assert len(rest) == 2  # those of the two rows that are left over
    assert "i32 0, i32 3, i32 1" in emit_ir(made.func, "k", TARGETS[name])


def test_few_steps_and_weights_that_the_first_cache_holds_fetch_nothing() -> None:
    for depth, target in ((31, replace(AVX2, l1_bytes=1024)), (80, AVX2)):
        plain, made = near(depth, 32, replace(target, name=f"near{depth}"))
        assert made.func == plain.func


def test_loops_stay_whole_where_lines_cannot_be_fetched() -> None:
    """A hint takes lines of float32."""
    plain, made = near(200, 32, replace(AVX2, name="near double"), "float64")
    assert made.func == plain.func
    assert any("window: prefetch16" in str(refusal) for refusal in made.refusals)


def test_steps_of_a_block_of_channels_fetch_those_of_the_next_block() -> None:
    """Steps are two loops there, of which the outer one is cut."""
    target = PROCESSORS["cascadelake-server"]
    target = replace(target, l1_bytes=1024, steps_per_iteration=1, name="near blocks")
    definition = convolution.convolution((1, 64, 3, 14), (32, 64, 1, 1), Window.of((1, 1)))
    variant = next(
        v
        for v in kernel_variants(definition, frozenset({"w"}), target)
        if isinstance(v.recipe, Tiled) and v.name == "NCHW16c"
    )
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    assert isinstance(variant.recipe, Tiled)
    made = kernel_schedule(definition, placements, variant.recipe, target)
    text = tir.to_text(made.func)
    assert "for ico in serial(0, 3):" in text and "for ico_last in serial(3, 4):" in text
    assert "(ici + 8) // 16 + ico" in text and "(ici + 8) % 16" in text
    tir.verify(made.func, "scheduled")


@pytest.mark.decisions
def test_weights_are_fetched_that_no_first_cache_holds() -> None:
    for depth, expected in ((40, ()), (400, ("b",))):
        variant = next(
            v
            for v in kernel_variants(
                linear.matmul((30, depth), (depth, 96)), frozenset({"b"}), PROCESSORS["zen3"]
            )
            if isinstance(v.recipe, Tiled) and v.recipe.tiling.panel_outermost
        )
        assert isinstance(variant.recipe, Tiled) and isinstance(variant.recipe.kind, BroadcastTile)
        assert variant.recipe.kind.fetched == expected
