"""A detector in the manner of SSD (Liu et al. 2016) on the blocks of MobileNetV2.

In: an image.  Out: class probabilities and decoded corners of all anchors.  Non-maximum suppression
is not part of the model, as exporters leave it to the caller.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray

from graphflow.models.zoo.building.layers import NetworkBuilder, pads
from graphflow.models.zoo.mobilenet import inverted_residual

CLASSES = 21
RATIOS = (0.5, 1.0, 2.0)
"""Width over height of the anchors in each cell."""


def ssd(seed: int, size: int = 160) -> onnx.ModelProto:
    """Heads on maps of 1/8, 1/16 and 1/32 of the image; `size` is a multiple of 32."""
    b = NetworkBuilder(seed, name="ssd")
    x = b.relu6(b.conv_bn(b.input("input", (1, 3, size, size)), 16, 3, 2))
    x = inverted_residual(b, x, 24, 64, 3, 2, NetworkBuilder.relu6)
    maps = []
    for channels in (32, 64, 96):
        x = inverted_residual(b, x, channels, 4 * b.channels(x), 3, 2, NetworkBuilder.relu6)
        x = inverted_residual(b, x, channels, 4 * channels, 3, 1, NetworkBuilder.relu6)
        maps.append(x)
    extents = [size // 8, size // 16, size // 32]
    scores = b.node("Concat", [_head(b, x, CLASSES) for x in maps], axis=1)
    offsets = b.node("Concat", [_head(b, x, 4) for x in maps], axis=1)
    scores = b.node("Softmax", [scores], ["scores"], axis=-1)
    b.output(scores, _corners(b, offsets, _anchors(extents)))
    return b.model()


def _head(b: NetworkBuilder, x: str, values: int) -> str:
    """(1, cells * anchors, values) from a 3x3 convolution, the cells in the order of the image."""
    y = b.conv(x, len(RATIOS) * values, 3, pads=pads(3), gain=0.5)
    y = b.node("Transpose", [y], perm=[0, 2, 3, 1])
    return b.node("Reshape", [y, b.constant(np.array([1, -1, values], np.int64))])


def _anchors(extents: list[int]) -> NDArray[np.float32]:
    """(1, anchors, 4): centre x, centre y, width, height, all as parts of the image."""
    found = []
    for extent in extents:
        for row in range(extent):
            for column in range(extent):
                centre = ((column + 0.5) / extent, (row + 0.5) / extent)
                side = 2.0 / extent
                found += [(*centre, side * r**0.5, side / r**0.5) for r in RATIOS]
    return np.array([found], np.float32)


def _corners(b: NetworkBuilder, offsets: str, anchors: NDArray[np.float32]) -> str:
    """Left, top, right, bottom, from offsets in units of the anchors."""
    centres, sides = b.constant(anchors[..., :2]), b.constant(anchors[..., 2:])
    variances = [b.constant(np.array(n, np.float32)) for n in (0.1, 0.2)]
    shift = b.node("Mul", [_values(b, offsets, 0, 2), variances[0]])
    centre = b.add(b.node("Mul", [shift, sides]), centres)
    growth = b.node("Exp", [b.node("Mul", [_values(b, offsets, 2, 4), variances[1]])])
    half = b.node("Mul", [growth, b.constant(anchors[..., 2:] / 2)])
    low, high = b.node("Sub", [centre, half]), b.node("Add", [centre, half])
    return b.node("Concat", [low, high], ["boxes"], axis=-1)


def _values(b: NetworkBuilder, x: str, start: int, stop: int) -> str:
    axis = 2
    limits = [b.constant(np.array([n], np.int64)) for n in (start, stop, axis)]
    return b.node("Slice", [x, *limits])
