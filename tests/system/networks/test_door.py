"""Tests of invalid input: damaged models, strange files and arguments of wrong types each end in
one clear error."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import CodegenError, GraphflowError, InvalidModel, UnsupportedOp
from graphflow.base.fields import replace
from graphflow.codegen import avx2_target
from graphflow.frontends import import_model, read_model
from graphflow.frontends.protos.payload import MOST_ELEMENTS
from graphflow.frontends.reading.checked import DEEPEST, MOST_NODES
from graphflow.models import ModelBuilder
from graphflow.pipeline import compiler_stages
from support.single import noise, single

info = helper.make_tensor_value_info


def small() -> onnx.ModelProto:
    """Relu(x · weight), the weight of 64×32 elements."""
    build = ModelBuilder()
    x = build.input("x", (2, 64))
    build.output(build.relu(build.node("MatMul", [x, build.weight(64, 32)])))
    return build.model()


def refused(model: Any, reason: str, error: type[Exception] = InvalidModel) -> str:
    with pytest.raises(error, match=reason) as caught:
        import_model(model)
    return str(caught.value)


# Extents and payloads ---------------------------------------------------------------------------


@pytest.mark.parametrize("extent", [-(2**31), -(2**63), -1])
def test_a_negative_extent_of_an_input_is_open(extent: int) -> None:
    model = small()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = extent
    refused(model, r"x axis 0 .unnamed.; compile with input_shapes=")
    assert import_model(model, {"x": (2, 64)}).values["x"].shape == (2, 64)


@pytest.mark.parametrize("shape", [(2**62, 64), (2**40, 2**40), (2**62, 2**62, 0)])
def test_more_elements_than_any_memory_has_are_refused(shape: tuple[int, ...]) -> None:
    model = small()
    for which in (model.graph.input[0], model.graph.output[0]):
        broken = small()
        target = broken.graph.input[0] if which.name == "x" else broken.graph.output[0]
        target.CopyFrom(info(which.name, TensorProto.FLOAT, shape))
        refused(broken, f"{which.name} has extents .*more than {MOST_ELEMENTS} elements")


def test_shapes_that_inference_finds_are_bounded_too() -> None:
    build = ModelBuilder()
    x = build.input("x", (1,))
    shape = build.constant(np.array([2**31, 2**31], np.int64))
    build.output(build.node("Expand", [x, shape]))
    model = build.model()
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.ClearField("value")
    refused(model, "more than .* elements")


def test_onnx_is_not_asked_to_follow_the_elements_of_a_long_vector() -> None:
    """Its data propagation makes an object for each, known or not: 2^36 of them take hours."""
    long = info("x", TensorProto.FLOAT, [2**36])
    nodes = [helper.make_node("Mul", ["x", "x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "g", [long], [info("y", TensorProto.FLOAT, [2**36])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert import_model(model).values["y"].shape == (2**36,)


def test_a_type_that_onnx_does_not_know_is_refused() -> None:
    node = helper.make_node("Own", ["x"], ["y"], domain="own")
    for number in (0, 77):
        given, made = info("x", number, [2]), info("y", TensorProto.FLOAT, [2])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        model = helper.make_model(
            helper.make_graph([node], "g", [given], [made]), opset_imports=opsets
        )
        refused(model, "type")
        with pytest.raises(InvalidModel):
            gf.compile(model)


def test_given_input_shapes_are_bounded_too() -> None:
    model = small()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(InvalidModel, match="input_shapes: x has extents"):
        import_model(model, {"x": (2**60, 64)})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.dims.__setitem__(0, -64), "initializer weight_1 has a negative extent, -64"),
        (lambda t: t.dims.__setitem__(0, 65), r"\[65, 32\] needs 8320 bytes and has 8192"),
        (lambda t: t.dims.__setitem__(0, 2**27), r"needs \d+ bytes and has 8192"),
        (lambda t: t.dims.extend([2**32, 2**32]), "more than .* elements"),
        (lambda t: t.ClearField("raw_data"), "needs 2048 elements of float_data and has 0"),
        (lambda t: setattr(t, "raw_data", b"1234"), "needs 8192 bytes and has 4"),
        (lambda t: setattr(t, "data_type", TensorProto.DOUBLE), "needs 16384 bytes and has 8192"),
        (lambda t: setattr(t, "data_type", TensorProto.STRING), "cannot be stored as raw data"),
        (lambda t: setattr(t, "data_type", 77), "no element type: 77"),
        (lambda t: setattr(t, "data_type", 0), "no element type: UNDEFINED"),
        (lambda t: t.segment.SetInParent(), "one segment"),
        (lambda t: setattr(t, "data_location", TensorProto.EXTERNAL), "no folder to look in"),
    ],
)
def test_tensors_whose_data_does_not_fit_are_refused(change: Any, reason: str) -> None:
    model = small()
    change(model.graph.initializer[0])
    with pytest.raises((InvalidModel, UnsupportedOp), match=reason):
        import_model(model)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.float64, np.bool_])
def test_typed_fields_count_elements(dtype: Any) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tensor = helper.make_tensor("w", kind, (2, 3), values.ravel().tolist())
    model = single("Identity", [noise(2)], 13)
    model.graph.initializer.append(tensor)
    model.graph.output.append(info("w", kind, (2, 3)))
    np.testing.assert_array_equal(import_model(model).initializers["w"], values)
    model.graph.initializer[0].dims[1] = 4
    refused(model, "needs 8 elements of .*_data and has 6")


@pytest.mark.parametrize(
    ("kind", "value"), [(TensorProto.BOOL, 65536), (TensorProto.INT8, 128), (TensorProto.UINT8, -1)]
)
def test_stored_numbers_fit_their_type(kind: int, value: int) -> None:
    model = small()
    model.graph.initializer.append(TensorProto(name="n", data_type=kind, int32_data=[value]))
    refused(model, "n of type .* has an element that is not from")


@pytest.mark.parametrize(
    ("op", "arrays", "constants", "attributes", "role"),
    [
        ("CumSum", [noise(2, 3)], {1: np.array([0, 1])}, {}, "axis"),
        ("Trilu", [noise(2, 3)], {1: np.array([0, 1])}, {}, "diagonal"),
        ("Pad", [noise(2)], {1: np.array([1, 1]), 2: noise(2)}, {}, "value"),
        ("ConstantOfShape", [], {0: np.array([2])}, {"value": np.float32([1, 2])}, "value"),
    ],
)
def test_numbers_are_single(
    op: str, arrays: Any, constants: Any, attributes: Any, role: str
) -> None:
    stated = {name: numpy_helper.from_array(array) for name, array in attributes.items()}
    model = single(op, arrays, 17, constants, **stated)
    with pytest.raises(GraphflowError, match=role):
        import_model(model)


def test_tensors_in_attributes_and_subgraphs_are_checked() -> None:
    broken = numpy_helper.from_array(np.zeros(2**10, np.float32), "c")
    broken.dims[0] = 2**39
    constant = helper.make_node("Constant", [], ["o0"], name="inner", value=broken)
    model = single("Relu", [noise(2)], 13)
    model.graph.node[0].CopyFrom(constant)
    refused(model, r"Constant node inner: attribute value c .*needs \d+ bytes and has 4096")
    body = helper.make_graph([constant], "body", [], [info("o0", 1, (2,))])
    model.graph.node[0].CopyFrom(
        helper.make_node("If", ["i0"], ["o0"], name="if", then_branch=body, else_branch=body)
    )
    refused(model, "If node if: graph .*_branch.* Constant node inner|Constant node inner")


# Names, attributes, nesting ---------------------------------------------------------------------


def test_names_that_are_no_text_are_refused() -> None:
    model = single("Relu", [noise(2)], 13)
    for name in (b"the_node", b"Relu", b"i0", b"o0"):
        content = model.SerializeToString().replace(name, name[:-1] + b"\xff")
        message = refused(content, "not UTF-8")
        assert repr(name[:-1] + b"\xff") in message


@pytest.mark.parametrize(
    ("op", "attributes", "reason"),
    [
        (
            "MaxPool",
            {"kernel_shape": [0, 2]},
            "MaxPool node the_node: attribute kernel_shape has 0",
        ),
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [0, 0]}, "strides has 0"),
        ("MaxPool", {"kernel_shape": [2, 2], "pads": [2**62] * 4}, "pads has 4611686018427387904"),
        ("MaxPool", {"kernel_shape": [2**62, 2]}, "kernel_shape has"),
        ("Softmax", {"axis": 2**40}, "axis has 1099511627776"),
        ("SpaceToDepth", {"blocksize": 0}, "blocksize has 0"),
        ("ReduceMax", {"keepdims": 2}, "keepdims has 2, which is not from 0 to 1"),
    ],
)
def test_attributes_out_of_range_are_refused(op: str, attributes: Any, reason: str) -> None:
    model = single("Relu", [noise(1, 1, 4, 4)], 13)
    node = helper.make_node(op, ["i0"], ["o0"], name="the_node", **attributes)
    model.graph.node[0].CopyFrom(node)
    refused(model, reason)


def test_an_attribute_that_is_no_text_is_refused() -> None:
    model = single("Resize", [noise(1, 1, 2, 2)], 13, {1: None, 2: np.ones(4, np.float32)})
    model.graph.node[0].attribute.append(helper.make_attribute("mode", b"nearest\xff"))
    refused(model, "Resize node the_node: attribute mode is .*not UTF-8")


@pytest.mark.parametrize("equation", ["-<", "-", "ij-", "i>j", "i.j->i", "i->j->k", "é", "......"])
def test_equations_that_are_none_are_refused(equation: str) -> None:
    model = single("Relu", [noise(2)], 13)
    node = helper.make_node("Einsum", ["i0"], ["o0"], name="e", equation=equation)
    model.graph.node[0].CopyFrom(node)
    refused(model, "Einsum node e: .* is no equation")


def test_only_functions_refer_to_attributes() -> None:
    model = single("Softmax", [noise(2, 2)], 13, axis=0)
    model.graph.node[0].attribute[0].ref_attr_name = "alpha"
    refused(model, "axis refers to alpha, an attribute of a function")


@pytest.mark.parametrize(
    ("op", "arrays", "constants"),
    [
        ("ReduceSum", [noise(2, 3)], {1: np.array(1)}),
        ("Squeeze", [noise(1, 3)], {1: np.array(0)}),
        ("Reshape", [noise(2, 3)], {1: np.array([[3, 2]])}),
    ],
)
def test_shapes_and_axes_are_vectors(op: str, arrays: Any, constants: Any) -> None:
    refused(single(op, arrays, 13, constants), "its rank must be 1|nference")


def test_an_attribute_is_given_once() -> None:
    model = single("Softmax", [noise(2, 2)], 13, axis=0)
    model.graph.node[0].attribute.append(helper.make_attribute("axis", 1))
    refused(model, "Softmax node the_node has the attribute axis twice")


def test_two_opsets_of_one_domain_are_refused() -> None:
    model = single("Relu", [noise(2)], 13)
    model.opset_import.add(domain="ai.onnx", version=13)
    assert import_model(model).outputs == ("o0",)
    model.opset_import[1].version = 17
    refused(model, "opsets 13 and 17 of the domain ai.onnx")


@pytest.mark.parametrize("version", [2**31, 2**40, 2**63 - 1, -(2**31), -(2**63)])
@pytest.mark.parametrize("where", ["model", "vendor", "function"])
def test_an_opset_of_more_than_32_bits_is_refused(version: int, where: str) -> None:
    """Onnx's own code takes no such number, and raises a TypeError."""
    model = single("Relu", [noise(2)], 13)
    match where:
        case "model":
            model.opset_import[0].version = version
        case "vendor":
            model.opset_import.add(domain="com.microsoft", version=version)
        case "function":
            opsets = [helper.make_opsetid("", 13)]
            nodes = [helper.make_node("Neg", ["a"], ["b"])]
            model.functions.append(helper.make_function("own", "F", ["a"], ["b"], nodes, opsets))
            model.functions[0].opset_import[0].version = version
            model.opset_import.add(domain="own", version=1)
    refused(model, f"imports opset {version} of the domain")


