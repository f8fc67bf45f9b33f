"""SegFormer (Xie et al. 2021) as PyTorch's exporter writes it at opset 17.

In: an image, batch 1.  Out: one map of logits a class, a quarter as large as the image along each
axis.  Attention reads keys and values of a map that a strided convolution reduced, and a depthwise
convolution stands between the linear layers; around both, sequences become maps and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx

from graphflow.models.zoo.building.exporting import ExportingBuilder


class EncoderStage(NamedTuple):
    """One resolution of the encoder."""

    width: int
    heads: int
    reduction: int
    """Pixels along each axis that become one key."""


B0 = (
    EncoderStage(32, 1, 8),
    EncoderStage(64, 2, 4),
    EncoderStage(160, 5, 2),
    EncoderStage(256, 8, 1),
)
"""The stages of SegFormer-B0, each of which has two layers."""

DECODER = 256
"""Channels of the decoder of SegFormer-B0."""


def segformer(
    seed: int,
    stages: Sequence[EncoderStage] = B0,
    layers: int = 1,
    image: int = 64,
    decoder: int = 64,
    classes: int = 19,
) -> onnx.ModelProto:
    """Four resolutions, then a decoder of linear layers; `image` is a multiple of 32."""
    b = ExportingBuilder(seed, opset=17, name="segformer")
    x = b.input("pixel_values", (1, 3, image, image))
    size, maps = image, []
    for number_of_stage, stage in enumerate(stages):
        kernel, stride = (3, 2) if number_of_stage else (7, 4)
        size //= stride
        x = _encoded(b, b.conv_bias(x, stage.width, kernel, stride, gain=1.0), stage, layers, size)
        maps.append((x, size))
    levels = [_level(b, x, size, decoder, image // 4) for x, size in maps]
    fused = b.relu(b.conv_bias(b.concat(*reversed(levels)), decoder, 1))
    b.output(b.conv(fused, classes, 1))
    return b.model()


def _encoded(b: ExportingBuilder, x: str, stage: EncoderStage, layers: int, size: int) -> str:
    """The map after the layers of one stage."""
    width = stage.width
    y = b.layer_norm(_sequence(b, x, width, size), width)
    for _ in range(layers):
        y = b.add(_attention(b, b.layer_norm(y, width), stage, size), y)
        y = b.add(_mlp(b, b.layer_norm(y, width), width, size), y)
    y = b.view(b.layer_norm(y, width), 1, size, size, width)
    y = b.node("Transpose", [y], perm=[0, 3, 1, 2])
    b.set_channels(y, width)
    return y


def _sequence(b: ExportingBuilder, x: str, width: int, size: int) -> str:
    """(1, width, size, size) to (1, size * size, width)."""
    return b.node("Transpose", [b.view(x, 1, width, size * size)], perm=[0, 2, 1])


def _map(b: ExportingBuilder, x: str, width: int, size: int) -> str:
    """(1, size * size, width) to (1, width, size, size)."""
    y = b.view(b.node("Transpose", [x], perm=[0, 2, 1]), 1, width, size, size)
    b.set_channels(y, width)
    return y


def _attention(b: ExportingBuilder, x: str, stage: EncoderStage, size: int) -> str:
    """Every pixel attends to the pixels of a reduced map."""
    width, reduction = stage.width, stage.reduction
    head, keys = width // stage.heads, x
    if reduction > 1:
        strides = [reduction, reduction]
        reduced = b.conv(_map(b, x, width, size), width, reduction, strides=strides, gain=1.0)
        keys = b.layer_norm(_sequence(b, reduced, width, size // reduction), width)

    def heads_of(y: str, perm: tuple[int, ...]) -> str:
        apart = b.view(b.dense(y, width, width), 1, -1, stage.heads, head)
        return b.node("Transpose", [apart], perm=list(perm))

    query = heads_of(x, (0, 2, 1, 3))
    key, value = heads_of(keys, (0, 2, 3, 1)), heads_of(keys, (0, 2, 1, 3))
    scores = b.node("Div", [b.node("MatMul", [query, key]), b.number(head**0.5)])
    attended = b.node("MatMul", [b.node("Softmax", [scores], axis=-1), value])
    joined = b.node("Transpose", [attended], perm=[0, 2, 1, 3])
    return b.dense(b.view(joined, 1, -1, width), width, width, gain=0.3)


def _mlp(b: ExportingBuilder, x: str, width: int, size: int) -> str:
    """Two linear layers with a depthwise convolution of the map between them."""
    hidden = 4 * width
    y = _map(b, b.dense(x, width, hidden), hidden, size)
    y = _sequence(b, b.conv_bias(y, hidden, 3, group=hidden, gain=1.0), hidden, size)
    return b.dense(b.gelu(y), hidden, width, gain=0.6)


def _level(b: ExportingBuilder, x: str, size: int, decoder: int, wanted: int) -> str:
    """One map of the encoder, with the decoder's channels and the size of its largest map."""
    width = b.channels(x)
    y = _map(b, b.dense(_sequence(b, x, width, size), width, decoder), decoder, size)
    sizes = b.constant(np.array([1, decoder, wanted, wanted], np.int64))
    mode = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return b.node("Resize", [y, "", "", sizes], **mode)
