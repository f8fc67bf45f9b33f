"""Tests of views of views: what reads a part of a tensor under another shape copies nothing."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graphflow
from graphflow.base.options import Options
from graphflow.models.zoo.building.exporting import ExportingBuilder

pytestmark = pytest.mark.decisions

OPTIONS = Options(threads=1, workers=0)


def taken_apart(width: int, parts: int, shape: tuple[int, ...], perm: tuple[int, ...]):
    """Parts of a product, each read under another shape, transposed, and negated."""
    b = ExportingBuilder(0)
    x = b.input("x", (2, 6, 8))
    names = [f"part{k}" for k in range(parts)]
    product = b.dense(x, 8, parts * width)
    if parts > 1:
        b.node("Split", [product], names, axis=-1)
    else:
        names = [product]
    for name in names:
        b.output(b.node("Neg", [b.node("Transpose", [b.view(name, *shape)], perm=perm)]))
    return b.model()


def run(model: onnx.ModelProto, moves: int) -> None:
    exe = graphflow.compile(model, options=OPTIONS)
    assert exe.report()["summary"]["inner_conversions"] <= moves
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 6, 8)).astype(np.float32)}
    want = ReferenceEvaluator(model).run(None, feeds)
    for got, expected in zip(exe.run(feeds).values(), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("width", [16, 20])
def test_heads_of_a_part_are_views_of_it(parts: int, width: int) -> None:
    run(taken_apart(width, parts, (2, 6, 4, width // 4), (0, 2, 1, 3)), 0)


@pytest.mark.parametrize("shape", [(2, 6 * 16), (12, 16), (2, 2, 3, 16), (2, 3, 32), (2, 32, 3)])
def test_a_part_is_not_taken_for_one_piece(shape: tuple[int, ...]) -> None:
    """A trap: under another shape neighbouring elements may be in different rows of the part."""
    axes = tuple(range(len(shape)))
    run(taken_apart(16, 3, shape, (*axes[:-2], axes[-1], axes[-2])), 3)


@pytest.mark.parametrize("head", [3, 12, 16, 20])
def test_kernels_compute_with_parts_where_they_are(head: int) -> None:
    """A product of two of them, and a sum, whose lanes run along rows of a third."""
    b = ExportingBuilder(0)
    names = ["q", "k", "v"]
    b.node("Split", [b.dense(b.input("x", (2, 6, 8)), 8, 12 * head)], names, axis=-1)
    q, k, v = (
        b.node("Transpose", [b.view(name, 2, 6, 4, head)], perm=perm)
        for name, perm in zip(names, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    b.output(b.add(b.node("MatMul", [b.node("MatMul", [q, k]), v]), q), b.add(q, v))
    run(b.model(), 1)


def test_parts_of_a_tensor_without_elements_are_no_views() -> None:
    """Their indices have no values, so that no inverse of an index map is found."""
    b = ExportingBuilder(0)
    x = b.input("x", (0, 1, 2))
    b.node("Split", [b.node("Neg", [x]), b.constant(np.array([0, 1]))], ["none", "all"], axis=1)
    b.output("none", shape=(0, 0, 2))
    b.output("all", shape=(0, 1, 2))
    exe = graphflow.compile(b.model(), options=OPTIONS)
    found = exe.run({"x": np.zeros((0, 1, 2), np.float32)})
    assert [array.shape for array in found.values()] == [(0, 0, 2), (0, 1, 2)]
