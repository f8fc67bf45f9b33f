"""DenseNet (Huang et al. 2016) with growth 12: concatenations of 16 + 12 i channels.

BatchNormalization comes before Relu and convolution, so it cannot be folded into a weight.
"""

from __future__ import annotations

import onnx

from graphflow.models.zoo.building.layers import NetworkBuilder, pads

GROWTH = 12


def densenet40(seed: int, size: int = 32, layers: int = 12) -> onnx.ModelProto:
    """The 40-layer network for small images, without bottlenecks: 0.28 G multiply-adds.

    Each of its three blocks has 12 `layers`, the published number, unless another one is given.
    """
    b = NetworkBuilder(seed, name="densenet40_k12")
    x = b.conv(b.input("input", (1, 3, size, size)), 16, 3, bias=False, pads=pads(3))
    for block in range(3):
        if block > 0:
            x = _transition(b, x, b.channels(x))
        for _ in range(layers):
            x = b.concat(x, _convolved(b, x, GROWTH, 3))
    b.output(b.classify(b.relu(b.batch_norm(x)), 10))
    return b.model()


def densenet121(seed: int, size: int = 224) -> onnx.ModelProto:
    """The structure of DenseNet-121, bottlenecks of 48 channels, with growth 12 instead of 32."""
    b = NetworkBuilder(seed, name="densenet121_k12")
    x = b.relu(b.conv_bn(b.input("input", (1, 3, size, size)), 2 * GROWTH, 7, 2))
    x = b.max_pool(x, 3, 2)
    for block, layers in enumerate((6, 12, 24, 16)):
        if block > 0:
            x = _transition(b, x, b.channels(x) // 2)
        for _ in range(layers):
            x = b.concat(x, _convolved(b, _convolved(b, x, 4 * GROWTH, 1), GROWTH, 3))
    b.output(b.classify(b.relu(b.batch_norm(x)), 1000))
    return b.model()


def _convolved(b: NetworkBuilder, x: str, channels: int, kernel: int) -> str:
    y = b.relu(b.batch_norm(x))
    return b.conv(y, channels, kernel, bias=False, pads=pads(kernel))


def _transition(b: NetworkBuilder, x: str, channels: int) -> str:
    y = _convolved(b, x, channels, 1)
    return b.node("AveragePool", [y], kernel_shape=[2, 2], strides=[2, 2])
