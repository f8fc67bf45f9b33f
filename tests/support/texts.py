"""Models in ONNX's text form, compared with onnxruntime or ONNX's reference evaluator."""

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, interpret_graph
from support.single import peer


def parsed(text: str, opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    """The model of a graph in ONNX's text syntax, with `weights` as initializers."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}]>\n'
    model = onnx.parser.parse_model(head + text)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    model.graph.initializer.extend(tensors)
    onnx.checker.check_model(model)
    return model


def assert_agrees(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], reference: bool = False
) -> OperatorGraph:
    """The graph of `model`, after its outputs were compared; `reference` takes ONNX's evaluator."""
    graph = import_model(model)
    names = [info.name for info in model.graph.output]
    expected = (
        dict(zip(names, ReferenceEvaluator(model).run(None, feeds), strict=True))
        if reference
        else peer(model, feeds)
    )
    actual = interpret_graph(canonicalize(graph), feeds)
    assert list(actual) == names
    for name in names:
        assert actual[name].dtype == expected[name].dtype
        assert actual[name].shape == expected[name].shape
        np.testing.assert_allclose(actual[name], expected[name], rtol=3e-5, atol=3e-5)
    return graph
