"""Tests of operators with a body: ONNX's functions, a model's own, and onnxruntime's."""

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import OPERATORS, import_model
from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.protos.steps import ImportStep
from graphflow.frontends.tensors.context import ImportContext
from graphflow.graph import OperatorGraph, Value, interpret_graph
from support.single import assert_same_as_peer, noise, single
from support.texts import assert_agrees, parsed

F32, I64 = np.float32, np.int64

BODIES = [
    ("CastLike", [(2, 3)], 19, {1: np.zeros(1, np.int32)}, {}),
    ("Celu", [(2, 3)], 12, {}, {"alpha": 0.7}),
    ("Celu", [(2, 3)], 20, {}, {}),
    ("Shrink", [(3, 4)], 9, {}, {"lambd": 0.4, "bias": 0.2}),
    ("Shrink", [(3, 4)], 21, {}, {}),
    ("MeanVarianceNormalization", [(2, 3, 4, 5)], 13, {}, {}),
    ("MeanVarianceNormalization", [(2, 3, 4)], 13, {}, {"axes": [0, 2]}),
    ("CenterCropPad", [(5, 4)], 18, {1: np.array([3, 7], I64)}, {}),
    ("CenterCropPad", [(5, 4, 3)], 18, {1: np.array([8], I64)}, {"axes": [-1]}),
    ("AffineGrid", [(1, 3, 4)], 20, {1: np.array([1, 2, 3, 2, 4], I64)}, {}),
    ("Clip", [(3, 3)], 13, {1: F32(-0.1), 2: F32(0.3)}, {}),
]


@pytest.mark.parametrize("case", BODIES, ids=lambda case: f"{case[0]}-{case[2]}")
def test_operators_with_a_body_match_onnxruntime(case):
    op, shapes, opset, constants, attributes = case
    arrays = [noise(*shape, seed=k) for k, shape in enumerate(shapes)]
    model = single(op, arrays, opset, constants, result=shapes[0], **attributes)
    feeds = {info.name: array for info, array in zip(model.graph.input, arrays, strict=True)}
    assert_same_as_peer(model, feeds)


NEW = [
    ("float[2,3] x, float[2,3] z", "Swish <alpha: float = 0.5> (x)", 24, "2,3"),
    ("float[2,3,4] x, float[4] z", "RMSNormalization <axis: int = -1> (x, z)", 23, "2,3,4"),
    ("float[2,3,4,8] x, float[2,3,4,8] z", "Attention <is_causal: int = 1> (x, z, z)", 23,
     "2,3,4,8"),
]  # fmt: skip


@pytest.mark.parametrize("case", NEW, ids=lambda case: case[1].split()[0])
def test_operators_newer_than_the_peer_match_the_reference(case):
    inputs, call, opset, shape = case
    model = parsed(f"g ({inputs}) => (float[{shape}] y) {{ y = {call} }}", opset)
    infos = {info.name: info for info in model.graph.input}
    feeds = {
        name: noise(*(d.dim_value for d in info.type.tensor_type.shape.dim), seed=k)
        for k, (name, info) in enumerate(infos.items())
    }
    assert_agrees(model, feeds, reference=True)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    st.sampled_from(["none", "sum", "mean"]), st.booleans(), st.sampled_from([None, -1, 1]),
    st.lists(st.integers(1, 3), max_size=2), st.integers(0, 99),
)  # fmt: skip
def test_losses_of_known_targets_match_the_reference(reduction, weighted, ignored, extra, seed):
    shape = (3, 4, *extra)
    generator = np.random.default_rng(seed)
    target = generator.integers(0, 4, (3, *extra)).astype(I64)
    constants = {1: target, **({2: generator.random(4, F32)} if weighted else {})}
    attributes = {"reduction": reduction, **({} if ignored is None else {"ignore_index": ignored})}
    model = single("SoftmaxCrossEntropyLoss", [noise(*shape)], 13, constants, **attributes)
    try:
        assert_agrees(model, {"i0": noise(*shape, seed=seed)}, reference=True)
    except UnsupportedOp as refusal:
        # Picking an element for each target is another operator's work.
        assert "GatherElements" in str(refusal)


