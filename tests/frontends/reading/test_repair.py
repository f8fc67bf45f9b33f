"""Tests of models that onnxruntime accepts and ONNX's checker refuses, and of old opsets."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import import_model, symbolic_inputs
from graphflow.graph import interpret_graph
from graphflow.models import ModelBuilder
from support.single import assert_same_as_peer, noise, peer, single

F32 = np.float32
info = helper.make_tensor_value_info


def model_of(nodes, inputs, outputs, initializers=(), opset=13, ir_version=8):
    """A model that nobody checked; inputs and outputs are infos, or pairs of name and shape."""
    graph = helper.make_graph(
        nodes,
        "g",
        [i if isinstance(i, onnx.ValueInfoProto) else info(i[0], 1, i[1]) for i in inputs],
        [o if isinstance(o, onnx.ValueInfoProto) else info(o[0], 1, o[1]) for o in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in initializers],
    )
    opsets = [helper.make_opsetid("", opset)] if opset else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def relu(x="x", y="y", **attributes):
    return helper.make_node("Relu", [x], [y], **attributes)


X = {"x": noise(2, 3)}


@pytest.mark.parametrize(
    "output", [info("y", 1, None), onnx.ValueInfoProto(name="y"), info("y", 1, (-1, 3))]
)
def test_outputs_need_no_shape_and_no_type(output):
    assert_same_as_peer(model_of([relu()], [("x", (2, 3))], [output]), X)


@pytest.mark.parametrize("shape", [None, (-1, 3), (-7, 3), ("n", 3)])
def test_an_input_with_an_open_shape_is_symbolic(shape):
    model = model_of([relu()], [("x", shape)], [("y", None)])
    assert symbolic_inputs(model) == ("x",)
    with pytest.raises(InvalidModel, match=r"not known: x .*input_shapes"):
        import_model(model)
    assert_same_as_peer(model, X, import_model(model, {"x": (2, 3)}))
    np.testing.assert_array_equal(gf.compile(model, threads=1)(X["x"]), peer(model, X)["y"])


def test_an_extent_that_is_given_cannot_be_chosen():
    model = model_of([relu()], [("x", (-1, 3))], [("y", None)])
    with pytest.raises(InvalidModel, match=r"\(2, 4\) is given for x, the model says \(\?, 3\)"):
        import_model(model, {"x": (2, 4)})


def test_stale_inner_shapes_do_not_count_and_those_of_outputs_do():
    model = model_of([relu("x", "t"), relu("t", "y")], [("x", (2, 3))], [("y", (2, 3))])
    model.graph.value_info.append(info("t", 1, (1, 3)))
    assert_same_as_peer(model, X)
    model.graph.value_info[0].CopyFrom(info("t", TensorProto.INT64, (2, 3)))
    with pytest.raises(InvalidModel, match="inference refuses"):
        import_model(model)
    wrong = model_of([relu()], [("x", (2, 3))], [("y", (1, 3))])
    with pytest.raises(InvalidModel, match="inference refuses"):
        import_model(wrong)


def test_nodes_in_any_order_are_sorted_and_else_keep_theirs():
    nodes = [
        helper.make_node("Add", ["b", "c"], ["y"], name="last"),
        helper.make_node("Neg", ["a"], ["c"], name="third"),
        helper.make_node("Neg", ["a"], ["b"], name="second"),
        helper.make_node("Relu", ["x"], ["a"], name="first"),
    ]
    model = model_of(nodes, [("x", (2, 3))], [("y", (2, 3))])
    before = model.SerializeToString()
    assert_same_as_peer(model, X)
    assert [n.name for n in import_model(model).nodes] == ["first", "third", "second", "last"]
    assert model.SerializeToString() == before


def test_a_cycle_is_refused_with_its_nodes():
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"], name="one"),
        relu("a", "b", name="two"),
        relu("b", "c", name="three"),
        relu("c", "y", name="behind"),
    ]
    with pytest.raises(InvalidModel, match=r"cycle: Add one.* reads .*three.*two") as caught:
        import_model(model_of(nodes, [("x", (2, 3))], [("y", (2, 3))]))
    assert "behind" not in str(caught.value)


def test_a_node_that_reads_itself_is_a_cycle():
    nodes = [helper.make_node("Add", ["x", "y"], ["y"], name="self")]
    with pytest.raises(InvalidModel, match=r"cycle: Add self .y. reads Add self"):
        import_model(model_of(nodes, [("x", (2, 3))], [("y", (2, 3))]))


def test_an_output_may_be_listed_twice():
    model = model_of([relu()], [("x", (2, 3))], [("y", (2, 3)), ("y", (2, 3))])
    assert import_model(model).outputs == ("y",)
    expected = peer(model_of([relu()], [("x", (2, 3))], [("y", (2, 3))]), X)["y"]
    np.testing.assert_array_equal(gf.compile(model, threads=1).run(X)["y"], expected)
    found = gf.backend.prepare(model).run([X["x"]])
    assert len(found) == 2
    for array in found:
        np.testing.assert_array_equal(array, expected)


def test_an_opset_is_needed_only_by_standard_operators():
    passing = model_of([], [("x", (2, 3))], [("x", (2, 3))], opset=None)
    passing.opset_import.add(domain="com.example", version=1)
    assert import_model(passing).outputs == ("x",)
    model = model_of([relu()], [("x", (2, 3))], [("y", (2, 3))], opset=None)
    with pytest.raises(InvalidModel, match="imports no opset"):
        import_model(model)


@pytest.mark.parametrize("size", [3, 2000])
def test_an_output_may_be_an_input_or_an_initializer(size):
    array = noise(size)
    model = model_of(
        [relu()], [("x", (2, 3))], [("x", (2, 3)), ("y", (2, 3)), ("w", (size,))], [("w", array)]
    )
    assert_same_as_peer(model, X)
    found = gf.compile(model, threads=1).run(X)
    assert list(found) == ["x", "y", "w"]
    np.testing.assert_array_equal(found["x"], X["x"])
    np.testing.assert_array_equal(found["w"], array)
    found["x"][:] = 0  # outputs are new arrays
    assert X["x"].any()


def test_a_graph_needs_no_name():
    model = model_of([relu()], [("x", (2, 3))], [("y", (2, 3))])
    model.graph.name = ""
    assert_same_as_peer(model, X)


POOLS = [
    ((1, 2, 5, 5), {"kernel_shape": [6, 6], "strides": [2, 2], "ceil_mode": 1}),
    ((1, 2, 5, 6), {"kernel_shape": [6, 6], "strides": [6, 6], "ceil_mode": 1}),
    ((1, 2, 5, 6), {"kernel_shape": [7, 4], "strides": [7, 3], "ceil_mode": 1, "pads": [1] * 4}),
    (
        (1, 2, 5, 6),
        {"kernel_shape": [6, 7], "strides": [6, 7], "ceil_mode": 1, "count_include_pad": 1},
    ),
]


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize(("shape", "attributes"), POOLS)
def test_a_pool_may_be_larger_than_its_input_where_it_rounds_up(op, shape, attributes):
    attributes = {k: v for k, v in attributes.items() if op == "AveragePool" or k[:5] != "count"}
    nodes = [helper.make_node(op, ["x"], ["y"], **attributes)]
    model = model_of(nodes, [("x", shape)], [("y", None)], opset=19)
    assert_same_as_peer(model, {"x": noise(*shape)})
    found = gf.compile(model, threads=1)(noise(*shape))
    np.testing.assert_allclose(found, peer(model, {"x": noise(*shape)})["y"], atol=1e-6)


@pytest.mark.parametrize("more", [{}, {"ceil_mode": 1}, {"ceil_mode": 1, "strides": [2, 2]}])
def test_a_pool_without_an_output_is_refused(more):
    nodes = [helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[7, 7], name="p", **more)]
    with pytest.raises(InvalidModel):
        import_model(model_of(nodes, [("x", (1, 2, 5, 5))], [("y", None)], opset=19))


# Old opsets -------------------------------------------------------------------------------------

OLD = [
    ("Relu", [(2, 3)], 1, {"consumed_inputs": [0]}),
    ("Add", [(2, 3, 4), (4,)], 6, {"broadcast": 1}),
    ("Mul", [(2, 3, 4), (3,)], 6, {"broadcast": 1, "axis": 1}),
    ("Sub", [(2, 3, 4, 5), (3, 4)], 6, {"broadcast": 1, "axis": 1}),
    ("Div", [(2, 3, 4), (2, 1)], 6, {"broadcast": 1, "axis": -3}),
    ("Reshape", [(2, 3, 4)], 4, {"shape": [6, 4]}),
    ("Gemm", [(2, 3), (3, 4), (4,)], 6, {"broadcast": 1}),
    ("Dropout", [(2, 3)], 6, {"is_test": 1}),
    ("Clip", [(2, 3)], 6, {"min": 0.0, "max": 0.5}),
    ("Softmax", [(2, 3, 4)], 1, {}),
    ("Conv", [(1, 2, 5, 6), (3, 2, 3, 3)], 1, {}),
]


MEANINGS = {
    "Relu": lambda x: np.maximum(x, 0),
    "Add": lambda x, y: x + y,
    "Mul": lambda x, y: x * y[:, None],
    "Sub": lambda x, y: x - y[:, :, None],
    "Div": lambda x, y: x / y[:, :, None],
    "Reshape": lambda x: x.reshape(6, 4),
    "Gemm": lambda x, y, z: x @ y + z,
    "Dropout": lambda x: x,
    "Clip": lambda x: x.clip(0, 0.5),
}


@pytest.mark.parametrize("case", OLD, ids=lambda case: f"{case[0]}-{case[2]}")
def test_operators_of_old_opsets_are_converted(case):
    op, shapes, opset, attributes = case
    arrays = [noise(*shape, seed=k) for k, shape in enumerate(shapes)]
    infos = [(f"i{k}", array.shape) for k, array in enumerate(arrays)]
    node = helper.make_node(op, [name for name, _ in infos], ["o0"], name="n", **attributes)
    model = model_of([node], infos, [("o0", None)], opset=opset, ir_version=3)
    graph = import_model(model)
    found = interpret_graph(graph, {f"i{k}": array for k, array in enumerate(arrays)})
    if op in MEANINGS:  # onnxruntime has no kernels from before opset 7 for these
        np.testing.assert_allclose(found["o0"], MEANINGS[op](*arrays), rtol=1e-6, atol=1e-6)
    else:
        expected = peer(model, {f"i{k}": array for k, array in enumerate(arrays)})
        np.testing.assert_allclose(found["o0"], expected["o0"], rtol=1e-5, atol=1e-6)


def old_network():
    """A Conv, a BatchNormalization and a bias along the channels, as in opset 6."""
    build = ModelBuilder(opset=6)
    x = build.input("x", (1, 3, 6, 6))
    y = build.relu(build.conv(x, 32, 5, pads=[2] * 4, bias=False))
    params = [build.constant(np.abs(noise(32, seed=k)) + F32(0.5)) for k in range(4)]
    y = build.node("BatchNormalization", [y, *params], is_test=1)
    y = build.node("Add", [y, build.weight(32)], broadcast=1, axis=1)
    build.output(y)
    return build.model()


def test_a_network_of_an_old_opset_keeps_its_weights():
    model = old_network()
    large = next(t for t in model.graph.initializer if len(t.dims) == 4)
    assert np.prod(large.dims) > 2000
    before = model.SerializeToString()
    graph = import_model(model)
    assert model.SerializeToString() == before
    np.testing.assert_array_equal(graph.initializers[large.name], numpy_helper.to_array(large))
    new = ModelBuilder(opset=13)
    x = new.input("x", (1, 3, 6, 6))
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for name, array in tensors.items():
        new.constant(array[:, None, None] if name == "weight_2" else array, name)
    conv, bn, add = (model.graph.node[k] for k in (0, 2, 3))
    y = new.relu(new.node("Conv", [x, conv.input[1]], pads=[2] * 4))
    y = new.node("BatchNormalization", [y, *bn.input[1:]])
    new.output(new.node("Add", [y, add.input[1]]))
    feeds = {"x": noise(1, 3, 6, 6)}
    (expected,) = peer(new.model(), feeds).values()
    found = gf.compile(model, threads=1).run(feeds)
    np.testing.assert_allclose(next(iter(found.values())), expected, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_converted_is_named():
    nodes = [
        relu("x", "a", name="first"),
        helper.make_node("Cast", ["a"], ["y"], name="second", to="DOUBLE"),
    ]
    model = model_of(nodes, [("x", (2, 3))], [info("y", TensorProto.DOUBLE, (2, 3))], opset=5)
    with pytest.raises(UnsupportedOp, match=r"opset 5 .*Cast node second .*Export the model"):
        import_model(model)


def test_opset_7_is_not_converted():
    with pytest.raises(InvalidModel, match="broadcast"):
        import_model(
            model_of(
                [helper.make_node("Add", ["x", "b"], ["y"], broadcast=1)],
                [("x", (2, 3)), ("b", (3,))],
                [("y", None)],
                opset=7,
            )
        )
    assert import_model(single("Relu", [noise(2)], 7)).outputs == ("o0",)


@pytest.mark.parametrize(
    ("opset", "error"), [(0, InvalidModel), (-3, InvalidModel), (999, UnsupportedOp)]
)
def test_opsets_that_do_not_exist_are_refused(opset, error):
    model = model_of([relu()], [("x", (2, 3))], [("y", None)])
    model.opset_import[0].version = opset
    with pytest.raises(error, match=f"opset {opset}"):
        import_model(model)
