"""Movement kernels in square blocks: which variants become that, and what their kernels do."""

from itertools import permutations

import numpy as np
import pytest

from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.recipes import BlockTranspose, KernelVariant, Tiled, View, kernel_variants
from graphflow.lower import lower_call
from graphflow.tir import Allocate, LoopKind, PrimFunc, loops_of, parse, walk
from support.placing import SENTINEL, Native, call_of, outside, place, unplace
from support.targets import in_turn

pytestmark = pytest.mark.decisions

TARGETS = (host_target(), avx2_target())
Shape = tuple[int, ...]


def transpose(shape: Shape, perm: Shape, dtype: str = "float32") -> PrimFunc:
    return movement.transpose(shape, perm, dtype=dtype)


def executed(definition: PrimFunc, target: Target) -> list[KernelVariant]:
    found = kernel_variants(definition, frozenset(), target)
    return [variant for variant in found if not isinstance(variant.recipe, View)]


def transposing(definition: PrimFunc, target: Target) -> list[KernelVariant]:
    return [v for v in executed(definition, target) if isinstance(v.recipe, BlockTranspose)]


def check(definition: PrimFunc, variant: KernelVariant, perm: Shape, target: Target) -> PrimFunc:
    """The kernel, after it moved every element and wrote nothing else."""
    kernel = lower_call(call_of(definition, variant), target, "k")
    (source,), (output,) = definition.inputs, definition.outputs
    given, made = variant.layouts[source.name], variant.layouts[output.name]
    x = np.random.default_rng(5).integers(-99, 99, source.shape).astype(source.dtype)
    got = Native(kernel, target)({source.name: place(given, x, np.nan)}, SENTINEL)[output.name]
    np.testing.assert_array_equal(unplace(made, got), x.transpose(perm))
    assert (outside(made, got) == SENTINEL).all()
    return kernel.func


@in_turn("turn", (0, 1), targets=TARGETS)
def test_each_order_of_axes_in_each_layout(turn: int, target: Target) -> None:
    for k, perm in [*enumerate(permutations(range(4)))][turn::2]:
        definition = transpose(((2, 16, 3, 5), (1, 29, 3, 20), (3, 7, 10, 4))[k % 3], perm)
        for variant in transposing(definition, target):
            made = check(definition, variant, perm, target)
            assert any(isinstance(stmt, Allocate) for stmt in walk(made.body)), variant.name


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_items_of_other_sizes(dtype: str) -> None:
    definition = transpose((2, 13, 20), (0, 2, 1), dtype)
    for variant in transposing(definition, TARGETS[0]):
        check(definition, variant, (0, 2, 1), TARGETS[0])


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_a_transpose_between_innermost_axes_is_in_blocks_in_threads(target: Target) -> None:
    definition = transpose((1, 58, 9, 17), (0, 2, 3, 1))
    plain = executed(definition, target)[0]
    assert isinstance(plain.recipe, BlockTranspose) and not plain.demands
    made = check(definition, plain, (0, 2, 3, 1), target)
    assert any(loop.kind is LoopKind.PARALLEL for loop in loops_of(made.body))


def test_the_padding_of_a_source_is_not_read() -> None:
    definition = transpose((2, 21, 3, 32), (0, 3, 1, 2))
    padded = [v for v in transposing(definition, TARGETS[0]) if v.layouts["x"].is_padded]
    assert padded
    for variant in padded:  # `check` puts NaN there
        made = check(definition, variant, (0, 3, 1, 2), TARGETS[0])
        assert any(loop.kind is LoopKind.PARALLEL for loop in loops_of(made.body))


def test_blocks_are_cheaper_than_gathering_and_gathering_is_priced() -> None:
    definition = transpose((1, 64, 56, 56), (0, 2, 3, 1))
    rows = executed(transpose((1, 64, 56, 56), (0, 2, 1, 3)), TARGETS[0])[0]
    blocks = executed(definition, TARGETS[0])[0]
    assert rows.work.cycles < blocks.work.cycles < 4 * rows.work.cycles
    gathered = executed(transpose((1, 64, 56, 56), (0, 2, 3, 1), "bool"), TARGETS[0])[0]
    assert isinstance(gathered.recipe, Tiled)
    assert gathered.work.cycles > 1.5 * blocks.work.cycles
    narrow = executed(transpose((1, 64, 56, 56), (0, 2, 3, 1), "int8"), TARGETS[0])[0]
    assert narrow.work.cycles < 0.5 * blocks.work.cycles


@pytest.mark.parametrize(
    "perm", [(0, 2, 1, 3), (1, 0, 2, 3), (0, 1, 2, 3)], ids=["rows", "planes", "nothing"]
)
def test_what_moves_whole_rows_stays_a_tile(perm: Shape) -> None:
    assert not isinstance(
        executed(transpose((2, 9, 5, 32), perm), TARGETS[0])[0].recipe, BlockTranspose
    )


def test_few_bytes_and_short_lines_stay_as_they_were() -> None:
    assert transposing(transpose((2, 9, 5, 32), (0, 2, 3, 1), "int8"), TARGETS[0])
    assert not transposing(transpose((2, 3, 5, 32), (0, 2, 3, 1), "int8"), TARGETS[0])
    row_major = executed(transpose((1, 64, 9, 2), (0, 2, 3, 1)), TARGETS[0])[0]
    assert isinstance(row_major.recipe, Tiled)


def test_a_transpose_that_computes_stays_a_tile() -> None:
    definition = parse("""
        @primfunc
        def k(x: f32[40, 50], y: out[f32[50, 40]]):
            with block("t"):
                for i in serial(0, 50):
                    for j in serial(0, 40):
                        y[i, j] = f32(2.0) * x[j, i]
    """)
    assert not transposing(definition, TARGETS[0])


def test_a_part_that_is_transposed_is_in_blocks() -> None:
    """A slice and a transpose in one: the source is larger than the output."""
    definition = parse("""
        @primfunc
        def k(x: f32[60, 70], y: out[f32[50, 40]]):
            with block("t"):
                for i in serial(0, 50):
                    for j in serial(0, 40):
                        y[i, j] = x[j + 3, i + 5]
    """)
    (variant,) = transposing(definition, TARGETS[0])
    kernel = lower_call(call_of(definition, variant), TARGETS[0], "k")
    x = np.random.default_rng(1).standard_normal((60, 70)).astype(np.float32)
    got = Native(kernel, TARGETS[0])({"x": x}, SENTINEL)["y"]
    np.testing.assert_array_equal(got, x[3:43, 5:55].T)
