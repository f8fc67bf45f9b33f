"""A tagger of words with a bidirectional LSTM, as PyTorch's exporter writes it at opset 13.

In: word ids (batch, sequence), both symbolic.  Out: log-probabilities of the tags, and the tags.
"""

from __future__ import annotations

import numpy as np
import onnx

from graphflow.models.zoo.exporting import ExportingBuilder

VOCABULARY = 800
DIRECTIONS = 2


def tagger(
    seed: int, width: int = 48, hidden: int = 64, layers: int = 2, tags: int = 17
) -> onnx.ModelProto:
    """Embedding, `layers` of LSTM in both directions, a linear layer, LogSoftmax and ArgMax."""
    b = ExportingBuilder(seed, opset=13, name="tagger")
    dims = ("batch", "sequence")
    ids = b.input("word_ids", dims, "int64")
    x = b.embedding(ids, VOCABULARY, width)
    x = b.node("Transpose", [x], perm=[1, 0, 2])
    zeros = _initial(b, ids, hidden)
    for layer in range(layers):
        x = _lstm(b, x, zeros, DIRECTIONS * hidden if layer else width, hidden)
    x = b.node("Transpose", [x], perm=[1, 0, 2])
    logits = b.dense(x, DIRECTIONS * hidden, tags, gain=8.0)
    b.node("LogSoftmax", [logits], ["log_probabilities"], axis=-1)
    b.node("ArgMax", ["log_probabilities"], ["tags"], axis=-1, keepdims=0)
    b.output("log_probabilities", shape=(*dims, tags))
    b.output("tags", shape=dims, dtype="int64")
    return b.model()


def _initial(b: ExportingBuilder, ids: str, hidden: int) -> str:
    """(directions, batch, hidden) of zeros: `torch.zeros` with the batch of the ids."""
    zero = onnx.numpy_helper.from_array(np.zeros(1, np.float32))
    wanted = b.shape(DIRECTIONS, b.size(ids, 0), hidden)
    return b.node("ConstantOfShape", [wanted], value=zero)


def _lstm(b: ExportingBuilder, x: str, initial: str, inputs: int, hidden: int) -> str:
    """(sequence, batch, directions * hidden); the sequence comes and goes as the first axis."""
    weights = [
        b.weight(DIRECTIONS, 4 * hidden, inputs, scale=inputs**-0.5),
        b.weight(DIRECTIONS, 4 * hidden, hidden, scale=hidden**-0.5),
        b.weight(DIRECTIONS, 8 * hidden, scale=0.1),
    ]
    name = b.node(
        "LSTM", [x, *weights, "", initial, initial], hidden_size=hidden, direction="bidirectional"
    )
    together = b.node("Transpose", [name], perm=[0, 2, 1, 3])
    return b.node("Reshape", [together, b.integers(0, 0, -1)])
