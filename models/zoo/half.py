"""A network in float16, convolutions and then a transformer block, with Casts as exporters place
them.

In: an image, float32.  Out: logits, float32.  Weights and activations are float16.  The softmax and
one normalization are computed in float32 between two Casts, as converters to float16 and
`model.half()` do for operators that lose accuracy in float16.
"""

from __future__ import annotations

import onnx

from graphflow.models.zoo.building.exporting import ExportingBuilder
from graphflow.models.zoo.building.layers import pads

HALF = "float16"


def half(
    seed: int, image: int = 64, width: int = 64, heads: int = 4, classes: int = 50
) -> onnx.ModelProto:
    """Three convolutions, two blocks of attention and linear layers, the mean, a classifier."""
    b = ExportingBuilder(seed, opset=17, name="half")
    x = _to_half(b, b.input("image", (1, 3, image, image)))
    for inputs, channels in ((3, 16), (16, 32), (32, width)):
        x = b.silu(_conv(b, x, inputs, channels))
    x = b.node("Transpose", [b.reshape(x, b.size(x, 0), width, -1)], perm=[0, 2, 1])
    for block in range(2):
        normal = b.layer_norm(x, width, HALF) if block else _normalized_apart(b, x, width)
        x = b.add(x, _attention(b, normal, width, heads))
        hidden = b.silu(b.dense(b.layer_norm(x, width, HALF), width, 2 * width, dtype=HALF))
        x = b.add(x, b.dense(hidden, 2 * width, width, dtype=HALF))
    mean = b.node("ReduceMean", [x], axes=[1], keepdims=0)
    logits = b.dense(mean, width, classes, gain=4.0, dtype=HALF)
    b.node("Cast", [logits], ["logits"], to=onnx.TensorProto.FLOAT)
    b.output("logits", shape=(1, classes))
    return b.model()


def _to_half(b: ExportingBuilder, x: str) -> str:
    return b.node("Cast", [x], to=onnx.TensorProto.FLOAT16)


def _to_single(b: ExportingBuilder, x: str) -> str:
    return b.node("Cast", [x], to=onnx.TensorProto.FLOAT)


def _conv(b: ExportingBuilder, x: str, inputs: int, channels: int) -> str:
    scale = (2.0 / (9 * inputs)) ** 0.5
    weight = b.weight(channels, inputs, 3, 3, scale=scale, dtype=HALF)
    bias = b.weight(channels, scale=0.1, dtype=HALF)
    return b.node("Conv", [x, weight, bias], strides=[2, 2], pads=pads(3))


def _normalized_apart(b: ExportingBuilder, x: str, width: int) -> str:
    """LayerNormalization in float32 between two Casts."""
    return _to_half(b, b.layer_norm(_to_single(b, x), width))


def _attention(b: ExportingBuilder, x: str, width: int, heads: int) -> str:
    head = width // heads
    parts = [f"{x}.{part}" for part in ("q", "k", "v")]
    packed = b.dense(x, width, 3 * width, dtype=HALF)
    b.node("Split", [packed, b.integers(width, width, width)], parts, axis=2)
    orders = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    query, key, value = (
        b.split_heads(part, heads, head, perm) for part, perm in zip(parts, orders, strict=True)
    )
    scores = b.node("Mul", [b.node("MatMul", [query, key]), b.number(head**-0.5, HALF)])
    weights = _to_half(b, b.node("Softmax", [_to_single(b, scores)], axis=-1))
    joined = b.join_heads(b.node("MatMul", [weights, value]), width)
    return b.dense(joined, width, width, dtype=HALF)
