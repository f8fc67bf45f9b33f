"""An encoder of speech, as Whisper's (Radford et al. 2022), by PyTorch's exporter at opset 17.

In: mel features of (batch, features, frames), batch and frames symbolic.  Out: the last hidden
state, one vector for four frames.
"""

from __future__ import annotations

import onnx

from graphflow.models.zoo.exporting import ExportingBuilder

FEATURES = 20
POSITIONS = 128


def speech(
    seed: int, layers: int = 2, width: int = 64, heads: int = 4, positions: int = POSITIONS
) -> onnx.ModelProto:
    """Two convolutions of stride 2, positions, and blocks that normalize first.

    `width` is a multiple of `heads`; there are up to `4 * positions` frames.
    """
    b = ExportingBuilder(seed, opset=17, name="speech")
    x = b.input("input_features", ("batch", FEATURES, "frames"))
    for _ in range(2):
        x = b.gelu(b.conv(x, width, (3,), strides=[2], pads=[1, 1]))
    x = b.node("Transpose", [x], perm=[0, 2, 1])
    table = b.weight(positions, width, scale=0.3)
    x = b.add(x, b.cut(table, 0, b.integers(0), b.unsqueeze(b.size(x, 1), 0)))
    for _ in range(layers):
        x = b.add(x, _attention(b, b.layer_norm(x, width), width, heads))
        hidden = b.gelu(b.dense(b.layer_norm(x, width), width, 4 * width))
        x = b.add(x, b.dense(hidden, 4 * width, width))
    last = b.node("Identity", [b.layer_norm(x, width)], ["last_hidden_state"])
    b.output(last, shape=("batch", "positions", width))
    return b.model()


def _attention(b: ExportingBuilder, x: str, width: int, heads: int) -> str:
    head = width // heads
    query = b.node("Mul", [b.dense(x, width, width), b.number(head**-0.5)])
    query = b.split_heads(query, heads, head)
    key = b.split_heads(b.dense(x, width, width), heads, head, perm=(0, 2, 3, 1))
    value = b.split_heads(b.dense(x, width, width), heads, head)
    weights = b.node("Softmax", [b.node("MatMul", [query, key])], axis=-1)
    return b.dense(b.join_heads(b.node("MatMul", [weights, value]), width), width, width)