@pytest.mark.parametrize("rank", [33, 40, 65, 1000])
def test_a_tensor_of_too_many_axes_is_refused(rank: int) -> None:
    shape, reason = [1] * (rank - 1) + [2], f"has {rank} axes; tensors of more than 32"
    for op, inputs, constants in (
        ("Relu", [np.zeros((1,), np.float32)], {}),
        ("Reshape", [noise(2)], {1: np.array(shape)}),
        ("Unsqueeze", [noise(2)], {1: np.arange(rank - 1)}),
        ("ConstantOfShape", [], {0: np.array(shape)}),
    ):
        model = single(op, inputs, 13, constants)
        model.graph.output[0].type.tensor_type.ClearField("shape")
        if op == "Relu":
            model.graph.input[0].CopyFrom(info("i0", TensorProto.FLOAT, shape))
        refused(model, reason, UnsupportedOp)
    model = single("Add", [noise(2)], 13, {1: noise(1)})
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend([1] * rank)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    refused(model, reason, UnsupportedOp)


def test_a_tensor_of_as_many_axes_as_there_may_be() -> None:
    model = single("Add", [noise(*[1] * 31, 2), noise(2)], 13)
    assert len(import_model(model).values["o0"].shape) == 32


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "bounds", [(0, NAN, 1), (NAN, 1, 1), (0, 1, NAN), (0, INF, 1), (-INF, INF, 1), (0, 1, INF)]
)
def test_a_range_without_end_is_refused(bounds: tuple[float, ...]) -> None:
    arrays = [np.array(number, np.float32) for number in bounds]
    model = single("Range", [], 13, dict(enumerate(arrays)))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    refused(model, "Range node the_node: start, limit and delta are .* have to be finite")


