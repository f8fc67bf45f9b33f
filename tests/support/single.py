"""Models of one node, interpreted and compared with onnxruntime."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphflow.frontends import import_model
from graphflow.frontends.probes import tensor_element
from graphflow.graph import interpret_graph
from support.models.peer_sessions import peer_session


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


def single(op, arrays, opset=17, constants=None, outputs=1, result=("a", "b"), **attributes):
    """A model of one node; `constants` are inputs that are initializers, by position.

    `result` is the output's shape where ONNX does not infer one.
    """
    constants = constants or {}
    names = [f"i{k}" for k in range(len(arrays) + len(constants))]
    live = iter(arrays)
    infos, tensors = [], []
    for position, name in enumerate(names):
        if position in constants:
            if constants[position] is None:
                names[position] = ""
            else:
                tensors.append(numpy_helper.from_array(np.asarray(constants[position]), name))
        else:
            array = next(live)
            elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
            infos.append(helper.make_tensor_value_info(name, elem_type, array.shape))
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, name="the_node", **attributes)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="o0")], tensors)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    typed = onnx.shape_inference.infer_shapes(model, data_prop=True)
    if not typed.graph.output[0].type.tensor_type.HasField("shape"):
        # The checker wants a shape on each output, be it a symbolic one.
        info = helper.make_tensor_value_info("o0", TensorProto.FLOAT, result)
        typed.graph.output[0].CopyFrom(info)
    return typed


def contrib(op, arrays, constants=(), outputs=(0,), domain="com.microsoft", **attributes):
    """A model of one operator, and its inputs; those at the positions `constants` are initializers.

    Inputs that are None are not given.  The outputs' ranks are onnxruntime's.
    """
    names = ["" if array is None else f"i{k}" for k, array in enumerate(arrays)]
    given = {name: np.asarray(a) for name, a in zip(names, arrays, strict=True) if name}
    fixed = {f"i{k}" for k in constants}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in given.items()
        if name not in fixed
    ]
    tensors = [numpy_helper.from_array(given[name], name) for name in sorted(fixed)]
    results = [f"o{k}" if k in outputs else "" for k in range(max(outputs) + 1)]
    node = helper.make_node(op, names, results, name="the_node", domain=domain, **attributes)
    made = [onnx.ValueInfoProto(name=name) for name in results if name]
    graph = helper.make_graph([node], "g", infos, made, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = peer_session(model)
    for info, output in zip(model.graph.output, session.get_outputs(), strict=True):
        element = tensor_element(output.type)
        shape = [f"d{axis}" for axis in range(len(output.shape))]
        info.CopyFrom(helper.make_tensor_value_info(info.name, element, shape))
    return model, {name: array for name, array in given.items() if name not in fixed}


def peer(model, feeds):
    session = peer_session(model)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def assert_same_as_peer(model, feeds, graph=None):
    graph = graph or import_model(model)
    expected, actual = peer(model, feeds), interpret_graph(graph, feeds, graph.results)
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        assert actual[name].shape == array.shape
        np.testing.assert_allclose(actual[name], array, rtol=3e-5, atol=3e-5)
