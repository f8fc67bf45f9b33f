"""Tests of operators of ONNX that are rewritten as simpler ones."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from graphflow.frontends import import_model
from graphflow.graph import canonicalize, interpret_graph

CASES = [
    ("x, z, z", ""),
    ("x, z, z", "<is_causal: int = 1>"),
    ("x, z, z", "<scale: float = 0.3, softcap: float = 2.0>"),
    ("x, z, z", "<scale: float = 1.5>"),
    ("x, k, k", ""),
    ("x, k, k, m", "<is_causal: int = 1>"),
    ("x, k, k, , k, k", "<is_causal: int = 1>"),
]


def attention(inputs: str, attributes: str) -> onnx.ModelProto:
    outputs = "y, o, p" if inputs.count("k") > 2 else "y"
    present = ", float[2,2,8,16] o, float[2,2,8,16] p" if inputs.count("k") > 2 else ""
    given = attributes.replace(": int", "").replace(": float", "")
    return onnx.parser.parse_model(f"""<ir_version: 11, opset_import: ["" : 23]>
    g (float[2,4,3,16] x, float[2,4,4,16] z, float[2,2,4,16] k, float[3,4] m)
    => (float[2,4,3,16] y{present}) {{ {outputs} = Attention {given} ({inputs}) }}""")


@pytest.mark.parametrize(("inputs", "attributes"), CASES)
def test_attention_is_what_its_body_computes(inputs: str, attributes: str) -> None:
    model = attention(inputs, attributes)
    random = np.random.default_rng(0)
    shapes = {
        i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input
    }
    feeds = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    expected = ReferenceEvaluator(model).run(None, feeds)
    found = interpret_graph(canonicalize(import_model(model)), feeds)
    for (name, array), want in zip(found.items(), expected, strict=True):
        np.testing.assert_allclose(array, want, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(("scale", "factors"), [(0.3, 1), (1.5, 2)])
def test_only_queries_are_scaled_where_none_overflows(scale: float, factors: int) -> None:
    model = attention("x, k, k", f"<scale: float = {scale}>")
    graph = canonicalize(import_model(model))
    assert sum(node.op == "Mul" for node in graph.nodes) == factors
