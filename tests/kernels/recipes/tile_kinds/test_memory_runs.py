"""Elementwise kernels in runs: which variants become runs, and what their kernels look like."""

from math import prod

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.codegen import avx2_target, host_target
from graphflow.cost import Tiling, choose_run, run_tiling
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.recipes import KernelContext, KernelVariant, Tiled, kernel_variants
from graphflow.kernels.recipes.tile_kinds.memory_runs import MemoryRun, in_runs
from graphflow.layout import row_major
from graphflow.lower import lower_call
from graphflow.schedule import Schedule
from graphflow.tir import PrimFunc, interpret, loops_of
from support.native import Native
from support.placing import call_of
from support.schedule_checks import kernel, same

pytestmark = pytest.mark.decisions

TARGETS = (host_target(), avx2_target())
Shape = tuple[int, ...]


def plain(
    definition: PrimFunc, target: int = 0, sized: frozenset[int] = frozenset()
) -> KernelVariant:
    """The variant with all operands row-major."""
    for variant in kernel_variants(
        definition, frozenset(), TARGETS[target], KernelContext(sized=sized)
    ):
        shapes = {p.buffer.name: p.buffer.shape for p in definition.params}
        if all(variant.layouts[n] == row_major(shape) for n, shape in shapes.items()):
            return variant
    raise AssertionError("no variant is row-major")


def run_of(variant: KernelVariant) -> int:
    assert isinstance(variant.recipe, Tiled)
    kind = variant.recipe.kind
    return kind.elements if isinstance(kind, MemoryRun) else 0


def add(a: Shape, b: Shape) -> PrimFunc:
    return elementwise.binary("add", a, b)


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


@pytest.mark.parametrize("target", range(len(TARGETS)))
def test_runs_end_where_a_size_does(target: int) -> None:
    """Behind a size, the next row of the axis ahead would be part of the run."""
    heads = add((4, 3, 257, 16), (4, 3, 257, 16))
    assert 257 * 16 % run_of(plain(heads, target))
    assert 257 * 16 % run_of(plain(heads, target, frozenset({0, 2}))) == 0
    # The outermost axis has none ahead of it.
    batch = add((200, 1000), (200, 1000))
    assert run_of(plain(batch, target, frozenset({0}))) == run_of(plain(batch, target))


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
            assert not run_of(variant), variant.name


def test_no_runs_for_reductions() -> None:
    assert not run_of(plain(reduction.reduce("sum", (64, 640), (1,))))


def test_a_prime_extent_is_one_run_for_each_row_or_none() -> None:
    target = TARGETS[0]
    assert choose_run(200_003, 200_003, "float32", target) == (0, 0.0)
    assert choose_run(997, 64 * 997, "float32", target)[0] == 997


def test_runs_have_whole_rows_where_a_vector_holds_several() -> None:
    """Else lanes would begin at another place of a row in each run."""
    for target in TARGETS:
        for row in (2, 4):
            run, _ = choose_run(1575 * row, 1575 * row, "uint8", target, row)
            assert run % row == 0 and 1575 * row // run >= 16
        # A vector holds no two rows of so many, and those of three it does not fill.
        for row in (3, 5, 16):
            parted = choose_run(1575 * row, 1575 * row, "uint8", target, row)
            assert parted == choose_run(1575 * row, 1575 * row, "uint8", target)


def test_the_steps_of_a_run_cover_it_once() -> None:
    for target in TARGETS:
        for run in (*range(1, 300), 4000, 11032):
            tiling: Tiling = run_tiling(run, "float32", target)
            whole = sum(p.count * p.width for p in tiling.panels[:-1])
            last = tiling.panels[-1]
            assert whole < run <= whole + last.count * last.width < run + last.lanes


CUBE = """
for i in serial(0, 2):
    for j in serial(0, 4):
        for k in serial(0, 2):
            y[8*i + 2*j + k] = x[8*i + 2*j + k]
"""


@pytest.mark.parametrize(
    ("run", "extents"), [(2, [2, 4, 2]), (1, [2, 4, 2, 1]), (4, [2, 2, 4]), (8, [2, 8]), (16, [16])]
)
def test_runs_join_as_few_loops_as_they_need(run: int, extents: list[int]) -> None:
    s = Schedule.of(func := kernel(CUBE))
    made, axes = in_runs(s, s.handles(loops_of(func.body)), run)
    same(func, made)
    left = [loop.extent for loop in loops_of(made.func.body)]
    assert left == [n for n in extents if n > 1]
    assert made.loop(made.present(axes)[-1]).extent == (run if run > 1 else 2)


def test_a_run_that_divides_nothing_is_refused() -> None:
    s = Schedule.of(func := kernel(CUBE))
    with pytest.raises(ScheduleError):
        in_runs(s, s.handles(loops_of(func.body)), 3)


def test_loops_with_something_between_are_refused() -> None:
    body = "for i in serial(0, 4):\n    y[4*i] = x[4*i]\n    for j in serial(1, 4):\n"
    s = Schedule.of(func := kernel(body + "        y[4*i + j] = x[4*i + j]"))
    with pytest.raises(ScheduleError):
        in_runs(s, s.handles(loops_of(func.body)), 4)
