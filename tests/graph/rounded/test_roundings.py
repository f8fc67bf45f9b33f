"""Tests of the removal of roundings that change no element."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphflow.frontends import import_model
from graphflow.graph import Node, OperatorGraph, Value, canonicalize, interpret_graph
from graphflow.graph.rounded.roundings import drop_roundings
from graphflow.tir import parse

ELEMENTS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def chain(dtype: str, *nodes: tuple[str, list[Any], dict[str, Any]]) -> onnx.ModelProto:
    """A model of nodes that each read the one before, and then numbers of the same type."""
    element = ELEMENTS[dtype]
    made, tensors, last = [], [], "x"
    for k, (op, numbers, attributes) in enumerate(nodes):
        names = [f"c{k}_{n}" for n in range(len(numbers))]
        for name, number in zip(names, numbers, strict=True):
            wanted = helper.tensor_dtype_to_np_dtype(element)
            tensors.append(numpy_helper.from_array(np.array(number).astype(wanted), name))
        made.append(helper.make_node(op, [last, *names], [f"t{k}"], **attributes))
        last = f"t{k}"
    made[-1].output[0] = "y"
    infos = [helper.make_tensor_value_info(n, element, (1, 3, 6, 6)) for n in ("x", "y")]
    infos[1].type.tensor_type.shape.Clear()
    infos[1].type.tensor_type.shape.dim.add().dim_param = "a"
    for name in "bcd":
        infos[1].type.tensor_type.shape.dim.add().dim_param = name
    graph = helper.make_graph(made, "g", infos[:1], infos[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


SHARED = ("Add", [0.1], {})
POOL = ("MaxPool", [], {"kernel_shape": [2, 2]})


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize(
    ("nodes", "dropped"),
    [
        ((SHARED, ("Relu", [], {}), SHARED), 1),
        ((SHARED, ("Clip", [0.0, 6.0], {}), POOL, SHARED), 2),
        ((SHARED, ("Abs", [], {}), ("Neg", [], {}), ("Max", [0.1], {}), SHARED), 3),
        ((SHARED, ("Clip", [0.0, 6.0], {}), ("Sigmoid", [], {}), SHARED), 1),
        ((SHARED, SHARED), 0),
        ((SHARED, ("Exp", [], {}), SHARED), 0),
        ((SHARED, ("AveragePool", [], {"kernel_shape": [2, 2]}), SHARED), 0),
        ((SHARED, ("LeakyRelu", [], {"alpha": 0.5}), SHARED), 0),
    ],
)
def test_selections_of_rounded_numbers_are_not_rounded(
    dtype: str, nodes: tuple[Any, ...], dropped: int
) -> None:
    graph = import_model(chain(dtype, *nodes))
    numbers = np.random.default_rng(0).standard_normal((1, 3, 6, 6)) * 5
    numbers[0, 0, 0, :4] = np.nan, np.inf, -np.inf, -0.0
    feeds = {"x": numbers.astype(helper.tensor_dtype_to_np_dtype(ELEMENTS[dtype]))}
    expected = interpret_graph(graph, feeds)["y"]
    assert drop_roundings(graph) == dropped
    for one in (graph, canonicalize(graph)):
        got = interpret_graph(one, feeds)["y"]
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got.astype("float32"), expected.astype("float32"))
        zero = expected.astype("float32") == 0
        assert (np.signbit(got[zero]) == np.signbit(expected[zero])).all()


@pytest.mark.parametrize(("least", "dropped"), [(0.5, 1), (0.1, 0), (float("nan"), 1)])
def test_a_bound_that_is_no_number_of_the_type_is_rounded(least: float, dropped: int) -> None:
    graph = OperatorGraph()
    graph.add_input("x", "float16", (4,))
    kernels = [
        ("f16", "f32", "cast(f32, x[i])"),
        ("f32", "f32", f"select(data(x[i] < f32({least})), f32({least}), x[i])"),
        ("f32", "f16", "cast(f16, x[i])"),
        ("f16", "f32", "cast(f32, x[i])"),
        ("f32", "f32", "x[i] * x[i]"),
    ]
    last = "x"
    for k, (source, target, value) in enumerate(kernels):
        func = parse(f"""
        @primfunc
        def step(x: {source}[4], y: out[{target}[4]]):
            with block("step"):
                for i in serial(0, 4):
                    y[i] = {value}
        """)
        name = f"v{k}"
        graph.add_value(Value(name, func.outputs[0].dtype, (4,)))
        graph.add(Node(name, "Step", func, (last,), (name,)))
        last = name
    graph.set_outputs([last])
    assert drop_roundings(graph) == dropped
