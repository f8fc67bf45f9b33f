"""Tests of LSTM, GRU and RNN against onnxruntime: every attribute and optional input."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from graphflow.program import concurrent_steps
from support.single import noise, peer
from support.targets import in_turn

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
STATES = {"LSTM": ("y", "y_h", "y_c"), "GRU": ("y", "y_h"), "RNN": ("y", "y_h")}
ROLES = ("x", "w", "r", "b", "lengths", "h0", "c0", "p")
# onnxruntime has these too; LeakyRelu and ThresholdedRelu without alpha it takes for 0.
ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "Elu", "HardSigmoid", "LeakyRelu",
               "Affine", "ScaledTanh", "ThresholdedRelu")  # fmt: skip
TAKES = {"Elu": 1, "LeakyRelu": 1, "ThresholdedRelu": 1, "HardSigmoid": 2, "Affine": 2,
         "ScaledTanh": 2}  # fmt: skip


def arrays_of(
    op: str, steps: int, batch: int, features: int, hidden: int, directions: int
) -> dict[str, np.ndarray]:
    gates = GATES[op] * hidden
    state = (directions, batch, hidden)
    return {
        "x": noise(steps, batch, features),
        "w": noise(directions, gates, features, seed=1) / 2,
        "r": noise(directions, gates, hidden, seed=2) / 2,
        "b": noise(directions, 2 * gates, seed=3),
        "lengths": np.arange(batch, dtype=np.int32) * 2 % steps + 1,
        "h0": noise(*state, seed=4),
        "c0": noise(*state, seed=5),
        "p": noise(directions, 3 * hidden, seed=6),
    }


def model_of(
    op: str, arrays: dict[str, np.ndarray], constants: tuple[str, ...], opset: int = 14,
    **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model of one layer; inputs not in `arrays` are left out, `constants` are initializers."""
    names = [role if role in arrays else "" for role in ROLES]
    while not names[-1]:
        names.pop()
    node = helper.make_node(op, names, STATES[op], name="the_node", **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in arrays.items()
        if n not in constants
    ]
    tensors = [numpy_helper.from_array(arrays[n], n) for n in constants if n in arrays]
    kind = helper.np_dtype_to_tensor_dtype(arrays["x"].dtype)
    outputs = [
        helper.make_tensor_value_info(name, kind, ["n"] * (4 if name == "y" else 3))
        for name in STATES[op]
    ]
    graph = helper.make_graph([node], "g", infos, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def agree(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4, err_msg=name)


@st.composite
def layers(draw: st.DrawFn) -> tuple[str, dict[str, np.ndarray], tuple[str, ...], dict[str, Any]]:
    op = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    hidden = draw(st.sampled_from([1, 3, 16, 17]))
    arrays = arrays_of(op, draw(st.integers(1, 3)), draw(st.integers(1, 2)), 2, hidden, directions)
    absent = draw(st.sets(st.sampled_from(ROLES[3:])))
    if op != "LSTM":
        absent |= {"c0", "p"}
    arrays = {name: array for name, array in arrays.items() if name not in absent}
    constants = draw(st.sets(st.sampled_from([n for n in arrays if n != "x"])))
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if draw(st.booleans()):
        attributes["clip"] = 0.75
    if op == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    if op == "LSTM":
        attributes["input_forget"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        count = FUNCTIONS[op] * directions
        names = draw(st.lists(st.sampled_from(ACTIVATIONS), min_size=count, max_size=count))
        numbers = [0.3, 0.7, 0.5, 0.9, 0.4, 0.6]
        attributes["activations"] = names
        attributes["activation_alpha"] = numbers[: sum(TAKES.get(n, 0) > 0 for n in names)]
        attributes["activation_beta"] = numbers[: sum(TAKES.get(n, 0) > 1 for n in names)]
        attributes = {k: v for k, v in attributes.items() if v != []}
    return op, arrays, tuple(sorted(constants)), attributes


@settings(max_examples=25)
@given(layers())
def test_any_layer_is_onnxruntimes(
    layer: tuple[str, dict[str, np.ndarray], tuple[str, ...], dict[str, Any]],
) -> None:
    op, arrays, constants, attributes = layer
    model = model_of(op, arrays, constants, **attributes)
    feeds = {name: array for name, array in arrays.items() if name not in constants}
    agree(interpret_graph(import_model(model), feeds), peer(model, feeds))


@pytest.mark.parametrize("op", sorted(GATES))
@pytest.mark.parametrize("hidden", [32, 13])
def test_native_code_agrees(op: str, hidden: int) -> None:
    arrays = arrays_of(op, 5, 3, 4, hidden, 2)
    if op != "LSTM":
        del arrays["c0"], arrays["p"]
    attributes = {"hidden_size": hidden, "direction": "bidirectional"}
    constants = ("w", "r", "b")
    model = model_of(op, arrays, constants, **attributes)
    feeds = {name: array for name, array in arrays.items() if name not in constants}
    exe = gf.compile(model, options=gf.Options(threads=2, workers=0))
    agree(exe.run(feeds), peer(model, feeds))


@pytest.mark.parametrize("op", sorted(GATES))
def test_directions_of_one_sequence_run_beside_each_other(op: str) -> None:
    """They are steps of one iteration, and with 128 units each touches enough."""
    arrays = arrays_of(op, 5, 1, 4, 128, 2)
    if op != "LSTM":
        del arrays["c0"], arrays["p"]
    attributes = {"hidden_size": 128, "direction": "bidirectional"}
    model = model_of(op, arrays, ("w", "r", "b", "lengths", "h0", "c0", "p"), **attributes)
    exe = gf.compile(model, options=gf.Options(threads=2, workers=0))
    spec = exe.program.spec
    (beside,) = concurrent_steps(spec.run, spec.signatures)
    assert len(beside) == 2
    for _ in range(20):
        agree(exe.run({"x": arrays["x"]}), peer(model, {"x": arrays["x"]}))


@in_turn("op", sorted(GATES), targets=(None, "avx2"))
def test_threads_share_a_layer_of_one_sequence(op: str, target: str | None, tmp_path: Path) -> None:
    """Of 200 units, 12 panels and half of one; as compiled and as loaded, by any threads."""
    arrays = arrays_of(op, 5, 1, 4, 200, 1)
    arrays["r"] /= 8
    if op != "LSTM":
        del arrays["c0"], arrays["p"]
    model = model_of(op, arrays, ("w", "r", "b"), hidden_size=200)
    feeds = {name: array for name, array in arrays.items() if name not in ("w", "r", "b")}
    exe = gf.compile(model, target=target, options=gf.Options(threads=2, workers=0, validate=True))
    assert any(step.meets for step in exe.program.spec.run)
    found = exe.run(feeds)
    agree(found, peer(model, feeds))
    exe.save(tmp_path / "layer.gfx")
    for threads in (1, 2, 3):
        loaded = gf.load(tmp_path / "layer.gfx", threads=threads).run(feeds)
        for name, array in found.items():
            np.testing.assert_array_equal(loaded[name], array)


def test_a_run_of_fewer_steps_meets_in_fewer() -> None:
    arrays = arrays_of("GRU", 9, 1, 4, 128, 1)
    given = {name: arrays[name] for name in ("x", "w", "r", "b", "h0")}
    for direction in ("forward", "reverse"):
        model = model_of("GRU", given, ("w", "r", "b"), hidden_size=128, direction=direction)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
        options = gf.Options(threads=2, workers=0)
        exe = gf.compile(model, sizes={"steps": (1, 9)}, options=options)
        assert any(step.meets for step in exe.program.spec.run)
        for steps in (9, 1, 4):
            feeds = {"x": given["x"][:steps], "h0": given["h0"]}
            agree(exe.run(feeds), peer(model, feeds))


@pytest.mark.parametrize("op", sorted(GATES))
def test_layout_1_has_the_batch_first(op: str) -> None:
    arrays = arrays_of(op, 3, 2, 2, 3, 2)
    if op != "LSTM":
        del arrays["c0"], arrays["p"]
    attributes = {"hidden_size": 3, "direction": "bidirectional"}
    model = model_of(op, arrays, (), **attributes)
    expected = interpret_graph(import_model(model), arrays)
    orders = {"x": (1, 0, 2), "h0": (1, 0, 2), "c0": (1, 0, 2)}
    turned = {n: a.transpose(orders[n]) if n in orders else a for n, a in arrays.items()}
    model = model_of(op, turned, (), layout=1, **attributes)
    found = interpret_graph(import_model(model), turned)
    for name, array in expected.items():
        order = (2, 0, 1, 3) if name == "y" else (1, 0, 2)
        np.testing.assert_array_equal(found[name], array.transpose(order))


def test_float64_is_more_exact_than_float32() -> None:
    arrays = arrays_of("LSTM", 3, 2, 2, 3, 1)
    model = model_of("LSTM", arrays, (), hidden_size=3)
    wide = {n: a if n == "lengths" else a.astype(np.float64) for n, a in arrays.items()}
    found = interpret_graph(import_model(model_of("LSTM", wide, (), hidden_size=3)), wide)
    for name, array in peer(model, arrays).items():
        assert found[name].dtype == np.float64
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def test_a_sequence_of_length_zero_keeps_the_first_state() -> None:
    arrays = arrays_of("LSTM", 3, 2, 2, 3, 1)
    arrays["lengths"] = np.array([0, 3], np.int32)
    model = model_of("LSTM", arrays, (), hidden_size=3)
    found = interpret_graph(import_model(model), arrays)
    np.testing.assert_array_equal(found["y"][:, :, 0], 0)
    np.testing.assert_array_equal(found["y_h"][:, 0], arrays["h0"][:, 0])
    np.testing.assert_array_equal(found["y_c"][:, 0], arrays["c0"][:, 0])


def test_an_output_that_nobody_asks_for_is_left_out() -> None:
    arrays = arrays_of("GRU", 3, 2, 2, 3, 1)
    del arrays["c0"], arrays["p"]
    model = model_of("GRU", arrays, (), hidden_size=3)
    expected = peer(model, arrays)["y_h"]
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    found = interpret_graph(import_model(model), arrays)
    np.testing.assert_allclose(found["y_h"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"direction": "sideways"}, "sideways"),
        ({"activations": ["Sigmoid", "Sine", "Tanh"]}, "Sine"),
        ({"activations": ["Sigmoid", "Tanh"]}, "2 activations"),
        ({"hidden_size": 4}, "hidden_size"),
    ],
)
def test_wrong_attributes_are_refused(attributes: dict[str, Any], message: str) -> None:
    arrays = arrays_of("LSTM", 3, 2, 2, 3, 1)
    model = model_of("LSTM", arrays, (), **{"hidden_size": 3, **attributes})
    with pytest.raises(InvalidModel, match=message):
        import_model(model)


def test_wrong_shapes_are_refused() -> None:
    arrays = arrays_of("LSTM", 3, 2, 2, 3, 1)
    arrays["p"] = noise(1, 8)
    with pytest.raises(InvalidModel, match=r"input p has shape \(1, 8\), not \(1, 9\)"):
        import_model(model_of("LSTM", arrays, (), hidden_size=3))
