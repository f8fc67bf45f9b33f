"""A small head over the features of several frames, for which a greedy choice of layouts is not the
cheapest.

The inputs are added before the first convolution, and several maps are made of the output of the
last one.  Convolutions are fastest with channels innermost, while inputs and outputs are row-major.
The cheapest plan converts the sum once and the last features once: neither as early nor as late as
possible, and not where each node alone would have it.
"""

from __future__ import annotations

import onnx

from graphflow.models.zoo.building.layers import NetworkBuilder

MAPS = ("Sigmoid", "Tanh", "Relu", "LeakyRelu")


def frames_head(
    seed: int, count: int = 4, channels: int = 32, extent: int = 112, blocks: int = 1
) -> onnx.ModelProto:
    """The head over `count` frames: separable convolutions, of which `blocks` are residual."""
    b = NetworkBuilder(seed, name="frames")
    x, *others = [b.input(f"frame_{k}", (1, channels, extent, extent)) for k in range(count)]
    for other in others:
        x = b.add(x, other)
    x = _separable(b, b.relu(x), channels)
    for _ in range(blocks):
        x = b.add(x, _separable(b, x, channels))
    b.output(*(b.node(op, [x]) for op in MAPS))
    return b.model()


def _separable(b: NetworkBuilder, x: str, channels: int) -> str:
    return b.conv_bias(b.relu(b.conv_bias(x, channels, 3, group=channels)), channels, 1)
