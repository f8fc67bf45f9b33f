"""Tests of errors that name the node which ONNX's shape inference refuses, and its operands."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.frontends import import_model

info = helper.make_tensor_value_info


def chain(w: tuple[int | str, ...], recorded: tuple[int, ...] = ()) -> onnx.ModelProto:
    """Relu, a product with `w`, and Relu; the result of the first may be recorded wrongly."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"], name="dense/MatMul"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    inputs = [info("x", TensorProto.FLOAT, (2, 3)), info("w", TensorProto.FLOAT, w)]
    stated = [info("a", TensorProto.FLOAT, recorded)] if recorded else []
    outputs = [info("y", TensorProto.FLOAT, ("rows", "columns"))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, value_info=stated)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("recorded", [(), (7, 9)])
def test_the_node_and_its_operands_are_named(recorded: tuple[int, ...]) -> None:
    """A recorded shape that is wrong too is not what the model is refused for."""
    wanted = r"refuses MatMul node dense/MatMul \(a: float32\[2, 3\], w: float32\[4, 3\]\).*MatMul"
    with pytest.raises(InvalidModel, match=wanted):
        import_model(chain((4, 3), recorded))


def test_a_run_whose_shapes_do_not_fit_names_them() -> None:
    exe = gf.compile(chain(("n", 5)))
    x = np.ones((2, 3), np.float32)
    assert exe.run({"x": x, "w": np.ones((3, 5), np.float32)})["y"].shape == (2, 5)
    with pytest.raises(InvalidModel, match=r"MatMul \(a: float32\[2, 3\], w: float32\[4, 5\]\)"):
        exe.run({"x": x, "w": np.ones((4, 5), np.float32)})


def test_a_window_that_is_larger_than_its_image_is_named() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[9, 9])
    inputs = [info("x", TensorProto.FLOAT, (1, 1, 4, 4))]
    graph = helper.make_graph([node], "g", inputs, [info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(InvalidModel, match=r"MaxPool node pool \(x: float32\[1, 1, 4, 4\]\).*-4"):
        import_model(model)
