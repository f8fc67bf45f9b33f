"""onnxruntime's attention operators (domain com.microsoft), written as standard operators;
GroupQueryAttention is in `contrib_grouped_attention.py`.

Masks follow onnxruntime's kernels for processors: a masked position adds `mask_filter_value` to its
score, and a position that the causal rule forbids has the lowest number added instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from onnx import helper

from graphflow.base.errors import InvalidModel
from graphflow.frontends.reading.vendor import DOMAIN
from graphflow.frontends.rewrites.contrib_quantized import integer_product
from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.frontends.tensors.derived_sizes import Element, total


def split_heads(body: NodeRewrite, name: str, hidden: int, heads: int) -> str:
    """A tensor (batch, length, heads · size), of which `hidden` is the last extent, as (batch,
    heads, length, size)."""
    if hidden % heads:
        raise InvalidModel(f"{body.step}: {heads} heads do not divide a hidden size of {hidden}")
    parts = body.reshape(name, (0, 0, heads, hidden // heads))
    return body.transpose(parts, (0, 2, 1, 3))


def join_heads(body: NodeRewrite, name: str, hidden: int) -> None:
    """The node's output (batch, length, hidden), of results (batch, heads, length, size)."""
    body.reshape(body.transpose(name, (0, 2, 1, 3)), (0, 0, hidden), result=body.result)


def _lengths_mask(body: NodeRewrite, mask: str, is_pair: bool, total: Element) -> str:
    """A bool mask (batch, 1, 1, total) from lengths: true up to the end of each sequence, from its
    start on if the mask `is_pair` of all ends and all starts."""
    positions = body.range(0, total)
    bounds = [mask]
    if is_pair:
        batch = body.extent(mask, 0) // 2
        bounds = body.split(mask, [batch, batch], 0)
    number = body.dtype(mask)
    positions = body.add("Cast", positions, to=helper.np_dtype_to_tensor_dtype(number))
    columns = [body.add("Unsqueeze", bound, body.ints([1, 2, 3])) for bound in bounds]
    kept = body.add("Less", positions, columns[0])
    if not is_pair:
        return kept
    return body.add("And", kept, body.add("GreaterOrEqual", positions, columns[1]))


def _mask_bias(body: NodeRewrite, mask: str, like: str, sizes: Sizes) -> str:
    """The summand for the scores that a mask stands for."""
    batch, length, total = sizes.batch, sizes.length, sizes.total
    shape = body.extents(mask)
    is_pair = isinstance(batch, int) and shape == (2 * batch,)
    if is_pair or (len(shape) == 1 and body.is_same(shape[0], batch)):
        kept = _lengths_mask(body, mask, is_pair, total)
    elif _has_shape(body, shape, (batch, total)) or _has_shape(body, shape, (batch, length, total)):
        zero = body.constant(np.array(0, body.dtype(mask)))
        kept = body.add("Greater", mask, zero)
        kept = body.add("Unsqueeze", kept, body.ints([1] if len(shape) == 3 else [1, 2]))
    else:
        body.refuse(f"a mask of shape {shape}")
    low = body.attribute("mask_filter_value", -10000.0)
    return body.add("Where", kept, body.number(0.0, like), body.number(low, like))


def _has_shape(body: NodeRewrite, shape: Sequence[Element], wanted: Sequence[Element]) -> bool:
    """Whether a mask has a shape in every run; SizesRelated where a relation makes it so."""
    return len(shape) == len(wanted) and all(map(body.is_same, shape, wanted))


def _causal(body: NodeRewrite, bias: str, like: str, sizes: Sizes) -> str:
    """`bias`, and in its place the lowest number wherever the key comes later than the query; '' is
    no bias.

    As in onnxruntime's kernels, the last query attends to all keys, also where there are more of
    them than queries and earlier ones.
    """
    length, earlier, keys = sizes.length, sizes.earlier, sizes.total
    dtype, lowest = body.dtype(like), float(np.finfo(body.dtype(like).name).min)
    if isinstance(length, int) and isinstance(earlier, int) and isinstance(keys, int):
        seen = np.tri(length, keys, earlier, dtype=bool)
        seen[-1:] = True
        if not bias:  # one constant, of which it is known which keys it excludes
            return body.constant(np.where(seen, 0.0, lowest).astype(dtype))
        allowed = body.constant(seen)
    else:
        own = total(body.context, (earlier, length))
        rows = body.add("Unsqueeze", body.range(earlier, own), body.ints([1]))
        allowed = body.add("LessOrEqual", body.range(0, keys), rows)
        if own != keys:  # where a run has as many of both, the last query sees all keys anyhow
            last = body.add("Equal", rows, body.integer(total(body.context, (own, -1))))
            allowed = body.add("Or", allowed, last)
    return body.add("Where", allowed, bias or body.number(0.0, like), body.number(lowest, like))


class Sizes(Struct, frozen=True):
    """The extents of an attention: of the batch, queries, keys of earlier runs, and all keys."""

    batch: Element
    length: Element
    earlier: Element
    total: Element