@pytest.mark.parametrize(
    ("scales", "roi", "reason"),
    [
        ([1, NAN], [0, 0, 1, 1], "may be negative|must be positive and finite"),
        ([1, INF], [0, 0, 1, 1], "may be negative|must be positive and finite"),
        ([1, 3e38], [0, 0, 1, 1], "extent"),
        ([1, 2], [0, NAN, 1, 1], "roi .* must have a finite start and end"),
        ([1, 2], [0, 0, 1, INF], "roi .* must have a finite start and end"),
        ([1, 2], [0, 0, 1], "roi .* must have a finite start and end|nference"),
    ],
)
def test_a_resize_without_end_is_refused(
    scales: list[float], roi: list[float], reason: str
) -> None:
    constants = {1: np.array(roi, np.float32), 2: np.array(scales, np.float32)}
    crop = "tf_crop_and_resize"
    model = single("Resize", [noise(2, 3)], 13, constants, coordinate_transformation_mode=crop)
    model.graph.output[0].CopyFrom(info("o0", TensorProto.FLOAT, ["a", "b"]))
    refused(model, reason, GraphflowError)


def test_a_grid_without_end_is_refused() -> None:
    model = single("AffineGrid", [noise(1, 2, 3)], 20, {1: np.array([1, 1, 2**14, 2**14])})
    model.graph.output[0].type.tensor_type.ClearField("shape")
    refused(model, "a grid of 268435456 points", UnsupportedOp)


