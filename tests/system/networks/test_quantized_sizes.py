"""Tests of quantized networks with open sizes: one program adds up integers, and gives the bits
that onnxruntime gives.  That programs of each shape give them too, random networks show."""

from typing import Any

import numpy as np
import pytest

from graphflow.codegen import avx2_target, host_target
from support.models.sized_quantized import OpenLayers, unlike_peer
from support.targets import in_turn

both = pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
BATCHES = tuple({"n": n} for n in (1, 2, 7, 13, 16, 23))


def products_of(report: dict[str, Any]) -> list[str]:
    """Why products are no sums of products of plain integers, for each of them."""
    floats = [p["why_not"] for p in report["integer_products"]]
    return floats + ["zero points stay"] * len(report["unseparated_products"])


@both
def test_rows_of_products_are_open(target: Any) -> None:
    b = OpenLayers()
    x = b.product(b.image("n", 37), 37, 21)
    model = b.open_model(b.product(x, 21, 5, zero=-7))
    wrong, report = unlike_peer(model, {"n": (1, 23)}, BATCHES, target)
    assert not wrong
    assert products_of(report) == ["", ""]


@in_turn("zero", (0, 40))
def test_a_batch_of_images_is_open(target: Any, zero: int) -> None:
    """A zero point of 40 does not fit into the weights: sums of the image are taken in each run."""
    b = OpenLayers()
    x = b.conv(b.image("n", 3, 9, 11), 18, 3, strides=[2, 2])
    x = b.conv(x, 18, 1, group=18)
    model = b.open_model(b.conv(x, 7, 18, kernel=1, zero=zero))
    wrong, report = unlike_peer(model, {"n": (1, 7)}, BATCHES[:3], target)
    assert not wrong
    assert products_of(report) == ["", "", ""]


@in_turn("zero", (40, 0))
def test_sides_of_images_are_open(target: Any, zero: int) -> None:
    b = OpenLayers(1)
    x = b.conv(b.image("n", 3, "h", "w"), 18, 3, strides=[2, 2])
    y = b.conv(x, 18, 1, group=18)
    x = b.stepped(b.add(x, b.conv(y, 18, 18, kernel=1, zero=zero)), 2**-5, 60)
    x = b.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = b.stepped(x, 2**-5, 60)
    model = b.open_model(b.conv(x, 9, 18, dilations=[2, 2], pads=[2, 2, 2, 2]))
    sizes = {"n": (1, 2), "h": (1, 40), "w": (1, 31)}
    runs = [(1, 40, 31), (2, 1, 1), (1, 17, 5), (2, 33, 16), (1, 2, 30)]
    extents = [dict(zip("nhw", run, strict=True)) for run in runs]
    wrong, report = unlike_peer(model, sizes, extents, target)
    assert not wrong
    assert products_of(report) == ["", "", "", ""]


@in_turn("kind", ("convolution", "product"))
def test_zero_points_of_a_run_stand_behind_its_elements(target: Any, kind: str) -> None:
    """A sum over a size reads the zero point behind it, which each run computes."""
    b = OpenLayers()
    shape = (1, 3, "h", "w") if kind == "convolution" else ("h", 6)
    b.node("DynamicQuantizeLinear", [b.input("x", shape)], ["q", "scale", "zero"])
    if kind == "convolution":
        weight = b.constant(b.bytes_of(5, 3, 3, 3))
        more = {"pads": [1, 1, 1, 1], "strides": [2, 1]}
        y = b.node("ConvInteger", ["q", weight, "zero"], **more)
    else:
        rows = b.stored(("w", "h"), name="p")
        y = b.node("MatMulInteger", [rows, "q", b.constant(np.uint8(9)), "zero"])
    sizes = {"h": (1, 19), "w": (1, 22)}
    runs = [{"h": 17, "w": 22}, {"h": 2, "w": 1}, {"h": 1, "w": 13}, {"h": 19, "w": 5}]
    wrong, report = unlike_peer(b.open_model(y, dtype="int32"), sizes, runs, target, most=200)
    assert not wrong
    assert not report["unseparated_products"]


@both
def test_products_of_two_sequences_add_up_bytes(target: Any) -> None:
    """Scores are over a fixed width, and what they weigh is added up over the length."""
    b = OpenLayers()
    x = b.image("n", "s", 24)
    turned = b.node("Transpose", [x], perm=[0, 2, 1])
    scores = b.stepped(b.node("MatMul", [x, turned]), 0.25, 100)
    y = b.stepped(b.node("MatMul", [scores, x]), 2.0, 131)
    sizes = {"n": (1, 2), "s": (1, 37)}
    runs = [{"n": 2, "s": 17}, {"n": 1, "s": 1}, {"n": 2, "s": 37}, {"n": 1, "s": 31}]
    wrong, report = unlike_peer(b.open_model(y), sizes, runs, target)
    assert not wrong
    assert products_of(report) == ["", ""]


@both
def test_rows_that_are_quantized_in_a_run_are_open(target: Any) -> None:
    b = OpenLayers()
    b.node("DynamicQuantizeLinear", [b.input("x", ("n", "s", 33))], ["q", "scale", "zero"])
    weight = b.constant(b.bytes_of(33, 20).astype(np.uint8))
    y = b.node("MatMulInteger", ["q", weight, "zero", b.constant(np.uint8(120))])
    sizes = {"n": (1, 3), "s": (1, 13)}
    runs = [{"n": 3, "s": 7}, {"n": 1, "s": 1}, {"n": 2, "s": 13}]
    wrong, report = unlike_peer(b.open_model(y, dtype="int32"), sizes, runs, target)
    assert not wrong
    assert not report["unseparated_products"]
