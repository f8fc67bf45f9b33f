"""Building blocks that the zoo's networks share, written as exporters write them.

In: a builder and a tensor.  Out: the name of the block's result.  What always holds: a block keeps
the scale of its activations, so that they neither vanish nor overflow in deep networks.
"""

from __future__ import annotations

import numpy as np

from graphflow.models.builder import ModelBuilder

BRANCH_GAIN = 0.3
"""Scale of what a residual branch adds: sums over many blocks must not grow."""


def pads(kernel: int) -> list[int]:
    """Padding that keeps the size of an image at stride 1."""
    return [kernel // 2] * 4


def conv_bn(
    b: ModelBuilder,
    x: str,
    channels: int,
    kernel: int,
    stride: int = 1,
    *,
    group: int = 1,
    gain: float = 2.0,
    bn_gain: float = 1.0,
) -> str:
    """Conv without bias, then BatchNormalization: what an exporter writes that folds nothing."""
    y = b.conv(
        x,
        channels,
        kernel,
        group=group,
        bias=False,
        gain=gain,
        strides=[stride, stride],
        pads=pads(kernel),
    )
    return b.batch_norm(y, gain=bn_gain, epsilon=1e-5)


def conv_bias(
    b: ModelBuilder,
    x: str,
    channels: int,
    kernel: int,
    stride: int = 1,
    *,
    group: int = 1,
    gain: float = 2.0,
) -> str:
    """Conv with a bias: what an exporter writes that folded the BatchNormalization behind it."""
    strides = [stride, stride]
    return b.conv(x, channels, kernel, group=group, gain=gain, strides=strides, pads=pads(kernel))


def relu6(b: ModelBuilder, x: str) -> str:
    """Clip to 0 … 6."""
    low, high = (b.constant(np.array(n, np.float32)) for n in (0, 6))
    return b.node("Clip", [x, low, high])


def hard_swish(b: ModelBuilder, x: str) -> str:
    """HardSwish, an operator since opset 14."""
    return b.node("HardSwish", [x])


def hard_sigmoid(b: ModelBuilder, x: str) -> str:
    """x / 6 + 1 / 2, clipped to 0 … 1."""
    return b.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)


def sigmoid(b: ModelBuilder, x: str) -> str:
    """Sigmoid."""
    return b.node("Sigmoid", [x])


def squeeze_excite(b: ModelBuilder, x: str, squeezed: int, *, hard: bool) -> str:
    """x times a gate per channel, which two 1x1 convolutions make from the channels' means.

    Gates are near one half: what reads the result gives the scale back with a gain of 4.
    """
    means = b.node("GlobalAveragePool", [x])
    hidden = b.relu(b.conv(means, squeezed, 1))
    logits = b.conv(hidden, b.channels(x), 1)
    gate = hard_sigmoid(b, logits) if hard else sigmoid(b, logits)
    return b.node("Mul", [x, gate])


def channel_shuffle(b: ModelBuilder, x: str, groups: int, height: int, width: int) -> str:
    """Channels of `groups` groups in turn: Reshape, Transpose, Reshape; batch 1."""
    channels = b.channels(x)
    apart = np.array([1, groups, channels // groups, height, width], np.int64)
    together = np.array([1, channels, height, width], np.int64)
    y = b.node("Reshape", [x, b.constant(apart)])
    y = b.node("Transpose", [y], perm=[0, 2, 1, 3, 4])
    y = b.node("Reshape", [y, b.constant(together)])
    b.set_channels(y, channels)
    return y


def max_pool(b: ModelBuilder, x: str, kernel: int, stride: int) -> str:
    """MaxPool; an odd kernel is padded as a convolution is."""
    padding = pads(kernel) if kernel % 2 else [0] * 4
    shape = [kernel, kernel]
    return b.node("MaxPool", [x], kernel_shape=shape, strides=[stride, stride], pads=padding)


def classify(b: ModelBuilder, x: str, classes: int) -> str:
    """Mean of each channel, Flatten, and one logit a class."""
    y = b.node("Flatten", [b.node("GlobalAveragePool", [x])], axis=1)
    return b.linear(y, classes)


def divisible_by_8(channels: float) -> int:
    """The multiple of 8 nearest to `channels`, but never more than a tenth below it."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
