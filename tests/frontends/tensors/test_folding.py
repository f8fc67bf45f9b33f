"""Tests of constant folding: any operator of constants is computed at import, within limits."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graphflow.base.errors import GraphflowError, UnsupportedOp
from graphflow.frontends import OPERATORS, import_model
from graphflow.frontends.tensors import folding
from graphflow.graph import canonicalize, interpret_graph
from support.single import assert_same_as_peer, noise, peer, single
from support.texts import assert_agrees, parsed

F32, I64 = np.float32, np.int64


def folded(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The contents of the outputs, which must be constants of the imported graph."""
    graph = import_model(model)
    assert not graph.nodes
    return {name: graph.initializers[name] for name in graph.outputs}


WITHOUT_KERNELS = [
    ("Trilu", {0: noise(4, 4)}, 14, {"upper": 0}),
    ("Sin", {0: noise(3)}, 7, {}),
    ("CumSum", {0: noise(3, 4), 1: np.array(1, I64)}, 14, {}),
    ("OneHot", {0: np.array([1, 0], I64), 1: np.array(3, I64), 2: np.array([0, 1], F32)}, 13, {}),
    ("DequantizeLinear", {0: np.array([1, 200], np.uint8), 1: F32(0.5), 2: np.uint8(3)}, 13, {}),
    ("NonZero", {0: np.array([[1, 0], [1, 1]], F32)}, 13, {}),
    ("Einsum", {0: noise(2, 3), 1: noise(3, 2)}, 12, {"equation": "ij,jk->ik"}),
    ("EyeLike", {0: noise(2, 3)}, 9, {"k": 1}),
    ("HannWindow", {0: np.array(7, I64)}, 17, {}),
]  # fmt: skip


@pytest.mark.parametrize("case", WITHOUT_KERNELS, ids=lambda case: case[0])
def test_constants_need_no_kernel(case, monkeypatch):
    monkeypatch.delitem(OPERATORS, case[0], raising=False)
    op, constants, opset, attributes = case
    model = single(op, [], opset, constants, **attributes)
    ((_, actual),) = folded(model).items()
    expected = peer(model, {})["o0"]
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_weights_of_other_element_types_are_cast_when_the_model_is_imported():
    weight = np.exp2(np.round(noise(3, 600))).astype(ml_dtypes.float8_e8m0fnu)
    text = "g (float[3,600] x) => (float[3,600] y) { c = Cast <to: int = 1> (w) y = Add(x, c) }"
    model = parsed(text, w=weight)
    model.opset_import[0].version = 24
    graph = import_model(model)
    np.testing.assert_array_equal(graph.initializers["c"], weight.astype(F32))
    assert "float8_e8m0" in graph.removed["w"].reason


def test_a_kernel_that_reads_a_constant_of_another_element_type_is_refused():
    text = "g (bool[3] x) => (complex64[3] y) { y = Where(x, w, w) }"
    with pytest.raises(
        UnsupportedOp, match=r"Where node Where_0.*dtype complex64|input w has dtype"
    ):
        import_model(parsed(text, w=noise(3).astype(np.complex64)))


LARGE = 64 * 64
"""More elements than are evaluated at once."""


def test_a_large_constant_with_a_kernel_is_left_to_the_program():
    model = parsed(
        "g (float[64] x) => (float[64,64] y) { n = Neg(w) y = Add(x, n) }", w=noise(64, 64)
    )
    graph = import_model(model)
    assert [node.op for node in graph.nodes] == ["Neg", "Add"]
    assert graph.is_constant("n")
    assert "n" not in graph.initializers


