"""Tests of dequantized constants that products of few rows unpack."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, interpret_graph

ELEMENTS = {
    "int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
}  # fmt: skip
LEAST = {"int8": -128, "uint8": 0, "int4": -8, "uint4": 0}
MOST = {"int8": 127, "uint8": 255, "int4": 7, "uint4": 15}


def product(
    dtype: str,
    rows: tuple[int, ...] = (2,),
    depth: int = 64,
    columns: int = 96,
    block: int = 32,
    zeros: bool = True,
    axis: int = 0,
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """MatMul by constants that are dequantized in blocks."""
    rng = np.random.default_rng(3)
    blocks = depth // block if axis == 0 else depth
    scale_shape = (blocks, columns) if axis == 0 else (depth, columns // block)
    infos = (("q", (depth, columns)), ("z", scale_shape))
    tensors = [
        helper.make_tensor(
            name, ELEMENTS[dtype], shape, rng.integers(LEAST[dtype], MOST[dtype] + 1, shape).ravel()
        )
        for name, shape in infos
        if zeros or name == "q"
    ]
    scales = rng.uniform(0.01, 0.1, scale_shape).astype(np.float32)
    tensors.append(onnx.numpy_helper.from_array(scales, "s"))
    names = ["q", "s", "z"] if zeros else ["q", "s"]
    nodes = [
        helper.make_node("DequantizeLinear", names, ["w"], axis=axis, block_size=block),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    a = helper.make_tensor_value_info("a", TensorProto.FLOAT, (*rows, depth))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (*rows, columns))
    graph = helper.make_graph(nodes, "g", [a], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, {"a": rng.standard_normal((*rows, depth)).astype(np.float32)}


def packs(model: onnx.ModelProto) -> bool:
    graph = canonicalize(import_model(model))
    return any(node.func.name == "packed_product" for node in graph.nodes)


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_products_are_those_of_dequantized_weights(dtype: str, zeros: bool) -> None:
    model, feeds = product(dtype, zeros=zeros)
    assert packs(model)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    got = interpret_graph(canonicalize(import_model(model)), feeds)["y"]
    np.testing.assert_allclose(got, expected, rtol=3e-5, atol=3e-5)
    exe = gf.compile(model, options=gf.Options(threads=1, workers=0, fallback=None))
    np.testing.assert_allclose(exe.run(feeds)["y"], expected, rtol=3e-5, atol=3e-5)


def test_an_odd_number_of_blocks_and_more_axes() -> None:
    model, feeds = product("int4", rows=(2, 3), depth=112, columns=41, block=16)
    assert packs(model)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    got = interpret_graph(canonicalize(import_model(model)), feeds)["y"]
    np.testing.assert_allclose(got, expected, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize(
    "case",
    [{"rows": (17,)}, {"block": 8}, {"axis": 1}],
    ids=["many rows", "small blocks", "blocks of columns"],
)
def test_what_gains_nothing_stays(case: dict[str, Any]) -> None:
    model, feeds = product("int4", **case)
    assert not packs(model)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    got = interpret_graph(canonicalize(import_model(model)), feeds)["y"]
    np.testing.assert_allclose(got, expected, rtol=3e-5, atol=3e-5)


def test_weights_with_another_reader_are_dequantized_for_it() -> None:
    model, feeds = product("int4")
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (64, 96)))
    assert packs(model)
    expected = ReferenceEvaluator(model).run(None, feeds)
    got = interpret_graph(canonicalize(import_model(model)), feeds)
    for name, array in zip(("y", "w"), expected, strict=True):
        np.testing.assert_allclose(got[name], array, rtol=3e-5, atol=3e-5)
