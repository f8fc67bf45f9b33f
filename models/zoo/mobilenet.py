"""MobileNetV2 (Sandler et al. 2018) and MobileNetV3-Small (Howard et al. 2019), as torchvision has
them, with their BatchNormalization nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from graphflow.models.zoo.building.layers import BRANCH_GAIN, NetworkBuilder, divisible_by_8

Activation = Callable[[NetworkBuilder, str], str]

V2_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks, stride of the first block."""

V3_SMALL_BLOCKS = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)
"""Kernel, expanded channels, channels, whether gated, whether hard swish, stride."""


def mobilenet_v2(
    seed: int,
    width: float = 1.0,
    size: int = 224,
    stages: Sequence[tuple[int, int, int, int]] = V2_STAGES,
) -> onnx.ModelProto:
    """MobileNetV2, its channels times `width`: 0.3 G multiply-adds at width 1."""
    b = NetworkBuilder(seed, name=f"mobilenet_v2_{width}")
    x = b.conv_bn(b.input("input", (1, 3, size, size)), divisible_by_8(32 * width), 3, 2)
    x = b.relu6(x)
    for expansion, wanted, blocks, first_stride in stages:
        channels = divisible_by_8(wanted * width)
        for block in range(blocks):
            expanded = expansion * b.channels(x)
            stride = first_stride if block == 0 else 1
            x = inverted_residual(b, x, channels, expanded, 3, stride, NetworkBuilder.relu6)
    x = b.relu6(b.conv_bn(x, divisible_by_8(1280 * max(1.0, width)), 1))
    b.output(b.classify(x, 1000))
    return b.model()


def mobilenet_v3_small(seed: int, size: int = 224) -> onnx.ModelProto:
    """MobileNetV3-Small: 0.06 G multiply-adds."""
    b = NetworkBuilder(seed, name="mobilenet_v3_small")
    x = b.hard_swish(b.conv_bn(b.input("input", (1, 3, size, size)), 16, 3, 2))
    for kernel, expanded, channels, gated, swish, stride in V3_SMALL_BLOCKS:
        activation = NetworkBuilder.hard_swish if swish else NetworkBuilder.relu
        x = inverted_residual(b, x, channels, expanded, kernel, stride, activation, gated)
    x = b.hard_swish(b.conv_bn(x, 576, 1))
    x = b.hard_swish(b.classify(x, 1024))
    b.output(b.linear(x, 1000, gain=2.0))
    return b.model()


def inverted_residual(
    b: NetworkBuilder,
    x: str,
    channels: int,
    expanded: int,
    kernel: int,
    stride: int,
    activation: Activation,
    gated: bool = False,
) -> str:
    """Expand, convolve each channel, gate, project; added to x where shapes allow it."""
    y = x
    if expanded != b.channels(x):
        # What comes in has no activation behind it: 2 would double its power.
        y = activation(b, b.conv_bn(y, expanded, 1, gain=1.0))
    y = activation(b, b.conv_bn(y, expanded, kernel, stride, group=expanded))
    if gated:
        y = b.squeeze_excite(y, divisible_by_8(expanded / 4), hard=True)
    residual = stride == 1 and b.channels(x) == channels
    bn_gain = BRANCH_GAIN if residual else 1.0
    y = b.conv_bn(y, channels, 1, gain=8.0 if gated else 2.0, bn_gain=bn_gain)
    return b.add(x, y) if residual else y
