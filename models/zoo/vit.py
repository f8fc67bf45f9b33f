"""A vision transformer (Dosovitskiy et al. 2021) as PyTorch's exporter writes it at opset 17.

In: an image of 224 x 224 pixels, the batch symbolic.  Out: one logit a class.
"""

from __future__ import annotations

import numpy as np
import onnx

from graphflow.models.zoo.building.exporting import ExportingBuilder

PATCH = 16


def vit(
    seed: int,
    layers: int = 3,
    width: int = 96,
    heads: int = 3,
    image: int = 224,
    classes: int = 100,
) -> onnx.ModelProto:
    """Patches by a convolution, a class token, blocks that normalize first, and a linear head."""
    b = ExportingBuilder(seed, opset=17, name="vit")
    pixels = b.input("pixel_values", ("batch", 3, image, image))
    x = _tokens(b, pixels, width, (image // PATCH) ** 2)
    for _ in range(layers):
        x = b.add(_attention(b, b.layer_norm(x, width), width, heads), x)
        hidden = b.gelu(b.dense(b.layer_norm(x, width), width, 4 * width))
        x = b.add(b.dense(hidden, 4 * width, width), x)
    first = b.node("Gather", [b.layer_norm(x, width), b.integer(0)], axis=1)
    weights = [b.weight(classes, width, scale=width**-0.5), b.weight(classes, scale=0.1)]
    logits = b.node("Gemm", [first, *weights], ["logits"], transB=1)
    b.output(logits, shape=("batch", classes))
    return b.model()


def _tokens(b: ExportingBuilder, pixels: str, width: int, patches: int) -> str:
    """(batch, 1 + patches, width): the class token, repeated for the batch, and the patches."""
    batch = b.size(pixels, 0)
    maps = b.conv(pixels, width, PATCH, in_channels=3, strides=[PATCH] * 2, gain=1.0)
    flat = b.node("Transpose", [b.reshape(maps, batch, width, -1)], perm=[0, 2, 1])
    wanted = b.shape(batch, -1, -1)
    # `expand(batch, -1, -1)` becomes a Where that puts 1 where -1 stood.
    ones = b.node("ConstantOfShape", [b.integers(3)], value=_one())
    kept = b.node("Equal", [wanted, b.node("Mul", [ones, b.integer(-1)])])
    extents = b.node("Where", [kept, ones, wanted])
    token = b.node("Expand", [b.weight(1, 1, width), extents])
    joined = b.node("Concat", [token, flat], axis=1)
    return b.add(joined, b.weight(1, 1 + patches, width, scale=0.1))


def _one() -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.array([1], np.int64))


def _attention(b: ExportingBuilder, x: str, width: int, heads: int) -> str:
    """One product for queries, keys and values, taken apart by Reshape, Transpose and Gather."""
    head = width // heads
    batch, length = b.size(x, 0), b.size(x, 1)
    packed = b.reshape(b.dense(x, width, 3 * width), batch, length, 3, heads, head)
    packed = b.node("Transpose", [packed], perm=[2, 0, 3, 1, 4])
    query, key, value = (b.node("Gather", [packed, b.integer(i)], axis=0) for i in range(3))
    root = b.number(head**-0.25)
    turned = b.node("Transpose", [key], perm=[0, 1, 3, 2])
    # `scaled_dot_product_attention` scales both factors by the root of the scale.
    scores = b.node("MatMul", [b.node("Mul", [query, root]), b.node("Mul", [turned, root])])
    attended = b.node("MatMul", [b.node("Softmax", [scores], axis=-1), value])
    return b.dense(b.join_heads(attended, width), width, width)
