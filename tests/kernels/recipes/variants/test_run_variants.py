"""Elementwise kernels in runs: which variants become runs, and what their kernels look like."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from graphflow.codegen import avx2_target, host_target
from graphflow.cost import Tiling, choose_run, run_tiling
from graphflow.kernels import definitions as d
from graphflow.kernels.recipes import KernelVariant, Tiled, kernel_variants
from graphflow.layout import row_major
from graphflow.lower import lower_call
from graphflow.tir import PrimFunc, interpret
from support.native import Native
from support.placing import call_of

pytestmark = pytest.mark.decisions

TARGETS = (host_target(), avx2_target())
Shape = tuple[int, ...]


def plain(definition: PrimFunc, target: int = 0) -> KernelVariant:
    """The variant with all operands row-major."""
    for variant in kernel_variants(definition, frozenset(), TARGETS[target]):
        shapes = {p.buffer.name: p.buffer.shape for p in definition.params}
        if all(variant.layouts[n] == row_major(shape) for n, shape in shapes.items()):
            return variant
    raise AssertionError("no variant is row-major")


def run_of(variant: KernelVariant) -> int:
    assert isinstance(variant.recipe, Tiled)
    return variant.recipe.tiling.run


def add(a: Shape, b: Shape) -> PrimFunc:
    return d.binary("add", a, b)


@pytest.mark.parametrize(
    ("a", "b", "joint"),
    [
        ((200, 1000), (200, 1000), 200_000),
        ((1, 58, 197, 56), (1, 58, 1, 1), 197 * 56),
        ((3136, 580), (3136, 1), 580),
        ((3136, 580), (580,), 580),
        # Alike in size, yet joined for the output only: the middle axis of b does not move.
        ((8, 128, 640), (8, 1, 640), 640),
    ],
)
@pytest.mark.parametrize("target", range(len(TARGETS)))
def test_axes_that_all_operands_walk_alike_become_runs(
    a: Shape, b: Shape, joint: int, target: int
) -> None:
    variant = plain(add(a, b), target)
    run = run_of(variant)
    assert run and joint % run == 0
    assert variant.work.rows == prod(a) // run >= 16


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((40, 97), (40, 97)),
        ((2, 29, 7, 56), (2, 29, 1, 1)),
        ((3, 14, 5, 58), (58,)),
        ((16, 5, 64), (16, 1, 64)),
        ((31, 129), (31, 1)),
    ],
)
@pytest.mark.parametrize("target", range(len(TARGETS)))
def test_runs_compute_the_definition(a: Shape, b: Shape, target: int) -> None:
    """Odd sizes, natively and in the interpreter; whatever the shape, if it becomes runs or not."""
    definition = add(a, b)
    variant = plain(definition, target)
    kernel = lower_call(call_of(definition, variant), TARGETS[target], "k")
    func, parts = kernel.func, ((0, kernel.extent // 2), (kernel.extent // 2, kernel.extent))
    rng = np.random.default_rng(3)
    first, second = (p.buffer.name for p in definition.params[:2])
    arrays = {
        first: rng.standard_normal(a).astype(np.float32),
        second: rng.standard_normal(b).astype(np.float32),
    }
    output = definition.outputs[0].name
    want = arrays[first] + arrays[second]
    np.testing.assert_array_equal(Native(func, TARGETS[target])(arrays, parts)[output], want)
    np.testing.assert_array_equal(interpret(func, arrays)[output], want)


def test_no_runs_where_an_operand_is_read_in_another_order() -> None:
    for variant in kernel_variants(add((4, 32, 8, 64), (4, 32, 8, 64)), frozenset(), TARGETS[0]):
        different = len({layout.index_map for layout in variant.layouts.values()}) > 1
        padded = any(layout.is_padded for layout in variant.layouts.values())
        if isinstance(variant.recipe, Tiled) and (different or padded):
            assert not variant.recipe.tiling.run, variant.name


def test_no_runs_for_reductions() -> None:
    assert not run_of(plain(d.reduce("sum", (64, 640), (1,))))


def test_a_prime_extent_is_one_run_for_each_row_or_none() -> None:
    target = TARGETS[0]
    assert choose_run(200_003, 200_003, "float32", target) == (0, 0.0)
    assert choose_run(997, 64 * 997, "float32", target)[0] == 997


def test_the_steps_of_a_run_cover_it_once() -> None:
    for target in TARGETS:
        for run in (*range(1, 300), 4000, 11032):
            tiling: Tiling = run_tiling(run, "float32", target)
            whole = sum(p.count * p.width for p in tiling.panels[:-1])
            last = tiling.panels[-1]
            assert whole < run <= whole + last.count * last.width < run + last.lanes
            assert tiling.run == run
