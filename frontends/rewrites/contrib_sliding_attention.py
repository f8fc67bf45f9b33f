"""GroupQueryAttention over memory that slides: rows for the keys of a local window, and no more.

In: new queries, keys and values, and a memory of a constant number of rows, which has the last keys
before them.  Out: steps of standard operators.  What always holds: results depend on no row that is
not in use, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from onnx import TensorProto

from graphflow.frontends.rewrites.contrib_attention import Sizes
from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.frontends.rewrites.weighted_values import (
    GroupedHeads,
    keys_seen,
    places_of_new,
    size_vector,
    values_in_use,
    weighted_values,
)


def require_window(body: NodeRewrite, sizes: Sizes) -> None:
    """Refuse a node whose memory is not of a constant number of rows that hold a window, and one
    with a bias, whose columns are positions of keys."""
    window = body.attribute("local_window_size", -1)
    if not isinstance(sizes.earlier, int):
        body.refuse("sliding_window_cache = 1 and a memory whose number of rows a run decides")
    if not 0 < window <= sizes.earlier:
        body.refuse(f"a memory of {sizes.earlier} rows that slides with a window of {window}")
    if body.input(10):
        body.refuse("attention_bias for a memory that slides")


def attend_sliding(
    body: NodeRewrite, parts: Sequence[str], sizes: Sizes, heads: GroupedHeads, starts: str
) -> list[str]:
    """The results (batch, heads, length, size), and the present keys and values.

    After T keys, row i of a memory of C rows holds the key at position `first(T) + i`, where W is
    the window and `first(T) = G * (max(T - W, 0) // G)` with G = C - W + 1: rows move by G at once.
    Queries read the earlier rows and the new ones, as a prompt may be longer than the memory.
    """
    window, room = body.attribute("local_window_size"), int(sizes.earlier)
    most, axis = size_vector(body, sizes.total), body.ints([2])
    past = [body.add("Slice", name, body.ints([0]), most, axis) for name in body.inputs(5)[3:]]
    both = [body.add("Concat", *pair, axis=2) for pair in zip(past, parts[1:], strict=True)]

    def once(word: str, make: Callable[..., str], *given: object) -> str:
        return body.once(("sliding", word, starts, sizes, window), partial(make, body, *given))

    used = once("used", _rows_of, past[0])
    begin = once("begin", _column, starts)
    first = once("first", _first_position, begin, room, window)
    keys = once("keys", _positions_of_rows, begin, first, used, sizes)
    rows = once("rows", _rows_afterwards, (begin, first, used), sizes, window)
    present = []
    for name in both:
        by_row = body.add("GatherND", body.transpose(name, (0, 2, 1, 3)), rows, batch_dims=1)
        present.append(body.transpose(by_row, (0, 2, 1, 3)))
    end = body.add("Add", begin, body.integer(sizes.length))
    values = values_in_use(body, both[1], body.add("Less", keys, end))
    keys = body.add("Unsqueeze", keys, body.ints([1, 2, 3]))
    seen = keys_seen(body, places_of_new(body, sizes, starts), keys)
    return [weighted_values(body, [parts[0], both[0], values], seen, sizes, heads), *present]


def _rows_of(body: NodeRewrite, past: str) -> str:
    """The number of rows of an earlier memory (batch, groups, rows, size)."""
    return body.add("Squeeze", body.add("Shape", past, start=2, end=3), body.ints([0]))


def _column(body: NodeRewrite, vector: str) -> str:
    """Numbers (batch,) as (batch, 1)."""
    return body.add("Unsqueeze", vector, body.ints([1]))


def _first_position(body: NodeRewrite, keys: str, room: int, window: int) -> str:
    """The position (batch, 1) of row 0 of a memory that slides, by the number of keys so far."""
    outside = body.add("Sub", keys, body.integer(window))
    outside = body.add("Max", outside, body.integer(0))
    step = body.integer(room - window + 1)
    return body.add("Mul", body.add("Div", outside, step), step)


def _positions_of_rows(body: NodeRewrite, begin: str, first: str, used: str, sizes: Sizes) -> str:
    """The positions (batch, keys) of the rows of a memory that slides and of the new keys behind
    them; rows that are not in use have one that no query sees."""
    rows = body.add("Range", body.integer(0), used, body.integer(1))
    earlier = body.add("Add", first, rows)
    unseen = body.add("Add", begin, body.integer(sizes.length))
    earlier = body.add("Where", body.add("Less", earlier, begin), earlier, unseen)
    new = body.add("Add", begin, body.range(0, sizes.length))
    return body.add("Concat", earlier, new, axis=1)


def _rows_afterwards(
    body: NodeRewrite, before: tuple[str, str, str], sizes: Sizes, window: int
) -> str:
    """The row (batch, rows, 1), of the earlier and the new ones, that each row holds afterwards.

    `before` are the positions of the first new key and of row 0, and the number of earlier rows.
    """
    (begin, first, used), room = before, int(sizes.earlier)
    last = body.add("Cast", _column(body, body.input(5)), to=TensorProto.INT64)
    keys = body.add("Add", last, body.integer(1))
    held_then = body.add("Add", _first_position(body, keys, room, window), body.range(0, room))
    of_past = body.add("Sub", held_then, first)
    of_new = body.add("Add", body.add("Sub", held_then, begin), used)
    row = body.add("Where", body.add("Less", held_then, begin), of_past, of_new)
    behind = body.add("Add", used, body.integer(sizes.length))
    row = body.add("Min", row, body.add("Sub", behind, body.integer(1)))
    return body.add("Unsqueeze", row, body.ints([2]))
