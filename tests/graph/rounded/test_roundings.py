"""Tests of the removal of roundings that change no element."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.dtypes import DTYPES
from graphflow.frontends import import_model
from graphflow.graph import (
    Node,
    OperatorGraph,
    Value,
    canonicalize,
    interpret_graph,
    with_excess_precision,
)
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


# Excess precision ---------------------------------------------------------------------------------

TWICE = (("Mul", [3.0], {}), ("Add", [0.1], {}), ("Sigmoid", [], {}))


def unrounded_result(dtype: str, x: Any) -> Any:
    """What `TWICE` gives if only its result is rounded."""
    tenth = np.float32(np.float64(0.1).astype(DTYPES[dtype]))
    exact = 1 / (1 + np.exp(-(x.astype(np.float64) * 3 + tenth)))
    return exact.astype(np.float32).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_with_excess_precision_the_output_alone_is_rounded(dtype: str) -> None:
    graph = canonicalize(import_model(chain(dtype, *TWICE)))
    before = [*graph.values]
    relaxed = with_excess_precision(graph)
    relaxed.validate()
    assert [*graph.values] == before and not graph.unrounded
    assert [*relaxed.unrounded.values()] == [dtype, dtype]
    assert [v.name for v in relaxed.values.values() if v.dtype == dtype] == ["x", "y"]
    assert all("excess precision" in relaxed.removed[name].reason for name in ("t0", "t1"))
    x = np.linspace(-3, 3, 108).reshape(1, 3, 6, 6).astype(DTYPES[dtype])
    got = interpret_graph(relaxed, {"x": x})["y"]
    # The interpreter's exponential is off by some units of float32, so now and then a tie differs.
    wrong = got.astype(np.float32) != unrounded_result(dtype, x).astype(np.float32)
    assert got.dtype == DTYPES[dtype] and wrong.sum() <= 1
    rounded = interpret_graph(graph, {"x": x})["y"]
    assert (rounded.astype(np.float32) != got.astype(np.float32)).any()


def test_a_value_that_an_output_needs_rounded_is_rounded_for_it() -> None:
    model = chain("float16", ("Mul", [3.0], {}), ("Add", [0.1], {}))
    model.graph.output.add().CopyFrom(
        helper.make_tensor_value_info("t0", TensorProto.FLOAT16, (1, 3, 6, 6))
    )
    x = np.linspace(-3, 3, 108).reshape(1, 3, 6, 6).astype(np.float16)
    relaxed = with_excess_precision(canonicalize(import_model(model)))
    relaxed.validate()
    got = interpret_graph(relaxed, {"x": x})
    wide = x.astype(np.float32) * 3
    np.testing.assert_array_equal(got["t0"], wide.astype(np.float16))
    tenth = np.float32(np.float16(0.1))
    np.testing.assert_array_equal(got["y"], (wide + tenth).astype(np.float16))


def casts(to: int) -> onnx.ModelProto:
    """x, of float32, to another type and back, times 3."""
    three = numpy_helper.from_array(np.float32(3), "three")
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=to),
        helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["w", "three"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (64,)) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [three])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def test_casts_of_the_model_count_as_roundings() -> None:
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    for dtype, element in ELEMENTS.items():
        for excess in (False, True):
            options = gf.Options(threads=1, excess_precision=excess)
            exe = gf.compile(casts(element), options=options)
            read = x if excess else x.astype(DTYPES[dtype]).astype(np.float32)
            np.testing.assert_array_equal(exe.run({"x": x})["y"], read * np.float32(3))
            summary = exe.report()["summary"]
            assert summary["unrounded"] == excess
            assert exe.report()["unrounded"] == [{"edge": "x", "type": dtype}] * excess
            assert ("excess precision" in exe.explain("h")) == excess
            assert ("is left out where kernels read it" in exe.explain("x")) == excess


def test_narrower_types_stay_rounded() -> None:
    graph = canonicalize(import_model(casts(TensorProto.FLOAT8E4M3FN)))
    assert with_excess_precision(graph).unrounded == {}
