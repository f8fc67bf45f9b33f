"""Layout probes: small patterns, each for one decision about layouts, with any number of channels.

A probe is named `probe:PATTERN:CHANNELS`; its input is one image of 28x28 with that many channels.
The last convolution has no activation behind it, so that no channel of the output is all zero.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from graphflow.base.errors import InvalidModel
from graphflow.models.zoo.building.layers import NetworkBuilder

EXTENT = 28


def conv_conv(b: NetworkBuilder, x: str, channels: int) -> str:
    """Two convolutions in a row: what passes between them is free."""
    return b.conv_bias(b.relu(b.conv_bias(x, channels, 3)), channels, 3)


def residual(b: NetworkBuilder, x: str, channels: int) -> str:
    """Two paths that must meet in one layout."""
    x = b.relu(b.conv_bias(x, channels, 3))
    y = b.conv_bias(b.relu(b.conv_bias(x, channels, 3)), channels, 3)
    return b.relu(b.add(x, y))


def conv_maxpool_conv(b: NetworkBuilder, x: str, channels: int) -> str:
    """A window whose border is minus infinity between convolutions whose border is zero."""
    y = b.max_pool(b.relu(b.conv_bias(x, channels, 3)), 3, 2)
    return b.conv_bias(y, channels, 3)


def two_halves(b: NetworkBuilder, x: str, channels: int) -> str:
    """Two tensors side by side: their blocks align only if the channels do."""
    left = b.relu(b.conv_bias(x, channels, 1))
    right = b.relu(b.conv_bias(x, channels, 3))
    return b.conv_bias(b.concat(left, right), channels, 1)


def pointwise_depthwise(b: NetworkBuilder, x: str, channels: int) -> str:
    """Pointwise, depthwise, pointwise: dense and per-channel kernels in turn."""
    y = b.relu(b.conv_bias(x, channels, 1))
    y = b.relu(b.conv_bias(y, channels, 3, group=channels))
    return b.conv_bias(y, channels, 1)


def gate(b: NetworkBuilder, x: str, channels: int) -> str:
    """Squeeze-and-excite between convolutions: a mean that must leave padding out."""
    y = b.relu(b.conv_bias(x, channels, 3))
    y = b.squeeze_excite(y, max(channels // 4, 1), hard=False)
    return b.conv_bias(y, channels, 1, gain=8.0)


def slice_half(b: NetworkBuilder, x: str, channels: int) -> str:
    """Half of the channels read in the middle of a block."""
    y = b.relu(b.conv_bias(x, channels, 3))
    y = b.slice_channels(y, channels // 2, channels)
    return b.conv_bias(y, channels, 1)


def grouped(b: NetworkBuilder, x: str, channels: int) -> str:
    """A convolution in four groups between dense ones."""
    y = b.relu(b.conv_bias(x, channels, 1))
    y = b.relu(b.conv_bias(y, channels, 3, group=4))
    return b.conv_bias(y, channels, 1)


def shuffle(b: NetworkBuilder, x: str, channels: int) -> str:
    """Channels of two groups in turn, between convolutions."""
    y = b.relu(b.conv_bias(x, channels, 1))
    y = b.channel_shuffle(y, 2, EXTENT, EXTENT)
    return b.conv_bias(y, channels, 1)


Pattern = Callable[[NetworkBuilder, str, int], str]

PATTERNS: dict[str, tuple[Pattern, int]] = {
    "conv_conv": (conv_conv, 1),
    "residual": (residual, 1),
    "conv_maxpool_conv": (conv_maxpool_conv, 1),
    "concat": (two_halves, 1),
    "pw_dw_pw": (pointwise_depthwise, 1),
    "squeeze_excite": (gate, 1),
    "slice_half": (slice_half, 2),
    "grouped4": (grouped, 4),
    "shuffle": (shuffle, 2),
}
"""Each pattern, and what its number of channels must be a multiple of."""


def probe(pattern: str, channels: int, seed: int) -> onnx.ModelProto:
    """The probe `pattern` with this many channels.

    Raises `InvalidModel` for a pattern that there is not, and for channels that it cannot have.
    """
    if pattern not in PATTERNS:
        raise InvalidModel(f"there is no probe {pattern!r}; there are {', '.join(PATTERNS)}")
    build, divisor = PATTERNS[pattern]
    if channels < 1 or channels % divisor:
        raise InvalidModel(
            f"probe {pattern} cannot have {channels} channels; give a positive multiple of "
            f"{divisor}"
        )
    b = NetworkBuilder(seed, name=f"probe_{pattern}_{channels}")
    x = b.input("input", (1, channels, EXTENT, EXTENT))
    b.output(build(b, x, channels))
    return b.model()
