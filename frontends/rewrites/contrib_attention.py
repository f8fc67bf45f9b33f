"""onnxruntime's attention operators (domain com.microsoft), written as standard operators.

Masks follow onnxruntime's kernels for processors: a masked position adds `mask_filter_value` to its
score, and a position that the causal rule forbids has the lowest number added instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt

import numpy as np

from graphflow.base.errors import InvalidModel
from graphflow.frontends.reading.vendor import DOMAIN
from graphflow.frontends.rewrites.contrib_quantized import integer_product
from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.frontends.tensors.values import contents_missing


def _heads(body: NodeRewrite, name: str, shape: tuple[int, ...], heads: int) -> str:
    """A tensor of `shape` (batch, length, heads · size) as (batch, heads, length, size)."""
    batch, length, hidden = shape
    if hidden % heads:
        raise InvalidModel(f"{body.step}: {heads} heads do not divide a hidden size of {hidden}")
    parts = body.reshape(name, (batch, length, heads, hidden // heads))
    return body.transpose(parts, (0, 2, 1, 3))


def _lengths_mask(body: NodeRewrite, mask: str, batch: int, total: int) -> str:
    """A bool mask (batch, 1, 1, total) from lengths: true from the start to the end of each
    sequence."""
    positions = body.constant(np.arange(total, dtype=np.int32))
    count = body.shape(mask)[0] // batch
    bounds = [mask] if count == 1 else body.split(mask, [batch, batch], 0)
    columns = [body.reshape(bound, (batch, 1, 1, 1)) for bound in bounds]
    kept = body.add("Less", positions, columns[0])
    if count == 1:
        return kept
    return body.add("And", kept, body.add("GreaterOrEqual", positions, columns[1]))


def _mask_bias(body: NodeRewrite, mask: str, like: str, sizes: tuple[int, int, int]) -> str:
    """The summand for the scores that a mask stands for; `sizes` are batch, length and total
    length."""
    batch, length, total = sizes
    shape = body.shape(mask)
    if shape in ((batch,), (2 * batch,)):
        kept = _lengths_mask(body, mask, batch, total)
    elif shape in ((batch, total), (batch, length, total)):
        rows = 1 if len(shape) == 2 else length
        zero = body.constant(np.array(0, body.dtype(mask)))
        kept = body.reshape(body.add("Greater", mask, zero), (batch, 1, rows, total))
    else:
        body.refuse(f"a mask of shape {shape}")
    low = body.attribute("mask_filter_value", -10000.0)
    return body.add("Where", kept, body.number(0.0, like), body.number(low, like))


def _causal(body: NodeRewrite, bias: str, like: str, sizes: tuple[int, int, int], past: int) -> str:
    """`bias`, and in its place the lowest number wherever the key comes later than the query; '' is
    no bias.

    `sizes` are batch, length and total length; the first query comes right behind `past` keys.  As
    in onnxruntime's kernels, the last query attends to all keys, also where there are more of them.
    """
    _, length, total = sizes
    dtype = body.dtype(like)
    allowed = np.tri(length, total, past, dtype=bool)
    allowed[-1:] = True
    lowest = np.array(np.finfo(dtype.name).min, dtype)
    if not bias:
        return body.constant(np.where(allowed, np.array(0, dtype), lowest))
    return body.add("Where", body.constant(allowed), bias, body.constant(lowest))


def _attend(
    body: NodeRewrite,
    parts: Sequence[str],
    sizes: tuple[int, int, int, int, int],
    biases: list[str],
    like: str,
) -> None:
    """Compute the node's output from queries, keys and values of shape (batch, heads, length,
    size).

    `sizes` are batch, length, heads, and the head sizes of queries and of values; `biases` are
    added to the scores.  All are of the dtype of tensor `like`.
    """
    batch, length, heads, size, value_size = sizes
    query, key, value = parts
    scale = body.attribute("scale", 0.0) or 1.0 / float(np.sqrt(size))
    scores = body.add("MatMul", query, body.transpose(key, (0, 1, 3, 2)))
    scores = body.add("Mul", scores, body.number(scale, like))
    for bias in biases:
        scores = body.add("Add", scores, bias)
    mixed = body.add("MatMul", body.add("Softmax", scores, axis=-1), value)
    joined = body.transpose(mixed, (0, 2, 1, 3))
    shape = (batch, length, heads * value_size)
    body.reshape(joined, shape, result=body.result)


def _biases(
    body: NodeRewrite, mask: str, bias: str, sizes: tuple[int, int, int], past: int, like: str
) -> list[str]:
    """The tensors that are added to the scores, in order; `sizes` are batch, length and total
    length, of which the first `past` keys are from earlier."""
    masked = _mask_bias(body, mask, like, sizes) if mask else ""
    if body.attribute("unidirectional", 0):
        masked = _causal(body, masked, like, sizes, past)
    return [name for name in (masked, bias) if name]


_SELF_ATTENTION = ("num_heads", "unidirectional", "mask_filter_value", "scale")
"""The attributes that `_self_attention` handles."""


def _require_self_attention(body: NodeRewrite, *more: str) -> None:
    """Refuse attributes of a self-attention that `_self_attention` does not handle."""
    known = (*_SELF_ATTENTION, *more)
    if not body.attribute("do_rotary", 0) and not body.attribute("past_present_share_buffer", 0):
        known = (*known, "do_rotary", "past_present_share_buffer", "rotary_embedding_dim")
    body.require_attributes(*known)


def _attention(body: NodeRewrite) -> None:
    """Projects the input to queries, keys and values, and attends to itself."""
    _require_self_attention(body, "qkv_hidden_sizes")
    body.refuse_inputs(6)
    x, weights, bias, mask, past, extra = body.inputs(6)
    projected = body.add("MatMul", x, weights)
    if bias:
        projected = body.add("Add", projected, bias)
    hidden = body.shape(weights)[1]
    sizes = list(body.attribute("qkv_hidden_sizes") or [hidden // 3] * 3)
    _self_attention(body, projected, sizes, (mask, past, extra), x)


def _quantized_attention(body: NodeRewrite) -> None:
    """Self-attention whose projection is a product of integers; all else is float32."""
    _require_self_attention(body)
    x, weights, bias, x_scale, scale, mask, x_zero, zero, past = body.inputs(9)
    factor = body.add("Mul", x_scale, scale)
    projected = body.add("Add", integer_product(body, x, weights, x_zero, zero, factor), bias)
    sizes = [body.shape(weights)[1] // 3] * 3
    _self_attention(body, projected, sizes, (mask, past, ""), bias)


def _self_attention(
    body: NodeRewrite,
    projected: str,
    sizes: list[int],
    given: tuple[str, str, str],
    like: str,
) -> None:
    """Attention among the parts of `projected`: queries, keys and values, of widths `sizes`.

    `given` are the mask, the past keys and values, and a summand of the scores, each '' if it is
    not given; `like` is a tensor of the dtype that all is computed in.
    """
    mask, past, extra = given
    heads = body.attribute("num_heads")
    batch, length, _ = body.shape(body.input(0))
    parts = [
        _heads(body, part, (batch, length, size), heads)
        for part, size in zip(body.split(projected, sizes, 2), sizes, strict=True)
    ]
    total = length
    if past:
        total += body.shape(past)[3]
        before = body.split(past, [1, 1], 0)
        for position, old in enumerate(before):
            earlier = body.add("Squeeze", old, body.ints([0]))
            parts[position + 1] = body.add("Concat", earlier, parts[position + 1], axis=2)
    if body.output(1):
        rows = [body.add("Unsqueeze", part, body.ints([0])) for part in parts[1:]]
        body.add("Concat", *rows, result=body.output(1), axis=0)
    biases = _biases(body, mask, extra, (batch, length, total), total - length, like)
    extents = (batch, length, heads, sizes[0] // heads, sizes[2] // heads)
    _attend(body, parts, extents, biases, like)


def _multi_head_attention(body: NodeRewrite) -> None:
    """Attention of projected queries to keys and values, which may be split into heads already."""
    step = body.step
    body.require_attributes("num_heads", "mask_filter_value", "scale", "unidirectional")
    body.refuse_inputs(8, 9)
    body.refuse_outputs(3)
    query, key, value, bias, mask, extra, past_key, past_value = body.inputs(8)
    heads = body.attribute("num_heads")
    if len(body.shape(query)) != 3 or not key or not value:
        body.refuse("packed queries, keys and values")
    batch, length, hidden = body.shape(query)
    ready = len(body.shape(key)) == 4
    if ready and bias:
        body.refuse("a bias beside keys that are split into heads")
    sources = [query, key, value]
    if bias:
        widths = [hidden, body.shape(key)[2], body.shape(value)[2]]
        shifts = body.split(bias, widths, 0)
        sources = [body.add("Add", *pair) for pair in zip(sources, shifts, strict=True)]
    parts = [_heads(body, sources[0], (batch, length, hidden), heads)]
    for given, source in zip((key, value), sources[1:], strict=True):
        shape = body.shape(given)
        parts.append(source if ready else _heads(body, source, (batch, shape[1], shape[2]), heads))
    total, earlier = body.shape(key)[2 if ready else 1], 0
    value_size = body.shape(value)[3] if ready else body.shape(value)[2] // heads
    if bool(past_key) != bool(past_value):
        raise InvalidModel(f"{step}: past_key and past_value are given together or not at all")
    if past_key:
        earlier = body.shape(past_key)[2]
        total += earlier
    for position, past in ((1, past_key), (2, past_value)):
        if past:
            parts[position] = body.add("Concat", past, parts[position], axis=2)
        if body.output(position):
            body.add("Identity", parts[position], result=body.output(position))
    biases = _biases(body, mask, extra, (batch, length, total), earlier, query)
    _attend(body, parts, (batch, length, heads, hidden // heads, value_size), biases, query)


def _rotary_embedding(body: NodeRewrite) -> None:
    """Becomes ONNX's own RotaryEmbedding, with a position for every element of each sequence."""
    body.require_attributes("interleaved", "num_heads", "rotary_embedding_dim", "scale",
                            "is_packed_batching")  # fmt: skip
    if body.attribute("scale", 1.0) != 1.0 or body.attribute("is_packed_batching", 0):
        body.refuse("a scale or packed batches")
    x, positions, cosines, sines = body.inputs(4)
    shape, width = body.shape(x), body.attribute("rotary_embedding_dim", 0)
    count = 0
    if len(shape) == 3:
        count = body.attribute("num_heads", 0) or shape[2] // (2 * body.shape(cosines)[1])
    batch, length = (shape[0], shape[1]) if len(shape) == 3 else (shape[0], shape[2])
    if body.shape(positions) != (batch, length):
        steps = body.constant(np.arange(length, dtype=np.int64).reshape(1, length))
        row = body.add("Add", steps, body.reshape(positions, (1, 1)))
        positions = body.add("Expand", row, body.ints([batch, length]))
    more = {"num_heads": count} if count else {}
    body.add(
        "RotaryEmbedding", x, cosines, sines, positions, rotary_embedding_dim=width,
        result=body.result, interleaved=body.attribute("interleaved", 0), **more,
    )  # fmt: skip
    body.steps[-1] = replace(body.steps[-1], opsets={"": 23})


