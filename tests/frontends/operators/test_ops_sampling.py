"""Tests of GridSample, RoiAlign and DeformConv against onnxruntime or ONNX's reference evaluator,
at coordinates that are NaN or infinite too."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.errors import InvalidModel, RunError, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.single import noise, peer, single

F32 = np.float32
BORDERS = ("zeros", "border", "reflection")


def close(model: Any, arrays: list[Any], wanted: Any) -> None:
    feeds = {f"i{k}": array for k, array in enumerate(arrays)}
    graph = import_model(model)
    found = interpret_graph(graph, feeds, graph.results)["o0"]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def from_peer(model: Any, arrays: list[Any]) -> Any:
    return peer(model, {f"i{k}": array for k, array in enumerate(arrays)})["o0"]


def from_reference(model: Any, arrays: list[Any]) -> Any:
    feeds = {f"i{k}": array for k, array in enumerate(arrays)}
    return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])


def grid(*shape: int) -> Any:
    """Places inside and some way outside, the borders and the centre among them."""
    places = np.random.default_rng(0).uniform(-1.7, 1.7, shape)
    flat = places.reshape(-1)
    flat[:6] = (-1, 1, 0, 1, -1, -1)
    return F32(places)


@pytest.mark.parametrize(
    ("mode", "border", "align"), [*product(("linear", "nearest", "cubic"), BORDERS, (0, 1))]
)
def test_grid_sample(mode: str, border: str, align: int) -> None:
    arrays = [noise(2, 2, 4, 5), grid(2, 3, 4, 2)]
    attributes = {"mode": mode, "padding_mode": border, "align_corners": align}
    model = single("GridSample", arrays, 20, None, **attributes)
    close(model, arrays, from_peer(model, arrays))


@pytest.mark.parametrize(
    ("mode", "border", "align"), [*product(("linear", "nearest"), BORDERS, (0, 1))]
)
def test_grid_sample_of_volumes(mode: str, border: str, align: int) -> None:
    arrays = [noise(1, 2, 3, 4, 2), grid(1, 2, 2, 3, 3)]
    attributes = {"mode": mode, "padding_mode": border, "align_corners": align}
    model = single("GridSample", arrays, 20, None, **attributes)
    close(model, arrays, from_peer(model, arrays))


def test_grid_sample_by_the_names_of_its_first_opset() -> None:
    arrays = [noise(1, 1, 4, 4), grid(1, 3, 3, 2)]
    for mode in ("bilinear", "nearest", "bicubic"):
        model = single("GridSample", arrays, 16, None, mode=mode)
        close(model, arrays, from_peer(model, arrays))


def test_an_axis_of_one_element_and_whole_numbers() -> None:
    arrays = [noise(1, 2, 1, 3), grid(1, 2, 2, 2)]
    for border, align in product(BORDERS, (0, 1)):
        if (border, align) == ("reflection", 1):
            continue  # onnxruntime divides by zero
        model = single("GridSample", arrays, 20, None, padding_mode=border, align_corners=align)
        close(model, arrays, from_peer(model, arrays))
    numbers = [np.arange(12).reshape(1, 1, 3, 4), grid(1, 2, 2, 2)]
    model = single("GridSample", numbers, 20, None, mode="nearest")
    close(model, numbers, from_reference(model, numbers))
    with pytest.raises(UnsupportedOp, match="linear sampling of int64 is not built"):
        import_model(single("GridSample", numbers, 20, None))
    with pytest.raises(InvalidModel, match="padding mode wrap does not exist"):
        import_model(single("GridSample", arrays, 20, None, padding_mode="wrap"))


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_places_that_are_no_numbers_read_nothing_outside(mode: str, border: str) -> None:
    x = noise(1, 3, 20, 20)
    places = grid(1, 4, 9, 2)
    plain = places.copy()
    model = single("GridSample", [x, places], 20, None, mode=mode, padding_mode=border)
    exe = gf.compile(model, threads=1, options=gf.Options(workers=0))
    places.reshape(-1)[10:18] = [np.nan, 0, np.inf, -np.inf, 3e38, -3e38, 1e20, np.nan]
    found, wanted = (exe.run({"i0": x, "i1": p})["o0"].reshape(3, -1) for p in (places, plain))
    kept = [k for k in range(36) if not 5 <= k < 9]
    np.testing.assert_array_equal(found[:, kept], wanted[:, kept])


# Regions -----------------------------------------------------------------------------------------


def regions() -> list[Any]:
    rois = np.array([[0, 0, 9, 9], [2.5, 3.1, 7.7, 5.2], [-4, -3, 4, 20], [5, 5, 5.2, 5.1]], F32)
    return [noise(2, 3, 10, 12), rois, np.array([0, 1, 1, 0])]


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(mode: str, coordinates: str, ratio: int) -> None:
    arrays = regions()
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    sizes = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": 0.8}
    model = single("RoiAlign", arrays, 16, None, **attributes, **sizes)
    close(model, arrays, from_peer(model, arrays))


def test_regions_of_the_first_opset_have_no_half_pixel() -> None:
    arrays = regions()
    model = single("RoiAlign", arrays, 10, None, output_height=2, output_width=2, sampling_ratio=2)
    close(model, arrays, from_peer(model, arrays))


def test_images_that_are_not_there_and_regions_that_are_too_large() -> None:
    arrays = regions()
    model = single("RoiAlign", arrays, 16, None, output_height=2, output_width=2)
    exe = gf.compile(model, threads=1, options=gf.Options(workers=0))
    feeds = {f"i{k}": array for k, array in enumerate(arrays)}
    with pytest.raises(RunError, match="an index of tensor i2 is 2, and has to be from 0 to"):
        exe.run({**feeds, "i2": np.array([0, 1, 2, 0])})
    with pytest.raises(RunError, match="points of a bin along an axis, at most is 500, and has"):
        exe.run({**feeds, "i1": np.array([[0, 0, 9, 1000]] * 4, F32)})


@pytest.mark.parametrize(
    ("ratio", "error"), [(-1, InvalidModel), (2**31, UnsupportedOp)], ids=["negative", "huge"]
)
def test_so_many_points_of_a_bin_are_no_models(ratio: int, error: type[Exception]) -> None:
    model = single("RoiAlign", regions(), 16, None, sampling_ratio=ratio)
    with pytest.raises(error, match=str(ratio)):
        gf.compile(model, options=gf.Options(fallback=None))


# Deformed windows --------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_deformed_convolution(groups: int, offset_groups: int, masked: bool) -> None:
    attributes = {"pads": [1, 0, 1, 1], "strides": [1, 2], "dilations": [1, 2], "group": groups}
    x, weight, bias = noise(2, 4, 6, 8), noise(4, 4 // groups, 3, 2, seed=1), noise(4, seed=2)
    out = (6, 4)
    offsets = 2 * noise(2, 2 * offset_groups * 6, *out, seed=3)
    arrays = [x, weight, offsets, bias]
    if masked:
        arrays.append(noise(2, offset_groups * 6, *out, seed=4))
    model = single("DeformConv", arrays, 19, None, offset_group=offset_groups, **attributes)
    close(model, arrays, from_reference(model, arrays))
