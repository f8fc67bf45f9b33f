"""Tests of resizing along axes whose extents a run decides: one program takes what a program for
each pair of extents takes."""

import random
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.sizes import Size
from graphflow.frontends import import_model
from graphflow.frontends.importer import import_checked
from graphflow.graph import interpret_graph
from support.models.sized_runs import OPTIONS, beside_peer, difference, parsed_model, sized_feeds
from support.seeds import seeds

COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resizing(seed: int) -> tuple[onnx.ModelProto, dict[str, tuple[int, int]]]:
    """A model that resizes maps by scales, to known extents, or to those of another input."""
    rng = random.Random(seed)
    kind = seed % 3
    sizes = {"h": (4, 8), "w": (3, 9), "n": (2, 3)}
    nodes, constants = [], {}
    channels = rng.choice([2, 9, 16])
    infos = {"x": ["n", channels, "h", rng.choice(["w", 5])]}
    attributes: dict[str, Any] = {
        "mode": rng.choice(["nearest", "linear", "cubic"]),
        "coordinate_transformation_mode": rng.choice(COORDINATES),
    }
    if attributes["mode"] == "nearest":
        attributes["nearest_mode"] = rng.choice(ROUNDINGS)
    else:
        attributes |= {flag: rng.randint(0, 1) for flag in ("antialias", "exclude_outside")}
    if kind == 0:
        scales = [1, 1, rng.choice([2, 3, 0.5, 1.5]), rng.choice([1, 2, 4])]
        constants["scales"] = np.array(scales, np.float32)
        inputs = ["x", "", "scales"]
    elif kind == 1:
        attributes["axes"] = [2, 3]
        constants["sizes"] = np.array([rng.randint(2, 9), rng.randint(2, 9)])
        inputs = ["x", "", "", "sizes"]
    else:
        infos["z"] = ["n", channels, "a", "b"]
        sizes |= {"a": (2, 8), "b": (2, 8)}
        nodes.append(helper.make_node("Shape", ["z"], ["sizes"]))
        inputs = ["x", "", "", "sizes"]
    if "w" not in infos["x"]:
        del sizes["w"]
    nodes.append(helper.make_node("Resize", inputs, ["y"], **attributes))
    if kind == 2:
        nodes.append(helper.make_node("Add", ["y", "z"], ["s"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in infos.items()],
        [helper.make_tensor_value_info("s" if kind == 2 else "y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), sizes


@pytest.mark.parametrize("seed", seeds(9, 90))
def test_any_resize_of_any_extents(seed: int) -> None:
    """Beside the definitions for each shape, also with infinities and NaN: onnxruntime rounds
    coordinates."""
    model, sizes = resizing(seed)
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exe = gf.compile(model, sizes=sizes, options=OPTIONS)
        largest = {name: hi for name, (_, hi) in sizes.items()}
        for number in range(5):
            extents = {name: rng.randint(*bounds) for name, bounds in sizes.items()}
            feeds = sized_feeds(exe, extents, number)
            for special in (np.nan, np.inf, -np.inf):
                feeds["x"][noise.random(feeds["x"].shape) < 0.04 * (number % 2)] = special
            exe.run(sized_feeds(exe, largest, number, poison=True))
            shapes = {name: array.shape for name, array in feeds.items()}
            with np.errstate(all="ignore"):
                wanted = interpret_graph(import_model(model, shapes), feeds)
            assert not difference(exe.run(feeds), wanted, 1e-5), extents


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_resizes_are_those_of_onnxruntime(seed: int) -> None:
    model, sizes = resizing(seed)
    runs = [{name: bounds[k] for name, bounds in sizes.items()} for k in (0, 1)]
    assert beside_peer(model, sizes, runs) == ([], "")


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.INT32])
def test_linear_resizes_of_integers_are_refused(kind: int) -> None:
    """As they are for known extents."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, (1, 1, "h", 4))],
        [helper.make_tensor_value_info("y", kind, (1, 1, 7, 6))],
        [numpy_helper.from_array(np.array([1, 1, 7, 6]), "sizes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    with pytest.warns(UserWarning, match="linear resizing of"):
        gf.compile(model, sizes={"h": (1, 8)}, options=OPTIONS)


def test_filters_of_many_taps_are_refused() -> None:
    """A run of 40 elements would take 40 for each of two."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, "h", 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 1, 1, 4))],
        [numpy_helper.from_array(np.array([1, 1, 1, 4]), "sizes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.warns(UserWarning, match="a run may take 80 elements for one"):
        gf.compile(model, sizes={"h": (1, 40)}, options=OPTIONS)


def kernels(channels: int, scale: float, **attributes: Any) -> list[str]:
    """The kernels of a resize of both sides of an image."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], "resize", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels, "h", "w"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "scales")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    room, sizes = {"x": (1, channels, 6, 7)}, (Size("h", 1, 6), Size("w", 1, 7))
    made = import_checked(model, room, None, (), False, {}, sizes)
    return [node.op.removeprefix("Resize.") for node in made.nodes if node.op != "Resize"]


def test_nearest_elements_of_a_whole_scale_are_not_looked_up() -> None:
    by_two = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    assert kernels(2, 2, **by_two, nearest_mode="floor") == ["repeated"]
    assert kernels(2, 2, mode="nearest") == ["repeated"]
    # Of the last element, the next one would be nearest.
    assert "repeated" not in kernels(2, 2, **by_two, nearest_mode="ceil")
    assert "repeated" not in kernels(2, 1.5, mode="nearest")


def test_channels_that_fill_vectors_are_resized_at_once() -> None:
    assert kernels(16, 2, mode="linear")[-1] == "resized"
    assert "resized" not in kernels(2, 2, mode="linear")


def test_an_axis_of_one_element_behind_a_resize_has_a_program_of_its_own() -> None:
    """PyTorch takes the first element for it, and not the one in the middle."""
    model = parsed_model(
        """g (float[1,2,h,w] x, float[1,3,a,b] z) => (float[1,2,a,b] y) {
        s = Shape<end=2>(x) t = Shape<start=2>(z) u = Concat<axis=0>(s, t)
        y = Resize<mode="linear", coordinate_transformation_mode="pytorch_half_pixel">(x,,,u) }"""
    )
    sizes = dict.fromkeys("hwab", (1, 7))
    shapes = ((5, 6, 7, 2), (4, 1, 2, 3), (3, 4, 1, 5), (1, 1, 1, 1))
    runs = [dict(zip("hwab", shape, strict=True)) for shape in shapes]
    assert beside_peer(model, sizes, runs) == ([], "")
