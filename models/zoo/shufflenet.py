"""ShuffleNetV2 1.0x (Ma et al. 2018), as torchvision has it, BatchNormalization folded.

Its units work on 58, 116 and 232 channels, none a multiple of the usual vector widths.
"""

from __future__ import annotations

import onnx

from graphflow.models.zoo.building.layers import NetworkBuilder

STAGES = ((116, 4), (232, 8), (464, 4))
"""Channels, units."""


def shufflenet_v2(seed: int, size: int = 224) -> onnx.ModelProto:
    """ShuffleNetV2 1.0x: 0.15 G multiply-adds; `size` is a multiple of 32."""
    b = NetworkBuilder(seed, name="shufflenet_v2")
    x = b.relu(b.conv_bias(b.input("input", (1, 3, size, size)), 24, 3, 2))
    x = b.max_pool(x, 3, 2)
    for k, (channels, units) in enumerate(STAGES):
        x = stage(b, x, channels, units, size // 8 >> k)
    x = b.relu(b.conv_bias(x, 1024, 1))
    x = b.node("ReduceMean", [x], axes=[2, 3], keepdims=0)
    b.output(b.linear(x, 1000))
    return b.model()


def stage(b: NetworkBuilder, x: str, channels: int, units: int, extent: int) -> str:
    """A unit that halves the map, to `extent` rows and columns, and those that keep its size."""
    x = b.channel_shuffle(_reducing_unit(b, x, channels // 2), 2, extent, extent)
    for _ in range(units - 1):
        x = b.channel_shuffle(_unit(b, x), 2, extent, extent)
    return x


def _unit(b: NetworkBuilder, x: str) -> str:
    half = b.channels(x) // 2
    kept, y = b.split(x, half, half)
    y = b.relu(b.conv_bias(y, half, 1))
    y = b.conv_bias(y, half, 3, group=half)
    return b.concat(kept, b.relu(b.conv_bias(y, half, 1, gain=1.0)))


def _reducing_unit(b: NetworkBuilder, x: str, half: int) -> str:
    channels = b.channels(x)
    left = b.conv_bias(x, channels, 3, 2, group=channels)
    left = b.relu(b.conv_bias(left, half, 1, gain=1.0))
    right = b.relu(b.conv_bias(x, half, 1))
    right = b.conv_bias(right, half, 3, 2, group=half)
    return b.concat(left, b.relu(b.conv_bias(right, half, 1, gain=1.0)))
