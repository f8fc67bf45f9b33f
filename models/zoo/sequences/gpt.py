"""GPT-2 (Radford et al. 2019) with a cache of keys and values, as optimum exports it.

In: token ids (batch, sequence), an attention mask (batch, past + sequence), and for each layer the
keys and values of earlier tokens (batch, heads, past, head); all three extents are symbolic, and
past may be 0.  Out: logits, and the keys and values to give to the next run.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx
from onnx import numpy_helper

from graphflow.models.zoo.building.exporting import ExportingBuilder

VOCABULARY = 500
POSITIONS = 128
LAYERS = 2
WIDTH = 96
HEADS = 3


def gpt(
    seed: int,
    layers: int = LAYERS,
    width: int = WIDTH,
    heads: int = HEADS,
    positions: int = POSITIONS,
) -> onnx.ModelProto:
    """A decoder; inputs `past_key_values.I.key` and `.value` answer outputs `present.I.…`."""
    b = ExportingBuilder(seed, opset=17, name="gpt")
    head = width // heads
    ids = b.input("input_ids", ("batch", "sequence"), "int64")
    mask = b.input("attention_mask", ("batch", "total"), "int64")
    past = [
        [
            b.input(f"past_key_values.{layer}.{part}", ("batch", heads, "past", head))
            for part in ("key", "value")
        ]
        for layer in range(layers)
    ]
    x = b.add(
        b.embedding(ids, VOCABULARY, width),
        b.embedding(positions_of(b, ids, mask), positions, width),
    )
    bias = _bias(b, ids, mask, past[0][0])
    presents: list[str] = []
    for layer, (keys, values) in enumerate(past):
        names = [f"present.{layer}.{part}" for part in ("key", "value")]
        normal = b.layer_norm(x, width)
        x = b.add(_attention(b, normal, bias, (keys, values), names, width, heads), x)
        hidden = b.gelu_tanh(b.dense(b.layer_norm(x, width), width, 4 * width))
        x = b.add(x, b.dense(hidden, 4 * width, width))
        presents += names
    weight = b.weight(width, VOCABULARY, scale=width**-0.5)
    b.node("MatMul", [b.layer_norm(x, width), weight], ["logits"])
    b.output("logits", shape=("batch", "sequence", VOCABULARY))
    b.output(*presents, shape=("batch", heads, "total", head))
    return b.model()


def positions_of(b: ExportingBuilder, ids: str, mask: str) -> str:
    """(batch, sequence): how many tokens that count stand before each; 1 for those that do not."""
    counted = b.node("Sub", [b.node("CumSum", [mask, b.integer(1)]), b.integer(1)])
    padding = b.node("Equal", [mask, b.integer(0)])
    positions = b.node("Where", [padding, b.integer(1), counted])
    start = b.unsqueeze(b.node("Neg", [b.size(ids, 1)]), 0)
    limits = [start, b.integers(np.iinfo(np.int64).max), b.integers(1), b.integers(1)]
    return b.node("Slice", [positions, *limits])


def _bias(b: ExportingBuilder, ids: str, mask: str, keys: str) -> str:
    """(batch, 1, sequence, total): minus infinity where a token may not look, elsewhere 0."""
    length, past = b.size(ids, 1), b.size(keys, 2)
    total = b.add(length, past)
    never = numpy_helper.from_array(np.array([-np.inf], np.float32))
    full = b.node("ConstantOfShape", [b.shape(length, total)], value=never)
    causal = b.node("Trilu", [full, b.add(past, b.integer(1))], upper=1)
    causal = b.unsqueeze(causal, 0, 1)
    wanted = b.shape(b.size(ids, 0), 1, length, total)
    causal = b.node("Expand", [causal, wanted])
    seen = b.node("Cast", [b.unsqueeze(mask, 1, 2)], to=onnx.TensorProto.BOOL)
    hidden = b.node("Not", [seen])
    return b.node("Where", [hidden, b.number(-np.inf), causal])


def _attention(
    b: ExportingBuilder,
    x: str,
    bias: str,
    past: tuple[str, str],
    presents: list[str],
    width: int,
    heads: int,
) -> str:
    """Queries against the keys of all tokens so far; names these and their values `presents`."""
    head = width // heads
    packed = b.dense(x, width, 3 * width)
    parts = [f"{presents[0]}.{part}" for part in ("q", "k", "v")]
    b.node("Split", [packed, b.integers(width, width, width)], parts, axis=2)
    query, *new = (b.split_heads(part, heads, head) for part in parts)
    keys, values = (
        b.node("Concat", [old, fresh], [name], axis=2)
        for old, fresh, name in zip(past, new, presents, strict=True)
    )
    turned = b.node("Transpose", [keys], perm=[0, 1, 3, 2])
    scores = b.node("Div", [b.node("MatMul", [query, turned]), b.number(sqrt(head))])
    weights = b.node("Softmax", [b.add(scores, bias)], axis=-1)
    # A token of padding in front sees nothing: 0 / 0, which `scaled_dot_product_attention` makes 0.
    weights = b.node("Where", [b.node("IsNaN", [weights]), b.number(0.0), weights])
    return b.dense(b.join_heads(b.node("MatMul", [weights, values]), width), width, width)
