"""Tests of NaN in Relu, Clip, Max, Min and pooling: elementwise as in onnxruntime, and every window
that holds a NaN gives NaN.

In MaxPool onnxruntime keeps a NaN only if it comes first in its window; here a window that contains
one always gives NaN. So the tests require NaN where onnxruntime gives NaN, and equal results for
windows without NaN.
"""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from support.padded import FAMILIES, Array, Net, assert_same, compile_pinned, reference

SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, -1.0, 1.5, 1e38], np.float32)
SHAPE = (1, 18, 2, 8)
"""Whole vectors and tails, in every layout."""


def every_pair() -> tuple[Array, Array]:
    """Each of the special numbers against each, in lanes of every position."""
    a, b = (grid.reshape(-1) for grid in np.meshgrid(SPECIAL, SPECIAL))
    size = int(np.prod(SHAPE))
    return np.resize(a, size).reshape(SHAPE), np.resize(b, size).reshape(SHAPE)


def run_everywhere(model: onnx.ModelProto, inputs: dict[str, Array], *edges: str) -> list[Any]:
    """The outputs without pins, and with each padded family pinned on `edges`."""
    pinned = [dict.fromkeys(edges, family) for family in FAMILIES] if edges else []
    return [compile_pinned(model, pins).run(inputs) for pins in ({}, *pinned)]


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_max_and_min_as_onnxruntime(op: str) -> None:
    net = Net()
    a, b = net.input("a", SHAPE), net.input("b", SHAPE)
    net.output(net.node(op, [a, b], ["y"]), net.node(op, [b, a], ["z"]), net.node(op, [a, a]))
    model = net.model()
    left, right = every_pair()
    expected = reference(model, {"a": left, "b": right})
    nan = np.isnan(left) | np.isnan(right)
    assert np.array_equal(np.isnan(expected["y"]), nan)
    for found in run_everywhere(model, {"a": left, "b": right}, "y", "z"):
        for name in expected:
            assert_same(found[name], expected[name], f"{op} {name}")


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("count", [1, 3])
def test_max_and_min_of_several(op: str, count: int) -> None:
    net = Net()
    names = [net.input(f"x{k}", SHAPE) for k in range(count)]
    net.output(net.node(op, names, ["y"]))
    left, right = every_pair()
    arrays = dict(zip(names, (left, right, np.roll(left, 3)), strict=False))
    expected = reference(net.model(), arrays)
    for found in run_everywhere(net.model(), arrays, "y"):
        assert_same(found["y"], expected["y"], op)


BOUNDS = [(0.5, 2.0), (-1.0, 1.0), (0.0, np.inf), (-np.inf, 0.0), (None, 1.0), (1.0, None),
          (2.0, -2.0), (np.nan, 1.0), (0.0, np.nan)]  # fmt: skip


@pytest.mark.parametrize(("low", "high"), BOUNDS, ids=str)
def test_clip_as_onnxruntime(low: float | None, high: float | None) -> None:
    """Except that a bound which is not there bounds nothing: onnxruntime makes −∞ the lowest number
    where there is no minimum, and +∞ the highest where there is no maximum."""
    net = Net()
    x = net.input("x", SHAPE)
    bounds = ["" if b is None else net.constant(np.float32(b)) for b in (low, high)]
    while bounds and not bounds[-1]:
        bounds.pop()
    net.output(net.node("Clip", [x, *bounds], ["y"]))
    array, _ = every_pair()
    expected = reference(net.model(), {"x": array})["y"]
    if low is None:
        expected = np.where(np.isneginf(array), array, expected)
    if high is None:
        expected = np.where(np.isposinf(array), array, expected)
    for found in run_everywhere(net.model(), {"x": array}, "y"):
        assert_same(found["y"], expected, f"Clip({low}, {high})")


