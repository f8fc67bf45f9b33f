"""Tests of constant weights of 16 bits that products of few rows read as they are stored."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.base.dtypes import DTYPES
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups, interpret_graph
from graphflow.graph.rounded.narrow_weights import MOST_READS, read_narrow_weights
from graphflow.models.zoo.building.sixteen_bits import ELEMENTS

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 6e-8, 1e-40, 60000.0)


def numbers(dtype: str, *shape: int) -> Any:
    """Random numbers, of which the last ones of the last axis are special."""
    made = np.random.default_rng(len(shape)).standard_normal(shape)
    made[..., 0, -len(SPECIAL) :] = SPECIAL
    return made.astype(DTYPES[dtype])


def product(dtype: str, op: str, rows: int, weights: Any, **attributes: Any) -> onnx.ModelProto:
    """A MatMul or Gemm of so many rows by constant weights, then Relu."""
    element = ELEMENTS[dtype]
    depth = weights.shape[1 if attributes.get("transB") else 0]
    constant = helper.make_tensor("w", element, weights.shape, weights.tobytes(), raw=True)
    nodes = [
        helper.make_node(op, ["x", "w"], ["t"], **attributes),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info(name, element, shape)
        for name, shape in (("x", (rows, depth)), ("y", (None, None)))
    ]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [constant])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize(("op", "attributes"), [("MatMul", {}), ("Gemm", {"transB": 1})])
@pytest.mark.parametrize("rows", [1, MOST_READS])
def test_a_product_of_few_rows_reads_weights_of_16_bits(
    dtype: str, op: str, attributes: dict[str, Any], rows: int
) -> None:
    weights = numbers(dtype, 72, 64)
    model = product(dtype, op, rows, weights, **attributes)
    imported = import_model(model)
    graph = fuse_groups(canonicalize(imported))
    made = graph.producer("y")
    assert made is not None
    assert dtype in {graph.values[v].dtype for v in made.inputs if graph.is_constant(v)}
    feeds = {"x": numbers(dtype, rows, 64 if attributes else 72)}
    expected = interpret_graph(imported, feeds)["y"].astype(np.float32)
    for got in (interpret_graph(graph, feeds)["y"], gf.compile(model).run(feeds)["y"]):
        assert got.dtype == DTYPES[dtype]
        # Sums in another order; beside that, only NaN and infinities are where they were.
        np.testing.assert_allclose(got.astype(np.float32), expected, rtol=0.02, atol=0.1)


@pytest.mark.parametrize("rows", [MOST_READS + 1, 64])
def test_a_product_of_many_rows_reads_widened_weights(rows: int) -> None:
    graph = import_model(product("float16", "MatMul", rows, numbers("float16", 96, 48)))
    assert read_narrow_weights(graph) == 0


def test_weights_that_a_run_gives_are_widened_before() -> None:
    model = product("float16", "MatMul", 1, numbers("float16", 96, 48))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT16, (96, 48)))
    assert read_narrow_weights(import_model(model, overridable=["w"])) == 0
