"""GPT-2 (Radford et al. 2019) without a cache, as PyTorch's exporter writes it at opset 14.

In: token ids (batch, sequence), both symbolic.  Out: logits.  Which tokens a token may look at is a
buffer of booleans that is cut to the length of the sequence.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx

from graphflow.models.zoo.building.exporting import LOWEST, ExportingBuilder

VOCABULARY = 500
POSITIONS = 64


def decoder(
    seed: int, layers: int = 2, width: int = 96, heads: int = 3, positions: int = POSITIONS
) -> onnx.ModelProto:
    """A decoder of texts of up to `positions` tokens; `width` is a multiple of `heads`."""
    b = ExportingBuilder(seed, opset=17, name="decoder")
    ids = b.input("input_ids", ("batch", "sequence"), "int64")
    stop = b.unsqueeze(b.size(ids, 1), 0)
    numbers = b.constant(np.arange(positions, dtype=np.int64)[None])
    numbers = b.cut(numbers, 1, b.integers(0), stop)
    x = b.add(b.embedding(ids, VOCABULARY, width), b.embedding(numbers, positions, width))
    seen = b.constant(np.tril(np.ones((1, 1, positions, positions), np.bool_)))
    for axis in (2, 3):
        seen = b.cut(seen, axis, b.integers(0), stop)
    for _ in range(layers):
        x = b.add(_attention(b, b.layer_norm(x, width), seen, width, heads), x)
        hidden = b.gelu_tanh(b.dense(b.layer_norm(x, width), width, 4 * width))
        x = b.add(x, b.dense(hidden, 4 * width, width))
    weight = b.weight(width, VOCABULARY, scale=width**-0.5)
    b.node("MatMul", [b.layer_norm(x, width), weight], ["logits"])
    b.output("logits", shape=("batch", "sequence", VOCABULARY))
    return b.model()


def _attention(b: ExportingBuilder, x: str, seen: str, width: int, heads: int) -> str:
    head = width // heads
    packed = b.dense(x, width, 3 * width)
    parts = [f"{packed}.{part}" for part in ("q", "k", "v")]
    b.node("Split", [packed, b.integers(width, width, width)], parts, axis=2)
    query, key, value = (b.split_heads(part, heads, head) for part in parts)
    turned = b.node("Transpose", [key], perm=[0, 1, 3, 2])
    scores = b.node("Div", [b.node("MatMul", [query, turned]), b.number(sqrt(head))])
    weights = b.node("Softmax", [b.node("Where", [seen, scores, b.number(LOWEST)])], axis=-1)
    return b.dense(b.join_heads(b.node("MatMul", [weights, value]), width), width, width)