def test_relu_as_onnxruntime() -> None:
    """Alone, after a convolution in one kernel, and on both sides of a maximum."""
    net = Net()
    x = net.input("x", SHAPE)
    net.output(net.node("Relu", [x], ["y"]), net.node("LeakyRelu", [x], ["z"], alpha=0.1))
    weight = np.eye(18, dtype=np.float32).reshape(18, 18, 1, 1)
    net.output(net.node("Relu", [net.node("Conv", [x, net.constant(weight)])], ["d"]))
    array, _ = every_pair()
    array[0, 1:] = np.where(np.isfinite(array[0, 1:]), array[0, 1:], 1)
    expected = reference(net.model(), {"x": array})
    assert all(
        np.isnan(output).any() and not np.isnan(output).all() for output in expected.values()
    )
    for found in run_everywhere(net.model(), {"x": array}, "y", "z", "d"):
        for name in expected:
            assert_same(found[name], expected[name], f"Relu {name}")


def unbounded(expected: Array) -> Array:
    """What onnxruntime means where a maximum starts at the lowest number instead of −∞."""
    lowest = np.finfo(expected.dtype).min
    return np.where(expected == lowest, np.array(-np.inf, expected.dtype), expected)


WINDOWS: dict[str, dict[str, Any]] = {
    "2x2": {"kernel_shape": [2, 2]},
    "3x3 with pads": {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]},
    "dilated": {"kernel_shape": [2, 2], "dilations": [2, 3]},
    "1x1": {"kernel_shape": [1, 1]},
}