def test_graphs_are_not_nested_without_end() -> None:
    node = helper.make_node("Relu", ["i0"], ["o0"])
    for _ in range(DEEPEST + 1):
        body = helper.make_graph([node], "body", [], [info("o0", 1, (2,))])
        node = helper.make_node("If", ["i0"], ["o0"], then_branch=body)
    model = single("Relu", [noise(2)], 13)
    model.graph.node[0].CopyFrom(node)
    refused(model, f"more than {DEEPEST} deep")


def with_functions(*bodies: tuple[str, list[str]]) -> onnx.ModelProto:
    """Functions by name, each a chain of the named operators; the graph calls the first one."""
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("local", 1)]
    model = single("Relu", [noise(2)], 13)
    model.graph.node[0].op_type, model.graph.node[0].domain = bodies[0][0], "local"
    model.opset_import.append(opsets[1])
    for name, calls in bodies:
        nodes = [
            helper.make_node(
                op,
                ["a" if k == 0 else f"t{k}"],
                ["b" if k == len(calls) - 1 else f"t{k + 1}"],
                domain="" if op == "Relu" else "local",
            )
            for k, op in enumerate(calls)
        ]
        model.functions.append(helper.make_function("local", name, ["a"], ["b"], nodes, opsets))
    return model


def test_functions_that_call_themselves_are_refused() -> None:
    refused(with_functions(("F", ["Relu", "F"])), "call themselves.*: F calls F")
    refused(with_functions(("F", ["G"]), ("G", ["F"])), "F calls G calls F")
    # One that nobody calls is no better.
    refused(with_functions(("F", ["Relu"]), ("G", ["G"])), "G calls G")


