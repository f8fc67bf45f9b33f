"""Tests of sums of blocks in tiles: which kernels have them, and what these compute."""

from typing import Any

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.cost import BlockSumWork, block_sum_cycles, cheapest_block_tile
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.linear_algebra.block_product import block_product
from graphflow.kernels.definitions.linear_algebra.packed_product import (
    PackedWeights,
    packed_product,
)
from graphflow.kernels.definitions.scalar_functions import add
from graphflow.kernels.lowering import KernelTask
from graphflow.kernels.lowering.task import make_here
from graphflow.kernels.recipes import BlockTiles, KernelVariant, kernel_variants, refused_variants
from graphflow.kernels.recipes.analysis.block_sums import block_sums
from support.native import Native
from support.placing import place

CONSTANTS = frozenset({"b", "scales", "zeros"})
TARGETS = (host_target(), avx2_target())


def in_tiles(func: tir.PrimFunc, target: Target) -> KernelVariant:
    (found,) = (
        v for v in kernel_variants(func, CONSTANTS, target) if isinstance(v.recipe, BlockTiles)
    )
    return found


def with_residual(func: tir.PrimFunc) -> tir.PrimFunc:
    """The product with another tensor added, in a stage behind it."""
    y, x = func.outputs[0], tir.Buffer("x", func.outputs[0].shape, "float32")
    inner, out = tir.Buffer("inner", y.shape, "float32"), tir.Buffer("out", y.shape, "float32")
    body = tir.rename_buffers(func.body, {y: inner})
    loops = stages.loops_over("z", y.shape)
    total = add(stages.element(inner, loops), stages.element(x, loops))
    tail = stages.elementwise_stage("residual", out, loops, total)
    return stages.kernel_of_stages(func.name, (*func.inputs, x), (out,), (*body, tail))


def exact_arrays(func: tir.PrimFunc) -> dict[str, Any]:
    """Inputs whose floats are small multiples of 1/16, so that sums are exact in any order."""
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for buffer in func.inputs:
        match buffer.dtype:
            case "float32":
                arrays[buffer.name] = (random.integers(1, 4, buffer.shape) / 4).astype(np.float32)
            case "int32":
                arrays[buffer.name] = random.integers(-900, 900, buffer.shape).astype(np.int32)
            case "int8":
                arrays[buffer.name] = random.integers(-128, 128, buffer.shape).astype(np.int8)
            case _:
                arrays[buffer.name] = random.integers(0, 256, buffer.shape).astype(np.uint8)
    return arrays


def run_in_tiles(func: tir.PrimFunc, target: Target) -> tuple[Any, Any]:
    """What the variant in tiles computes, with NaN in the padding of scales, and the exact
    result."""
    variant, arrays = in_tiles(func, target), exact_arrays(func)
    placements = tuple(
        (name, layout, "undef" if name in variant.private else None)
        for name, layout in variant.layouts.items()
    )
    (kernel,) = make_here(
        {"kernel": KernelTask("kernel", func, placements, variant.recipe, target)}
    ).values()
    assert kernel.instead_of is None
    placed = {name: place(variant.layouts[name], array, np.nan) for name, array in arrays.items()}
    name = func.outputs[0].name
    found = Native(kernel.func, target)(placed, ((0, kernel.extent),))[name]
    return found, tir.interpret(func, arrays)[name]


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(
    ("lead", "columns", "depth", "bits", "block", "zeros", "bias"),
    [
        ((1,), 128, 128, 4, 32, None, False),
        ((), 33, 70, 4, 32, "uint8", True),
        ((3,), 65, 96, 2, 16, "uint8", False),
        ((13,), 31, 160, 8, 64, None, True),
        ((2, 5), 48, 512, 4, 256, "uint8", True),
        ((7, 1, 2), 16, 64, 2, 32, None, False),
        ((9,), 2, 64, 8, 16, "uint8", True),
    ],
)
def test_tiles_compute_the_product_bit_for_bit(
    lead: tuple[int, ...],
    columns: int,
    depth: int,
    bits: int,
    block: int,
    zeros: Any,
    bias: bool,
    target: Target,
) -> None:
    weights = PackedWeights(columns, depth, bits, block, zeros)
    found, want = run_in_tiles(block_product(lead, weights, bias), target)
    np.testing.assert_array_equal(found.reshape(want.shape), want)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_what_follows_of_a_product_is_computed_in_its_tiles(target: Target) -> None:
    func = with_residual(block_product((5,), PackedWeights(49, 96, 4, 32, "uint8"), True))
    found, want = run_in_tiles(func, target)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("weights", "constants", "reason"),
    [
        (PackedWeights(48, 64, 4, 32), {"scales"}, "its weights are no constants"),
        (PackedWeights(1, 64, 4, 32), CONSTANTS, "a single column"),
        (PackedWeights(48, 32, 4, 32), CONSTANTS, "a single block"),
    ],
    ids=["weights of a run", "one column", "one block"],
)
def test_other_products_have_no_tiles(
    weights: PackedWeights, constants: set[str], reason: str
) -> None:
    func, target = block_product((3,), weights), PROCESSORS["zen4"]
    (variant,) = kernel_variants(func, frozenset(constants), target)
    assert not isinstance(variant.recipe, BlockTiles)
    (refused,) = refused_variants(func, frozenset(constants), target)
    assert reason in str(refused.reason)


def test_products_of_floats_have_no_sums_of_blocks() -> None:
    assert block_sums(packed_product((3, 64), PackedWeights(48, 64, 4, 32))) is None


@pytest.mark.parametrize("target", ["zen4", "haswell", "sapphirerapids"])
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 128])
def test_a_tile_fits_the_registers_and_its_rows(rows: int, target: str) -> None:
    processor = PROCESSORS[target]
    lanes = processor.computed_lanes("int32")
    work = BlockSumWork(1024, rows, 1, 32, 32, 4, 2, 1)
    mr, vectors = cheapest_block_tile(work, lanes, processor)
    assert mr <= rows
    assert 2 * mr * vectors < processor.vector_registers
    one = BlockSumWork(1024, 1, 1, 32, 32, 4, 2, 1)
    together = block_sum_cycles(work, mr, vectors, lanes, processor)
    apart = rows * block_sum_cycles(one, 1, vectors, lanes, processor)
    assert together <= apart
