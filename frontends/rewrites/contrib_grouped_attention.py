"""onnxruntime's GroupQueryAttention (domain com.microsoft), written as standard operators.

In: queries, keys and values of new tokens, and those of earlier ones in memory of three kinds.
Growing memory has as many rows as there are earlier tokens, and present has these and the new
ones.  Shared memory has room for more rows than are in use, and present has as many: the new rows
of a sequence are written behind its earlier ones, in place if past and present are one memory.
Sliding memory has the last rows alone (`contrib_sliding_attention.py`).
What always holds: results depend on no row that is not in use, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.nodes.counted import filled
from graphflow.frontends.reading.vendor import DOMAIN
from graphflow.frontends.rewrites.contrib_attention import Sizes, join_heads, split_heads
from graphflow.frontends.rewrites.contrib_sliding_attention import attend_sliding, require_window
from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.frontends.rewrites.weighted_values import (
    GroupedHeads,
    has_sink,
    keys_seen,
    places_of_new,
    score_scale,
    size_vector,
    values_in_use,
    weighted_values,
)
from graphflow.frontends.tensors.derived_sizes import Element, held, is_at_most, total
from graphflow.frontends.tensors.values import contents_missing
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.data_dependent.indexing import as_int64
from graphflow.kernels.definitions.scalar_functions import add, multiply, subtract
from graphflow.kernels.definitions.stages import literal
from graphflow.tir import Binary, Expr

_NO_EFFECT = {
    "k_quant_type": ("NONE",), "v_quant_type": ("NONE",), "kv_cache_bit_width": (0,),
    "qk_output": (0,), "causal": (1,),
}  # fmt: skip
"""Attributes of GroupQueryAttention, and the values with which they change nothing."""


def _group_query_attention(body: NodeRewrite) -> None:
    """Causal attention of groups of heads behind earlier keys."""
    body.require_attributes(
        "num_heads", "kv_num_heads", "scale", "softcap", "do_rotary", "rotary_interleaved",
        "local_window_size", "smooth_softmax", "sliding_window_cache", *_NO_EFFECT,
    )  # fmt: skip
    body.require_without_effect(_NO_EFFECT)
    body.refuse_inputs(*range(12, 17))
    body.refuse_outputs(3)
    query, key, value, past_key, past_value = body.inputs(5)
    if bool(past_key) != bool(past_value):
        raise InvalidModel(f"{body.step}: past_key and past_value are given together or not at all")
    count, groups = body.attribute("num_heads"), body.attribute("kv_num_heads")
    hidden = body.extent(query, 2)
    size = hidden // count if key else hidden // (count + 2 * groups)
    heads = GroupedHeads(count, groups, size)
    sources = [query, key, value]
    if not key:
        sources = body.split(query, [count * size, groups * size, groups * size], 2)
    batch, length, _ = body.extents(query)
    earlier: Element = body.extents(past_key)[2] if past_key else 0
    sizes = Sizes(batch, length, earlier, _total(body))
    slides = body.attribute("sliding_window_cache", 0) == 1
    is_shared = not slides and _is_shared(body, sizes)
    if slides:
        require_window(body, sizes)
    elif not is_shared:
        _require_all_in_use(body, sizes)
    parts = [
        split_heads(body, source, n * size, n)
        for source, n in zip(sources, (count, groups, groups), strict=True)
    ]
    starts = _starts(body, sizes) if is_shared or slides else ""
    if body.attribute("do_rotary", 0):
        parts[:2] = [_rotated(body, part, sizes, size, starts) for part in parts[:2]]
    attend: Callable[..., list[str]] = _attend_growing
    if starts:
        attend = partial(attend_sliding if slides else _attend_shared, starts=starts)
    mixed, *present = attend(body, parts, sizes, heads)
    for position, name in enumerate(present, 1):
        if body.output(position):
            body.add("Identity", name, result=body.output(position))
    join_heads(body, mixed, count * size)


def _total(body: NodeRewrite) -> Element:
    """The number of keys in all, of the longest sequence."""
    name = body.input(6)
    stated = _only_number(body, name)
    if stated is None:
        asked = f"{body.step}: input {name} (total_sequence_length)"
        raise contents_missing(body.context.graph, body.context.known, name, asked)
    return stated


def _only_number(body: NodeRewrite, name: str) -> Element | None:
    """The number or size that a tensor of one element holds; None if a run computes it."""
    sized = body.context.sized_values.get(name)
    if sized is not None and sized.array.size == 1 and sized.divisor == 1:
        return sized.sizes.get(0, int(sized.array.item()))
    known = body.context.constant(name)
    return None if known is None or known.size != 1 else int(known.item())


def _is_shared(body: NodeRewrite, sizes: Sizes) -> bool:
    """Whether present has as many rows as past: there are never more keys, or past has a constant
    number of rows for any number of keys, which each run checks (`_starts`)."""
    if is_at_most(body.context, sizes.total, sizes.earlier):
        return True
    grown = total(body.context, (sizes.earlier, sizes.length))
    is_room = isinstance(sizes.earlier, int) and sizes.earlier > 0
    return is_room and isinstance(sizes.total, str) and sizes.total != grown


# Growing memory -----------------------------------------------------------------------------------


def _require_all_in_use(body: NodeRewrite, sizes: Sizes) -> None:
    """Refuse a node of which it is unknown whether all earlier keys are in use, and make each run
    check that they are."""
    context, lengths = body.context, body.input(5)
    if not body.is_same(sizes.total, total(context, (sizes.earlier, sizes.length))):
        body.refuse(f"a memory of {sizes.earlier} keys for {sizes.total} in all")
    if sizes.earlier == 0:
        return
    known = context.constant(lengths)
    if known is not None and isinstance(sizes.total, int) and (known == sizes.total - 1).all():
        return
    if known is not None or body.step.guard:
        body.refuse(f"sequences of several lengths behind {sizes.earlier} keys")
    body.once(("in use", lengths, sizes), partial(_check_lengths, body, lengths, sizes))


def _check_lengths(body: NodeRewrite, lengths: str, sizes: Sizes) -> str:
    """Make each run check that all earlier keys of each sequence are in use, if there are any."""
    call, context = NodeCall(body.step, body.context), body.context
    dtype, shape = context.type_of(lengths)
    operands = {
        "lengths": (shape, dtype.name), "keys": ((), "int64"), "earlier": ((), "int64"),
    }  # fmt: skip

    def unused(last: Expr, keys: Expr, earlier: Expr) -> Expr:
        return Binary("min", subtract(subtract(keys, 1), as_int64(last)), earlier)

    func = elementwise.elementwise("unused_keys", operands, unused, "int64")
    names = (lengths, held(context, sizes.total), held(context, sizes.earlier))
    found = filled(call, call.emit_part(func, names, "unused_keys"), 0, ".of_run")
    subject = f"{body.step}: the number of earlier keys that seqlens_k says are not in use"
    context.graph.add_guard(found, 0, 0, subject)
    return found


def _attend_growing(
    body: NodeRewrite, parts: Sequence[str], sizes: Sizes, heads: GroupedHeads
) -> list[str]:
    """The results (batch, heads, length, size), and the present keys and values."""
    past = [name for name in body.inputs(5)[3:] if sizes.earlier != 0]
    if has_sink(body):
        present = [
            body.add("Concat", *pair, axis=2) if past else pair[-1]
            for pair in zip(*filter(None, (past, parts[1:])), strict=True)
        ]
        own = total(body.context, (sizes.earlier, sizes.length))
        places = body.add("Unsqueeze", body.range(sizes.earlier, own), body.ints([0]))
        values = body.add("Unsqueeze", present[1], body.ints([2]))
        parts = [parts[0], present[0], values]
        seen = keys_seen(body, places, body.range(0, sizes.total))
        return [weighted_values(body, parts, seen, sizes, heads), *present]
    bias = body.input(10)
    given = {"scale": score_scale(body, heads)}
    given |= {"softcap": softcap} if (softcap := body.attribute("softcap", 0.0)) else {}
    if (window := body.attribute("local_window_size", -1)) > 0:
        given |= {"left_window_size": window - 1}
    inputs = [*parts, bias, *past] if past or bias else [*parts]
    mixed = body.add_several("Attention", 3 if past else 1, *inputs, is_causal=1, **given)
    body.of_opset(25)
    return mixed if past else [*mixed, *parts[1:]]


# Shared memory ------------------------------------------------------------------------------------


def _starts(body: NodeRewrite, sizes: Sizes) -> str:
    """The rows (batch,) of a memory at which the new keys of each sequence begin."""
    if body.attribute("sliding_window_cache", 0) == 1:  # which has room for any number of keys
        sizes = replace(sizes, earlier=sizes.total)
    key = ("starts", body.input(5), sizes)
    return body.once(key, partial(_emit_starts, body, body.input(5), sizes))


def _emit_starts(body: NodeRewrite, lengths: str, sizes: Sizes) -> str:
    """The same; each run checks that they are rows, and that no sequence has more keys than there
    are in all.  A prompt, which has no more keys than tokens, begins at 0, also where it is padded
    at its end."""
    call, context = NodeCall(body.step, body.context), body.context
    dtype, shape = context.type_of(lengths)
    vector, scalar = (shape, dtype.name), ((), "int64")
    step, names = body.step, [held(context, n) for n in (sizes.total, sizes.length, sizes.earlier)]

    def checked(word: str, value: Callable[..., Expr], given: Sequence[str], subject: str) -> str:
        kinds = dict.fromkeys(("keys", "length", "room")[: len(given)], scalar)
        func = elementwise.elementwise(word, {"last": vector, **kinds}, value, "int64")
        found = call.emit_part(func, (lengths, *given), word)
        of_run = filled(call, found, 0, f".{word}_of_run")
        context.graph.add_guard(of_run, 0, _MOST_KEYS, f"{step}: {subject}")
        return found

    def start(last: Expr, keys: Expr, length: Expr) -> Expr:
        later = Binary("min", subtract(keys, length), literal(1, "int64"))
        return multiply(subtract(add(as_int64(last), 1), length), later)

    checked("last", lambda last: as_int64(last), (), "the last key that seqlens_k names")
    checked(
        "spare", lambda last, keys: subtract(subtract(keys, 1), as_int64(last)), names[:1],
        "total_sequence_length less the number of keys that seqlens_k says are in use",
    )  # fmt: skip
    checked(
        "free", lambda last, keys, length, room: Binary(
            "min", subtract(room, keys), Binary("min", subtract(keys, length), as_int64(last))
        ), names, "the least of the rows that past_key lacks for total_sequence_length, and of "
        "the keys that this lacks for the new ones",
    )  # fmt: skip
    subject = "the row at which seqlens_k says that new keys begin"
    return checked("starts", start, names[:2], subject)


_MOST_KEYS = 1 << 31
"""More keys than a memory has."""


def _attend_shared(
    body: NodeRewrite, parts: Sequence[str], sizes: Sizes, heads: GroupedHeads, starts: str
) -> list[str]:
    """The results (batch, heads, length, size), and the present keys and values, in which the new
    ones stand from row `starts` of each sequence on."""
    present = []
    for past, part in zip(body.inputs(5)[3:], parts[1:], strict=True):
        present.append(body.add("TensorScatter", past, part, starts, axis=2))
        body.of_opset(24)
    begin, end, axes = body.ints([0]), size_vector(body, sizes.total), body.ints([2])
    keys, values = (body.add("Slice", name, begin, end, axes) for name in present)
    rows = body.range(0, sizes.total)
    ends = body.add("Add", starts, body.integer(sizes.length))
    in_use = body.add("Less", rows, body.add("Unsqueeze", ends, body.ints([1])))
    values = values_in_use(body, values, in_use)
    seen = keys_seen(body, places_of_new(body, sizes, starts), rows)
    return [weighted_values(body, [parts[0], keys, values], seen, sizes, heads), *present]


def _rotated(body: NodeRewrite, part: str, sizes: Sizes, size: int, starts: str) -> str:
    """Queries or keys (batch, heads, length, size), rotated by the angles of their positions."""
    cosines, sines, positions = body.inputs(10)[7:]
    width = 2 * body.extent(cosines, 1)
    caches = [
        body.once(("rows", cache, positions, sizes), partial(_angles, body, cache, sizes, starts))
        for cache in (cosines, sines)
    ]
    part = body.add(
        "RotaryEmbedding", part, *caches, interleaved=body.attribute("rotary_interleaved", 0),
        rotary_embedding_dim=0 if width == size else width,
    )  # fmt: skip
    body.of_opset(23)
    return part


def _angles(body: NodeRewrite, cache: str, sizes: Sizes, starts: str) -> str:
    """The rows (batch, length, width / 2) of a table of angles at the positions of a run."""
    if positions := body.input(9):
        return body.add("Gather", cache, _stated_positions(body, positions, sizes), axis=0)
    if starts:
        places = body.once(("places", starts, sizes), partial(places_of_new, body, sizes, starts))
        return body.add("Gather", cache, places, axis=0)
    begin, end = size_vector(body, sizes.earlier), size_vector(body, sizes.total)
    rows = body.add("Slice", cache, begin, end, body.ints([0]))
    rows = body.add("Unsqueeze", rows, body.ints([0]))
    if sizes.batch == 1:
        return rows
    shape = body.add("Concat", size_vector(body, sizes.batch), body.ints([1, 1]), axis=0)
    return body.add("Expand", rows, shape)


def _stated_positions(body: NodeRewrite, positions: str, sizes: Sizes) -> str:
    """The positions (batch, length) that an input states; those of a prompt count on from the
    first of them."""
    are_known = isinstance(sizes.length, int) and isinstance(sizes.total, int)
    if sizes.length == 1 or (are_known and sizes.length != sizes.total):
        return positions
    call, context = NodeCall(body.step, body.context), body.context
    first = body.reshape(positions, (-1,))
    first = body.add("Slice", first, body.ints([0]), body.ints([1]), body.ints([0]))
    counted = body.add("Add", first, body.range(0, sizes.length))
    names = (held(context, sizes.length), held(context, sizes.total))
    is_prompt = call.emit_part(elementwise.binary("eq", (), (), "int64"), names, "is_prompt")
    shape = body.add("Shape", positions)
    return body.add("Where", is_prompt, body.add("Expand", counted, shape), positions)


CONTRIB_GROUPED_ATTENTION: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    (DOMAIN, "GroupQueryAttention"): _group_query_attention,
}
