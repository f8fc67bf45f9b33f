"""Tiles in matrix registers: which kernels they claim, and what they compute.

Where this processor has no matrix registers, kernels are executed statement by statement.
"""

import re
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow
from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS, restricted_to_avx2
from graphflow.base.target import Target
from graphflow.codegen import host_target, multiplies_matrices
from graphflow.cost import MatrixRows
from graphflow.kernels.recipes import KernelVariant, Tiled
from graphflow.kernels.recipes.tile_kinds.dot_tiles import BrainMatrixTile, MatrixTile
from graphflow.layout import Equal
from support.kernels.brain_products import brain_conv, brain_matmul, check_brain
from support.kernels.integer_products import check, conv, matmul, variants, without_matrices

BYTES = ("uint8", "int8")
NAMED = PROCESSORS["graniterapids"]
NATIVELY = multiplies_matrices(host_target())
TARGET = host_target() if NATIVELY else NAMED


def flushing(target: Target) -> Target:
    return replace(target, name=f"{target.name}-flushing", flushes_denormals=True)


FLUSHING, BRAIN = flushing(NAMED), ("bfloat16", "bfloat16")
BRAIN_NATIVELY = multiplies_matrices(flushing(host_target()), BRAIN)
BRAIN_TARGET = flushing(host_target()) if BRAIN_NATIVELY else FLUSHING


def matrices(
    func: tir.PrimFunc, target: Target = NAMED, kind: type[MatrixTile] = MatrixTile
) -> list[KernelVariant]:
    """The variants in matrix registers."""
    return [
        v
        for v in variants(func, target)
        if isinstance(v.recipe, Tiled) and isinstance(v.recipe.kind, kind)
    ]


def brain_matrices(func: tir.PrimFunc, target: Target = FLUSHING) -> list[KernelVariant]:
    return matrices(func, target, BrainMatrixTile)


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(28, 64, 32), (14, 96, 17), (32, 160, 16), (7, 128, 33), (20, 200, 5)],
)
def test_products(rows: int, depth: int, columns: int) -> None:
    """Rows of one register and of two, depths of one step and of several, columns that fill no
    register."""
    func = matmul(rows, depth, columns, BYTES)
    found = matrices(func, TARGET)
    assert found
    for variant in found:
        assert "matrix_product" in check(func, variant, TARGET, NATIVELY)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_convolutions(pads: tuple[int, ...]) -> None:
    """With a border only where there is a halo of zeros around the image."""
    func = conv((1, 32, 8, 8), (20, 32, 3, 3), BYTES, pads=pads)
    found = matrices(func, TARGET)
    assert found
    for variant in found:
        halo = {"x": Equal(tir.Literal(0, "uint8"))} if any(pads) else {}
        assert variant.demands == halo
        assert "matrix_product" in check(func, variant, TARGET, NATIVELY)