def _attend(
    body: NodeRewrite, parts: Sequence[str], widths: tuple[int, int], biases: list[str], like: str
) -> None:
    """Compute the node's output from queries, keys and values of shape (batch, heads, length,
    size).

    `widths` are the size of a head of queries, and all columns of values; `biases` are added to the
    scores.  All are of the dtype of tensor `like`.
    """
    query, key, value = parts
    scale = body.attribute("scale", 0.0) or 1.0 / float(np.sqrt(widths[0]))
    scores = body.add("MatMul", query, body.transpose(key, (0, 1, 3, 2)))
    scores = body.add("Mul", scores, body.number(scale, like))
    for bias in biases:
        scores = body.add("Add", scores, bias)
    mixed = body.add("MatMul", body.add("Softmax", scores, axis=-1), value)
    join_heads(body, mixed, widths[1])


def _biases(body: NodeRewrite, mask: str, bias: str, sizes: Sizes, like: str) -> list[str]:
    """The tensors that are added to the scores, in order."""
    masked = _mask_bias(body, mask, like, sizes) if mask else ""
    if body.attribute("unidirectional", 0):
        masked = _causal(body, masked, like, sizes)
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
    batch, length, _ = body.extents(body.input(0))
    parts = [
        split_heads(body, part, size, heads)
        for part, size in zip(body.split(projected, sizes, 2), sizes, strict=True)
    ]
    earlier: Element = body.extents(past)[3] if past else 0
    if past or body.output(1):
        # One tensor of keys and values, of which both are parts: a step appends to it in place.
        new = [body.add("Unsqueeze", part, body.ints([0])) for part in parts[1:]]
        present = body.add("Concat", *new, axis=0)
        present = body.add("Concat", past, present, axis=3) if past else present
        halves = body.split(present, [1, 1], 0)
        parts[1:] = [body.add("Squeeze", half, body.ints([0])) for half in halves]
        if body.output(1):
            body.add("Identity", present, result=body.output(1))
    extents = Sizes(batch, length, earlier, total(body.context, (earlier, length)))
    biases = _biases(body, mask, extra, extents, like)
    _attend(body, parts, (sizes[0] // heads, sizes[2]), biases, like)


def _multi_head_attention(body: NodeRewrite) -> None:
    """Attention of projected queries to keys and values, which may be split into heads already."""
    step = body.step
    body.require_attributes("num_heads", "mask_filter_value", "scale", "unidirectional")
    body.refuse_inputs(8, 9)
    body.refuse_outputs(3)
    query, key, value, bias, mask, extra, past_key, past_value = body.inputs(8)
    heads = body.attribute("num_heads")
    if body.rank(query) != 3 or not key or not value:
        body.refuse("packed queries, keys and values")
    ready = body.rank(key) == 4
    if ready and bias:
        body.refuse("a bias beside keys that are split into heads")
    sources = [query, key, value]
    columns = [body.extent(query, 2)]
    columns += [body.extent(x, 3) * heads if ready else body.extent(x, 2) for x in (key, value)]
    if bias:
        shifts = body.split(bias, columns, 0)
        sources = [body.add("Add", *pair) for pair in zip(sources, shifts, strict=True)]
    parts = [split_heads(body, sources[0], columns[0], heads)]
    for source, width in zip(sources[1:], columns[1:], strict=True):
        parts.append(source if ready else split_heads(body, source, width, heads))
    batch, length, _ = body.extents(query)
    earlier: Element = 0
    if bool(past_key) != bool(past_value):
        raise InvalidModel(f"{step}: past_key and past_value are given together or not at all")
    if past_key:
        earlier = body.extents(past_key)[2]
    for position, past in ((1, past_key), (2, past_value)):
        if past:
            parts[position] = body.add("Concat", past, parts[position], axis=2)
        if body.output(position):
            body.add("Identity", parts[position], result=body.output(position))
    keys = total(body.context, (earlier, body.extents(key)[2 if ready else 1]))
    biases = _biases(body, mask, extra, Sizes(batch, length, earlier, keys), query)
    _attend(body, parts, (columns[0] // heads, columns[2]), biases, query)


def _rotary_embedding(body: NodeRewrite) -> None:
    """Becomes ONNX's own RotaryEmbedding, with a position for every element of each sequence."""
    body.require_attributes("interleaved", "num_heads", "rotary_embedding_dim", "scale",
                            "is_packed_batching")  # fmt: skip
    if body.attribute("scale", 1.0) != 1.0 or body.attribute("is_packed_batching", 0):
        body.refuse("a scale or packed batches")
    x, positions, cosines, sines = body.inputs(4)
    rank, width = body.rank(x), body.attribute("rotary_embedding_dim", 0)
    count = 0
    if rank == 3:
        count = body.attribute("num_heads", 0)
        count = count or body.extent(x, 2) // (2 * body.extent(cosines, 1))
    extents = body.extents(x)
    batch, length = extents[0], extents[-2]
    if body.rank(positions) != 2:
        row = body.add("Add", body.range(0, length), body.reshape(positions, (1, 1)))
        shape = [body.add("Unsqueeze", body.integer(n), body.ints([0])) for n in (batch, length)]
        positions = body.add("Expand", row, body.add("Concat", *shape, axis=0))
    more = {"num_heads": count} if count else {}
    body.add(
        "RotaryEmbedding", x, cosines, sines, positions, rotary_embedding_dim=width,
        result=body.result, interleaved=body.attribute("interleaved", 0), **more,
    )  # fmt: skip
    body.of_opset(23)


CONTRIB_ATTENTION: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    (DOMAIN, "Attention"): _attention,
    (DOMAIN, "MultiHeadAttention"): _multi_head_attention,
    (DOMAIN, "QAttention"): _quantized_attention,
    (DOMAIN, "RotaryEmbedding"): _rotary_embedding,
}
