"""A detector with a feature pyramid up and down over the units of ShuffleNetV2.

In: an image.  Out: class scores, boxes and objectness of all cells of three maps.  The way down
(Lin et al. 2017, FPN) resizes each map to the next larger one and concatenates the two, the way up
(Liu et al. 2018, PAN) reduces and concatenates again, and each level has three heads, as in
NanoDet and YOLOX.  Every map of the pyramid is read on both ways, so the graph is not narrow:
layouts on one level depend on those on all others.
"""

from __future__ import annotations

import numpy as np
import onnx

from graphflow.models.zoo.building.layers import NetworkBuilder
from graphflow.models.zoo.shufflenet import stage

STAGES = ((116, 2), (232, 3), (464, 2))
"""Channels and units of the backbone: the widths of ShuffleNetV2 1.0x, with fewer units."""

CHANNELS = 96
"""Channels of each map of the pyramid and of the heads."""

CLASSES = 20


def feature_pyramid(seed: int, size: int = 224) -> onnx.ModelProto:
    """Heads on maps of 1/8, 1/16 and 1/32 of the image; `size` is a multiple of 32."""
    b = NetworkBuilder(seed, name="feature_pyramid")
    x = b.relu(b.conv_bias(b.input("input", (1, 3, size, size)), 24, 3, 2))
    x = b.max_pool(x, 3, 2)
    maps = []
    for k, (channels, units) in enumerate(STAGES):
        x = stage(b, x, channels, units, size // 8 >> k)
        maps.append(b.relu(b.conv_bias(x, CHANNELS, 1)))
    maps = _upwards(b, _downwards(b, maps, size // 8))
    heads = [_heads(b, x) for x in maps]
    for name, parts in zip(("scores", "boxes", "objects"), zip(*heads, strict=True), strict=True):
        b.node("Concat", parts, [name], axis=1)
    b.output("scores", "boxes", "objects")
    return b.model()


def _downwards(b: NetworkBuilder, maps: list[str], extent: int) -> list[str]:
    """From the smallest map to the largest, each joined with the one before, resized.

    The first Resize is given the factor, the second the size, as exporters do for a
    `scale_factor` and for `size=other.shape[2:]`.
    """
    first, second, third = maps
    second = _joined(b, _resized(b, third, 0), second)
    first = _joined(b, _resized(b, second, extent), first)
    return [first, second, third]


def _upwards(b: NetworkBuilder, maps: list[str]) -> list[str]:
    """From the largest map to the smallest, each joined with the one before, reduced."""
    first, second, third = maps
    second = _joined(b, _separable(b, first, 2), second)
    return [first, second, _joined(b, _separable(b, second, 2), third)]


def _resized(b: NetworkBuilder, x: str, extent: int) -> str:
    """Nearest, to twice the size, or to `extent` rows and columns if that is not 0."""
    sizes = np.array([1, b.channels(x), extent, extent], np.int64)
    scales = np.array([1, 1, 2, 2], np.float32)
    given = ["", "", b.constant(sizes)] if extent else ["", b.constant(scales)]
    return b.node(
        "Resize",
        [x, *given],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _joined(b: NetworkBuilder, x: str, y: str) -> str:
    """Both maps in one of `CHANNELS` channels."""
    return _separable(b, b.relu(b.conv_bias(b.concat(x, y), CHANNELS, 1)), 1)


def _separable(b: NetworkBuilder, x: str, stride: int) -> str:
    """A depthwise 5x5 convolution, then a 1x1."""
    channels = b.channels(x)
    y = b.relu(b.conv_bias(x, channels, 5, stride, group=channels))
    return b.relu(b.conv_bias(y, channels, 1))


def _heads(b: NetworkBuilder, x: str) -> tuple[str, str, str]:
    """(1, cells, values) each: probabilities of classes, offsets of boxes, and objectness."""
    named = _separable(b, x, 1)
    placed = _separable(b, x, 1)
    scores = b.sigmoid(b.conv(named, CLASSES, 1, gain=0.5))
    objects = b.sigmoid(b.conv(placed, 1, 1, gain=0.5))
    return _cells(b, scores), _cells(b, b.conv(placed, 4, 1, gain=0.5)), _cells(b, objects)


def _cells(b: NetworkBuilder, x: str) -> str:
    shape = b.constant(np.array([1, b.channels(x), -1], np.int64))
    return b.node("Transpose", [b.node("Reshape", [x, shape])], perm=[0, 2, 1])
