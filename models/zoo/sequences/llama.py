"""LLaMA (Touvron et al. 2023) with a cache of keys and values, as optimum exports it.

In: token ids (batch, sequence), an attention mask (batch, past + sequence), and for each layer the
keys and values of earlier tokens (batch, groups, past, head); all three extents are symbolic, and
past may be 0.  Out: logits, and the keys and values to give to the next run.  Several heads of
queries share a group of keys and values (Ainslie et al. 2023); positions turn pairs of elements of
queries and keys (Su et al. 2021).
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx
from onnx import numpy_helper

from graphflow.models.zoo.building.exporting import LOWEST, ExportingBuilder
from graphflow.models.zoo.sequences.gpt import positions_of

VOCABULARY = 500
POSITIONS = 128
LAYERS = 2
WIDTH = 64
HEADS = 4
GROUPS = 2


def llama(
    seed: int, layers: int = LAYERS, width: int = WIDTH, heads: int = HEADS, groups: int = GROUPS
) -> onnx.ModelProto:
    """A decoder; inputs `past_key_values.I.key` and `.value` answer outputs `present.I.…`.

    `heads` is a multiple of `groups`, `width` one of `2 * heads`.
    """
    b = ExportingBuilder(seed, opset=17, name="llama")
    head = width // heads
    ids = b.input("input_ids", ("batch", "sequence"), "int64")
    mask = b.input("attention_mask", ("batch", "total"), "int64")
    past = [
        [
            b.input(f"past_key_values.{layer}.{part}", ("batch", groups, "past", head))
            for part in ("key", "value")
        ]
        for layer in range(layers)
    ]
    x = b.embedding(ids, VOCABULARY, width)
    rotation = _rotation(b, positions_of(b, ids, mask), head)
    bias = _bias(b, ids, mask, past[0][0])
    presents: list[str] = []
    for layer, (keys, values) in enumerate(past):
        names = [f"present.{layer}.{part}" for part in ("key", "value")]
        normal = b.rms_norm(x, width)
        attended = _attention(b, normal, bias, rotation, (keys, values), names, heads, groups, head)
        x = b.add(x, attended)
        x = b.add(x, _gated(b, b.rms_norm(x, width), width))
        presents += names
    weight = b.weight(width, VOCABULARY, scale=width**-0.5)
    b.node("MatMul", [b.rms_norm(x, width), weight], ["logits"])
    b.output("logits", shape=("batch", "sequence", VOCABULARY))
    b.output(*presents, shape=("batch", groups, "total", head))
    return b.model()


def _rotation(b: ExportingBuilder, positions: str, head: int) -> tuple[str, str]:
    """Cosines and sines (batch, 1, sequence, head) of the angles by which positions turn."""
    frequencies = 10000.0 ** (-np.arange(0, head, 2) / head)
    angles = np.tile(np.outer(np.arange(POSITIONS), frequencies), 2)
    tables = (b.constant(function(angles).astype(np.float32)) for function in (np.cos, np.sin))
    cosines, sines = (b.unsqueeze(b.node("Gather", [t, positions]), 1) for t in tables)
    return cosines, sines


def _rotated(b: ExportingBuilder, x: str, rotation: tuple[str, str], head: int) -> str:
    """x times the cosines, plus the sines times x with the halves of its last axis swapped, the
    second of them negated."""
    cosines, sines = rotation
    half, end = b.integers(head // 2), b.integers(np.iinfo(np.int64).max)
    first, second = b.cut(x, 3, b.integers(0), half), b.cut(x, 3, half, end)
    turned = b.node("Concat", [b.node("Neg", [second]), first], axis=-1)
    return b.add(b.node("Mul", [x, cosines]), b.node("Mul", [turned, sines]))


def _bias(b: ExportingBuilder, ids: str, mask: str, keys: str) -> str:
    """(batch, 1, sequence, total): the lowest float32 where a token may not look, elsewhere 0."""
    batch, length, past = b.size(ids, 0), b.size(ids, 1), b.size(keys, 2)
    total = b.add(past, length)
    lowest = numpy_helper.from_array(np.array([LOWEST], np.float32))
    full = b.node("ConstantOfShape", [b.shape(length, total)], value=lowest)
    asking = b.node("Range", [past, total, b.integer(1)])
    asked = b.node("Range", [b.integer(0), total, b.integer(1)])
    later = b.node("Greater", [asked, b.reshape(asking, -1, 1)])
    causal = b.node("Mul", [full, b.node("Cast", [later], to=onnx.TensorProto.FLOAT)])
    causal = b.expand(b.unsqueeze(causal, 0, 1), batch, 1, -1, -1)
    seen = b.node("Cast", [b.unsqueeze(mask, 1, 2)], to=onnx.TensorProto.FLOAT)
    hidden = b.node("Equal", [b.add(causal, seen), b.number(0.0)])
    return b.node("Where", [hidden, b.number(LOWEST), causal])


def _attention(
    b: ExportingBuilder,
    x: str,
    bias: str,
    rotation: tuple[str, str],
    past: tuple[str, str],
    presents: list[str],
    heads: int,
    groups: int,
    head: int,
) -> str:
    """Queries against the keys of all tokens so far; names these and their values `presents`."""
    width = heads * head
    query, key, value = (
        b.split_heads(b.projection(x, width, count * head), count, head)
        for count in (heads, groups, groups)
    )
    query, key = (_rotated(b, part, rotation, head) for part in (query, key))
    keys, values = (
        b.node("Concat", [old, fresh], [name], axis=2)
        for old, fresh, name in zip(past, (key, value), presents, strict=True)
    )
    keys, values = (_repeated(b, part, heads, groups, head) for part in (keys, values))
    turned = b.node("Transpose", [keys], perm=[0, 1, 3, 2])
    scores = b.node("Div", [b.node("MatMul", [query, turned]), b.number(sqrt(head))])
    weights = b.node("Softmax", [b.add(scores, bias)], axis=-1)
    together = b.join_heads(b.node("MatMul", [weights, values]), width)
    return b.projection(together, width, width)


def _repeated(b: ExportingBuilder, x: str, heads: int, groups: int, head: int) -> str:
    """(batch, groups, total, head) to (batch, heads, total, head): each group for its queries."""
    batch, total = b.size(x, 0), b.size(x, 2)
    spread = b.expand(b.unsqueeze(x, 2), batch, groups, heads // groups, total, head)
    return b.reshape(spread, batch, heads, total, head)


def _gated(b: ExportingBuilder, x: str, width: int) -> str:
    """A gate by SiLU on a hidden layer (Shazeer 2020)."""
    hidden = 4 * width
    gate, up = b.silu(b.projection(x, width, hidden)), b.projection(x, width, hidden)
    return b.projection(b.node("Mul", [gate, up]), hidden, width)
