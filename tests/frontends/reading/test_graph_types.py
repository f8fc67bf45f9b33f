"""Tests of shape inference of models for which that of ONNX ends the process, or does not end."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import UnsupportedOp
from graphflow.frontends.reading.graph_types import graph_types

INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)
STEPS = (1 << 32, 1 << 62, -(1 << 32), INT32.max, INT32.min, 1 << 31, (1 << 31) + 1, INT64.max, 1)


def sliced_shape(step: int, kind: str) -> onnx.ModelProto:
    """A part of the shape of an input, from its second extent on; the step is an initializer, or
    made by a node."""
    nodes = [
        helper.make_node("Shape", ["x"], ["extents"]),
        helper.make_node("Slice", ["extents", "first", "last", "axis", "step"], ["y"]),
    ]
    numbers = {"first": 1, "last": INT64.max if step > 0 else INT64.min, "axis": 0, "step": step}
    tensors = {name: numpy_helper.from_array(np.array([n]), name) for name, n in numbers.items()}
    if kind != "initializer":
        tensor = tensors.pop("step")
        made = {"value": tensor} if kind == "tensor" else {"value_ints": [step]}
        nodes.insert(0, helper.make_node("Constant", [], ["step"], **made))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 4, 5))],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ("n",))],
        [*tensors.values()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", ["initializer", "tensor", "integers"])
@pytest.mark.parametrize("step", STEPS)
def test_large_steps_take_one_element(step: int, kind: str) -> None:
    """ONNX counts in 32 bits: some of them end the process, others take all of its memory."""
    exe = gf.compile(sliced_shape(step, kind), options=gf.Options(workers=0, fallback=None))
    result = exe.run({"x": np.zeros((2, 3, 4, 5), np.float32)})["y"]
    assert result.tolist() == ([3, 4, 5] if step == 1 else [3])


def test_floats_without_elements_are_no_contents_of_a_shape() -> None:
    """ONNX takes the one extent of `x` for contents, and finds an index beside none of them."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[0] x) => (float[1, 0] y) <int64[1] axis = {0}, int64[1] first = {0}> {
            u = Unsqueeze (x, axis)
            y = Gather <axis: int = -2> (u, first)
        }""")
    exe = gf.compile(model, options=gf.Options(workers=0, fallback=None))
    assert exe.run({"x": np.zeros(0, np.float32)})["y"].shape == (1, 0)


def encoded(*before: onnx.NodeProto, words: onnx.ValueInfoProto) -> onnx.ModelProto:
    """Two encoders, one behind the other, of what the nodes before make."""
    nodes = [
        *before,
        helper.make_node(
            "LabelEncoder", ["words"], ["codes"], "first", None, "ai.onnx.ml",
            keys_strings=["a", "b"], values_int64s=[1, 2],
        ),
        helper.make_node(
            "LabelEncoder", ["codes"], ["y"], "second", None, "ai.onnx.ml",
            keys_int64s=[1, 2], values_floats=[0.5, 1.5],
        ),
    ]  # fmt: skip
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [words], [result])
    domains = [helper.make_opsetid(*one) for one in (("", 20), ("ai.onnx.ml", 4), ("own", 1))]
    return helper.make_model(graph, opset_imports=domains, ir_version=9)


WORDS = helper.make_tensor_value_info("words", TensorProto.STRING, ("n",))


def test_nodes_behind_a_type_that_onnx_does_not_know_are_passed_over() -> None:
    """Its inference of such a node reads the type that is not there, and ends the process."""
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n",))
    own = encoded(helper.make_node("Words", ["x"], ["words"], domain="own"), words=given)
    without_type = encoded(words=onnx.ValueInfoProto(name="words"))
    for model in (own, without_type):
        found = graph_types(model, strict_mode=False)
        assert [node.domain for node in found.graph.node] == [n.domain for n in model.graph.node]
        assert list(found.opset_import) == list(model.opset_import)
    with pytest.raises(UnsupportedOp, match=r"LabelEncoder first: its input words is of type None"):
        gf.compile(without_type)


def test_nodes_behind_known_types_are_not_passed_over() -> None:
    copied = onnx.ValueInfoProto()
    copied.CopyFrom(WORDS)
    copied.name = "given"
    model = encoded(helper.make_node("Identity", ["given"], ["words"]), words=copied)
    types = {info.name: info.type.tensor_type for info in graph_types(model).graph.value_info}
    assert types["words"].elem_type == TensorProto.STRING
    assert types["codes"].elem_type == TensorProto.INT64
    assert types["codes"].shape.dim[0].dim_param == "n"


def in_a_function(calls_in_it: bool) -> onnx.ModelProto:
    """An encoder in a function of the model, behind a custom operator in it or in front of it."""
    custom = [helper.make_node("Words", ["x"], ["words"], domain="own")]
    encoder = helper.make_node(
        "LabelEncoder", ["words"], ["codes"], "first", None, "ai.onnx.ml",
        keys_strings=["a", "b"], values_int64s=[1, 2],
    )  # fmt: skip
    inner, outer = (custom, []) if calls_in_it else ([], custom)
    domains = [helper.make_opsetid(*one) for one in (("", 20), ("ai.onnx.ml", 4), ("own", 1))]
    given = ["x"] if calls_in_it else ["words"]
    function = helper.make_function("f", "Encode", given, ["codes"], [*inner, encoder], domains)
    call = helper.make_node("Encode", given, ["y"], "call", None, "f")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (3,))
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph([*outer, call], "g", [x], [y])
    imported = [*domains, helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imported, functions=[function], ir_version=9)


@pytest.mark.parametrize("calls_in_it", [True, False])
def test_nodes_of_functions_are_passed_over(calls_in_it: bool) -> None:
    model = in_a_function(calls_in_it)
    found = graph_types(model, strict_mode=False)
    assert list(found.functions) == list(model.functions)
    assert list(found.opset_import) == list(model.opset_import)
    with pytest.raises(UnsupportedOp, match="Words"):
        gf.compile(model)


def test_nodes_of_functions_have_the_types_of_their_calls() -> None:
    """Numbers as labels: the encoder of the function runs in onnxruntime."""
    function = helper.make_function(
        "f", "Encode", ["n"], ["codes"],
        [
            helper.make_node(
                "LabelEncoder", ["n"], ["codes"], "first", None, "ai.onnx.ml",
                keys_int64s=[1, 2], values_floats=[0.5, 1.5], default_float=-1.0,
            )
        ],
        [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 2)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Encode", ["x"], ["codes"], "call", None, "f"),
        helper.make_node("Neg", ["codes"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, (3,))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (3,))
    graph = helper.make_graph(nodes, "g", [x], [y])
    domains = [helper.make_opsetid(*one) for one in (("", 20), ("ai.onnx.ml", 2), ("f", 1))]
    model = helper.make_model(graph, opset_imports=domains, functions=[function], ir_version=9)
    found = gf.compile(model).run({"x": np.array([2, 7, 1])})["y"]
    np.testing.assert_array_equal(found, np.array([-1.5, 1.0, -0.5], np.float32))
