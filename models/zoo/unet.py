"""A U-Net (Ronneberger et al. 2015) of 20, 40 and 80 channels with concatenated skips."""

from __future__ import annotations

import numpy as np
import onnx

from graphflow.models.zoo.building.layers import NetworkBuilder

CHANNELS = (20, 40, 80)


def unet(seed: int, size: int = 128, resize: bool = False) -> onnx.ModelProto:
    """Four maps of logits as large as the image; `size` is a multiple of 4.

    The way up is a ConvTranspose, or with `resize` a nearest Resize and a 1x1 convolution.
    """
    b = NetworkBuilder(seed, name="unet_resize" if resize else "unet")
    x = b.input("input", (1, 3, size, size))
    skips = []
    for channels in CHANNELS[:-1]:
        x = _two_convs(b, x, channels)
        skips.append(x)
        x = b.max_pool(x, 2, 2)
    x = _two_convs(b, x, CHANNELS[-1])
    for skip in reversed(skips):
        channels = b.channels(skip)
        up = _resized(b, x, channels) if resize else b.conv_transpose(x, channels, 2, 2)
        x = _two_convs(b, b.concat(skip, up), channels)
    b.output(b.conv(x, 4, 1))
    return b.model()


def _two_convs(b: NetworkBuilder, x: str, channels: int) -> str:
    for _ in range(2):
        x = b.relu(b.conv_bias(x, channels, 3))
    return x


def _resized(b: NetworkBuilder, x: str, channels: int) -> str:
    scales = b.constant(np.array([1, 1, 2, 2], np.float32))
    y = b.node(
        "Resize",
        [x, "", scales],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return b.conv(y, channels, 1, gain=1.0)
