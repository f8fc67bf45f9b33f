"""ALBERT (Lan et al. 2019) as PyTorch's exporter writes it at opset 14.

In: token ids, an attention mask of 0 and 1, token types, all int64 of (batch, sequence), both
symbolic.  Out: the last hidden state and the pooled first token.  Embeddings are narrower than the
layers, and all layers have the same weights.
"""

from __future__ import annotations

from math import sqrt

import onnx

from graphflow.models.zoo.building.exporting import ExportingBuilder
from graphflow.models.zoo.sequences.bert import POSITIONS, add_pooler, embedded, text_inputs


def albert(
    seed: int,
    layers: int = 3,
    width: int = 96,
    heads: int = 4,
    narrow: int = 32,
    positions: int = POSITIONS,
) -> onnx.ModelProto:
    """An encoder with a pooler, and embeddings `narrow` wide.

    `width` is a multiple of `heads`; texts have up to `positions` tokens.
    """
    b = ExportingBuilder(seed, opset=14, name="albert")
    dims = ("batch_size", "sequence_length")
    ids, bias, types = text_inputs(b, dims)
    x = b.dense(embedded(b, ids, types, narrow, positions), narrow, width)
    shared = _SharedLayer(b, width, heads)
    for _ in range(layers):
        x = shared.applied(x, bias)
    add_pooler(b, x, dims, width)
    return b.model()


class _SharedLayer:
    """Attention and a feed-forward part that each normalize last; its weights are made once."""

    def __init__(self, b: ExportingBuilder, width: int, heads: int) -> None:
        self._b, self._width, self._heads = b, width, heads
        extents = dict.fromkeys(("query", "key", "value", "attended"), (width, width))
        extents |= {"up": (width, 4 * width), "down": (4 * width, width)}
        self._weights = {
            name: (b.weight(rows, columns, scale=rows**-0.5), b.weight(columns, scale=0.1))
            for name, (rows, columns) in extents.items()
        }
        self._norms = [(b.scales(width), b.weight(width, scale=0.1)) for _ in range(2)]

    def applied(self, x: str, bias: str) -> str:
        """The layer with these scores added to those of its attention."""
        b = self._b
        x = b.layer_norm_apart(
            b.add(x, self._attended(x, bias)), self._width, weights=self._norms[0]
        )
        hidden = b.gelu_tanh(self._dense(x, "up"))
        x = b.add(self._dense(hidden, "down"), x)
        return b.layer_norm_apart(x, self._width, weights=self._norms[1])

    def _attended(self, x: str, bias: str) -> str:
        b, heads, head = self._b, self._heads, self._width // self._heads
        query = b.split_heads(self._dense(x, "query"), heads, head)
        key = b.split_heads(self._dense(x, "key"), heads, head, perm=(0, 2, 3, 1))
        value = b.split_heads(self._dense(x, "value"), heads, head)
        scores = b.node("Div", [b.node("MatMul", [query, key]), b.number(sqrt(head))])
        weights = b.node("Softmax", [b.add(scores, bias)], axis=-1)
        together = b.join_heads(b.node("MatMul", [weights, value]), self._width)
        return self._dense(together, "attended")

    def _dense(self, x: str, name: str) -> str:
        weight, offset = self._weights[name]
        return self._b.add(offset, self._b.node("MatMul", [x, weight]))
