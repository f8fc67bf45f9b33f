"""ResNet-18 (He et al. 2015) and RegNetY-400MF (Radosavovic et al. 2020), as torchvision has them.

ResNet keeps its BatchNormalization nodes; RegNet comes folded, convolutions with biases.
"""

from __future__ import annotations

import onnx

from graphflow.models.builder import ModelBuilder
from graphflow.models.zoo.layers import (
    BRANCH_GAIN,
    classify,
    conv_bias,
    conv_bn,
    max_pool,
    squeeze_excite,
)


def resnet18(seed: int, size: int = 224) -> onnx.ModelProto:
    """ResNet-18: 1.8 G multiply-adds at 224x224."""
    b = ModelBuilder(seed, name="resnet18")
    x = b.relu(conv_bn(b, b.input("input", (1, 3, size, size)), 64, 7, 2))
    x = max_pool(b, x, 3, 2)
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            x = _basic_block(b, x, channels, stride=2 if stage > 0 and block == 0 else 1)
    b.output(classify(b, x, 1000))
    return b.model()


def _basic_block(b: ModelBuilder, x: str, channels: int, stride: int) -> str:
    y = b.relu(conv_bn(b, x, channels, 3, stride))
    y = conv_bn(b, y, channels, 3, bn_gain=BRANCH_GAIN)
    if stride != 1 or b.channels(x) != channels:
        x = conv_bn(b, x, channels, 1, stride)
    return b.relu(b.add(y, x))


def regnet_y_400mf(seed: int, size: int = 224) -> onnx.ModelProto:
    """RegNetY-400MF: grouped convolutions of 8 channels a group, 0.4 G multiply-adds."""
    b = ModelBuilder(seed, name="regnet_y_400mf")
    x = b.relu(conv_bias(b, b.input("input", (1, 3, size, size)), 32, 3, 2))
    for channels, depth in ((48, 1), (104, 3), (208, 6), (440, 6)):
        for block in range(depth):
            x = _gated_block(b, x, channels, stride=2 if block == 0 else 1)
    b.output(classify(b, x, 1000))
    return b.model()


def _gated_block(b: ModelBuilder, x: str, channels: int, stride: int) -> str:
    # The gate's hidden width follows the input of the block, not its middle.
    squeezed = round(b.channels(x) / 4)
    y = b.relu(conv_bias(b, x, channels, 1))
    y = b.relu(conv_bias(b, y, channels, 3, stride, group=channels // 8))
    y = squeeze_excite(b, y, squeezed, hard=False)
    y = conv_bias(b, y, channels, 1, gain=4 * 2 * BRANCH_GAIN**2)
    if stride != 1 or b.channels(x) != channels:
        x = conv_bias(b, x, channels, 1, stride)
    return b.relu(b.add(x, y))