def test_functions_that_expand_to_too_many_nodes_are_refused() -> None:
    bodies = [(f"F{k}", [f"F{k + 1}"] * 10) for k in range(8)]
    refused(with_functions(*bodies, ("F8", ["Relu"])), f"more than {MOST_NODES} nodes")
    nested = with_functions(("F", ["G", "G"]), ("G", ["Relu", "Relu"]))
    assert len(import_model(nested).nodes) == 4


# Files ------------------------------------------------------------------------------------------


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "pipe is no regular file")
    refused(tmp_path, "is a folder")
    refused("/dev/zero", "no regular file")
    refused(tmp_path / "missing", "No such file")
    refused("a\0b", "null byte")
    refused("x" * 5000, "File name too long")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", "cannot read the model")


def test_files_that_are_no_onnx_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content in (b"", b"text, not a model", bytes(100), small().SerializeToString()[:-100]):
        path.write_bytes(content)
        refused(path, "not an ONNX file")
        refused(content, "not an ONNX file")
    gf.compile(single("Relu", [noise(2)], 13), threads=1).save(path)
    refused(path, "is a saved model.*graphflow.load")


def test_a_proto_without_a_graph_is_refused() -> None:
    refused(onnx.ModelProto(), "the given ModelProto holds no graph")


def test_a_model_in_text_variant_is_read_by_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "model.textproto"
    onnx.save(small(), path)
    assert len(import_model(path).nodes) == 2
    path.write_text("graph { node { } }}")
    refused(path, "not an ONNX file")


@pytest.fixture
def external(tmp_path: Path) -> Path:
    path = tmp_path / "sub" / "model.onnx"
    path.parent.mkdir()
    onnx.save(small(), path, save_as_external_data=True, location="weights", size_threshold=0)
    return path


def relocated(path: Path, **entries: str) -> Path:
    """The model with other entries for its external tensor."""
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        entry.value = entries.get(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read(external: Path) -> None:
    expected = numpy_helper.to_array(small().graph.initializer[0])
    np.testing.assert_array_equal(import_model(external).initializers["weight_1"], expected)
    assert read_model(external).SerializeToString() == small().SerializeToString()
    (external.parent / "inner").mkdir()
    (external.parent / "weights").rename(external.parent / "inner" / "w")
    relocated(external, location="inner/w")
    np.testing.assert_array_equal(import_model(external).initializers["weight_1"], expected)


def test_external_data_that_is_not_there_is_refused(external: Path) -> None:
    weights = external.parent / "weights"
    weights.write_bytes(weights.read_bytes()[:-1])
    refused(external, "tensor weight_1 from 'weights': 8192 bytes .* are needed, .* has 8191")
    weights.unlink()
    refused(external, "cannot read the external data of tensor weight_1.*No such file")
    os.mkfifo(weights)
    refused(external, "no regular file")


@pytest.mark.parametrize("location", ["../weights", "/etc/passwd", "", "a/../../b", "..\\weights"])
def test_external_data_outside_of_the_folder_is_refused(external: Path, location: str) -> None:
    (external.parent.parent / "weights").write_bytes(bytes(8192))
    refused(relocated(external, location=location), "only a path relative to the model's folder")


def test_links_out_of_the_folder_are_refused(external: Path) -> None:
    weights, outside = external.parent / "weights", external.parent.parent / "outside"
    weights.rename(outside)
    weights.symlink_to(outside)
    refused(external, "leads out of the model's folder")


def test_a_cache_of_links_is_read(external: Path) -> None:
    """As hubs keep their files: the names are links to a folder where all contents lie."""
    links = external.parent.parent / "links"
    links.mkdir()
    for name in ("model.onnx", "weights"):
        (links / name).symlink_to(external.parent / name)
    assert len(import_model(links / "model.onnx").nodes) == 2


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"offset": "-1"}, "'-1' is no offset"),
        ({"offset": "x"}, "'x' is no offset"),
        ({"offset": "9" * 30}, "is no offset"),
        ({"offset": "4096"}, "8192 bytes from byte 4096 on are needed"),
        ({"length": "8191"}, "has 8191 bytes, its dims .* need 8192"),
    ],
)
def test_entries_of_external_data_are_checked(
    external: Path, entries: dict[str, str], reason: str
) -> None:
    refused(relocated(external, **entries), reason)


