"""Models for sessions, and the two modules that sessions are made by: onnxruntime and graphflow."""

import functools
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import graphflow

WIDTH = 8


@functools.cache
def small_net(rows: int | str = "N") -> bytes:
    """y = relu(x w), and z = x w; x has `rows` rows."""
    w = np.random.default_rng(3).standard_normal((4, WIDTH)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [rows, 4]), ("y", [rows, WIDTH]), ("z", None))
    ]
    graph = helper.make_graph(
        nodes, "small", infos[:1], infos[1:], [numpy_helper.from_array(w, "w")]
    )
    return _serialized(graph, producer_name="a test", doc_string="two outputs")


@functools.cache
def with_default() -> bytes:
    """y = x + b, where b is an input with an initializer."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("x", "b", "y")]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "b"], ["y"])],
        "default",
        infos[:2],
        infos[2:],
        [numpy_helper.from_array(np.float32([1, 2, 3]), "b")],
    )
    return _serialized(graph)


@functools.cache
def where_nonzero() -> bytes:
    """i = the indices of elements that are not 0: their number depends on the values."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    i = helper.make_tensor_value_info("i", TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["i"])], "found", [x], [i])
    return _serialized(graph)


@functools.cache
def strings_and_sequences() -> bytes:
    """s = [x, x], and e = concat(t, t): a sequence of tensors, and strings."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("Concat", ["t", "t"], ["e"], axis=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    t = helper.make_tensor_value_info("t", TensorProto.STRING, [2])
    s = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    e = helper.make_tensor_value_info("e", TensorProto.STRING, [4])
    return _serialized(helper.make_graph(nodes, "objects", [x, t], [s, e]))


def _serialized(graph: onnx.GraphProto, **described: Any) -> bytes:
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, **described)
    model.metadata_props.add(key="kind", value="net")
    data: bytes = model.SerializeToString()
    return data


@functools.cache
def session(module: Any, model: bytes, threads: int = 1) -> Any:
    """A session of onnxruntime or graphflow."""
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    return module.InferenceSession(model, options, providers=["CPUExecutionProvider"])


MODULES = (onnxruntime, graphflow)
"""What a script may import."""


def rows(count: int, seed: int = 0) -> Any:
    """An input of `small_net`."""
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)
