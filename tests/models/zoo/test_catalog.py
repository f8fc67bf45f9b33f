"""Tests of the zoo: each model has the operators that its name promises, and outputs in which an
error shows.

Each model is run once by onnxruntime with every tensor exposed, so that a layer whose activations
vanish or explode is found where it is.
"""

import subprocess
import sys
from functools import cache
from math import prod

import numpy as np
import onnx
import pytest
from onnx import checker

from graphflow.base.errors import InvalidModel
from graphflow.cli import main
from graphflow.models import ZOO, expose
from graphflow.models.zoo import zoo_model
from support.models.peer_sessions import peer_session

PUBLISHED = {
    "resnet18": 1.81e9,
    "mobilenet_v2_1.0": 0.30e9,
    "mobilenet_v2_0.35": 0.059e9,
    "mobilenet_v3_small": 0.057e9,
    "shufflenet_v2": 0.145e9,
    "regnet_y_400mf": 0.40e9,
    "densenet40_k12": 0.27e9,
}
"""Multiply-adds of convolutions and matrix products."""


@cache
def built(name: str) -> onnx.ModelProto:
    return zoo_model(name)


def noise(name: str, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {k: rng.standard_normal(s).astype(np.float32) for k, s in ZOO[name].inputs.items()}


def shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = model.graph
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        found[info.name] = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
    return found


def multiply_adds(model: onnx.ModelProto) -> int:
    known = shapes(model)
    total = 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            total += prod(known[node.output[0]]) * prod(known[node.input[1]][1:])
        elif node.op_type == "Gemm":
            total += prod(known[node.input[1]])
    return total


def operators(name: str) -> list[str]:
    return [node.op_type for node in built(name).graph.node]


@pytest.mark.parametrize("name", ZOO)
def test_the_model_is_valid_with_the_inputs_that_the_manifest_says(name: str) -> None:
    model = built(name)
    checker.check_model(model, full_check=True)
    known = shapes(model)
    assert {info.name: known[info.name] for info in model.graph.input} == ZOO[name].inputs
    assert ZOO[name].description
    tensors = [tensor for node in model.graph.node for tensor in (*node.input, *node.output)]
    assert all(tensor in known and all(known[tensor]) for tensor in tensors if tensor)


@pytest.mark.parametrize("name", ZOO)
def test_activations_keep_their_scale_and_outputs_depend_on_inputs(name: str) -> None:
    model = built(name)
    outputs = [info.name for info in model.graph.output]
    made = [tensor for node in model.graph.node for tensor in node.output]
    runner = peer_session(expose(model, made))
    names = [o.name for o in runner.get_outputs()]
    first, second = (
        dict(zip(names, runner.run(None, noise(name, seed)), strict=True)) for seed in (1, 2)
    )
    for tensor, array in first.items():
        assert np.isfinite(array).all(), tensor
        assert 1e-3 < abs(array).max() < 1e3, tensor
    for tensor in outputs:
        a, b = first[tensor], second[tensor]
        assert a.std() > 1e-2
        assert np.linalg.norm(a - b) / np.linalg.norm(a) > 1e-2


@pytest.mark.parametrize("name", ZOO)
def test_bytes_depend_on_the_seed_alone(name: str) -> None:
    first = built(name).SerializeToString(deterministic=True)
    assert zoo_model(name, seed=0).SerializeToString(deterministic=True) == first
    assert zoo_model(name, seed=1).SerializeToString(deterministic=True) != first


@pytest.mark.parametrize("name", PUBLISHED)
def test_multiply_adds_are_those_of_the_published_network(name: str) -> None:
    assert multiply_adds(built(name)) == pytest.approx(PUBLISHED[name], rel=0.03)


def test_batch_norm_stands_apart_where_exporters_leave_it() -> None:
    for name, count in (("resnet18", 20), ("mobilenet_v2_1.0", 52), ("mobilenet_v3_small", 34)):
        assert operators(name).count("BatchNormalization") == count
    variances = {
        node.input[4]
        for node in built("densenet40_k12").graph.node
        if node.op_type == "BatchNormalization"
    }
    for tensor in built("densenet40_k12").graph.initializer:
        if tensor.name in variances:
            assert (onnx.numpy_helper.to_array(tensor) > 0).all()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mobilenet_v3_small", {"HardSwish", "HardSigmoid"}),
        ("shufflenet_v2", {"Split", "Concat", "Transpose"}),
        ("regnet_y_400mf", {"Sigmoid", "Mul"}),
        ("unet", {"ConvTranspose", "Concat"}),
        ("unet_resize", {"Resize", "Concat"}),
        ("ssd", {"Softmax", "Transpose", "Reshape", "Slice", "Exp"}),
        ("feature_pyramid", {"Resize", "Split", "Concat", "Sigmoid", "Transpose"}),
        ("probe:slice_half:58", {"Slice"}),
    ],
)
def test_models_have_the_operators_they_are_there_for(name: str, wanted: set[str]) -> None:
    assert wanted <= set(operators(name))