def test_external_data_needs_the_path_of_the_model(external: Path) -> None:
    refused(external.read_bytes(), "no folder to look in; give the path")
    refused(onnx.load(external, load_external_data=False), "no folder to look in")


# Arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [None, 3, ["x"], np.zeros(3)])
def test_what_is_no_model_is_a_type_error(model: Any) -> None:
    with pytest.raises(TypeError, match="a model is a path"):
        gf.compile(model)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"input_shapes": [("x", (2,))]}, "input_shapes is of type list; give a mapping"),
        ({"input_shapes": {"x": 2}}, "input_shapes gives 2 for x"),
        ({"input_shapes": {"x": "22"}}, "input_shapes gives '22' for x"),
        ({"input_shapes": {"x": (2.5,)}}, "sequence of integers"),
        ({"input_shapes": {3: (2,)}}, "input_shapes names 3"),
        ({"layouts": "NHWC"}, "layouts is of type str"),
        ({"assume": ["finite"]}, "assume is of type list"),
        ({"overridable": "x"}, "overridable is 'x'; give a list"),
        ({"overridable": [3]}, "overridable names 3"),
        ({"operators": len}, "operators is of type builtin_function_or_method; give a mapping"),
        ({"operators": {("own", "Twice"): len}}, "not a string; give names of operators"),
        ({"options": {"threads": 1}}, "options is of type dict; give a graphflow.Options"),
        ({"threads": "two"}, "threads is 'two'"),
        ({"threads": 1.5}, "threads is 1.5"),
        ({"threads": True}, "threads is True"),
        ({"target": 2}, "target is of type int; give a graphflow.Target or a name"),
    ],
)
def test_arguments_of_wrong_types_are_type_errors(arguments: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        gf.compile(small(), **arguments)


def test_a_target_has_a_name_that_is_known() -> None:
    by_name = gf.compile(small(), threads=1, target="avx2")
    assert by_name.compiled.target == avx2_target()
    with pytest.raises(CodegenError, match=r"target is 'avx1024'; give .* one of host, avx2, "):
        gf.compile(small(), target="avx1024")


def test_layouts_and_assumptions_of_wrong_kinds_are_refused() -> None:
    for arguments in ({"layouts": {"x": 3}}, {"assume": {"x": ["finite"]}}):
        with pytest.raises((GraphflowError, TypeError)):
            gf.compile(small(), threads=1, **arguments)  # type: ignore[arg-type]


def test_an_input_that_is_no_array_is_refused_before_its_shape_decides() -> None:
    build = ModelBuilder()
    build.output(build.relu(build.input("x", ("n", 2))), build.relu(build.input("y", (2, 2))))
    ragged: Any = [[1.0], [1.0, 2.0]]
    x, y = noise(3, 2), noise(2, 2)
    exe = gf.compile(build.model())
    for inputs in ({"x": ragged, "y": y}, {"x": x, "y": ragged}):
        with pytest.raises(InvalidModel, match="is no array"):
            exe.run(inputs)


def test_runs_of_wrong_types_are_type_errors() -> None:
    x = noise(2)
    for batch in (2, "n"):
        build = ModelBuilder()
        build.output(build.relu(build.input("x", (batch,))))
        exe = gf.compile(build.model(), threads=1)
        for inputs in (None, [x], x, "x", {3: x}):
            with pytest.raises(TypeError, match="run "):
                exe.run(inputs)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="give arrays by name to run"):
            exe({"x": x})  # type: ignore[arg-type]
        for value in (None, "text", [[1.0], [2.0, 3.0]], object(), np.zeros(2, "U3")):
            with pytest.raises(InvalidModel, match=r"input 'x'|for x, the model says \(n\)"):
                exe(value)  # type: ignore[arg-type]
            with pytest.raises(InvalidModel, match=r"input 'x'|for x, the model says \(n\)"):
                exe.run({"x": value})  # type: ignore[dict-item]


