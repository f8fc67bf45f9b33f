"""EfficientNet (Tan and Le 2019) as tf2onnx writes it.

In: an image with its channels last, the batch symbolic.  Out: one probability a class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from graphflow.models.zoo.building.exporting import ExportingBuilder
from graphflow.models.zoo.building.layers import BRANCH_GAIN, pads

BLOCKS = ((1, 16, 3, 1, 1), (6, 24, 3, 2, 2), (6, 40, 5, 2, 2), (6, 80, 3, 2, 2), (6, 112, 5, 1, 1))
"""Expansion, channels, kernel, stride of the first block, blocks."""


def efficientnet(
    seed: int,
    image: int = 96,
    classes: int = 100,
    stages: Sequence[tuple[int, int, int, int, int]] = BLOCKS,
) -> onnx.ModelProto:
    """The first stages of EfficientNet-B0, then a pool wider than its map, and a classifier."""
    b = ExportingBuilder(seed, opset=13, name="efficientnet")
    pixels = b.input("input_1", ("batch", image, image, 3))
    x = b.node("Transpose", [_normalized(b, pixels)], perm=[0, 3, 1, 2])
    # "SAME" padding of an even image at stride 2 has its one row below.
    x = b.silu(b.conv(x, 32, 3, in_channels=3, strides=[2, 2], pads=[0, 0, 1, 1]))
    for expansion, channels, kernel, first_stride, blocks in stages:
        for block in range(blocks):
            x = _mbconv(b, x, channels, expansion, kernel, 1 if block else first_stride)
    x = b.silu(b.conv(x, 320, 1))
    # A map of 6 x 6: with ceil_mode the window that starts inside reaches beyond it.
    pooled = b.node(
        "AveragePool", [x], kernel_shape=[8, 8], strides=[8, 8], pads=[1, 1, 1, 1], ceil_mode=1
    )
    flat = b.node("Reshape", [pooled, b.constant(np.array([-1, 320], np.int64))])
    weights = b.weight(320, classes, scale=(1 / 320) ** 0.5)
    logits = b.add(b.node("MatMul", [flat, weights]), b.weight(classes, scale=0.1))
    b.output(b.node("Softmax", [logits], ["predictions"], axis=-1), shape=("batch", classes))
    return b.model()


def _normalized(b: ExportingBuilder, pixels: str) -> str:
    """Pixels of 0 … 255 to 0 … 1, then around 0 by means and deviations of each channel."""
    x = b.node("Mul", [pixels, b.constant(np.array(1 / 255, np.float32))])
    x = b.node("Sub", [x, b.constant(np.array([0.485, 0.456, 0.406], np.float32))])
    return b.node("Mul", [x, b.constant(np.array([4.37, 4.46, 4.44], np.float32))])


def _mbconv(
    b: ExportingBuilder, x: str, channels: int, expansion: int, kernel: int, stride: int
) -> str:
    """Expand, convolve each channel, gate, project; added to x where shapes allow it."""
    inputs = b.channels(x)
    expanded = expansion * inputs
    y = b.silu(b.conv(x, expanded, 1)) if expansion > 1 else x
    around = pads(kernel) if stride == 1 else [(kernel - 2) // 2] * 2 + [(kernel - 1) // 2] * 2
    y = b.silu(b.conv(y, expanded, kernel, group=expanded, strides=[stride] * 2, pads=around))
    y = _squeeze_excite(b, y, max(1, inputs // 4))
    residual = stride == 1 and inputs == channels
    y = b.conv(y, channels, 1, gain=8.0 * (BRANCH_GAIN**2 if residual else 1.0))
    return b.add(y, x) if residual else y


def _squeeze_excite(b: ExportingBuilder, x: str, squeezed: int) -> str:
    """A gate for each channel from the means of all; the mean goes through (batch, 1, 1, C)."""
    channels = b.channels(x)
    means = b.node("ReduceMean", [x], axes=[2, 3], keepdims=0)
    spread = b.node("Reshape", [means, b.integers(-1, channels, 1, 1)])
    b.set_channels(spread, channels)
    gate = b.node("Sigmoid", [b.conv(b.silu(b.conv(spread, squeezed, 1)), channels, 1)])
    return b.node("Mul", [gate, x])
