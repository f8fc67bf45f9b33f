"""Tests of the import of models: operators against onnxruntime, shapes, node counts, refusals."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphflow.base.errors import InvalidModel, UnsupportedOp, VerifyError
from graphflow.frontends import OPERATORS, NodeCall, check_supported, import_model
from graphflow.graph import canonicalize, fuse_groups, interpret_graph
from graphflow.kernels.definitions.elementwise import unary, variadic
from graphflow.models import ModelBuilder, expose, light, reseed
from support.single import assert_same_as_peer, noise, peer, single

I64 = np.int64
X4 = (1, 2, 5, 6)

CASES = [
    ("Relu", [X4], 7, {}, {}),
    ("LeakyRelu", [(2, 3)], 7, {}, {}),
    ("LeakyRelu", [(2, 3)], 16, {}, {"alpha": 0.3}),
    ("Clip", [(3, 3)], 7, {}, {"min": -0.2, "max": 0.4}),
    ("Clip", [(3, 3)], 10, {}, {}),
    ("Clip", [(3, 3)], 12, {1: np.float32(-0.2), 2: np.float32(0.4)}, {}),
    ("Clip", [(3, 3)], 13, {1: None, 2: np.float32(0.4)}, {}),
    ("Clip", [(3, 3), ()], 13, {2: np.float32(0.4)}, {}),
    ("Add", [(2, 3), (3,)], 7, {}, {}),
    ("Sum", [(2, 3), (3,), (2, 1)], 8, {}, {}),
    ("Max", [(2, 3), (3,)], 13, {}, {}),
    ("Identity", [(2, 3)], 16, {}, {}),
    ("Dropout", [(2, 3)], 7, {}, {"ratio": 0.3}),
    ("Dropout", [(2, 3)], 13, {1: np.float32(0.5), 2: np.array(False)}, {"seed": 4}),
    ("ReduceSum", [(2, 3, 4)], 11, {}, {"axes": [0, -1]}),
    ("ReduceSum", [(2, 3, 4)], 13, {1: np.array([1], I64)}, {"keepdims": 0}),
    ("ReduceSum", [(2, 3, 4)], 13, {}, {"keepdims": 0}),
    ("ReduceSum", [(2, 3, 4)], 13, {}, {"noop_with_empty_axes": 1}),
    ("ReduceMean", [(2, 3, 4)], 13, {}, {"axes": [1]}),
    ("ReduceMean", [(2, 3, 4)], 18, {1: np.array([-1, 0], I64)}, {"keepdims": 0}),
    ("ReduceMax", [(2, 3, 4)], 18, {1: np.array([1], I64)}, {}),
    ("ReduceMin", [(2, 3, 4)], 13, {}, {"axes": [2]}),
    ("ReduceProd", [(2, 3, 4)], 18, {1: np.array([0], I64)}, {}),
    ("Softmax", [(2, 3, 4)], 7, {}, {}),
    ("Softmax", [(2, 3, 4)], 11, {}, {"axis": -1}),
    ("Softmax", [(2, 3, 4)], 13, {}, {}),
    ("Softmax", [(2, 3, 4)], 13, {}, {"axis": 1}),
    ("Concat", [(2, 3), (2, 1)], 13, {}, {"axis": -1}),
    ("Reshape", [(2, 3, 4)], 7, {1: np.array([0, -1], I64)}, {}),
    ("Reshape", [(2, 3, 4)], 14, {1: np.array([4, -1, 2], I64)}, {}),
    ("Reshape", [(0, 3)], 14, {1: np.array([3, 0], I64)}, {"allowzero": 1}),
    ("Flatten", [(2, 3, 4)], 9, {}, {}),
    ("Flatten", [(2, 3, 4)], 13, {}, {"axis": -1}),
    ("Flatten", [(2, 3, 4)], 13, {}, {"axis": 0}),
    ("Squeeze", [(1, 3, 1)], 11, {}, {"axes": [0]}),
    ("Squeeze", [(1, 3, 1)], 13, {1: np.array([-1], I64)}, {}),
    ("Squeeze", [(1, 3, 1)], 13, {}, {}),
    ("Unsqueeze", [(2, 3)], 11, {}, {"axes": [0, 3]}),
    ("Unsqueeze", [(2, 3)], 13, {1: np.array([-1, 1], I64)}, {}),
    ("Transpose", [(2, 3, 4)], 13, {}, {}),
    ("Transpose", [(2, 3, 4)], 13, {}, {"perm": [1, 0, 2]}),
    ("Gemm", [(3, 2), (3, 4), (4,)], 7, {}, {"transA": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [(2, 3), (4, 3)], 13, {}, {"transB": 1}),
    ("MatMul", [(2, 1, 2, 3), (3, 3, 2)], 13, {}, {}),
    ("Cast", [(2, 3)], 13, {}, {"to": TensorProto.INT32}),
    ("Cast", [(2, 3)], 19, {}, {"to": TensorProto.DOUBLE}),
    ("Shape", [(2, 3, 4)], 13, {}, {}),
    ("Shape", [(2, 3, 4)], 15, {}, {"start": -2, "end": 3}),
    ("GlobalAveragePool", [X4], 7, {}, {}),
    ("GlobalMaxPool", [X4], 7, {}, {}),
    ("Conv", [X4, (3, 2, 3, 3), (3,)], 11, {}, {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ("Conv", [X4, (3, 2, 2, 4)], 11, {}, {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    ("Conv", [X4, (3, 2, 3, 3)], 11, {}, {"auto_pad": "VALID", "kernel_shape": [3, 3]}),
    ("Conv", [X4, (4, 1, 3, 3)], 11, {}, {"group": 2, "pads": [0, 1, 2, 1]}),
    ("MaxPool", [X4], 8, {}, {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("MaxPool", [X4], 12, {}, {"kernel_shape": [2, 2], "strides": [3, 4], "ceil_mode": 1}),
    ("MaxPool", [X4], 12, {}, {"kernel_shape": [2, 2], "dilations": [2, 3], "storage_order": 0}),
    ("AveragePool", [X4], 7, {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    (
        "AveragePool", [X4], 19, {},
        {"kernel_shape": [2, 3], "dilations": [2, 1], "pads": [1, 1, 0, 2], "count_include_pad": 1},
    ),
    ("AveragePool", [X4], 11, {}, {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[2]}")
def test_single_operators_match_onnxruntime(case):
    op, shapes, opset, constants, attributes = case
    arrays = [noise(*shape, seed=k) for k, shape in enumerate(shapes)]
    model = single(op, arrays, opset, constants, **attributes)
    feeds = {info.name: array for info, array in zip(model.graph.input, arrays, strict=True)}
    assert_same_as_peer(model, feeds)


def test_batch_normalization_folds_to_one_kernel():
    b = ModelBuilder()
    x = b.input("x", (2, 3, 4, 4))
    b.output(b.batch_norm(x, epsilon=1e-2, momentum=0.5))
    model = b.model()
    graph = import_model(model)
    assert [n.op for n in graph.nodes] == [
        "BatchNormalization.scale", "BatchNormalization.shift", "BatchNormalization",
    ]  # fmt: skip
    folded = canonicalize(graph)
    assert [n.op for n in folded.nodes] == ["BatchNormalization"]
    assert_same_as_peer(model, {"x": noise(2, 3, 4, 4)}, folded)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value_float": 2.5}, np.float32(2.5)),
        ({"value_floats": [1.0, 2.0]}, np.array([1, 2], np.float32)),
        ({"value_int": 3}, np.int64(3)),
        ({"value_ints": [3, 4]}, np.array([3, 4], np.int64)),
        ({"value": numpy_helper.from_array(np.eye(2, dtype=np.int32))}, np.eye(2, dtype=np.int32)),
    ],
)
def test_constants(attributes, expected):
    graph = import_model(single("Constant", [], 13, **attributes))
    assert graph.is_constant("o0")
    assert graph.initializers["o0"].dtype == expected.dtype
    np.testing.assert_array_equal(graph.initializers["o0"], expected)


def test_shape_arithmetic_is_known_at_import():
    b = ModelBuilder(opset=13)
    x = b.input("x", ("batch", 4, 3))
    shape = b.node("Shape", [x])
    doubled = b.node("Mul", [shape, b.constant(np.array([2, 1, 1], np.int64))])
    halved = b.node("Div", [doubled, b.constant(np.array([1, 2, 1], np.int64))])
    computed = b.node("Reshape", [x, halved])
    b.output(b.node("Reshape", [computed, b.constant(np.array([-1], np.int64))]))
    graph = import_model(b.model(), {"x": (5, 4, 3)})
    assert graph.values[computed].shape == (10, 2, 3)
    assert [n.op for n in canonicalize(graph).nodes] == ["Reshape", "Reshape"]


def small_network() -> onnx.ModelProto:
    b = ModelBuilder(seed=2)
    x = b.input("x", (1, 3, 9, 8))
    y = b.relu(b.batch_norm(b.conv(x, 4, 3, pads=[1, 1, 1, 1], strides=[2, 2])))
    z = b.conv(y, 4, 3, group=4, pads=[1, 1, 1, 1])
    z = b.node("Clip", [b.add(z, y), b.constant(np.float32(0)), b.constant(np.float32(1))])
    z = b.node("Concat", [z, y], axis=1)
    z = b.node("AveragePool", [z], kernel_shape=[2, 2], pads=[0, 1, 0, 1])
    z = b.node("Flatten", [b.node("Dropout", [z])])
    z = b.node("Gemm", [z, b.weight(5, 8 * 4 * 5, scale=0.1), b.weight(5)], transB=1)
    b.output(b.node("Softmax", [z]), y)
    return b.model()


def test_a_small_network_matches_at_each_stage():
    model = small_network()
    feeds = {"x": noise(1, 3, 9, 8)}
    graph = import_model(model)
    canonical = canonicalize(graph)
    fused = fuse_groups(canonical)
    for stage in (graph, canonical, fused):
        assert_same_as_peer(model, feeds, stage)
    assert [n.op for n in fused.nodes] == [
        "Conv+BatchNormalization+Relu", "Conv+Add+Clip", "Concat", "AveragePool", "Flatten",
        "Gemm", "Softmax",
    ]  # fmt: skip


def test_every_tensor_of_a_network_is_accounted_for_and_matches():
    model = small_network()
    names = [name for node in model.graph.node for name in node.output]
    canonical = canonicalize(import_model(model))
    fused = fuse_groups(canonical)
    inner = {name for node in fused.nodes for name, _ in node.inner}
    known = [t.name for t in model.graph.initializer]
    for name in (*names, *known, "x"):
        assert (name in fused.values) + (name in inner) + (name in fused.removed) == 1
    feeds = {"x": noise(1, 3, 9, 8)}
    expected = peer(expose(model, names), feeds)
    kept = [name for name in names if canonical.resolved(name)]
    values = interpret_graph(canonical, feeds, [canonical.resolved(name) for name in kept])
    for name in kept:
        actual = values[canonical.resolved(name)]
        np.testing.assert_allclose(actual, expected[name], rtol=3e-5, atol=3e-5)


def test_squeezenet_has_the_expected_nodes_and_groups():
    graph = import_model(reseed(light("squeezenet"), 0))
    assert len(graph) == 66
    assert graph.inputs == ("data_0",)
    assert len(graph.initializers) == 52
    canonical = canonicalize(graph)
    assert len(canonical) == 65
    fused = fuse_groups(canonical)
    counts = {op: [n.op for n in fused.nodes].count(op) for op in {n.op for n in fused.nodes}}
    assert counts == {
        "Conv+Relu": 26, "Concat": 8, "MaxPool": 3, "GlobalAveragePool": 1, "Softmax": 1,
    }  # fmt: skip
    assert sum(len(n.origins) for n in fused.nodes) == 65


def test_squeezenet_without_new_weights_imports_its_constants():
    graph = canonicalize(import_model(light("squeezenet")))
    live = [n for n in graph.nodes if not graph.is_constant(n.outputs[0])]
    assert len(live) == 65
    # Before IR version 4 initializers are listed as inputs, which does not make them variable.
    assert graph.inputs == ("data_0",)


def with_default() -> onnx.ModelProto:
    """An Add of two graph inputs, the second of which has an initializer."""
    model = single("Add", [noise(2), noise(2)], 13)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "i1"))
    return model


def test_an_initializer_that_is_an_input_too_is_a_constant():
    graph = import_model(with_default())
    assert graph.inputs == ("i0",)
    assert graph.is_constant("i1")


def test_only_initializers_that_are_inputs_can_be_made_overridable():
    for name in ("i0", "o0", "nothing"):
        with pytest.raises(InvalidModel, match=rf"overridable names \['{name}'\].*are \['i1'\]"):
            import_model(with_default(), overridable=[name])
    old = with_default()
    old.ir_version = 3  # where all initializers had to be listed
    assert import_model(old).inputs == ("i0",)
    with pytest.raises(InvalidModel, match="IR version 3 has none that can be set"):
        import_model(old, overridable=["i1"])


def test_an_overridable_initializer_gives_an_open_shape():
    model = with_default()
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    assert import_model(model, overridable=["i1"]).values["i1"].shape == (2,)


def test_initializers_that_are_inputs_too_can_be_overridden():
    graph = import_model(with_default(), overridable=["i1"])
    assert graph.inputs == ("i0", "i1")
    assert not graph.is_constant("i1")
    result = interpret_graph(graph, {"i0": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(result["o0"], [1, 1])


def test_models_come_as_path_bytes_or_proto(tmp_path):
    model = single("Relu", [noise(2)], 13)
    before = model.SerializeToString()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    graphs = [import_model(m) for m in (model, before, path, str(path))]
    assert all(g.nodes == graphs[0].nodes for g in graphs)
    assert model.SerializeToString() == before


def test_external_weights_are_read(tmp_path):
    b = ModelBuilder()
    x = b.input("x", (1, 64))
    b.output(b.node("MatMul", [x, b.weight(64, 32)]))
    path = tmp_path / "model.onnx"
    onnx.save(b.model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    graph = import_model(path)
    assert graph.initializers["weight_1"].std() > 0.5


def test_model_functions_are_inlined():
    opsets = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Relu", ["a"], ["t"]), helper.make_node("Neg", ["t"], ["b"])]
    function = helper.make_function("local", "Flip", ["a"], ["b"], body, opsets)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (3,)) for n in ("x", "y")]
    node = helper.make_node("Flip", ["x"], ["y"], domain="local")
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    model = helper.make_model(
        graph,
        functions=[function],
        opset_imports=[*opsets, helper.make_opsetid("local", 1)],
        ir_version=8,
    )
    assert [n.op for n in import_model(model).nodes] == ["Relu", "Neg"]


def test_symbolic_dimensions_need_shapes():
    b = ModelBuilder()
    b.output(b.relu(b.input("x", ("batch", 3))))
    model = b.model()
    with pytest.raises(InvalidModel, match=r"x axis 0 \(batch\).*input_shapes"):
        import_model(model)
    assert import_model(model, {"x": (4, 3)}).values["x"].shape == (4, 3)
    with pytest.raises(
        InvalidModel, match=r"shape \(4, 5\) is given for x, the model says \(batch, 3\)"
    ):
        import_model(model, {"x": (4, 5)})
    with pytest.raises(InvalidModel, match="are given for z; the model's inputs are x"):
        import_model(model, {"z": (4, 3)})


def test_all_operators_that_are_not_built_are_named_at_once(monkeypatch):
    for op in ("Tanh", "Erf"):
        monkeypatch.delitem(OPERATORS, op)
    b = ModelBuilder()
    x = b.input("x", (1, 3, 4, 4))
    b.output(b.node("Erf", [b.node("Tanh", [b.node("Tanh", [x])])]))
    with pytest.raises(UnsupportedOp) as error:
        import_model(b.model())
    assert "Erf (node erf_1_node)" in str(error.value)
    assert "Tanh (2 nodes, the first is tanh_1_node)" in str(error.value)


def test_operators_of_the_caller_come_first_and_only_where_they_are_given():
    def negated(call: NodeCall) -> None:
        """Relu, as one who gives another meaning to the name would have it."""
        call.emit(unary("neg", call.shape(0), call.dtype()))

    b = ModelBuilder()
    b.output(b.relu(b.input("x", (1, 3, 4, 4))))
    (node,) = import_model(b.model(), operators={"Relu": negated}).nodes
    assert node.func == unary("neg", (1, 3, 4, 4))
    (node,) = import_model(b.model()).nodes
    assert node.func == unary("relu", (1, 3, 4, 4))


def own_model(**attributes: float) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "xy")
    node = helper.make_node("Twice", ["x"], ["y"], "twice", domain="own", **attributes)
    return helper.make_model(
        helper.make_graph([node], "model", [x], [y]),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
    )


def twice(call: NodeCall) -> None:
    call.emit(variadic("add", [call.shape(0)] * 2), [call.inputs[0]] * 2)


def test_an_operator_of_another_domain_has_it_in_front_of_its_name():
    check_supported(own_model(), {"own.Twice": twice})
    graph = import_model(own_model(), {"x": (2, 3)}, operators={"own.Twice": twice})
    assert graph.values["y"].shape == (2, 3)
    for operators in (None, {"Twice": twice}, {"other.Twice": twice}):
        with pytest.raises(UnsupportedOp, match=r"not built: own\.Twice \(node twice\)"):
            check_supported(own_model(), operators)


def test_an_operator_of_the_caller_has_to_make_its_outputs():
    def wrong_count(call: NodeCall) -> None:
        call.emit(variadic("add", [call.shape(0)] * 2))

    for emit, message in (
        (lambda call: None, "its function emits no kernel for output y"),
        (wrong_count, "reads 2 and writes 1 parameters; it is given 1 inputs and 1 outputs"),
    ):
        with pytest.raises(VerifyError, match=f"Twice node twice: .*{message}"):
            import_model(own_model(), {"x": (2, 3)}, operators={"own.Twice": emit})


def test_an_attribute_that_an_operator_of_the_caller_does_not_read_is_refused():
    with pytest.raises(UnsupportedOp, match="attribute alpha"):
        import_model(own_model(alpha=1.0), {"x": (2, 3)}, operators={"own.Twice": twice})


REFUSED = [
    ("Reshape", [(2, 3), (2,)], 13, {}, {}, UnsupportedOp, r"the_node: input i1 \(shape\)"),
    ("ReduceSum", [(2, 3), (1,)], 13, {}, {}, UnsupportedOp, r"input i1 \(axes\)"),
    ("Cast", [(2,)], 13, {}, {"to": TensorProto.STRING}, UnsupportedOp, "dtype object"),
    ("Squeeze", [(2, 3)], 11, {}, {"axes": [0]}, InvalidModel, "nference"),
    (
        "BatchNormalization", [X4, (2,), (2,), (2,), (2,)], 7, {}, {"spatial": 0},
        UnsupportedOp, "the_node: spatial is 0, which is not built; convert the model to opset 9",
    ),
    (
        "Dropout", [(2,)], 13, {1: np.float32(0.5), 2: np.array(True)}, {},
        UnsupportedOp, "training_mode is true.*export the model for inference",
    ),
    (
        "Conv", [X4, (3, 2, 3, 3)], 11, {}, {"kernel_shape": [2, 2]},
        InvalidModel, r"kernel_shape \(2, 2\) is not that of the weight|nference",
    ),
    (
        "CumSum", [X4], 14, {1: np.array([0, 1], np.int32)}, {},
        InvalidModel, r"CumSum node the_node: its axis is int32\[2\]; it has to be one number",
    ),
    (
        "GatherElements", [X4, (1, 1, 1, 1)], 13, {}, {"axis": 4},
        InvalidModel, "GatherElements node the_node: axis 4 does not exist in rank 4|nference",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: f"{c[0]}-{c[2]}")
def test_refusals_name_the_node_and_what_to_do(case):
    op, shapes, opset, constants, attributes, error, reason = case
    arrays = [noise(*shape) for shape in shapes]
    if op in ("Reshape", "ReduceSum"):
        arrays[1] = arrays[1].astype(np.int64)
    model = single(op, arrays, opset, constants, **attributes)
    with pytest.raises(error, match=reason):
        import_model(model)


def test_second_outputs_are_refused_only_where_they_are_used():
    arrays = [noise(2, 3), *(np.abs(noise(3, seed=k)) for k in range(4))]
    model = single("BatchNormalization", arrays, 9, outputs=5)
    graph = import_model(model)
    assert "nobody reads" in graph.removed["o1"].reason
    model.graph.output.append(helper.make_tensor_value_info("o1", TensorProto.FLOAT, (3,)))
    with pytest.raises(UnsupportedOp, match="Normalization node the_node: its output o1 is used"):
        import_model(model)


def test_unknown_attributes_and_dtypes_are_refused():
    wide = single("Constant", [], 13, value_string="text")
    with pytest.raises((UnsupportedOp, InvalidModel), match="Constant node the_node"):
        import_model(wide)
    numbers = single("Identity", [np.zeros(2, np.complex64)], 13)
    with pytest.raises(UnsupportedOp, match="graph input i0 has dtype complex64"):
        import_model(numbers)


def test_models_that_are_none_are_refused(tmp_path):
    with pytest.raises(InvalidModel, match="cannot read the model"):
        import_model(tmp_path / "missing.onnx")
    with pytest.raises(InvalidModel):
        import_model(b"not an onnx file at all")
    model = single("Relu", [noise(2)], 13)
    model.graph.node[0].input[0] = "nowhere"
    with pytest.raises(InvalidModel, match="checker refuses"):
        import_model(model)
    wrong = single("Relu", [noise(2)], 13)
    wrong.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3
    with pytest.raises(InvalidModel):
        import_model(wrong)


def test_importing_needs_no_peer():
    code = (
        "import sys, graphflow.frontends; "
        "print([m for m in sys.modules if m.startswith(('onnxruntime', 'graphflow.models'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
