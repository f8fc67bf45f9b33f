"""Mean values of the groups of heads of a GroupQueryAttention, whatever memory its keys are in.

In: queries, keys and values by heads, and which keys each query sees.  Out: steps of standard
operators.  What always holds: a key that a query does not see has no effect, whatever its row
holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from msgspec import Struct

from graphflow.frontends.rewrites.contrib_attention import Sizes
from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.frontends.tensors.derived_sizes import Element


class GroupedHeads(Struct, frozen=True):
    """The numbers of heads of queries, and of keys and values, and the elements of a head."""

    queries: int
    groups: int
    size: int


def score_scale(body: NodeRewrite, heads: GroupedHeads) -> float:
    """What products of queries and keys are multiplied with."""
    return float(body.attribute("scale", 0.0) or 1 / sqrt(heads.size))


def has_sink(body: NodeRewrite) -> bool:
    """Whether the sum of a row's powers has a summand that no key has."""
    return bool(body.input(11)) or body.attribute("smooth_softmax", 0) == 1


def weighted_values(
    body: NodeRewrite, parts: Sequence[str], seen: str, sizes: Sizes, heads: GroupedHeads
) -> str:
    """The mean values (batch, heads, length, size), of queries (batch, heads, length, size), keys
    (batch, groups, keys, size) and values (batch, groups, 1, keys, size), weighted by a softmax.

    Scores of keys that are not `seen` are replaced, and not added to: they may be NaN.
    """
    query, keys, values = parts
    scaled = body.add("Mul", query, body.number(score_scale(body, heads), body.input(0)))
    scaled = _grouped(body, scaled, heads, (sizes.length, heads.size))
    own = body.ints([2])  # the axis of the heads of a group
    transposed = body.transpose(keys, (0, 1, 3, 2))
    scores = body.add("MatMul", scaled, body.add("Unsqueeze", transposed, own))
    if softcap := body.attribute("softcap", 0.0):
        most = body.number(softcap, body.input(0))
        scores = body.add("Mul", body.add("Tanh", body.add("Div", scores, most)), most)
    if bias := body.input(10):
        same = body.extent(bias, 1) == 1
        bias = (
            body.add("Unsqueeze", bias, own)
            if same
            else _grouped(body, bias, heads, (sizes.length, sizes.total))
        )
        scores = body.add("Add", scores, bias)
    scores = body.add("Where", seen, scores, body.number(-np.inf, body.input(0)))
    weights = _softmax(body, scores, heads)
    mixed = body.add("MatMul", weights, values)
    shape = body.add(
        "Concat", body.ints([0, heads.queries]), size_vector(body, sizes.length),
        body.ints([heads.size]), axis=0,
    )  # fmt: skip
    return body.add("Reshape", mixed, shape)


def _grouped(body: NodeRewrite, name: str, heads: GroupedHeads, rest: Sequence[Element]) -> str:
    """A tensor (batch, heads, *rest) as (batch, groups, heads of a group, *rest)."""
    groups = body.ints([0, heads.groups, heads.queries // heads.groups])
    shape = body.add("Concat", groups, *(size_vector(body, n) for n in rest), axis=0)
    return body.add("Reshape", name, shape)


def keys_seen(body: NodeRewrite, places: str, keys: str) -> str:
    """Which keys the queries at `places` (batch or 1, length) see, as (batch or 1, 1, 1, length,
    keys): those up to their own position, and in the local window if there is one.  `keys` are the
    positions of the keys, as (keys,) or (batch, 1, 1, 1, keys)."""
    own = body.add("Unsqueeze", places, body.ints([1, 2, 4]))
    seen = body.add("LessOrEqual", keys, own)
    if (window := body.attribute("local_window_size", -1)) > 0:
        first = body.add("Sub", own, body.integer(window))
        seen = body.add("And", seen, body.add("Greater", keys, first))
    return seen


def _softmax(body: NodeRewrite, scores: str, heads: GroupedHeads) -> str:
    """The weights of the keys; those of a row add up to less than 1 if it has a sink: a number
    whose power the sum of the powers has too, for each head, or 0 for a smooth softmax."""
    if not has_sink(body):
        return body.add("Softmax", scores, axis=-1)
    if name := body.input(11):
        sink = body.reshape(name, (heads.groups, heads.queries // heads.groups, 1, 1))
    else:
        sink = body.number(0.0, body.input(0))
    last = body.ints([-1])
    most = body.add("Max", body.add("ReduceMax", scores, last, keepdims=1), sink)
    powers = body.add("Exp", body.add("Sub", scores, most))
    whole = body.add("ReduceSum", powers, last, keepdims=1)
    whole = body.add("Add", whole, body.add("Exp", body.add("Sub", sink, most)))
    return body.add("Div", powers, whole)


def values_in_use(body: NodeRewrite, values: str, in_use: str) -> str:
    """Values (batch, groups, keys, size) as (batch, groups, 1, keys, size), with zeros in the rows
    that are not in use: a weight of 0 times what stands there may be NaN."""
    values = body.add("Unsqueeze", values, body.ints([2]))
    rows = body.add("Unsqueeze", in_use, body.ints([1, 2, 4]))
    return body.add("Where", rows, values, body.number(0.0, body.input(0)))


def places_of_new(body: NodeRewrite, sizes: Sizes, starts: str) -> str:
    """The positions (batch, length) of the new tokens."""
    begin = body.add("Unsqueeze", starts, body.ints([1]))
    return body.add("Add", begin, body.range(0, sizes.length))


def size_vector(body: NodeRewrite, element: Element) -> str:
    """A number or a size as a vector of one element."""
    return body.add("Unsqueeze", body.integer(element), body.ints([0]))