def spotted(spatial: tuple[int, int] = (6, 7)) -> Array:
    """Random numbers, infinities, and a NaN at every place of a window in some channel."""
    rng = np.random.default_rng(1)
    array = rng.standard_normal((1, 18, *spatial)).astype(np.float32) - 4
    for channel in range(18):
        array[0, channel, channel % 6, (3 * channel + channel // 6) % 7] = np.nan
    array[0, 3], array[0, 17, 0, 0] = -np.inf, np.inf
    return array


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_with_nan_gives_nan(window: str) -> None:
    net = Net()
    x = net.input("x", (1, 18, 6, 7))
    n = net.node("Neg", [x], ["n"])
    net.output(n, net.node("MaxPool", [n], ["y"], **WINDOWS[window]))
    net.output(net.node("MaxPool", [net.input("spots", (1, 18, 6, 7))], ["holds"],
                        **WINDOWS[window]))  # fmt: skip
    model = net.model()
    array = -spotted()
    inputs = {"x": array, "spots": np.isnan(array).astype(np.float32)}
    expected = reference(model, inputs)
    holds = expected["holds"] == 1
    assert holds.any() and not holds.all()
    assert holds[np.isnan(expected["y"])].all()
    for found in run_everywhere(model, inputs, "n", "y"):
        assert np.array_equal(np.isnan(found["y"]), holds)
        assert_same(found["y"][~holds], unbounded(expected["y"])[~holds], window)


@pytest.mark.parametrize("op", ["GlobalMaxPool", "ReduceMax", "ReduceMin"])
def test_a_reduction_with_nan_gives_nan(op: str) -> None:
    """Over the whole image; onnxruntime's own answer depends on the position here too."""
    net = Net()
    x = net.input("x", (1, 18, 6, 7))
    n = net.node("Neg", [x], ["n"])
    axes = [] if op == "GlobalMaxPool" else [net.integers(2, 3)]
    net.output(n, net.node(op, [n, *axes], ["y"]))
    array = -spotted()
    array[0, 5:9] = np.arange(42).reshape(6, 7)
    expected = unbounded(reference(net.model(), {"x": array})["y"])
    holds = np.isnan(array).any(axis=(2, 3), keepdims=True)
    assert holds[np.isnan(expected)].all() and not holds.all()
    for found in run_everywhere(net.model(), {"x": array}, "n", "y"):
        assert np.array_equal(np.isnan(found["y"]), holds)
        assert_same(found["y"][~holds], expected[~holds], op)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_nan_along_padded_channels(op: str) -> None:
    net = Net()
    x = net.input("x", (1, 18, 6, 7))
    n = net.node("Neg", [x], ["n"])
    net.output(n, net.sum_channels(n, op))
    array = -spotted()
    array[0, 3] = 1
    holds = np.isnan(array).any(axis=1, keepdims=True)
    (_, expected) = reference(net.model(), {"x": array}).values()
    assert holds.any() and not holds.all()
    for found in run_everywhere(net.model(), {"x": array}, "n"):
        (_, result) = found.values()
        assert np.array_equal(np.isnan(result), holds)
        assert_same(result[~holds], expected[~holds], op)


CONVOLUTIONS = [
    ((1, 8, 9, 10), (16, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 14, 14), (16, 3, 5, 5), {"pads": [2, 1, 2, 1], "strides": [2, 2]}),
    ((1, 32, 12, 12), (8, 16, 5, 5), {"pads": [1, 1, 1, 1], "group": 2}),
    ((2, 16, 9, 9), (16, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 16}),
    ((1, 8, 13), (5, 8, 3), {"pads": [2, 2], "dilations": [2]}),
    ((1, 16, 7, 7), (33, 16, 1, 1), {}),
]


@pytest.mark.parametrize("where", ["x", "w", "both"])
@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), CONVOLUTIONS)
def test_convolutions_of_infinities(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], attributes: dict[str, Any], where: str
) -> None:
    """Sums of the products of elements that there are: an infinite weight meets no padding.

    In ONNX's reference evaluator it meets a zero, which gives NaN; in onnxruntime that depends on
    its algorithm.
    """
    rng = np.random.default_rng(sum(x_shape))
    arrays = {}
    for name, shape in (("x", x_shape), ("w", w_shape)):
        array = rng.standard_normal(shape).astype(np.float32)
        array[rng.random(shape) < 0.1] = 0
        if where in (name, "both"):
            array[rng.random(shape) < 0.02] = np.inf
            array[rng.random(shape) < 0.01] = -np.inf
        arrays[name] = array
    net = Net()
    x = net.input("x", x_shape)
    net.output(net.node("Conv", [x, net.constant(arrays["w"])], ["y"], **attributes))
    invalid, up, down = infinite_terms(arrays["x"], arrays["w"], attributes)
    pinned = ("x", "y") if where == "both" and len(x_shape) == 4 else ()
    for found in run_everywhere(net.model(), {"x": arrays["x"]}, *pinned):
        np.testing.assert_array_equal(np.isnan(found["y"]), invalid | (up & down))
        np.testing.assert_array_equal(np.isposinf(found["y"]), up & ~invalid & ~down)
        np.testing.assert_array_equal(np.isneginf(found["y"]), down & ~invalid & ~up)


def infinite_terms(x: Array, w: Array, attributes: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Where a convolution has terms 0 · ∞, terms ∞, and terms -∞.

    They are counted by convolutions of zeros and ones, in which padding counts as no element.
    """
    signs = {"x": np.sign(x), "w": np.sign(w)}
    large = {"x": np.isinf(x), "w": np.isinf(w)}

    def meet(of_x: Any, of_w: Any) -> Any:
        arrays = [np.asarray(array, np.float32) for array in (of_x, of_w)]
        infos = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in zip("xw", arrays, strict=True)
        ]
        node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
        made = [helper.make_empty_tensor_value_info("y")]
        model = helper.make_model(helper.make_graph([node], "g", infos, made))
        feeds = dict(zip("xw", arrays, strict=True))
        return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0]) > 0

    def signed(sign: int) -> Any:
        return np.logical_or.reduce(
            [
                meet(large["x"] * (signs["x"] == a), signs["w"] == a * sign)
                | meet(signs["x"] == a, large["w"] * (signs["w"] == a * sign))
                for a in (1, -1)
            ]
        )

    zero = meet(large["x"], w == 0) | meet(x == 0, large["w"])
    return zero, signed(1), signed(-1)
