"""Tests of the compiler's sketch for reductions with a fused tail."""

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups
from graphflow.kernels.recipes import REDUCTION, KernelVariant, SharedLoops, kernel_schedule
from graphflow.kernels.recipes.reduction_sketch import (
    default_recipe,
    over_logical_indices,
    recipe_of,
    reduction_space,
)
from graphflow.kernels.recipes.variants.stage_variants import stage_variants
from graphflow.layout import row_major
from graphflow.models import ModelBuilder
from graphflow.schedule import Refusal, Schedule
from graphflow.tir import PrimFunc, interpret

TARGET = host_target()


def group(op: str, shape: tuple[int, ...], *weights: tuple[int, ...], **arguments: Any) -> PrimFunc:
    """The fused kernel of an operator with a Relu behind it."""
    b = ModelBuilder(opset=17)
    names = [b.input("x", shape), *(b.weight(*w) for w in weights)]
    b.output(b.relu(b.node(op, names, **arguments)))
    (node,) = fuse_groups(canonicalize(import_model(b.model()))).nodes
    return node.func


KERNELS = {
    "mean of rows": group("ReduceMean", (5, 37), axes=[1]),
    "maximum of columns": group("ReduceMax", (9, 37), axes=[0]),
    "mean of planes": group("GlobalAveragePool", (1, 3, 5, 7)),
    "softmax": group("Softmax", (6, 35), axis=-1),
    "normalization": group("LayerNormalization", (5, 35), (35,), (35,)),
}

every_kernel = pytest.mark.parametrize("name", KERNELS)


@pytest.mark.decisions
@every_kernel
def test_the_default_point_is_the_variant_of_the_recipe(name: str) -> None:
    kernel = KERNELS[name]
    space = reduction_space(kernel, TARGET)
    variants = [
        v
        for v in stage_variants(kernel, TARGET)
        if isinstance(v, KernelVariant)
        and all(x == row_major(x.logical_shape) for x in v.layouts.values())
    ]
    assert space is not None
    recipe = variants[0].recipe
    assert isinstance(recipe, SharedLoops) and recipe == default_recipe(kernel, TARGET)
    assert recipe_of(kernel, space.default()) == recipe
    placements = tuple((p.buffer.name, row_major(p.buffer.shape), None) for p in kernel.params)
    made = REDUCTION.schedule(kernel, TARGET, space.default())
    assert isinstance(made, Schedule)
    assert (
        made.func
        == over_logical_indices(kernel_schedule(kernel, placements, recipe, TARGET), kernel).func
    )


@every_kernel
def test_each_point_computes_the_kernel_or_is_refused(name: str) -> None:
    kernel = KERNELS[name]
    space = reduction_space(kernel, TARGET)
    assert space is not None
    rng = np.random.default_rng(0)
    inputs = {b.name: rng.uniform(-1, 1, b.shape).astype(b.dtype) for b in kernel.inputs}
    (expected,) = interpret(kernel, inputs).values()
    distinct: set[PrimFunc] = set()
    for point in space.sample(6, seed=1):
        made = REDUCTION.schedule(kernel, TARGET, point)
        if isinstance(made, Refusal):
            assert made.reason
            continue
        assert made.func.params == kernel.params  # so that it can be offered
        (found,) = interpret(made.func, inputs).values()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        distinct.add(made.func)
    assert len(distinct) > 1


def test_choices_that_do_not_matter_have_one_value() -> None:
    space = reduction_space(KERNELS["mean of rows"], TARGET)
    assert space is not None
    for point in space.sample(1000):
        chosen = dict(point)
        if chosen["along"] == "own":
            assert chosen["vectors"] == space.default()[-1][1]
        else:
            assert (chosen["rows"], chosen["accumulators"]) == tuple(
                dict(space.default())[name] for name in ("rows", "accumulators")
            )


def test_a_point_that_no_memory_allows_is_refused_with_the_reason() -> None:
    kernel = KERNELS["maximum of columns"]
    space = reduction_space(kernel, TARGET)
    assert space is not None
    refused = [
        found
        for point in space.sample(1000)
        if dict(point)["along"] == "own"
        and isinstance(found := REDUCTION.schedule(kernel, TARGET, point), Refusal)
    ]
    assert refused and all("contiguous in memory" in refusal.reason for refusal in refused)


@pytest.mark.parametrize(
    "kernel",
    [
        group("Conv", (1, 4, 6, 6), (4, 4, 3, 3)),
        group("MaxPool", (1, 4, 6, 6), kernel_shape=[2, 2]),
        group("MatMul", (4, 8), (8, 6)),
        group("Neg", (4, 8)),
    ],
)
def test_windows_products_and_elementwise_kernels_have_no_space(kernel: PrimFunc) -> None:
    assert reduction_space(kernel, TARGET) is None


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "AVX2"])
@every_kernel
def test_native_code_of_a_point_agrees_with_the_kernel(name: str, target: Target) -> None:
    kernel = KERNELS[name]
    space = reduction_space(kernel, target)
    assert space is not None
    rng = np.random.default_rng(0)
    inputs = {b.name: rng.uniform(-1, 1, b.shape).astype(b.dtype) for b in kernel.inputs}
    (expected,) = interpret(kernel, inputs).values()
    for point in space.sample(4, seed=2)[1:]:
        made = REDUCTION.schedule(kernel, target, point)
        if isinstance(made, Schedule):
            exe = gf.build(made, target=target, threads=1)
            (found,) = exe.run(inputs).values()
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
