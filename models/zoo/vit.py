"""A vision transformer (Dosovitskiy et al. 2021) as PyTorch's exporter writes it at opset 17.

In: an image of 224 x 224 pixels, the batch symbolic; or of any size, where positions are a sum of
rows and columns (Dehghani et al. 2023).  Out: one logit a class.
"""

from __future__ import annotations

import onnx

from graphflow.models.zoo.building.exporting import ExportingBuilder

PATCH = 16
GRID = 16
"""The most rows and columns of patches of an image of any size."""


def vit(
    seed: int,
    layers: int = 3,
    width: int = 96,
    heads: int = 3,
    image: int | None = 224,
    classes: int = 100,
    patch: int = PATCH,
) -> onnx.ModelProto:
    """Patches by a convolution, a class token, blocks that normalize first, and a linear head.

    Where `image` is None, height and width are symbolic, up to `GRID` patches each.
    """
    b = ExportingBuilder(seed, opset=17, name="vit")
    extents = ("height", "width") if image is None else (image, image)
    pixels = b.input("pixel_values", ("batch", 3, *extents))
    batch = b.size(pixels, 0)
    maps = b.conv(pixels, width, patch, in_channels=3, strides=[patch] * 2, gain=1.0)
    if image is None:
        x = _tokens(b, _placed(b, maps, width), batch, width)
    else:
        x = _tokens(b, maps, batch, width)
        x = b.add(x, b.weight(1, 1 + (image // patch) ** 2, width, scale=0.1))
    for _ in range(layers):
        x = b.add(_attention(b, b.layer_norm(x, width), width, heads), x)
        hidden = b.gelu(b.dense(b.layer_norm(x, width), width, 4 * width))
        x = b.add(b.dense(hidden, 4 * width, width), x)
    first = b.node("Gather", [b.layer_norm(x, width), b.integer(0)], axis=1)
    weights = [b.weight(classes, width, scale=width**-0.5), b.weight(classes, scale=0.1)]
    logits = b.node("Gemm", [first, *weights], ["logits"], transB=1)
    b.output(logits, shape=("batch", classes))
    return b.model()


def _placed(b: ExportingBuilder, maps: str, width: int) -> str:
    """Maps with an embedding of each row and of each column added, as many as there are."""
    for axis in (2, 3):
        stop = b.unsqueeze(b.size(maps, axis), 0)
        table = b.weight(1, width, *((GRID, 1) if axis == 2 else (1, GRID)), scale=0.3)
        maps = b.add(maps, b.cut(table, axis, b.integers(0), stop))
    return maps


def _tokens(b: ExportingBuilder, maps: str, batch: str, width: int) -> str:
    """(batch, 1 + patches, width): the class token, repeated for the batch, and the patches."""
    flat = b.node("Transpose", [b.reshape(maps, batch, width, -1)], perm=[0, 2, 1])
    token = b.expand(b.weight(1, 1, width), batch, -1, -1)
    return b.node("Concat", [token, flat], axis=1)


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
