"""LLaMA with the fused operators that the model builder of onnxruntime-genai writes.

In: token ids (batch, sequence), an attention mask (batch, past + sequence), and for each layer the
keys and values of earlier tokens (batch, groups, past, head); all three extents are symbolic, and
past may be 0.  Out: logits, and the keys and values to give to the next run.  Norms also add the
residual, attention (GroupQueryAttention) also rotates queries and keys and appends to the cache,
and products have weights of a few bits (MatMulNBits), as has the table of embeddings
(GatherBlockQuantized) if asked for.  In place of the mask, a run may state the numbers of tokens.
"""

from __future__ import annotations

import numpy as np
import onnx

from graphflow.models.zoo.building.exporting import ExportingBuilder
from graphflow.models.zoo.building.few_bits import BLOCK, DOMAIN, weights_in_bytes

VOCABULARY = 500
POSITIONS = 256
EPSILON = 1e-6


class _FusedBuilder(ExportingBuilder):
    """A builder with onnxruntime's operators; `bits` are those of the weights of products, None for
    float32, and `accuracy_level` is what these products permit."""

    def __init__(self, seed: int, bits: int | None, accuracy_level: int) -> None:
        super().__init__(seed, opset=21, name="fused_llama")
        self._bits, self._accuracy_level = bits, accuracy_level

    def fused(self, op: str, inputs: list[str], *outputs: str, **attributes: object) -> str:
        """A node of onnxruntime's domain."""
        return self.node(op, inputs, list(outputs) or None, domain=DOMAIN, **attributes)

    def product(self, x: str, inputs: int, outputs: int) -> str:
        """x times constant weights."""
        if self._bits is None:
            return self.projection(x, inputs, outputs)
        weights = self._normal(inputs, outputs) * np.float32(inputs**-0.5)
        packed, scales = (self.constant(part) for part in weights_in_bytes(weights, self._bits))
        attributes = {"K": inputs, "N": outputs, "bits": self._bits, "block_size": BLOCK}
        attributes["accuracy_level"] = self._accuracy_level
        return self.fused("MatMulNBits", [x, packed, scales], **attributes)

    def embedded(self, ids: str, rows: int, width: int, bits: int | None) -> str:
        """Rows of a table, whose numbers have a few bits if these are given."""
        if bits is None:
            return self.embedding(ids, rows, width)
        packed, scales = weights_in_bytes(0.5 * self._normal(width, rows), bits)
        table = self.constant(packed.reshape(rows, -1))
        attributes = {"bits": bits, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
        return self.fused("GatherBlockQuantized", [table, ids, self.constant(scales)], **attributes)

    def norm_of_sum(self, x: str, more: str, width: int) -> tuple[str, str]:
        """x + more, normalized, and that sum."""
        names = [self._fresh("normal"), "", "", self._fresh("residual")]
        inputs = [x, more, self.scales(width)]
        self.fused("SkipSimplifiedLayerNormalization", inputs, *names, epsilon=EPSILON)
        return names[0], names[3]


def fused_llama(
    seed: int,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    groups: int = 2,
    bits: int | None = 4,
    embedding_bits: int | None = None,
    window: int = -1,
    positions: int = POSITIONS,
    accuracy_level: int = 1,
    states_lengths: bool = False,
) -> onnx.ModelProto:
    """A decoder; inputs `past_key_values.I.key` and `.value` answer outputs `present.I.…`.

    `heads` is a multiple of `groups`, `width` one of `2 * heads` and of 32.  A query sees `window`
    keys at most, up to its own; all earlier ones if that is −1.  Products may round rows to bytes
    if `accuracy_level` is 4, as the model builder writes it for processors.  If it
    `states_lengths`, `seqlens_k` and `total_sequence_length` are inputs in the place of the mask.
    """
    b, head = _FusedBuilder(seed, bits, accuracy_level), width // heads
    ids = b.input("input_ids", ("batch", "sequence"), "int64")
    if states_lengths:
        lengths = b.input("seqlens_k", ("batch",), "int32")
        total = b.input("total_sequence_length", (1,), "int32")
    else:
        lengths, total = _lengths(b, b.input("attention_mask", ("batch", "total"), "int64"))
    kinds = [f"{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    past = [b.input(f"past_key_values.{kind}", ("batch", groups, "past", head)) for kind in kinds]
    tables = _angles(b, head, positions)
    residual = b.embedded(ids, VOCABULARY, width, embedding_bits)
    normal = b.fused(
        "SimplifiedLayerNormalization", [residual, b.scales(width)],
        axis=-1, epsilon=EPSILON, stash_type=1,
    )  # fmt: skip
    attributes = {
        "num_heads": heads, "kv_num_heads": groups, "scale": head**-0.5, "softcap": 0.0,
        "local_window_size": window, "do_rotary": 1, "rotary_interleaved": 0,
    }  # fmt: skip
    for layer in range(layers):
        packed = b.product(normal, width, (heads + 2 * groups) * head)
        inputs = [packed, "", "", *past[2 * layer : 2 * layer + 2], lengths, total, *tables]
        names = [f"attended_{layer}", *(f"present.{layer}.{part}" for part in ("key", "value"))]
        b.fused("GroupQueryAttention", inputs, *names, **attributes)
        attended = b.product(names[0], heads * head, width)
        normal, residual = b.norm_of_sum(residual, attended, width)
        gate, up = (b.product(normal, width, 4 * width) for _ in range(2))
        hidden = b.node("Mul", [b.silu(gate), up])
        normal, residual = b.norm_of_sum(residual, b.product(hidden, 4 * width, width), width)
    b.node("Identity", [b.product(normal, width, VOCABULARY)], ["logits"])
    b.output("logits", shape=("batch", "sequence", VOCABULARY))
    b.output(*(f"present.{kind}" for kind in kinds), shape=("batch", groups, "total", head))
    model = b.model()
    for node in model.graph.node:
        if node.op_type == "SimplifiedLayerNormalization":
            node.domain = ""  # where onnxruntime has it, and ONNX's checker does not know it
    return model


def _lengths(b: ExportingBuilder, mask: str) -> tuple[str, str]:
    """How many tokens of each sequence count, less one, and how many there are in all, as int32."""
    counted = b.node("ReduceSum", [mask, b.integers(1)], keepdims=0)
    last = b.node("Sub", [counted, b.integer(1)])
    to = onnx.TensorProto.INT32
    return b.node("Cast", [last], to=to), b.node("Cast", [b.size(mask, 1)], to=to)


def _angles(b: ExportingBuilder, head: int, positions: int) -> list[str]:
    """Cosines and sines (positions, head / 2) of the angles by which positions turn."""
    frequencies = 10000.0 ** (-np.arange(0, head, 2) / head)
    angles = np.outer(np.arange(positions), frequencies)
    return [b.constant(function(angles).astype(np.float32)) for function in (np.cos, np.sin)]
