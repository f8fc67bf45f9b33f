"""Tiles whose rows have their last columns in one vector: chosen by price, and equal."""

import numpy as np
import pytest

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, instructions_of
from graphflow.cost import BroadcastRows, Panels, TileProblem, Tiling, tiling_cycles
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.recipes import Tiled, kernel_variants
from graphflow.kernels.recipes.kernel_schedule import kernel_schedule
from graphflow.kernels.recipes.variants.tiling import choose_tiling
from graphflow.schedule import Schedule
from graphflow.tir import LoopKind, PrimFunc, calls_in, interpret, loops_of, to_text
from support.native import Native
from support.schedule_checks import inputs_of, same

AVX2 = avx2_target()
WIDE = Target(
    "sixteen lanes", "", "+fma,+avx512f", vector_bytes=64, vector_registers=32, narrowest_share=1.0
)
PRODUCT = TileProblem(
    columns=20, rows=28, planes=28, steps=96, weight_bytes=96 * 20 * 4,
    loads=BroadcastRows(tail_ends=0),
)  # fmt: skip


def product(columns: int, rows: int, panels: tuple[Panels, ...] = ()) -> tuple[PrimFunc, Schedule]:
    """A matrix product with AVX2, in given panels or in the cheapest ones."""
    definition = linear.matmul((3, rows, 8), (8, columns))
    variant = next(
        v for v in kernel_variants(definition, frozenset(), AVX2) if isinstance(v.recipe, Tiled)
    )
    assert isinstance(variant.recipe, Tiled)
    recipe = variant.recipe
    if panels:
        recipe = replace(recipe, tiling=Tiling(panels))
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    return definition, kernel_schedule(definition, placements, recipe, AVX2)


def test_rows_share_a_vector_and_what_is_broadcast_for_them() -> None:
    _, made = product(12, 8, (Panels(1, 1, 8, 8, 4),))
    assert not made.refusals
    text = to_text(made.func)
    assert "fma2x4(" in text and "fma8(" in text
    reductions = [x for x in loops_of(made.func.body) if x.var.name.startswith("k")]
    assert len(reductions) == 1 and reductions[0].kind is LoopKind.SERIAL
    written = {call.definition.name: call.windows[0].buffer for call in calls_in(made.func.body)}
    assert written["fma8"].shape == (4, 2, 1, 8) and written["fma2x4"].shape == (4, 2, 4)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 19, 21])
@pytest.mark.parametrize(
    "panels", [(Panels(1, 1, 8, 8, 4),), (Panels(1, 1, 8, 2, 4),)], ids=["eight rows", "two rows"]
)
def test_any_number_of_rows(rows: int, panels: tuple[Panels, ...]) -> None:
    definition, made = product(12, rows, panels)
    same(definition, made)
    inputs = {
        name: np.random.default_rng(rows).standard_normal(x.shape).astype(x.dtype)
        for name, x in inputs_of(definition).items()
    }
    want = interpret(definition, inputs)["y"]
    got = Native(made.func, AVX2)(inputs, ((0, 3),))["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("vectors", [1, 2])
def test_panels_before_the_last_one(vectors: int) -> None:
    panels = (Panels(3 // vectors - 1 + vectors % 2, vectors, 8, 4), Panels(1, 1, 8, 8, 4))
    columns = sum(p.count * p.width for p in panels)
    definition, made = product(columns, 20, panels)
    assert "fma2x4(" in same(definition, made)


def test_the_cheapest_tiling_of_columns_that_end_inside_a_vector() -> None:
    for columns, narrow in ((20, 4), (24, 8), (116, 4), (18, 0), (32, 0), (4, 0)):
        tiling, cycles = choose_tiling(replace(PRODUCT, columns=columns), WIDE)
        assert tiling.panels[-1].tail == narrow
        apart = choose_tiling(
            replace(PRODUCT, columns=columns, loads=BroadcastRows(tail_ends=None)), WIDE
        )[1]
        assert (cycles < apart) == (narrow > 0)


def test_blends_that_take_the_place_of_multiply_adds_gain_nothing() -> None:
    slow = replace(WIDE, name="one unit for both", cycles_per_blend=1.0, narrowest_share=0.5)
    tiling = Tiling((Panels(1, 1, 16, 20, 4),))
    assert tiling_cycles(PRODUCT, tiling, slow) > 1.4 * tiling_cycles(PRODUCT, tiling, WIDE)
    assert not choose_tiling(PRODUCT, slow)[0].panels[-1].tail


def test_a_price_stays_below_that_of_the_tiling_that_is_replaced() -> None:
    """Lanes that are idle in narrow vectors decide between tilings, and change no price."""
    for columns in (20, 24, 116):
        problem = replace(PRODUCT, columns=columns, loads=BroadcastRows(tail_ends=2))
        apart = choose_tiling(replace(problem, loads=BroadcastRows(tail_ends=None)), WIDE)[1]
        assert choose_tiling(problem, WIDE)[1] <= apart


def test_tiles_at_a_border_pay_for_rows_that_differ() -> None:
    tiling = Tiling((Panels(1, 1, 16, 8, 4),))
    times = [
        tiling_cycles(replace(PRODUCT, loads=BroadcastRows(tail_ends=n)), tiling, WIDE)
        for n in range(3)
    ]
    assert times == sorted(times) and len({*times}) == 3


def test_a_target_without_the_instruction_has_no_such_tiles() -> None:
    plain = replace(WIDE, name="no multiply-add", features="+avx512f")
    assert not any(x.params[0].buffer.shape == (2, 4) for x in instructions_of(plain))
    assert (
        not choose_tiling(replace(PRODUCT, columns=12), replace(plain, vector_bytes=32))[0]
        .panels[-1]
        .tail
    )