def test_what_follows_a_sum_stays_in_vector_registers() -> None:
    func = tir.parse("""
    @primfunc
    def product(a: u8[16, 64], b: i8[64, 40], scale: f32[40], y: out[f32[16, 40]]):
        total = alloc(i32[16, 40])
        scaled = alloc(f32[16, 40])
        with block("product"):
            for i in serial(0, 16):
                for j in serial(0, 40):
                    total[i, j] = i32(0)
                    for k in serial(0, 64):
                        total[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
        with block("scale"):
            for p in serial(0, 16):
                for q in serial(0, 40):
                    scaled[p, q] = cast(f32, total[p, q]) * scale[q]
        with block("clip"):
            for r in serial(0, 16):
                for s in serial(0, 40):
                    y[r, s] = max(scaled[r, s], f32(0.0))
    """)
    found = matrices(func, TARGET)
    assert found
    for variant in found:
        text = check(func, variant, TARGET, NATIVELY)
        assert re.search(r"i32\[16, \d, 16\], scratch", text)
        assert re.search(r"f32\[\d, 16\], register", text)


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (matmul(16, 66, 32, BYTES), "a depth that is no whole number of groups"),
        (matmul(16, 4, 32, BYTES), "one group"),
        (matmul(1, 64, 32, BYTES), "one row"),
        (matmul(16, 64, 32, ("int8", "int8")), "bytes of other types"),
        (matmul(16, 64, 32, ("int16", "int16")), "words"),
        (conv((1, 64, 9, 9), (32, 64, 1, 1), BYTES, strides=(2, 2)), "rows two positions apart"),
        (conv((1, 64, 9, 9), (64, 32, 1, 1), BYTES, groups=2), "groups of channels"),
        (matmul(17, 64, 32, BYTES), "rows that registers of equal heights do not cover"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_claimed(func: tir.PrimFunc, why: str) -> None:
    assert matrices(func) == [], why


def test_targets_without_the_feature() -> None:
    func = matmul(16, 64, 32, BYTES)
    assert matrices(func, NAMED)
    assert matrices(func, without_matrices(NAMED)) == []
    assert matrices(func, restricted_to_avx2(NAMED)) == []
    assert matrices(func, PROCESSORS["zen4"]) == []


def test_few_terms_are_cheaper_in_vector_registers() -> None:
    """Sums go through memory: what that takes has to be gained by their products."""
    shallow, deep = matmul(56, 16, 96, BYTES), matmul(56, 256, 96, BYTES)
    assert matrices(shallow) == []
    assert matrices(deep)


def test_steps_are_groups_of_a_register() -> None:
    assert MatrixRows(depth=64, groups=16).steps(9 * 64) == 9
    assert MatrixRows(depth=96, groups=12).steps(96) == 2


def test_rows_that_a_run_gives() -> None:
    """A tile in which a run ends computes all of its rows, and the run gets its own."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-128, 128, (64, 40)).astype("int8")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["rows", 64])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["rows", 40])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    executable = graphflow.compile(model, sizes={"rows": (1, 28)}, target=host_target())
    for rows in (1, 2, 13, 14, 15, 27, 28):
        x = rng.integers(0, 256, (rows, 64)).astype("uint8")
        expected = x.astype("int32") @ weights.astype("int32")
        np.testing.assert_array_equal(executable.run({"x": x})["y"], expected)


# bfloat16 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(28, 64, 32), (14, 96, 17), (32, 160, 16), (7, 128, 33), (20, 200, 5)],
)
def test_products_of_brain_floats(rows: int, depth: int, columns: int) -> None:
    """With NaN in the padding of the data, which no product reads."""
    func = brain_matmul(rows, depth, columns)
    found = brain_matrices(func, BRAIN_TARGET)
    assert found
    for variant in found:
        assert "brain_product" in check_brain(func, variant, BRAIN_TARGET, BRAIN_NATIVELY)


@pytest.mark.parametrize("more", [{}, {"strides": (1, 1)}])
def test_convolutions_of_brain_floats(more: dict[str, Any]) -> None:
    func = brain_conv((1, 64, 7, 8), (40, 64, 3, 3), **more)
    found = brain_matrices(func, BRAIN_TARGET)
    assert found
    for variant in found:
        assert "brain_product" in check_brain(func, variant, BRAIN_TARGET, BRAIN_NATIVELY)


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (brain_matmul(16, 65, 32), "a depth that is no whole number of pairs"),
        (brain_matmul(1, 64, 32), "one row"),
        (brain_matmul(17, 64, 32), "rows that registers of equal heights do not cover"),
        (matmul(16, 64, 32, BYTES), "bytes"),
        (brain_conv((1, 64, 7, 8), (40, 64, 3, 3), pads=(1, 1, 1, 1)), "borders"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_claimed_of_brain_floats(func: tir.PrimFunc, why: str) -> None:
    assert brain_matrices(func) == [], why


def test_brain_floats_in_matrices_need_a_feature_and_permission() -> None:
    """The option permits it; the feature is one of its own."""
    func = brain_matmul(16, 64, 64)
    assert brain_matrices(func, FLUSHING)
    assert brain_matrices(func, NAMED) == []
    assert brain_matrices(func, without_matrices(FLUSHING)) == []
    assert brain_matrices(func, flushing(PROCESSORS["zen4"])) == []
    of_bytes = FLUSHING.features.replace("+amx-bf16", "-amx-bf16")
    assert brain_matrices(func, replace(FLUSHING, name="bytes alone", features=of_bytes)) == []


def test_special_numbers_are_those_of_multiply_adds() -> None:
    """NaN and infinities in the data and in the weights, natively."""
    if not BRAIN_NATIVELY:
        pytest.skip("this machine has no tdpbf16ps")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype("bfloat16") for shape in ((32, 64), (64, 32)))
    x[3, 5], x[4, 0], x[5, 1], x[6, :2], w[7, 7] = np.inf, -np.inf, np.nan, (np.inf, np.inf), np.inf
    w[0, 3], x[8, 7], w[20] = 0.0, 0.0, 3e38
    x[:, 20] = 1e-2
    numbers = [numpy_helper.from_array(w, "w")]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.BFLOAT16, (32, width))
        for name, width in (("x", 64), ("y", 32))
    ]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "product", infos[:1], infos[1:], numbers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = graphflow.Options(threads=1, flush_denormals=True)
    got = graphflow.compile(model, options=options).run({"x": x})["y"].astype("float64")
    with np.errstate(all="ignore"):
        expected = (x.astype("float64") @ w.astype("float64")).astype("bfloat16").astype("float64")
    np.testing.assert_allclose(got, expected, rtol=2.0**-7, atol=0.05)


def test_brain_floats_are_cheaper_in_matrices() -> None:
    func = brain_matmul(64, 256, 256)
    others = [v.work.cycles for v in variants(func, without_matrices(FLUSHING))]
    assert min(v.work.cycles for v in brain_matrices(func)) < 0.3 * min(others)
