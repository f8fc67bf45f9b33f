"""Tests of `gf.quantize`: what is quantized, what stays, what is refused, and what layers cost."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import graphflow as gf
from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.bench import Protocol
from graphflow.models import ModelBuilder

QUICK = Protocol(blocks=1, idle=0.0, discarded=0.0, measured=0.001)
ALONE = gf.Options(threads=1, workers=0)


def images(*, batch: int | str = 1, channels: int = 8, opset: int = 17) -> onnx.ModelProto:
    """Two convolutions, of which a pool and a Relu are read, and a sum of both."""
    build = ModelBuilder(seed=3, opset=opset)
    x = build.input("x", (batch, 3, 8, 8))
    first = build.relu(build.conv(x, channels, 3, pads=[1, 1, 1, 1]))
    second = build.conv(first, channels, 3, pads=[1, 1, 1, 1])
    build.output(build.relu(build.add(first, second)))
    return build.model()


def texts() -> onnx.ModelProto:
    """One layer of attention, with sequences of any length, and two linear layers."""
    build = ModelBuilder(seed=4)
    x = build.input("x", (1, "n", 16))

    def product(a: str, b: str) -> str:
        return build.node("MatMul", [a, b])

    query, key, value = (product(x, build.weight(16, 16, scale=0.25)) for _ in range(3))
    scores = product(query, build.node("Transpose", [key], perm=[0, 2, 1]))
    mixed = product(build.node("Softmax", [scores], axis=-1), value)
    wide = build.add(product(mixed, build.weight(16, 32, scale=0.25)), build.weight(32))
    build.output(product(build.relu(wide), build.weight(32, 16, scale=0.2)))
    return build.model()


def samples(count: int, *shape: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    return [
        {"x": np.random.default_rng(k).standard_normal(shape).astype(np.float32)}
        for k in range(count)
    ]


@functools.cache
def quantized() -> gf.Quantization:
    return gf.quantize(images(), samples(6, 1, 3, 8, 8))


@functools.cache
def costs() -> gf.QuantizationCosts:
    return quantized().costs(options=ALONE, protocol=QUICK)


def test_products_of_a_quantized_network_of_images_add_up_bytes() -> None:
    made = quantized()
    assert (made.calibrated, len(made.measured), made.held_out) == (5, 1, True)
    assert [layer.operator for layer in costs().layers] == ["Conv", "Conv"]
    assert costs().integer_products == 2 and not any(layer.why_not for layer in costs().layers)
    for layer in costs().layers:
        assert layer.error is not None and layer.own_error is not None
        assert 0 < layer.own_error < 0.02 and 0 < layer.error < 0.05
        assert layer.float_us > 0 and layer.quantized_us > 0
    assert costs().report()["integer_products"] == 2


def test_the_error_is_that_of_the_network_which_graphflow_runs() -> None:
    made = quantized()
    (sample,) = made.measured
    exact, found = (gf.compile(model).run(sample) for model in (images(), made.model))
    (one,), (other,) = exact.values(), found.values()
    wanted = np.linalg.norm(one - other) / np.linalg.norm(one)
    (error,) = costs().outputs.values()
    assert 0 < error < 0.05 and error == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_network_of_sequences_of_any_length(dynamic: bool) -> None:
    given = [*samples(3, 1, 6, 16), *samples(2, 1, 9, 16)]
    made = gf.quantize(texts(), given, dynamic=dynamic)
    layers = made.costs(options=ALONE, protocol=QUICK).layers
    assert len(layers) == 7
    # Dynamic quantization is of products with weights; scores and the values they mix stay floats.
    floats = [layer for layer in layers if not layer.integers]
    assert len(floats) == (2 if dynamic else 0)
    assert all(layer.error is not None and layer.error < 0.1 for layer in layers)
    assert all("as floats" in layer.why_not for layer in floats)


def test_excluded_nodes_stay_floats() -> None:
    names = [node.name for node in quantized().floats.graph.node if node.op_type == "Conv"]
    made = gf.quantize(images(), samples(2, 1, 3, 8, 8), exclude=names[1:])
    layers = made.costs(options=ALONE, protocol=QUICK).layers
    assert [layer.integers for layer in layers] == [True, False]
    assert not made.held_out
    with pytest.raises(GraphflowError, match="quantized no node"):
        gf.quantize(images(), samples(2, 1, 3, 8, 8), exclude_operators=["Conv", "Add", "Relu"])


@pytest.mark.parametrize("method", ["entropy", "percentile"])
def test_ways_to_quantize(method: str) -> None:
    made = gf.quantize(
        images(),
        samples(2, 1, 3, 8, 8),
        method=method,
        activations="s8",
        symmetric=True,
        per_channel=False,
    )
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in made.model.graph.initializer}
    nodes = [node for node in made.model.graph.node if node.op_type == "QuantizeLinear"]
    assert nodes and all(arrays[node.input[1]].size == 1 for node in nodes)
    assert all(arrays[node.input[2]] == 0 for node in nodes)
    assert all(arrays[node.input[2]].dtype == np.int8 for node in nodes)


def test_a_model_of_an_old_opset_is_converted() -> None:
    made = gf.quantize(images(opset=11), samples(1, 1, 3, 8, 8))
    assert max(entry.version for entry in made.model.opset_import if not entry.domain) >= 13


def test_random_data_is_said_to_be_random() -> None:
    made = gf.quantize(images(batch="n"), random_data=2, input_shapes={"x": (2, 3, 8, 8)})
    assert made.random and made.measured[0]["x"].shape == (2, 3, 8, 8)
    with pytest.raises(InvalidModel, match=r"the shape of x: .* is symbolic"):
        gf.quantize(images(batch="n"), random_data=2)


def test_dynamic_scales_need_no_data() -> None:
    made = gf.quantize(texts(), dynamic=True)
    assert not made.measured and not made.calibrated
    with pytest.raises(InvalidModel, match="no samples to measure with"):
        made.costs()


def test_what_cannot_be_quantized_is_refused() -> None:
    data = samples(1, 1, 3, 8, 8)
    for arguments, message in (
        ({}, "needs samples of the inputs"),
        ({"data": data, "random_data": 2}, "not both"),
        ({"data": data, "limit": 0}, "limit is 0"),
        ({"data": data, "activations": "u4"}, "activations is 'u4'; give one of u8, s8"),
        ({"data": data, "method": "mean"}, "method is 'mean'; give one of minmax"),
        ({"data": data, "exclude": ["conv_9"]}, "no node 'conv_9' to exclude"),
        ({"data": data, "exclude_operators": ["LSTM"]}, "no LSTM to exclude"),
        ({"data": data, "input_shapes": {"y": (1,)}}, "there is no input y; the inputs are x"),
    ):
        with pytest.raises(InvalidModel, match=message):
            gf.quantize(images(), **arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidModel, match=r"quantized already: node .* is a DequantizeLinear"):
        gf.quantize(quantized().model, data)


def test_weights_beyond_one_file_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphflow.api.quantizing.MOST_BYTES", 1000)
    with pytest.raises(InvalidModel, match="takes at most 1000 as one file"):
        gf.quantize(images(), samples(1, 1, 3, 8, 8))


def test_what_the_quantizer_says_is_the_error() -> None:
    node = helper.make_node("Mystery", ["x"], ["y"], domain="com.example")
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in ("x", "y")]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    with pytest.raises(GraphflowError, match=r"onnxruntime's quantizer cannot quantize .*Mystery"):
        gf.quantize(helper.make_model(graph, opset_imports=imports, ir_version=8), samples(1, 2))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    quantized().save(path)
    assert onnx.load(path) == quantized().model
    with pytest.raises(GraphflowError, match="cannot write"):
        quantized().save(tmp_path / "missing" / "out.onnx")
