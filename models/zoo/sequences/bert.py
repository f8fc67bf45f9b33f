"""BERT (Devlin et al. 2019) as PyTorch's exporter writes it at opset 14.

In: token ids, an attention mask of 0 and 1, token types, all int64 of (batch, sequence), both
symbolic.  Out: the last hidden state and the pooled first token.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx

from graphflow.models.zoo.building.exporting import LOWEST, ExportingBuilder

VOCABULARY = 1000
POSITIONS = 64
TYPES = 2


def bert(
    seed: int, layers: int = 3, width: int = 128, heads: int = 4, positions: int = POSITIONS
) -> onnx.ModelProto:
    """An encoder with a pooler; `width` is a multiple of `heads`, texts have up to `positions`."""
    b = ExportingBuilder(seed, opset=14, name="bert")
    dims = ("batch_size", "sequence_length")
    ids, bias, types = text_inputs(b, dims)
    x = embedded(b, ids, types, width, positions)
    for _ in range(layers):
        attended = _attention(b, x, bias, width, heads)
        x = b.layer_norm_apart(b.add(b.dense(attended, width, width), x), width)
        hidden = b.gelu(b.dense(x, width, 4 * width))
        x = b.layer_norm_apart(b.add(b.dense(hidden, 4 * width, width), x), width)
    add_pooler(b, x, dims, width)
    return b.model()


def text_inputs(b: ExportingBuilder, dims: tuple[str, str]) -> tuple[str, str, str]:
    """The ids of tokens, the bias of their mask, and the ids of their types."""
    ids, mask, types = (
        b.input(name, dims, "int64") for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    return ids, mask_bias(b, mask), types


def add_pooler(b: ExportingBuilder, x: str, dims: tuple[str, str], width: int) -> None:
    """The outputs: the last hidden state, and a dense layer of that of the first token."""
    last = b.node("Identity", [x], ["last_hidden_state"])
    first = b.node("Gather", [x, b.integer(0)], axis=1)
    weights = [b.weight(width, width, scale=width**-0.5), b.weight(width, scale=0.1)]
    pooled = b.node("Tanh", [b.node("Gemm", [first, *weights], transB=1)], ["pooler_output"])
    b.output(last, shape=(*dims, width))
    b.output(pooled, shape=(dims[0], width))


def mask_bias(b: ExportingBuilder, mask: str) -> str:
    """(batch, 1, 1, sequence): 0 where the mask is 1, the lowest float32 where it is 0."""
    spread = b.node("Cast", [b.unsqueeze(b.unsqueeze(mask, 1), 2)], to=onnx.TensorProto.FLOAT)
    inverted = b.node("Sub", [b.number(1.0), spread])
    return b.node("Mul", [inverted, b.number(LOWEST)])


def embedded(b: ExportingBuilder, ids: str, types: str, width: int, rows: int) -> str:
    """The sum of the embeddings of words, types and positions, normalized.

    Positions are a buffer that is cut to the length of the sequence.
    """
    buffer = b.constant(np.arange(rows, dtype=np.int64)[None])
    stop = b.unsqueeze(b.size(ids, 1), 0)
    positions = b.cut(buffer, 1, b.integers(0), stop)
    x = b.add(b.embedding(ids, VOCABULARY, width), b.embedding(types, TYPES, width))
    return b.layer_norm_apart(b.add(x, b.embedding(positions, rows, width)), width)


def _attention(b: ExportingBuilder, x: str, bias: str, width: int, heads: int) -> str:
    head = width // heads
    query = b.split_heads(b.dense(x, width, width), heads, head)
    key = b.split_heads(b.dense(x, width, width), heads, head, perm=(0, 2, 3, 1))
    value = b.split_heads(b.dense(x, width, width), heads, head)
    scores = b.node("Div", [b.node("MatMul", [query, key]), b.number(sqrt(head))])
    weights = b.node("Softmax", [b.add(scores, bias)], axis=-1)
    return b.join_heads(b.node("MatMul", [weights, value]), width)
