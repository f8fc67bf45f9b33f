"""Building blocks that the zoo's networks share, written as exporters write them.

In: a builder and a tensor.  Out: the name of the block's result.  What always holds: a block keeps
the scale of its activations, so that they neither vanish nor overflow in deep networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphflow.models.builder import ModelBuilder

BRANCH_GAIN = 0.3
"""Scale of what a residual branch adds: sums over many blocks must not grow."""


def pads(kernel: int) -> list[int]:
    """Padding that keeps the size of an image at stride 1."""
    return [kernel // 2] * 4


def divisible_by_8(channels: float) -> int:
    """The multiple of 8 nearest to `channels`, but never more than a tenth below it."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class NetworkBuilder(ModelBuilder):
    """A builder with the blocks of image networks; each method returns the name of its result."""

    def conv_bn(
        self,
        x: str,
        channels: int,
        kernel: int,
        stride: int = 1,
        *,
        group: int = 1,
        gain: float = 2.0,
        bn_gain: float = 1.0,
    ) -> str:
        """Conv without bias, then BatchNormalization, as exporters write that fold nothing."""
        at: dict[str, Any] = {"strides": [stride, stride], "pads": pads(kernel), "group": group}
        y = self.conv(x, channels, kernel, bias=False, gain=gain, **at)
        return self.batch_norm(y, gain=bn_gain, epsilon=1e-5)

    def conv_bias(
        self,
        x: str,
        channels: int,
        kernel: int,
        stride: int = 1,
        *,
        group: int = 1,
        gain: float = 2.0,
    ) -> str:
        """Conv with a bias, as exporters write that folded the BatchNormalization behind it."""
        at: dict[str, Any] = {"strides": [stride, stride], "pads": pads(kernel), "group": group}
        return self.conv(x, channels, kernel, gain=gain, **at)

    def relu6(self, x: str) -> str:
        """Clip to 0 … 6."""
        low, high = (self.constant(np.array(n, np.float32)) for n in (0, 6))
        return self.node("Clip", [x, low, high])

    def hard_swish(self, x: str) -> str:
        """HardSwish, an operator since opset 14."""
        return self.node("HardSwish", [x])

    def hard_sigmoid(self, x: str) -> str:
        """x / 6 + 1 / 2, clipped to 0 … 1."""
        return self.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)

    def sigmoid(self, x: str) -> str:
        """Sigmoid."""
        return self.node("Sigmoid", [x])

    def squeeze_excite(self, x: str, squeezed: int, *, hard: bool) -> str:
        """x times a gate per channel, which two 1x1 convolutions make from the channels' means.

        Gates are near one half: what reads the result gives the scale back with a gain of 4.
        """
        means = self.node("GlobalAveragePool", [x])
        hidden = self.relu(self.conv(means, squeezed, 1))
        logits = self.conv(hidden, self.channels(x), 1)
        gate = self.hard_sigmoid(logits) if hard else self.sigmoid(logits)
        return self.node("Mul", [x, gate])

    def channel_shuffle(self, x: str, groups: int, height: int, width: int) -> str:
        """Channels of `groups` groups in turn: Reshape, Transpose, Reshape; batch 1."""
        channels = self.channels(x)
        apart = np.array([1, groups, channels // groups, height, width], np.int64)
        together = np.array([1, channels, height, width], np.int64)
        y = self.node("Reshape", [x, self.constant(apart)])
        y = self.node("Transpose", [y], perm=[0, 2, 1, 3, 4])
        y = self.node("Reshape", [y, self.constant(together)])
        self.set_channels(y, channels)
        return y

    def max_pool(self, x: str, kernel: int, stride: int) -> str:
        """MaxPool; an odd kernel is padded as a convolution is."""
        padding = pads(kernel) if kernel % 2 else [0] * 4
        shape = [kernel, kernel]
        return self.node("MaxPool", [x], kernel_shape=shape, strides=[stride, stride], pads=padding)

    def classify(self, x: str, classes: int) -> str:
        """Mean of each channel, Flatten, and one logit a class."""
        y = self.node("Flatten", [self.node("GlobalAveragePool", [x])], axis=1)
        return self.linear(y, classes)
