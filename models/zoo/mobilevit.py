"""MobileViT (Mehta and Rastegari 2022) as PyTorch's exporter writes it at opset 17.

In: an image, batch 1.  Out: one logit a class.  BatchNormalization is folded into convolutions.
A transformer attends among the pixels that have one position within their patches; these sequences
are made by reshapes and transposes of the map, and taken apart in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from graphflow.models.zoo.building.exporting import ExportingBuilder
from graphflow.models.zoo.building.layers import BRANCH_GAIN

PATCH = 2
"""Pixels of a patch along each axis."""

HEADS = 4

STEM, NARROW = 16, (16, 24, 24, 24)
"""Channels of the stem and of the inverted residuals before the first transformer; the first of
those with 24 channels halves the image."""

EXPANSION = 2

STAGES = ((48, 64, 2), (64, 80, 4), (80, 96, 3))
"""Channels, width and layers of the transformer, of each stage of MobileViT-XXS."""

LAST = 320


def mobilevit(
    seed: int,
    image: int = 128,
    most_layers: int = 1,
    classes: int = 100,
    stages: Sequence[tuple[int, int, int]] = STAGES,
) -> onnx.ModelProto:
    """MobileViT-XXS, with at most `most_layers` in each transformer; `image` is a multiple of 64.

    The published network has 256 pixels and up to 4 layers.
    """
    b = ExportingBuilder(seed, opset=17, name="mobilevit")
    x = b.silu(b.conv_bias(b.input("pixel_values", (1, 3, image, image)), STEM, 3, 2))
    size = image // 2
    for channels in NARROW:
        stride = 2 if channels != b.channels(x) and channels != NARROW[0] else 1
        x, size = _inverted_residual(b, x, channels, stride), size // stride
    for channels, width, layers in stages:
        x, size = _inverted_residual(b, x, channels, 2), size // 2
        x = _mobilevit_block(b, x, width, min(layers, most_layers), size)
    x = b.silu(b.conv_bias(x, LAST, 1))
    pooled = b.node("ReduceMean", [x], axes=[-2, -1], keepdims=0)
    b.set_channels(pooled, LAST)
    b.output(b.linear(pooled, classes))
    return b.model()


def _inverted_residual(b: ExportingBuilder, x: str, channels: int, stride: int) -> str:
    """Expand, convolve each channel, project; added to x where shapes allow it."""
    inputs = b.channels(x)
    expanded = EXPANSION * inputs
    y = b.silu(b.conv_bias(x, expanded, 1))
    y = b.silu(b.conv_bias(y, expanded, 3, stride, group=expanded))
    residual = stride == 1 and inputs == channels
    y = b.conv_bias(y, channels, 1, gain=4.0 * (BRANCH_GAIN**2 if residual else 1.0))
    return b.add(x, y) if residual else y


def _mobilevit_block(b: ExportingBuilder, x: str, width: int, layers: int, size: int) -> str:
    """Local features, a transformer over unfolded patches, and both kinds joined by a 3x3."""
    channels = b.channels(x)
    y = b.conv(b.silu(b.conv_bias(x, channels, 3)), width, 1, bias=False)
    y = _unfold(b, y, width, size)
    for _ in range(layers):
        y = b.add(y, _attention(b, b.layer_norm(y, width), width, (size // PATCH) ** 2))
        hidden = b.silu(b.dense(b.layer_norm(y, width), width, 2 * width, gain=2.0))
        y = b.add(y, b.dense(hidden, 2 * width, width))
    y = _fold(b, b.layer_norm(y, width), width, size)
    y = b.silu(b.conv_bias(y, channels, 1))
    return b.silu(b.conv_bias(b.concat(x, y), channels, 3))


def _unfold(b: ExportingBuilder, x: str, width: int, size: int) -> str:
    """(1, width, size, size) to (pixels of a patch, patches, width)."""
    patches = size // PATCH
    y = b.view(x, width * patches, PATCH, patches, PATCH)
    y = b.node("Transpose", [y], perm=[0, 2, 1, 3])
    y = b.view(y, 1, width, patches**2, PATCH**2)
    y = b.node("Transpose", [y], perm=[0, 3, 2, 1])
    return b.view(y, PATCH**2, patches**2, width)


def _fold(b: ExportingBuilder, x: str, width: int, size: int) -> str:
    """(pixels of a patch, patches, width) to (1, width, size, size)."""
    patches = size // PATCH
    y = b.view(x, 1, PATCH**2, patches**2, width)
    y = b.node("Transpose", [y], perm=[0, 3, 2, 1])
    y = b.view(y, width * patches, patches, PATCH, PATCH)
    y = b.node("Transpose", [y], perm=[0, 2, 1, 3])
    y = b.view(y, 1, width, size, size)
    b.set_channels(y, width)
    return y


def _attention(b: ExportingBuilder, x: str, width: int, length: int) -> str:
    """One product for queries, keys and values, taken apart by Split, Reshape and Transpose."""
    head = width // HEADS
    parts = [f"{x}_{part}" for part in ("query", "key", "value")]
    b.node("Split", [b.dense(x, width, 3 * width)], parts, axis=-1)
    query, key, value = (
        b.node("Transpose", [b.view(part, -1, length, HEADS, head)], perm=perm)
        for part, perm in zip(parts, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    scores = b.node("MatMul", [b.node("Mul", [query, b.number(head**-0.5)]), key])
    attended = b.node("MatMul", [b.node("Softmax", [scores], axis=-1), value])
    joined = b.node("Transpose", [attended], perm=[0, 2, 1, 3])
    return b.dense(b.view(joined, -1, length, width), width, width)