def test_a_program_that_does_not_fit_in_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    gf.compile(small(), threads=1).save(tmp_path / "model.gfx")
    compiled = gf.compile(small(), threads=1)
    monkeypatch.setattr("graphflow.runtime.aligned_memory.mmap.mmap", full)
    for make in (lambda: gf.compile(small(), threads=1), lambda: gf.load(tmp_path / "model.gfx")):
        with pytest.raises(
            GraphflowError, match=r"memory ran out for a program|cannot map the saved model"
        ):
            make()
    monkeypatch.setattr("graphflow.runtime.aligned_memory.Recycled.array", hungry)
    with pytest.raises(GraphflowError, match="memory ran out in a run"):
        compiled.run({"x": noise(2, 64)})


def hungry(*_: Any) -> None:
    raise MemoryError("Unable to allocate 3 TiB")


def test_memory_that_runs_out_is_an_error_of_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = replace(compiler_stages.CANONICALIZE, run=hungry)
    monkeypatch.setattr(compiler_stages, "CANONICALIZE", stage)
    with pytest.raises(GraphflowError, match=r"memory ran out in stage canonicalize .*3 TiB"):
        gf.compile(small(), threads=1)


# Options ----------------------------------------------------------------------------------------

WRONG_OPTIONS = {
    "threads": (True, 2.0, "2"),
    "debug": (None, True, "1", 1.0),
    "dump": (True, 3, b"folder"),
    "poison": (None, 0, 1, "yes"),
    "check_assumes": (None, 1),
    "flush_denormals": (None, 1),
    "workers": (False, 1.5, "2"),
    "validate": (None, 1, "yes"),
    "fallback": (True, 1, Path("onnxruntime")),
    "timings": (True, 1),
    "memory_limit": (True, 1e9, "1GB"),
    "cache": (False, True, 0, b"off"),
    "winograd": (None, 1, "yes"),
    "integer_products": (None, 0, "no"),
    "excess_precision": (None, 0, "yes"),
    "programs": (None, True, 2.0, "16"),
}


@pytest.mark.parametrize("name", [field.name for field in fields(gf.Options)])
def test_each_option_is_checked_for_its_type(name: str) -> None:
    for value in WRONG_OPTIONS[name]:
        with pytest.raises(TypeError, match=rf"^Options\.{name} is .*; give ") as caught:
            gf.Options(**{name: value})
        assert repr(value) in str(caught.value)


def test_options_are_kept_as_plain_values(tmp_path: Path) -> None:
    given: Any = {"threads": np.int64(2), "cache": tmp_path, "dump": tmp_path, "timings": "t"}
    options = gf.Options(**given)
    assert options == gf.Options(threads=2, cache=str(tmp_path), dump=str(tmp_path), timings="t")
    assert type(options.threads) is int and type(options.cache) is str
    assert gf.Options(threads=None, cache=None, fallback=None).threads is None


def test_a_value_that_an_option_cannot_have_is_no_error_of_types() -> None:
    wrong: Any
    for wrong in ({"threads": 0}, {"debug": 5}, {"workers": -1}, {"fallback": "none"}):
        with pytest.raises(GraphflowError):
            gf.Options(**wrong)