def _group_query_attention(body: NodeRewrite) -> None:
    """Causal attention of groups of heads behind earlier keys, as ONNX's RotaryEmbedding and
    Attention.

    `seqlens_k` says how many of the earlier keys are in use.  Here it is all of them, which each
    run checks; where there are none, the queries of a prompt do not depend on it.
    """
    body.require_attributes("num_heads", "kv_num_heads", "scale", "softcap", "do_rotary",
                            "rotary_interleaved", *_NO_EFFECT)  # fmt: skip
    for name, value in _NO_EFFECT.items():
        if body.attribute(name, value) != value:
            body.refuse(f"{name} = {body.attribute(name)}")
    body.refuse_inputs(*range(9, 14))
    body.refuse_outputs(3)
    query, key, value, past_key, past_value, lengths, total, cosines, sines = body.inputs(9)
    heads, groups = body.attribute("num_heads"), body.attribute("kv_num_heads")
    batch, length, hidden = body.shape(query)
    sources = [query, key, value]
    if not key:
        size = hidden // (heads + 2 * groups)
        sources = body.split(query, [heads * size, groups * size, groups * size], 2)
    earlier = body.shape(past_key)[2] if past_key else 0
    size = hidden // heads if key else size
    _require_all_in_use(body, lengths, total, (batch, length, earlier))
    parts = [
        _heads(body, source, (batch, length, count * size), count)
        for source, count in zip(sources, (heads, groups, groups), strict=True)
    ]
    if body.attribute("do_rotary", 0):
        width = 2 * body.shape(cosines)[1]
        rows = np.broadcast_to(np.arange(earlier, earlier + length), (batch, length))
        for part in range(2):
            parts[part] = body.add(
                "RotaryEmbedding", parts[part], cosines, sines, body.constant(rows.copy()),
                interleaved=body.attribute("rotary_interleaved", 0),
                rotary_embedding_dim=0 if width == size else width,
            )  # fmt: skip
            body.steps[-1] = replace(body.steps[-1], opsets={"": 23})
    given = {"scale": body.attribute("scale", 0.0) or 1 / sqrt(size)}
    given |= {"softcap": softcap} if (softcap := body.attribute("softcap", 0.0)) else {}
    if earlier:
        inputs = [*parts, "", past_key, past_value]
        mixed, *present = body.add_several("Attention", 3, *inputs, is_causal=1, **given)
    else:
        (mixed,) = body.add_several("Attention", 1, *parts, is_causal=1, **given)
        present = parts[1:]
    body.steps[-1] = replace(body.steps[-1], opsets={"": 23})
    for position, name in enumerate(present, 1):
        if body.output(position):
            body.add("Identity", name, result=body.output(position))
    joined = body.transpose(mixed, (0, 2, 1, 3))
    body.reshape(joined, (batch, length, heads * size), result=body.result)


