"""Tests of what ONNX models declare: names, types and shapes are onnxruntime's."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.loader import load_model_tests

import graphflow as gf
from graphflow.frontends import declaration


def texts(args: Iterable[Any]) -> list[tuple[str, str, Any]]:
    return [(arg.name, arg.type, arg.shape) for arg in args]


def declared(model: onnx.ModelProto) -> Any:
    """What graphflow says of a model."""
    found = declaration(model)
    return tuple(map(texts, (found.inputs, found.outputs, found.overridable)))


def signature(model: onnx.ModelProto) -> Any:
    """What onnxruntime says of a model; None for one that it refuses."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    except Exception:
        return None
    return tuple(
        texts(found)
        for found in (
            session.get_inputs(),
            session.get_outputs(),
            session.get_overridable_initializers(),
        )
    )


@pytest.mark.parametrize("ir_version", (3, 8))
def test_shapes_that_are_open_or_not_declared(ir_version: int) -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["y"]),
        helper.make_node("NonZero", ["y"], ["i"]),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
    ]
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    cube = helper.make_tensor_type_proto(TensorProto.FLOAT, ["rows", None, 3])
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", None, 3]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [3]),
        helper.make_value_info("o", helper.make_optional_type_proto(tensor)),
        helper.make_value_info("p", helper.make_optional_type_proto(cube)),
        helper.make_value_info(
            "q", helper.make_optional_type_proto(helper.make_sequence_type_proto(cube))
        ),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "i", "has")]
    weights = [helper.make_tensor("b", TensorProto.FLOAT, [3], [1, 2, 3])]
    model = helper.make_model(
        helper.make_graph(nodes, "open", inputs, outputs, weights),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=ir_version,
    )
    expected = signature(model)
    assert expected is not None and declared(model) == expected
    assert len(expected[2]) == (ir_version >= 4)


def test_texts_about_a_model_may_be_no_utf8(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, producer_name="BYTES", ir_version=8)
    helper.set_model_props(model, {"author": "BYTES"})
    exe = gf.compile(model.SerializeToString().replace(b"BYTES", b"\xffYTES"))
    exe.save(tmp_path / "saved.gfx")
    found = gf.load(tmp_path / "saved.gfx").declaration
    assert found is not None and found == exe.declaration
    assert found.metadata.producer_name == "\N{REPLACEMENT CHARACTER}YTES"
    assert found.metadata.custom_metadata_map == {"author": "\N{REPLACEMENT CHARACTER}YTES"}


@pytest.mark.slow
def test_signatures_of_the_models_of_onnx() -> None:
    """All of those for single operators that onnxruntime takes, among them every element type."""
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of the contents that onnx computes
        cases = [case for case in load_model_tests(kind="node") if case.model is not None]
    for case in cases:
        if (expected := signature(case.model)) is not None:
            assert declared(case.model) == expected, case.name
            compared += 1
    assert compared > 1500
