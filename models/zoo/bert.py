"""BERT (Devlin et al. 2019) as PyTorch's exporter writes it at opset 14.

In: token ids, an attention mask of 0 and 1, token types, all int64 of (batch, sequence), both
symbolic.  Out: the last hidden state and the pooled first token.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx

from graphflow.models.builder import ModelBuilder
from graphflow.models.zoo.exporting import (
    LOWEST,
    cut,
    dense,
    embedding,
    gelu,
    integer,
    integers,
    join_heads,
    layer_norm_apart,
    number,
    size,
    split_heads,
    unsqueeze,
)

VOCABULARY = 1000
POSITIONS = 64
TYPES = 2


def bert(
    seed: int, layers: int = 3, width: int = 128, heads: int = 4, positions: int = POSITIONS
) -> onnx.ModelProto:
    """An encoder with a pooler; `width` is a multiple of `heads`, texts have up to `positions`."""
    b = ModelBuilder(seed, opset=14, name="bert")
    dims = ("batch_size", "sequence_length")
    ids, mask, types = (
        b.input(name, dims, "int64") for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    bias = _mask_bias(b, mask)
    x = _embed(b, ids, types, width, positions)
    for _ in range(layers):
        attended = _attention(b, x, bias, width, heads)
        x = layer_norm_apart(b, b.add(dense(b, attended, width, width), x), width)
        hidden = gelu(b, dense(b, x, width, 4 * width))
        x = layer_norm_apart(b, b.add(dense(b, hidden, 4 * width, width), x), width)
    last = b.node("Identity", [x], ["last_hidden_state"])
    first = b.node("Gather", [x, integer(b, 0)], axis=1)
    weights = [b.weight(width, width, scale=width**-0.5), b.weight(width, scale=0.1)]
    pooled = b.node("Tanh", [b.node("Gemm", [first, *weights], transB=1)], ["pooler_output"])
    b.output(last, shape=(*dims, width))
    b.output(pooled, shape=(dims[0], width))
    return b.model()


def _mask_bias(b: ModelBuilder, mask: str) -> str:
    """(batch, 1, 1, sequence): 0 where the mask is 1, the lowest float32 where it is 0."""
    spread = b.node("Cast", [unsqueeze(b, unsqueeze(b, mask, 1), 2)], to=onnx.TensorProto.FLOAT)
    inverted = b.node("Sub", [number(b, 1.0), spread])
    return b.node("Mul", [inverted, number(b, LOWEST)])


def _embed(b: ModelBuilder, ids: str, types: str, width: int, rows: int) -> str:
    """The sum of the embeddings of words, types and positions, normalized.

    Positions are a buffer that is cut to the length of the sequence.
    """
    buffer = b.constant(np.arange(rows, dtype=np.int64)[None])
    stop = unsqueeze(b, size(b, ids, 1), 0)
    positions = cut(b, buffer, 1, integers(b, 0), stop)
    x = b.add(embedding(b, ids, VOCABULARY, width), embedding(b, types, TYPES, width))
    return layer_norm_apart(b, b.add(x, embedding(b, positions, rows, width)), width)


def _attention(b: ModelBuilder, x: str, bias: str, width: int, heads: int) -> str:
    head = width // heads
    query = split_heads(b, dense(b, x, width, width), heads, head)
    key = split_heads(b, dense(b, x, width, width), heads, head, perm=(0, 2, 3, 1))
    value = split_heads(b, dense(b, x, width, width), heads, head)
    scores = b.node("Div", [b.node("MatMul", [query, key]), number(b, sqrt(head))])
    weights = b.node("Softmax", [b.add(scores, bias)], axis=-1)
    return join_heads(b, b.node("MatMul", [weights, value]), width)