_NO_EFFECT = {
    "local_window_size": -1, "smooth_softmax": 0, "k_quant_type": "NONE", "v_quant_type": "NONE",
    "kv_cache_bit_width": 0, "qk_output": 0,
}  # fmt: skip
"""Attributes of GroupQueryAttention, and the values with which they change nothing."""


def _require_all_in_use(
    body: NodeRewrite, lengths: str, total: str, sizes: tuple[int, int, int]
) -> None:
    """Refuse a node of which it is unknown whether all `earlier` keys are in use, and make each run
    check that they are; `sizes` are batch, length and earlier."""
    batch, length, earlier = sizes
    context = body.context
    known = context.constant(total)
    if known is None:
        asked = f"{body.step}: input {total} (total_sequence_length)"
        raise contents_missing(context.graph, context.known, total, asked)
    if known.size != 1 or known.item() != length + earlier:
        body.refuse(f"a memory of {earlier} keys for {known.tolist()} in all")
    if not earlier:
        return
    last = length + earlier - 1
    stated = context.constant(lengths)
    if stated is not None and (stated == last).all():
        return
    if batch > 1 or stated is not None or body.step.guard:
        body.refuse(f"sequences of several lengths behind {earlier} keys")
    subject = (
        f"{body.step}: seqlens_k, which has to say that all {earlier} earlier keys are in use,"
    )
    context.graph.add_guard(lengths, last, last, subject)


CONTRIB_ATTENTION: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    (DOMAIN, "Attention"): _attention,
    (DOMAIN, "GroupQueryAttention"): _group_query_attention,
    (DOMAIN, "MultiHeadAttention"): _multi_head_attention,
    (DOMAIN, "QAttention"): _quantized_attention,
    (DOMAIN, "RotaryEmbedding"): _rotary_embedding,
}
