"""T5 (Raffel et al. 2020), encoder and decoder, as PyTorch's exporter writes it at opset 17.

In: token ids of a text and their mask (batch, encoder), and of its translation so far (batch,
decoder), all int64; all three extents are symbolic.  Out: logits of the next tokens, and the last
hidden state of the encoder.  Scores have a bias for each distance of two tokens: distances are put
into buckets, which grow with the logarithm.
"""

from __future__ import annotations

from math import log

import numpy as np
import onnx
from onnx import numpy_helper

from graphflow.models.zoo.building.exporting import LOWEST, ExportingBuilder

VOCABULARY = 500
BUCKETS = 32
FARTHEST = 128
"""The distance from which on all are in one bucket."""


def t5(seed: int, layers: int = 2, width: int = 64, heads: int = 4) -> onnx.ModelProto:
    """`layers` blocks in both parts; `width` is a multiple of `heads`."""
    b = ExportingBuilder(seed, opset=17, name="t5")
    encoder, decoder = ("batch", "encoder"), ("batch", "decoder")
    ids, mask = (b.input(name, encoder, "int64") for name in ("input_ids", "attention_mask"))
    target = b.input("decoder_input_ids", decoder, "int64")
    table = b.weight(VOCABULARY, width, scale=0.5)
    seen = b.node("Cast", [b.unsqueeze(mask, 1, 2)], to=onnx.TensorProto.FLOAT)
    hidden = _hidden(b, seen)

    x = b.node("Gather", [table, ids])
    bias = b.add(_distances(b, x, heads, both_ways=True), hidden)
    for _ in range(layers):
        x = b.add(x, _attention(b, b.rms_norm(x, width), "", bias, width, heads))
        x = b.add(x, _feed_forward(b, x, width))
    text = b.node("Identity", [b.rms_norm(x, width)], ["encoder_last_hidden_state"])

    x = b.node("Gather", [table, target])
    bias = b.add(_distances(b, x, heads, both_ways=False), _hidden(b, _causal(b, target)))
    for _ in range(layers):
        x = b.add(x, _attention(b, b.rms_norm(x, width), "", bias, width, heads))
        x = b.add(x, _attention(b, b.rms_norm(x, width), text, hidden, width, heads))
        x = b.add(x, _feed_forward(b, x, width))
    scaled = b.node("Mul", [b.rms_norm(x, width), b.number(width**-0.5)])
    b.node("MatMul", [scaled, b.node("Transpose", [table], perm=[1, 0])], ["logits"])
    b.output("logits", shape=(*decoder, VOCABULARY))
    b.output(text, shape=(*encoder, width))
    return b.model()


def _feed_forward(b: ExportingBuilder, x: str, width: int) -> str:
    hidden = b.relu(b.projection(b.rms_norm(x, width), width, 4 * width))
    return b.projection(hidden, 4 * width, width)


def _hidden(b: ExportingBuilder, seen: str) -> str:
    """0 where a token is seen, which is 1, and the lowest float32 where it is not, which is 0."""
    return b.node("Mul", [b.node("Sub", [b.number(1.0), seen]), b.number(LOWEST)])


def _causal(b: ExportingBuilder, ids: str) -> str:
    """(batch, 1, decoder, decoder): 1 where a token is not later than the one that looks."""
    batch, length = b.size(ids, 0), b.size(ids, 1)
    places = _places(b, length)
    spread = b.node("Tile", [b.unsqueeze(places, 0, 1), b.shape(batch, length, 1)])
    earlier = b.node("LessOrEqual", [spread, b.unsqueeze(places, 0, 2)])
    return b.unsqueeze(b.node("Cast", [earlier], to=onnx.TensorProto.FLOAT), 1)


def _places(b: ExportingBuilder, length: str) -> str:
    return b.node("Range", [b.integer(0), length, b.integer(1)])


def _distances(b: ExportingBuilder, x: str, heads: int, *, both_ways: bool) -> str:
    """(1, heads, length, length): a learned bias for the bucket of the distance of two tokens."""
    places = _places(b, b.size(x, 1))
    distance = b.node("Sub", [b.unsqueeze(places, 0), b.unsqueeze(places, 1)])
    bias = b.node("Gather", [b.weight(BUCKETS, heads), _buckets(b, distance, both_ways)])
    return b.unsqueeze(b.node("Transpose", [bias], perm=[2, 0, 1]), 0)


def _buckets(b: ExportingBuilder, distance: str, both_ways: bool) -> str:
    """The number of the bucket of each distance: those of later tokens have the second half, or
    are in bucket 0."""
    count = BUCKETS // 2 if both_ways else BUCKETS
    if both_ways:
        later = b.node("Greater", [distance, b.integer(0)])
        later = b.node("Cast", [later], to=onnx.TensorProto.INT64)
        first = b.node("Mul", [later, b.integer(count)])
        distance = b.node("Abs", [distance])
    else:
        distance = b.node("Neg", [b.node("Min", [distance, _alike(b, distance, 0)])])
        first = b.integer(0)
    exact = count // 2
    share = b.node("Cast", [distance], to=onnx.TensorProto.FLOAT)
    share = b.node("Log", [b.node("Div", [share, b.number(exact)])])
    share = b.node("Div", [share, b.number(log(FARTHEST / exact))])
    share = b.node("Mul", [share, b.number(count - exact)])
    far = b.add(b.node("Cast", [share], to=onnx.TensorProto.INT64), b.integer(exact))
    far = b.node("Min", [far, _alike(b, far, count - 1)])
    near = b.node("Less", [distance, b.integer(exact)])
    return b.add(first, b.node("Where", [near, distance, far]))


def _alike(b: ExportingBuilder, x: str, value: int) -> str:
    """`torch.full_like`."""
    filled = numpy_helper.from_array(np.array([value], np.int64))
    return b.node("ConstantOfShape", [b.node("Shape", [x])], value=filled)


def _attention(b: ExportingBuilder, x: str, text: str, bias: str, width: int, heads: int) -> str:
    """Queries of x against keys of the text, or of x itself for ""; scores are not scaled."""
    head, source = width // heads, text or x
    query = b.split_heads(
        b.node("Mul", [b.projection(x, width, width), b.number(head**-0.5)]), heads, head
    )
    key = b.split_heads(b.projection(source, width, width), heads, head, perm=(0, 2, 3, 1))
    value = b.split_heads(b.projection(source, width, width), heads, head)
    scores = b.add(b.node("MatMul", [query, key]), bias)
    weights = b.node("Softmax", [scores], axis=-1)
    together = b.join_heads(b.node("MatMul", [weights, value]), width)
    return b.projection(together, width, width)