def local(body: str, attributes: str = "", opset: int = 17) -> str:
    head = f'<domain: "local", opset_import: ["" : {opset}]>'
    return f"{head} Own {attributes} (a, b) => (y) {{ {body} }}"


def with_function(graph: str, function: str) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'
    model = onnx.parser.parse_model(head + graph + function)
    onnx.checker.check_model(model)
    return model


def test_a_function_of_the_model_expands_with_its_attributes_and_names():
    graph = "g (float[2,3] x) => (float[2,3] y) { t = Neg(x) y = local.Own <k = 2.0> (x, t) }"
    body = "t = Constant <value_float: float = @k> () s = Mul(a, t) y = Add(s, b)"
    model = with_function(graph, local(body, "<k>"))
    # The body's `t` is another tensor than the graph's.
    result = assert_agrees(model, {"x": noise(2, 3)})
    assert [node.name for node in result.nodes][-1] == "Own_1/Add_2"


def test_a_body_has_the_opset_that_it_was_written_for():
    # The body of Celu is of opset 12; the model's own ReduceMean is of opset 20.
    text = (
        "g (float[2,3] x) => (float[1,3] y) <int64[1] a = {0}> { c = Celu(x) y = ReduceMean(c, a) }"
    )
    assert_agrees(parsed(text, 20), {"x": noise(2, 3)})
    context = ImportContext(OperatorGraph(), 20, {}, set())
    step = ImportStep(helper.make_node("ReduceMean", ["x"], ["y"], axes=[0]), "r", {"": 12})
    context.graph.add_value(Value("x", "float32", (2, 3)))
    assert NodeCall(step, context).opset == 12


def test_a_function_that_returns_its_input_or_an_output_twice():
    graph = "g (float[3] x) => (float[3] p, float[3] q) { p, q = local.Two (x) }"
    function = '<domain: "local", opset_import: ["" : 17]> Two (a) => (a, b) { b = Neg(a) }'
    graph_of = import_model(with_function(graph, function))
    result = interpret_graph(graph_of, {"x": noise(3)})
    np.testing.assert_array_equal(result["p"], -result["q"])


def test_a_function_that_calls_itself_is_refused():
    graph = "g (float[3] x) => (float[3] y) { y = local.Own (x, x) }"
    head = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'
    function = (
        '<domain: "local", opset_import: ["" : 17, "local" : 1]> '
        "Own (a, b) => (y) { y = local.Own (a, b) }"
    )
    with pytest.raises((InvalidModel, UnsupportedOp)):
        import_model(onnx.parser.parse_model(head + graph + function))


def test_refusals_inside_a_body_name_the_outer_node(monkeypatch):
    monkeypatch.delitem(OPERATORS, "Hardmax")
    graph = "g (float[2,3] x, int64[1] s) => (float[n] y) { y = local.Own (x, s) }"
    model = with_function(graph, local("y = Reshape(a, b)"))
    with pytest.raises(UnsupportedOp, match=r"Own_0/Reshape_0.*in the body of local\.Own node"):
        import_model(model)
    graph = "g (float[2,3] x) => (float[2,3] y) { y = local.Own (x, x) }"
    model = with_function(graph, local("y = Hardmax(a)"))
    with pytest.raises(UnsupportedOp, match=r"Hardmax \(node Own_0/.*from the body of local\.Own"):
        import_model(model)


@pytest.mark.parametrize("op", ["Bernoulli", "RandomNormalLike", "RandomUniformLike"])
def test_random_operators_are_refused_with_a_reason(op):
    model = single(op, [np.full(3, 0.5, F32)], 15)
    with pytest.raises(UnsupportedOp, match="the_node draws random numbers"):
        import_model(model)


def test_what_no_output_depends_on_need_not_be_built(monkeypatch):
    monkeypatch.delitem(OPERATORS, "Hardmax")
    model = parsed("g (float[3] x) => (float[3] y) { y = Neg(x) t = Hardmax(x) u = Neg(t) }")
    graph = assert_agrees(model, {"x": noise(3)})
    assert "no output depends on it" in graph.removed["u"].reason
