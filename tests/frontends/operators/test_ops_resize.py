"""Tests of Resize: cubic and antialiased filters, weights renormalized at the border, cropping."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.models.sized_runs import OPTIONS, beside_peer, parsed_model
from support.single import noise, peer, single

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
               "asymmetric", "tf_crop_and_resize")  # fmt: skip
NONE = np.zeros(0, np.float32)


def model_of(x: np.ndarray, constants: dict[int, Any], **attributes: Any) -> Any:
    return single("Resize", [x], 19, constants, result=["n"] * x.ndim, **attributes)


def check(x: np.ndarray, constants: dict[int, Any], **attributes: Any) -> None:
    model = model_of(x, constants, **attributes)
    (expected,) = ReferenceEvaluator(model).run(None, {"i0": x})
    found = interpret_graph(import_model(model), {"i0": x})["o0"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@st.composite
def resizings(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[int, Any], dict[str, Any]]:
    shape = draw(st.sampled_from([(4,), (3, 5), (2, 1, 4)]))
    coordinates = draw(st.sampled_from(COORDINATES))
    attributes: dict[str, Any] = {
        "mode": draw(st.sampled_from(["linear", "cubic"])),
        "coordinate_transformation_mode": coordinates,
        "antialias": draw(st.integers(0, 1)),
        "exclude_outside": draw(st.integers(0, 1)),
        "cubic_coeff_a": draw(st.sampled_from([-0.75, -0.5])),
    }
    constants: dict[int, Any] = {1: NONE}
    if coordinates == "tf_crop_and_resize":
        starts = [draw(st.sampled_from([0.0, 0.25, -0.25])) for _ in shape]
        ends = [draw(st.sampled_from([1.0, 0.75, 1.5])) for _ in shape]
        constants[1] = np.array([*starts, *ends], np.float32)
        attributes["extrapolation_value"] = 7.0
    # With scales the reference takes fractional extents for the first two of these.
    by_size = ("align_corners", "tf_crop_and_resize", "pytorch_half_pixel")
    if coordinates in by_size or draw(st.booleans()):
        sizes = [draw(st.integers(2, 8)) for _ in shape]
        constants |= {2: NONE, 3: np.array(sizes, np.int64)}
    else:
        scales = [draw(st.sampled_from([0.5, 0.75, 1.0, 1.5, 2.5])) for _ in shape]
        scales = [max(s, 1.0) if n == 1 else s for s, n in zip(scales, shape, strict=True)]
        constants[2] = np.array(scales, np.float32)
    return shape, constants, attributes


@settings(max_examples=80)
@given(resizings())
def test_any_filter_is_the_references(
    case: tuple[tuple[int, ...], dict[int, Any], dict[str, Any]],
) -> None:
    shape, constants, attributes = case
    check(noise(*shape), constants, **attributes)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 3, 20, 9), (1, 3, 5, 40)])
@pytest.mark.parametrize("antialias", [0, 1])
def test_native_code_agrees_with_onnxruntime(
    mode: str, sizes: tuple[int, ...], antialias: int
) -> None:
    x = noise(1, 3, 13, 16)
    constants = {1: NONE, 2: NONE, 3: np.array(sizes, np.int64)}
    model = model_of(x, constants, mode=mode, antialias=antialias)
    exe = gf.compile(model, options=gf.Options(threads=1, workers=0))
    expected = peer(model, {"i0": x})["o0"]
    np.testing.assert_allclose(exe.run({"i0": x})["o0"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(0, 3, 5, 4), (1, 3, 0, 4)])
@pytest.mark.parametrize(
    ("mode", "antialias"), [("nearest", 0), ("linear", 0), ("linear", 1), ("cubic", 1)]
)
def test_no_elements_are_resized_to_none(shape: tuple[int, ...], mode: str, antialias: int) -> None:
    x, scales = np.zeros(shape, np.float32), np.array([1, 1, 2, 2.5], np.float32)
    model = model_of(x, {1: NONE, 2: scales}, mode=mode, antialias=antialias)
    exe = gf.compile(model, options=gf.Options(threads=1, workers=0))
    assert exe.run({"i0": x})["o0"].shape == peer(model, {"i0": x})["o0"].shape


@pytest.mark.parametrize("scale", [2.0, 0.75])
def test_another_runtime_resizes_what_data_choose(scale: float) -> None:
    """The number of elements that Compress keeps has no bounds as sizes have them."""
    model = parsed_model(
        f"""g (float[1,1,6,5] x, bool[6] c) => (float[1,1,k,5] y) <float[4] s={{1,1,{scale},1}}>
    {{ z=Compress<axis=2>(x,c) y=Resize<mode="linear">(z,,s) }}"""
    )
    feeds = {"x": noise(1, 1, 6, 5), "c": np.array([1, 0, 1, 1, 1, 0], bool)}
    found = gf.compile(model, options=OPTIONS).run(feeds)["y"]
    np.testing.assert_allclose(found, peer(model, feeds)["y"], rtol=1e-5, atol=1e-5)


def test_the_policy_and_axes_reach_the_filter() -> None:
    x = noise(2, 4, 6)
    constants = {1: NONE, 2: NONE, 3: np.array([6, 9], np.int64)}
    for policy in ("not_larger", "not_smaller", "stretch"):
        check(x, constants, mode="cubic", axes=[2, 1], keep_aspect_ratio_policy=policy)


def test_only_the_axes_that_change_cost_something() -> None:
    constants = {1: NONE, 2: np.array([1, 1, 2, 1], np.float32)}
    graph = import_model(model_of(noise(1, 2, 4, 4), constants, mode="cubic"))
    assert [node.op for node in graph.nodes] == ["Resize.axis2", "Resize"]


@pytest.mark.parametrize("scales", [[2.0**30], [2.0**-24]])
def test_a_table_of_too_many_weights_is_refused(scales: list[float]) -> None:
    """Which is made place by place, in Python."""
    model = model_of(noise(2**25 if scales[0] < 1 else 4), {1: NONE, 2: np.float32(scales)},
                     mode="cubic", antialias=1)  # fmt: skip
    with pytest.raises(UnsupportedOp, match="table of"):
        import_model(model)


def test_unknown_modes_and_integers_are_refused() -> None:
    constants = {1: NONE, 2: np.array([2.0], np.float32)}
    with pytest.raises(InvalidModel, match="lanczos"):
        import_model(model_of(noise(4), constants, mode="lanczos"))
    with pytest.raises(UnsupportedOp, match="uint8"):
        import_model(model_of(np.arange(4, dtype=np.uint8), constants, mode="cubic"))


@pytest.mark.parametrize(
    ("op", "opset", "mode", "scales"),
    [
        ("Upsample", 7, "nearest", (2, 2)),
        ("Upsample", 9, "nearest", (2, 3)),
        ("Upsample", 9, "linear", (1.5, 2)),
        ("Resize", 10, "nearest", (0.5, 0.5)),
        ("Resize", 10, "linear", (2, 0.5)),
    ],
)
def test_scales_of_older_opsets_serve_all_sides_of_images(
    op: str, opset: int, mode: str, scales: tuple[float, float]
) -> None:
    numbers = ",".join(map(str, map(float, (1, 1, *scales))))
    stated, operand = (f", scales=[{numbers}]", "") if opset < 9 else ("", ", s")
    constant = "" if opset < 9 else f"<float[4] s={{{numbers}}}>"
    text = f"""g (float[n,2,h,w] x) => (float[n,2,a,b] y) {constant}
        {{ y = {op}<mode="{mode}"{stated}>(x{operand}) }}"""
    sizes = {"n": (1, 2), "h": (2, 9), "w": (2, 8)}
    runs = [dict(zip("nhw", run, strict=True)) for run in ((1, 5, 8), (2, 2, 3), (1, 9, 2))]
    assert beside_peer(parsed_model(text, opset), sizes, runs) == ([], "")