def test_a_large_constant_is_computed_where_its_contents_decide():
    # 4,096 elements are negated by a kernel, but their largest is the length of a Range.
    text = """g (float[1] x) => (float[r] y) <int64[2] all = {0, 1}> {
        n = Neg(w) m = ReduceMax <keepdims: int = 0> (n)
        zero = Constant <value = int64 {0}> () one = Constant <value = int64 {1}> ()
        r = Range(zero, m, one) f = Cast <to: int = 1> (r) y = Add(x, f) }"""
    values = -np.arange(6).repeat(1024)[-4096:].reshape(64, 64).astype(I64)
    model = parsed(text, w=values)
    assert assert_agrees(model, {"x": noise(1)}).values["y"].shape == (5,)


def test_large_constants_without_a_kernel_follow_large_ones_with_one():
    text = "g (float[64,64] x) => (float[64,64] y) { n = Neg(w) t = Trilu(n) y = Add(x, t) }"
    model = parsed(text, w=noise(64, 64))
    assert_agrees(model, {"x": noise(64, 64, seed=1)})


def test_what_a_kernel_refuses_is_computed_where_it_is_constant():
    # Kernels have no gather in so many runs.
    indices = np.random.default_rng(0).integers(0, 50, 3000)
    model = parsed(
        "g (float[3000] x) => (float[3000] y) { p = Gather(w, i) y = Add(x, p) }",
        w=noise(50),
        i=indices.astype(I64),
    )
    assert_agrees(model, {"x": noise(3000)})


def test_shapes_of_weights_are_known_whatever_their_size():
    text = """g (float[4096] x) => (float[64,64] y) { s = Shape(w) y = Reshape(x, s) }"""
    model = parsed(text, w=noise(64, 64).astype(np.float16))
    graph = canonicalize(import_model(model))
    assert [node.op for node in graph.nodes] == ["Reshape"]


ONE = numpy_helper.from_array(np.ones(1, I64))

WRITTEN_DOWN = [
    ("Unsqueeze", {0: noise(3)}, 11, {"axes": [0, 2]}),
    ("Unsqueeze", {0: noise(3), 1: np.array([-1, 0], I64)}, 13, {}),
    ("Squeeze", {0: noise(1, 3, 1)}, 13, {}),
    ("Flatten", {0: noise(2, 3, 4)}, 13, {"axis": -1}),
    ("Reshape", {0: noise(2, 3, 4), 1: np.array([0, -1, 2], I64)}, 13, {}),
    ("Reshape", {0: noise(0, 3), 1: np.array([3, 0], I64)}, 14, {"allowzero": 1}),
    ("Identity", {0: np.array(2.5, F32)}, 13, {}),
    ("ConstantOfShape", {0: np.array([2, 3], I64)}, 9, {}),
    ("ConstantOfShape", {0: np.array([], I64)}, 9, {"value": ONE}),
]  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN_DOWN, ids=lambda case: case[0])
def test_what_follows_from_a_shape_needs_no_evaluator(case, monkeypatch):
    op, constants, opset, attributes = case
    model = single(op, [], opset, constants, **attributes)
    expected = peer(model, {})["o0"]
    monkeypatch.delattr("onnx.reference.ReferenceEvaluator")
    actual = folded(model)["o0"]
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual, expected)


def test_a_damaged_value_of_a_filled_tensor_is_an_error_of_graphflow():
    value = TensorProto(data_type=TensorProto.FLOAT, dims=[1], raw_data=b"12")
    model = single("ConstantOfShape", [], 9, {0: np.array([2, 3], I64)}, value=value)
    with pytest.raises(GraphflowError):
        import_model(model)


def test_limits_refuse_by_name():
    # A terabyte, from two numbers.
    model = single("HannWindow", [], 17, {0: np.array(1 << 40, I64)})
    with pytest.raises(UnsupportedOp, match=r"more than \d+ elements.*HannWindow node the_node"):
        import_model(model)
    numbers = [np.array(1 << 20), np.array(1 << 20), np.array(8192), F32(0), F32(4096)]
    model = single("MelWeightMatrix", [], 17, dict(enumerate(numbers)))
    with pytest.raises(UnsupportedOp, match=r"the_node.*touches \d+ elements, more than"):
        import_model(model)
    model = single("Expand", [], 13, {0: F32(1), 1: np.array([1 << 20, 1 << 20], I64)})
    graph = import_model(model)
    assert graph.values["o0"].shape == (1 << 20, 1 << 20)


