"""ResNet-18 (He et al. 2015) and RegNetY-400MF (Radosavovic et al. 2020), as torchvision has them.

ResNet keeps its BatchNormalization nodes; RegNet comes folded, convolutions with biases.
"""

from __future__ import annotations

import onnx

from graphflow.models.zoo.building.layers import BRANCH_GAIN, NetworkBuilder


def resnet18(seed: int, size: int = 224) -> onnx.ModelProto:
    """ResNet-18: 1.8 G multiply-adds at 224x224."""
    b = NetworkBuilder(seed, name="resnet18")
    x = b.relu(b.conv_bn(b.input("input", (1, 3, size, size)), 64, 7, 2))
    x = b.max_pool(x, 3, 2)
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            x = _basic_block(b, x, channels, stride=2 if stage > 0 and block == 0 else 1)
    b.output(b.classify(x, 1000))
    return b.model()


def _basic_block(b: NetworkBuilder, x: str, channels: int, stride: int) -> str:
    y = b.relu(b.conv_bn(x, channels, 3, stride))
    y = b.conv_bn(y, channels, 3, bn_gain=BRANCH_GAIN)
    if stride != 1 or b.channels(x) != channels:
        x = b.conv_bn(x, channels, 1, stride)
    return b.relu(b.add(y, x))


def regnet_y_400mf(seed: int, size: int = 224) -> onnx.ModelProto:
    """RegNetY-400MF: grouped convolutions of 8 channels a group, 0.4 G multiply-adds."""
    b = NetworkBuilder(seed, name="regnet_y_400mf")
    x = b.relu(b.conv_bias(b.input("input", (1, 3, size, size)), 32, 3, 2))
    for channels, depth in ((48, 1), (104, 3), (208, 6), (440, 6)):
        for block in range(depth):
            x = _gated_block(b, x, channels, stride=2 if block == 0 else 1)
    b.output(b.classify(x, 1000))
    return b.model()


def _gated_block(b: NetworkBuilder, x: str, channels: int, stride: int) -> str:
    # The gate's hidden width follows the input of the block, not its middle.
    squeezed = round(b.channels(x) / 4)
    y = b.relu(b.conv_bias(x, channels, 1))
    y = b.relu(b.conv_bias(y, channels, 3, stride, group=channels // 8))
    y = b.squeeze_excite(y, squeezed, hard=False)
    y = b.conv_bias(y, channels, 1, gain=4 * 2 * BRANCH_GAIN**2)
    if stride != 1 or b.channels(x) != channels:
        x = b.conv_bias(x, channels, 1, stride)
    return b.relu(b.add(x, y))
