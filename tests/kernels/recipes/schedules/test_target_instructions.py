"""Updates in lanes become instructions of the target where they are instances of one."""

import pytest

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_ir, host_target
from graphflow.cost import BroadcastRows, Panels, TileProblem
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.recipes import Tiled, kernel_variants
from graphflow.kernels.recipes.kernel_schedule import kernel_schedule
from graphflow.kernels.recipes.schedules.target_instructions import in_instructions
from graphflow.schedule import Schedule
from graphflow.tir import calls_in, without_calls
from support.schedule_checks import kernel, same

pytestmark = pytest.mark.decisions

AVX2 = avx2_target()
TARGETS = (host_target(), AVX2)
PLAIN = replace(AVX2, name="no multiply-add", features="+avx2")
PARAMS = "x: f32[3, 16], w: f32[16], v: i32[16], n: i32[3], y: out[f32[3, 16]], z: out[i32[16]]"


def updated(statement: str, lanes: int = 8) -> Schedule:
    """A kernel with the statement in a vectorized loop over `lane`, inside a loop over `i`."""
    return Schedule.of(
        kernel(
            f"""
for k in serial(0, 16):
    z[k] = i32(0)
    for j in serial(0, 3):
        y[j, k] = f32(0.0)
for i in serial(0, 3):
    for lane in vectorized(0, {lanes}):
        {statement}
""",
            PARAMS,
        )
    )


def test_a_multiply_add_becomes_the_instruction() -> None:
    s = updated("y[i, lane + 4] += x[i, 2] * w[lane + 1]")
    done = in_instructions(s, AVX2)
    assert "fma8(y[i, 4:12], x[i, 2], w[1:9])" in same(s.func, done)
    assert not done.refusals


@pytest.mark.parametrize(
    ("statement", "lanes"),
    [
        ("y[i, lane] += x[i, 2] * w[lane]", 7),  # no vector
        ("y[i, lane] += x[i, lane] * w[lane]", 8),  # two vectors
        ("y[i, lane] += w[lane] * x[i, 2]", 8),  # the other way round
        ("y[i, lane] += x[i, 2] + w[lane]", 8),
        ("reduce_max(y[i, lane], x[i, 2] * w[lane])", 8),
        ("z[lane] += n[i] * v[lane]", 8),  # integers
        ("y[i, 0] += x[i, 2] * w[lane]", 8),  # the lanes are folded
        ("y[i, lane] = x[i, 2] * w[lane]", 8),
        ("if lane + i < 8:\n            y[i, lane] += x[i, 2] * w[lane]", 8),
    ],
)
def test_other_statements_stay(statement: str, lanes: int) -> None:
    s = updated(statement, lanes)
    assert in_instructions(s, AVX2) is s


def test_what_does_not_unify_stays_with_the_reason() -> None:
    s = updated("y[i, 2*lane] += x[i, 2] * w[lane]")
    done = in_instructions(s, AVX2)
    assert done.func is s.func
    assert "does not unify with fma8" in str(done.refusals[0])


def test_a_target_without_the_instruction_keeps_the_loop() -> None:
    s = updated("y[i, lane] += x[i, 2] * w[lane]")
    assert in_instructions(s, PLAIN) is s


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_the_updates_of_a_tile_are_instructions_and_compile_to_the_same(target: Target) -> None:
    definition = linear.matmul((33, 8), (8, 48))
    (variant, *_) = (
        v
        for v in kernel_variants(definition, frozenset({"b"}), target)
        if isinstance(v.recipe, Tiled)
    )
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    func = kernel_schedule(definition, placements, variant.recipe, target).func
    calls = calls_in(func.body)
    assert {c.definition.name for c in calls} == {f"fma{target.computed_lanes('float32')}"}
    assert emit_ir(func, "k", target) == emit_ir(without_calls(func), "k", target)


@pytest.mark.parametrize(("columns", "rows"), [(127, 19), (127, 1), (128, 19)])
def test_panels_that_columns_fill_have_no_masks(columns: int, rows: int) -> None:
    """With AVX2, where masks cost; threads share one loop over all panels, of rows in no blocks."""
    definition = linear.matmul((rows, 8), (8, columns))
    variant = next(
        v for v in kernel_variants(definition, frozenset(), AVX2) if isinstance(v.recipe, Tiled)
    )
    assert isinstance(variant.recipe, Tiled)
    problem = TileProblem(columns, rows, 1, 8, 0, BroadcastRows())
    tiling = next(
        t for t in BroadcastRows().tilings(problem, AVX2)
        if t.panel_outermost and t.panels[0].nr_vectors == 2
    )  # fmt: skip
    assert tiling.whole_apart == (columns % tiling.panels[0].width > 0)
    apart = tiling.whole_apart and rows > 1
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    recipe = replace(variant.recipe, tiling=tiling)
    text = same(definition, kernel_schedule(definition, placements, recipe, AVX2))
    assert text.count("parallel(") == 1
    assert ("if panel <" in text or "if panel ==" in text) == apart
    if apart:
        whole, rest = text.split("else:")
        assert "fma8(y" in whole
        assert "fma8(y" not in rest


def test_panels_around_other_loops_that_threads_share_stay_one_nest() -> None:
    definition = linear.matmul((3, 20, 8), (8, 127))
    variant = next(
        v for v in kernel_variants(definition, frozenset(), AVX2) if isinstance(v.recipe, Tiled)
    )
    assert isinstance(variant.recipe, Tiled)
    tiling = replace(
        variant.recipe.tiling,
        panels=(Panels(count=8, nr_vectors=2, lanes=8, mr=4),),
        panel_outermost=True,
        whole_apart=True,
    )
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    recipe = replace(variant.recipe, tiling=tiling)
    assert "else:" not in same(definition, kernel_schedule(definition, placements, recipe, AVX2))