def test_the_time_limit_refuses(monkeypatch):
    monkeypatch.setattr(folding, "SECONDS", -1.0)
    monkeypatch.delitem(OPERATORS, "Trilu")
    with pytest.raises(UnsupportedOp, match="the constants before it took more than"):
        import_model(single("Trilu", [], 14, {0: noise(4, 4)}))


def test_a_division_of_integers_by_zero_is_not_computed(monkeypatch):
    monkeypatch.delitem(OPERATORS, "Mod")
    model = single("Mod", [], 13, {0: np.array([4], I64), 1: np.array([0], I64)})
    with pytest.raises(UnsupportedOp, match=r"the_node.*divides integers by zero|by zero"):
        import_model(model)


@pytest.mark.parametrize("index", [3, -4, 1 << 62, -(1 << 62)])
def test_an_index_outside_is_not_taken_modulo_the_extent(index, monkeypatch):
    """The evaluator does so by adding the extent again and again."""
    monkeypatch.delitem(OPERATORS, "GatherElements")
    model = single("GatherElements", [], 13, {0: noise(3, 2), 1: np.full((1, 2), index, I64)})
    with pytest.raises(UnsupportedOp, match="has indices outside of the 3 elements of axis 0"):
        import_model(model)


def test_a_default_of_an_input_is_no_constant():
    model = single("Trilu", [noise(4, 4)], 14)
    model.graph.initializer.append(numpy_helper.from_array(noise(4, 4), "i0"))
    assert not import_model(model, overridable=["i0"]).is_constant("o0")
    assert canonicalize(import_model(model)).is_constant("o0")


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_an_older_meaning_than_the_evaluators_is_left_to_the_kernel(op):
    # Before opset 13 all axes from 1 on are one, which the evaluator does not know.
    model = single(op, [], 11, {0: noise(2, 3, 4)})
    graph = import_model(model)
    assert len(graph.nodes) == 1
    assert_same_as_peer(model, {}, graph)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_random_shape_arithmetic_agrees_with_the_reference(seed):
    """A chain of integer operators on the shape of an input, as exporters write it."""
    generator = np.random.default_rng(seed)
    shape = tuple(int(n) for n in generator.integers(1, 7, generator.integers(2, 5)))
    nodes = [helper.make_node("Shape", ["x"], ["v0"])]
    tensors = []
    for k in range(int(generator.integers(1, 7))):
        op = str(
            generator.choice(["Add", "Mul", "Sub", "Div", "Slice", "Concat", "Where", "Gather"])
        )
        name = f"c{k}"
        number = np.array([int(generator.integers(1, 5))], I64)
        tensors.append(numpy_helper.from_array(number, name))
        made, last = f"v{k + 1}", f"v{k}"
        if op == "Slice":
            tensors.append(numpy_helper.from_array(np.array([0], I64), f"{name}s"))
            nodes.append(helper.make_node(op, [last, f"{name}s", name], [made]))
        elif op == "Concat":
            nodes.append(helper.make_node(op, [last, name], [made], axis=0))
        elif op == "Where":
            nodes.append(helper.make_node("Greater", [last, name], [f"{made}b"]))
            nodes.append(helper.make_node(op, [f"{made}b", last, name], [made]))
        elif op == "Gather":
            tensors[-1] = numpy_helper.from_array(np.array([-1, 0], I64), name)
            nodes.append(helper.make_node(op, [last, name], [made]))
        else:
            nodes.append(helper.make_node(op, [last, name], [made]))
    nodes.append(helper.make_node("Identity", [made], ["y"]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ["n"])], tensors,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.zeros(shape, F32)
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    result = canonicalize(import_model(model))
    assert not result.nodes
    np.testing.assert_array_equal(interpret_graph(result, {"x": x})["y"], expected)
