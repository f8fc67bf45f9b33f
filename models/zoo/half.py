"""A network in float16, convolutions and then a transformer block, with Casts as exporters place
them.

In: an image, float32.  Out: logits, float32.  Weights and activations are float16.  The softmax and
one normalization are computed in float32 between two Casts, as converters to float16 and
`model.half()` do for operators that lose accuracy in float16.
"""

from __future__ import annotations

import onnx

from graphflow.models.builder import ModelBuilder
from graphflow.models.zoo.exporting import (
    dense,
    integers,
    join_heads,
    layer_norm,
    number,
    reshape,
    silu,
    size,
    split_heads,
)
from graphflow.models.zoo.layers import pads

HALF = "float16"


def half(
    seed: int, image: int = 64, width: int = 64, heads: int = 4, classes: int = 50
) -> onnx.ModelProto:
    """Three convolutions, two blocks of attention and linear layers, the mean, a classifier."""
    b = ModelBuilder(seed, opset=17, name="half")
    x = _to_half(b, b.input("image", (1, 3, image, image)))
    for inputs, channels in ((3, 16), (16, 32), (32, width)):
        x = silu(b, _conv(b, x, inputs, channels))
    x = b.node("Transpose", [reshape(b, x, size(b, x, 0), width, -1)], perm=[0, 2, 1])
    for block in range(2):
        normal = layer_norm(b, x, width, HALF) if block else _normalized_apart(b, x, width)
        x = b.add(x, _attention(b, normal, width, heads))
        hidden = silu(b, dense(b, layer_norm(b, x, width, HALF), width, 2 * width, dtype=HALF))
        x = b.add(x, dense(b, hidden, 2 * width, width, dtype=HALF))
    mean = b.node("ReduceMean", [x], axes=[1], keepdims=0)
    logits = dense(b, mean, width, classes, gain=4.0, dtype=HALF)
    b.node("Cast", [logits], ["logits"], to=onnx.TensorProto.FLOAT)
    b.output("logits", shape=(1, classes))
    return b.model()


def _to_half(b: ModelBuilder, x: str) -> str:
    return b.node("Cast", [x], to=onnx.TensorProto.FLOAT16)


def _to_single(b: ModelBuilder, x: str) -> str:
    return b.node("Cast", [x], to=onnx.TensorProto.FLOAT)


def _conv(b: ModelBuilder, x: str, inputs: int, channels: int) -> str:
    scale = (2.0 / (9 * inputs)) ** 0.5
    weight = b.weight(channels, inputs, 3, 3, scale=scale, dtype=HALF)
    bias = b.weight(channels, scale=0.1, dtype=HALF)
    return b.node("Conv", [x, weight, bias], strides=[2, 2], pads=pads(3))


def _normalized_apart(b: ModelBuilder, x: str, width: int) -> str:
    """LayerNormalization in float32 between two Casts."""
    return _to_half(b, layer_norm(b, _to_single(b, x), width))


def _attention(b: ModelBuilder, x: str, width: int, heads: int) -> str:
    head = width // heads
    parts = [f"{x}.{part}" for part in ("q", "k", "v")]
    packed = dense(b, x, width, 3 * width, dtype=HALF)
    b.node("Split", [packed, integers(b, width, width, width)], parts, axis=2)
    orders = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    query, key, value = (
        split_heads(b, part, heads, head, perm) for part, perm in zip(parts, orders, strict=True)
    )
    scores = b.node("Mul", [b.node("MatMul", [query, key]), number(b, head**-0.5, HALF)])
    weights = _to_half(b, b.node("Softmax", [_to_single(b, scores)], axis=-1))
    joined = join_heads(b, b.node("MatMul", [weights, value]), width)
    return dense(b, joined, width, width, dtype=HALF)
