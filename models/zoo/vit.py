"""A vision transformer (Dosovitskiy et al. 2021) as PyTorch's exporter writes it at opset 17.

In: an image of 224 x 224 pixels, the batch symbolic.  Out: one logit a class.
"""

from __future__ import annotations

import numpy as np
import onnx

from graphflow.models.builder import ModelBuilder
from graphflow.models.zoo.exporting import (
    dense,
    gelu,
    integer,
    integers,
    join_heads,
    layer_norm,
    number,
    reshape,
    shape,
    size,
)

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
    b = ModelBuilder(seed, opset=17, name="vit")
    pixels = b.input("pixel_values", ("batch", 3, image, image))
    x = _tokens(b, pixels, width, (image // PATCH) ** 2)
    for _ in range(layers):
        x = b.add(_attention(b, layer_norm(b, x, width), width, heads), x)
        hidden = gelu(b, dense(b, layer_norm(b, x, width), width, 4 * width))
        x = b.add(dense(b, hidden, 4 * width, width), x)
    first = b.node("Gather", [layer_norm(b, x, width), integer(b, 0)], axis=1)
    weights = [b.weight(classes, width, scale=width**-0.5), b.weight(classes, scale=0.1)]
    logits = b.node("Gemm", [first, *weights], ["logits"], transB=1)
    b.output(logits, shape=("batch", classes))
    return b.model()


def _tokens(b: ModelBuilder, pixels: str, width: int, patches: int) -> str:
    """(batch, 1 + patches, width): the class token, repeated for the batch, and the patches."""
    batch = size(b, pixels, 0)
    maps = b.conv(pixels, width, PATCH, in_channels=3, strides=[PATCH] * 2, gain=1.0)
    flat = b.node("Transpose", [reshape(b, maps, batch, width, -1)], perm=[0, 2, 1])
    wanted = shape(b, batch, -1, -1)
    # `expand(batch, -1, -1)` becomes a Where that puts 1 where -1 stood.
    ones = b.node("ConstantOfShape", [integers(b, 3)], value=_one())
    kept = b.node("Equal", [wanted, b.node("Mul", [ones, integer(b, -1)])])
    extents = b.node("Where", [kept, ones, wanted])
    token = b.node("Expand", [b.weight(1, 1, width), extents])
    joined = b.node("Concat", [token, flat], axis=1)
    return b.add(joined, b.weight(1, 1 + patches, width, scale=0.1))


def _one() -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.array([1], np.int64))


def _attention(b: ModelBuilder, x: str, width: int, heads: int) -> str:
    """One product for queries, keys and values, taken apart by Reshape, Transpose and Gather."""
    head = width // heads
    batch, length = size(b, x, 0), size(b, x, 1)
    packed = reshape(b, dense(b, x, width, 3 * width), batch, length, 3, heads, head)
    packed = b.node("Transpose", [packed], perm=[2, 0, 3, 1, 4])
    query, key, value = (b.node("Gather", [packed, integer(b, i)], axis=0) for i in range(3))
    root = number(b, head**-0.25)
    turned = b.node("Transpose", [key], perm=[0, 1, 3, 2])
    # `scaled_dot_product_attention` scales both factors by the root of the scale.
    scores = b.node("MatMul", [b.node("Mul", [query, root]), b.node("Mul", [turned, root])])
    attended = b.node("MatMul", [b.node("Softmax", [scores], axis=-1), value])
    return dense(b, join_heads(b, attended, width), width, width)
