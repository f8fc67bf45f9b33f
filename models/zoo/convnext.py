"""ConvNeXt (Liu et al. 2022) as PyTorch's exporter writes it at opset 17.

In: an image, batch 1.  Out: one logit a class.  Each block leaves the channels behind the pixels
for LayerNorm and the two linear layers, and moves them back in front for the residual sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from graphflow.models.zoo.building.exporting import ExportingBuilder
from graphflow.models.zoo.building.layers import BRANCH_GAIN

TINY = ((96, 3), (192, 3), (384, 9), (768, 3))
"""Channels and blocks of each stage of ConvNeXt-T."""

ATTO = ((40, 1), (80, 1), (160, 2), (320, 1))
"""The channels of ConvNeXt-Atto, with half of its blocks or less."""

STEM = 4
"""Pixels of a patch of the stem along each axis."""


def convnext(
    seed: int, stages: Sequence[tuple[int, int]] = ATTO, image: int = 96, classes: int = 100
) -> onnx.ModelProto:
    """Patches by a convolution, stages of blocks with normalized halving between, a linear head.

    `stages` are channels and blocks.
    """
    b = ExportingBuilder(seed, opset=17, name="convnext")
    pixels = b.input("pixel_values", (1, 3, image, image))
    x = _norm_of_channels(b, _patches(b, pixels, stages[0][0], STEM))
    for number, (channels, blocks) in enumerate(stages):
        if number:
            x = _patches(b, _norm_of_channels(b, x), channels, 2)
        for _ in range(blocks):
            x = _block(b, x)
    width = b.channels(x)
    pooled = b.node("ReduceMean", [x], axes=[-2, -1], keepdims=0)
    weights = [b.weight(classes, width, scale=width**-0.5), b.weight(classes, scale=0.1)]
    logits = b.node("Gemm", [b.layer_norm(pooled, width), *weights], ["logits"], transB=1)
    b.output(logits)
    return b.model()


def _patches(b: ExportingBuilder, x: str, channels: int, size: int) -> str:
    """A convolution whose windows do not overlap."""
    return b.conv(x, channels, size, strides=[size, size], gain=1.0)


def _norm_of_channels(b: ExportingBuilder, x: str) -> str:
    """`LayerNorm2d`: the channels go behind the pixels, are normalized, and go back."""
    channels = b.channels(x)
    last = b.node("Transpose", [x], perm=[0, 2, 3, 1])
    y = b.node("Transpose", [b.layer_norm(last, channels)], perm=[0, 3, 1, 2])
    b.set_channels(y, channels)
    return y


def _block(b: ExportingBuilder, x: str) -> str:
    """Each channel convolved, then for each pixel a norm and two linear layers, scaled, added."""
    channels = b.channels(x)
    y = b.conv(x, channels, 7, group=channels, pads=[3] * 4, gain=1.0)
    y = b.layer_norm(b.node("Transpose", [y], perm=[0, 2, 3, 1]), channels)
    y = b.gelu(b.dense(y, channels, 4 * channels))
    scale = b.weight(channels, scale=BRANCH_GAIN)
    y = b.node("Mul", [scale, b.dense(y, 4 * channels, channels, gain=2.0)])
    out = b.add(x, b.node("Transpose", [y], perm=[0, 3, 1, 2]))
    b.set_channels(out, channels)
    return out
