"""Tests of pooling of every kind, and of Col2Im, against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.single import noise, peer, single
from support.targets import in_turn


def check(model: Any, feeds: dict[str, np.ndarray]) -> None:
    found, expected = interpret_graph(import_model(model), feeds)["o0"], peer(model, feeds)["o0"]
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@st.composite
def pools(draw: st.DrawFn) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    op = draw(st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
    rank = draw(st.integers(1, 3))
    spatial = [draw(st.integers(4, 7)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilated = draw(st.booleans())
    auto = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        # onnxruntime refuses SAME pads where a stride skips elements.
        "strides": [draw(st.integers(1, k if "SAME" in auto else 3)) for k in kernel],
        "auto_pad": auto,
    }
    # onnxruntime refuses dilations with SAME pads, as it counts them differently.
    if dilated and auto == "NOTSET":
        attributes["dilations"] = [draw(st.integers(1, 2)) for _ in range(rank)]
    if auto == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, k - 1)) for k in [*kernel, *kernel]]
        attributes["ceil_mode"] = draw(st.integers(0, 1))
    if op == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    if op == "LpPool":
        attributes["p"] = draw(st.integers(1, 3))
    return op, (2, 2, *spatial), attributes


@settings(max_examples=60)
@given(pools(), st.sampled_from([19, 21, 22]))
def test_any_pool_is_onnxruntimes(
    case: tuple[str, tuple[int, ...], dict[str, Any]], opset: int
) -> None:
    op, shape, attributes = case
    x = noise(*shape)
    model = single(op, [x], opset, **attributes)
    # Before opset 22 onnx infers windows in ceil mode that onnxruntime leaves out.
    model.graph.output[0].type.tensor_type.ClearField("shape")
    check(model, {"i0": x})


@in_turn(
    "attributes",
    [
        {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]},
        {"kernel_shape": [4, 6], "pads": [0, 3, 1, 5], "dilations": [3, 1]},
        {"kernel_shape": [13, 13], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [1, 7]},
    ],
)
def test_wide_maxima_are_taken_axis_by_axis(attributes: dict[str, Any], target: Any) -> None:
    x = noise(1, 20, 17, 19)
    x[0, 3], x[0, 5, 2, 3] = -3e38, np.inf
    model = single("MaxPool", [x], 19, **attributes)
    taps = attributes["kernel_shape"]
    nodes = import_model(model).nodes
    assert len(nodes) == sum(tap > 1 for tap in taps)
    made = gf.compile(model, target=target, threads=2).run({"i0": x})["o0"]
    np.testing.assert_array_equal(made, peer(model, {"i0": x})["o0"])


@pytest.mark.parametrize("opset", [19, 21, 22])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("side", [6, "n"])
@pytest.mark.parametrize("is_read", [False, True])
def test_windows_behind_the_image_are_left_out(
    op: str, opset: int, side: int | str, is_read: bool
) -> None:
    """Whatever ONNX infers of them, also of the nodes that read the pool; onnxruntime refuses some
    of these."""
    nodes = [helper.make_node(op, ["x"], ["p"], kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1)]
    nodes += [helper.make_node("Relu", ["p"], ["r"]), helper.make_node("Add", ["r", "c"], ["s"])]
    result, constants = ("s", [("c", noise(3, 3))]) if is_read else ("p", [])
    graph = helper.make_graph(
        nodes if is_read else nodes[:1],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, side, side))],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, tuple("abcd"))],
        [numpy_helper.from_array(array, name) for name, array in constants],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    x = noise(1, 2, 6, 6)
    found = gf.compile(model, options=gf.Options(workers=0, fallback=None)).run({"x": x})[result]
    expected = np.abs(x[:, :, ::2, ::2]) if op == "LpPool" else x[:, :, ::2, ::2]
    if is_read:
        expected = np.maximum(expected, 0) + constants[0][1]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_global_lp_pool(p: int) -> None:
    x = noise(2, 3, 4, 5)
    check(single("GlobalLpPool", [x], 13, p=p), {"i0": x})


def test_native_norms_agree() -> None:
    x = noise(1, 24, 9, 9)
    model = single("LpPool", [x], 18, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    exe = gf.compile(model, options=gf.Options(threads=1, workers=0))
    np.testing.assert_allclose(exe.run({"i0": x})["o0"], peer(model, {"i0": x})["o0"], rtol=1e-5)


def test_a_norm_of_order_zero_is_refused() -> None:
    with pytest.raises(InvalidModel, match="order 0"):
        import_model(single("GlobalLpPool", [noise(1, 1, 2, 2)], 13, p=0))


@st.composite
def columns(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int], list[int], dict[str, Any]]:
    rank = draw(st.integers(1, 2))
    image = [draw(st.integers(3, 6)) for _ in range(rank)]
    block = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides = [draw(st.integers(1, 2)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 2)) if b < 3 else 1 for b in block]
    pads = [draw(st.integers(0, 1)) for _ in range(2 * rank)]
    count = 1
    for k in range(rank):
        room = image[k] + pads[k] + pads[rank + k] - (block[k] - 1) * dilations[k] - 1
        count *= room // strides[k] + 1
    shape = (2, 2 * int(np.prod(block)), count)
    return shape, image, block, {"strides": strides, "dilations": dilations, "pads": pads}


@settings(max_examples=25)
@given(columns())
def test_any_columns_become_the_image_of_onnxruntime(
    case: tuple[tuple[int, ...], list[int], list[int], dict[str, Any]],
) -> None:
    shape, image, block, attributes = case
    x = noise(*shape)
    constants = {1: np.array(image, np.int64), 2: np.array(block, np.int64)}
    model = single("Col2Im", [x], 18, constants, result=["n"] * (2 + len(image)), **attributes)
    if len(image) == 2:  # onnxruntime has no other
        check(model, {"i0": x})
    else:
        found = interpret_graph(import_model(model), {"i0": x})["o0"]
        expected = np.zeros((2, 2, image[0] + sum(attributes["pads"]) + 4), np.float32)
        for k in range(block[0]):
            for place in range(shape[2]):
                at = place * attributes["strides"][0] + k * attributes["dilations"][0]
                expected[:, :, at] += x.reshape(2, 2, block[0], -1)[:, :, k, place]
        begin = attributes["pads"][0]
        np.testing.assert_allclose(found, expected[..., begin : begin + image[0]], rtol=1e-5)


def test_columns_that_do_not_fit_are_refused() -> None:
    constants = {1: np.array([4, 4], np.int64), 2: np.array([2, 2], np.int64)}
    with pytest.raises(InvalidModel):
        import_model(single("Col2Im", [noise(1, 4, 8)], 18, constants, result=["n"] * 4))