def test_awkward_channel_counts_are_there() -> None:
    def extents(name: str) -> set[int]:
        return {shape[1] for shape in shapes(built(name)).values() if len(shape) == 4}

    assert {58, 116, 232} <= extents("shufflenet_v2")
    assert {48, 104, 208, 440} <= extents("regnet_y_400mf")
    assert {16 + 12 * i for i in range(13)} <= extents("densenet40_k12")
    assert {20, 40, 80} <= extents("unet")


def test_ssd_gives_probabilities_and_a_box_an_anchor() -> None:
    scores, boxes = peer_session(built("ssd")).run(None, noise("ssd", 0))
    assert boxes.shape == (1, scores.shape[1], 4)
    np.testing.assert_allclose(scores.sum(axis=-1), 1, rtol=1e-5)
    assert (boxes[..., :2] < boxes[..., 2:]).all()


def test_the_feature_pyramid_has_three_heads_on_three_maps() -> None:
    model = built("feature_pyramid")
    cells = 28**2 + 14**2 + 7**2
    known = shapes(model)
    outputs = {info.name: known[info.name] for info in model.graph.output}
    assert outputs == {"scores": (1, cells, 20), "boxes": (1, cells, 4), "objects": (1, cells, 1)}
    resized = [node for node in model.graph.node if node.op_type == "Resize"]
    assert [len(node.input) for node in resized] == [3, 4], "by scales, and by sizes"
    scores, _, objects = peer_session(model).run(None, noise("feature_pyramid", 0))
    for array in (scores, objects):
        assert ((array > 0) & (array < 1)).all()


@pytest.mark.parametrize("pattern", ["conv_conv", "concat", "pw_dw_pw", "squeeze_excite"])
@pytest.mark.parametrize("channels", [1, 3, 17, 64])
def test_probes_take_other_numbers_of_channels(pattern: str, channels: int) -> None:
    model = zoo_model(f"probe:{pattern}:{channels}")
    known = shapes(model)
    assert known["input"] == (1, channels, 28, 28)
    image = np.random.default_rng(0).standard_normal(known["input"]).astype(np.float32)
    (result,) = peer_session(model).run(None, {"input": image})
    assert result.shape == (1, channels, 28, 28) and np.isfinite(result).all()
    assert (result.std(axis=(2, 3)) > 1e-3).all()  # no channel is dead


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alexnet", "the zoo has no model alexnet; it has resnet18"),
        ("probe:spiral:58", "no probe 'spiral'; there are conv_conv"),
        ("probe:grouped4:58", "a positive multiple of 4"),
        ("probe:shuffle:7", "a positive multiple of 2"),
        ("probe:concat:0", "cannot have 0 channels"),
        ("probe:concat", "write probe:concat:58"),
        ("probe:concat:many", "names no number of channels"),
    ],
)
def test_unknown_names_are_refused_with_what_there_is(name: str, message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        zoo_model(name)


def test_the_command_line_knows_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for arguments in ([], [], ["--reseed", "1"]):
        assert main(["run", "zoo:probe:conv_conv:5", "--threads", "1", *arguments]) == 0
        texts.append(capsys.readouterr().out)
    assert "float32[1, 5, 28, 28], from" in texts[0]
    assert texts[0] == texts[1] != texts[2]
    assert main(["compile", "zoo:alexnet"]) == 1
    assert "error: the zoo has no model alexnet" in capsys.readouterr().err


def test_the_zoo_is_there_without_docstrings():
    code = "from graphflow.models.zoo import ZOO; print(ZOO['probe:concat:58'].description)"
    command = [sys.executable, "-OO", "-P", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "concat\n"
