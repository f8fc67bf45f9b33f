"""Trace the channels of moved tensors back to the tensors in which they were computed.

In: an operator graph.  Out: for each value whose channels (axis 1) are only moved, by kernels that
leave all other axes as they are, a `Moved`: the source of each channel, which is the value that
computes it and the channel's number there, and the values that the channels are moved from.

For example, channels that are joined and shuffled, where a and b are computed and have two each:

    j = Concat(a, b)                        table of j: (a, 0) (a, 1) (b, 0) (b, 1)
    r = Reshape(j, 2 × 2 channels)
    t = Transpose(r), those two axes
    s = Reshape(t, 4 channels)              table of s: (a, 0) (b, 0) (a, 1) (b, 1)

s is moved from j in one step, with r and t between them.  Its table consists of two segments: the
channels 0 and 2 are those of a, and the channels 1 and 3 those of b (`segments_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from graphflow import arith
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.kernels.definitions.movements.segments import CHANNELS, Segment
from graphflow.tir import Buffer, moves_of

Channel: TypeAlias = "tuple[str, int]"
"""A value and the number of one of its channels."""


class _Move(Struct, frozen=True):
    """`output[place] = value[origin]` for all values of the variables below their `extents`."""

    value: str
    source: Buffer
    place: tuple[arith.IndexExpr, ...]
    origin: tuple[arith.IndexExpr, ...]
    extents: Mapping[arith.Var, int]


def moves_in(node: Node) -> tuple[_Move, ...]:
    """The moves of which a node consists, each over a whole box; empty if the node computes
    anything.
    """
    bound, moves = node.bound, []
    for store, load, domain in moves_of(node.func) or ():
        starts = [arith.constant_value(axis.start) for axis in domain.axes]
        if domain.where != arith.TRUE or any(starts) or load.buffer.name not in bound:
            return ()
        extents = {axis.var: arith.constant_value(axis.stop) or 0 for axis in domain.axes}
        value = bound[load.buffer.name]
        moves.append(_Move(value, load.buffer, store.indices, load.indices, extents))
    return tuple(moves) if len(node.outputs) == 1 else ()


class Moved(Struct, frozen=True):
    """Where the channels of a moved value come from.

    `table` has the source of each channel.  `origins` are the values that one step moves them from,
    computed or moved themselves; `between` the intermediate values of that step: a channel shuffle
    of Reshape, Transpose and Reshape is one step.
    """

    table: tuple[Channel, ...]
    origins: tuple[str, ...]
    between: tuple[str, ...] = ()


def moved_channels(graph: OperatorGraph) -> dict[str, Moved]:
    """Where the channels come from, for each value of which all channels are moved.

    Sources are values that are computed; graph inputs and constants count as such.
    """
    moved: dict[str, Moved] = {}
    for node in graph.nodes:
        if len(node.outputs) != 1 or graph.is_constant(node.outputs[0]):
            continue
        output = node.func.outputs[0]
        if len(output.shape) <= CHANNELS or not output.size:
            continue
        step = _step_to(graph, node)
        if step is not None:
            resolved = tuple(_resolved(channel, moved) for channel in step.table)
            moved[node.outputs[0]] = replace(step, table=resolved)
    return moved


def _resolved(channel: Channel, moved: Mapping[str, Moved]) -> Channel:
    """The source of a channel; the tables of values earlier in the order are resolved already."""
    value, number = channel
    return moved[value].table[number] if value in moved else channel


def _step_to(graph: OperatorGraph, node: Node) -> Moved | None:
    """One step of movement, that ends with a node: its table has the channels of its origins.

    None where other axes move too.
    """
    moves = moves_in(node)
    shape = node.func.outputs[0].shape
    if len(moves) == 1:
        return _step_through_chain(graph, node, moves[0])
    sources: dict[int, Channel] = {}
    for move in moves:
        pairs = _channel_pairs(move, shape)
        if pairs is None:
            return None  # it may write over what another move put there
        for channel, origin in pairs:
            sources[channel] = (move.value, origin)
    if len(sources) != shape[CHANNELS]:
        return None
    table = tuple(sources[channel] for channel in range(shape[CHANNELS]))
    return Moved(table, tuple(dict.fromkeys(value for value, _ in table)))


def _step_through_chain(graph: OperatorGraph, node: Node, move: _Move) -> Moved | None:
    """One step of movement through a chain of nodes with one move each.

    Walks back through the chain, through shapes of other ranks (a channel shuffle is Reshape,
    Transpose, Reshape), until the composed move changes channels only.  None if it never does.
    """
    shape = node.func.outputs[0].shape
    axes = tuple(arith.Var(f"i{k}") for k in range(len(shape)))
    ranges = {v: (0, n - 1) for v, n in zip(axes, shape, strict=True)}
    # Where the element `axes` of the node's output is in the tensor that the walk has come to.
    place: tuple[arith.IndexExpr, ...] = axes
    between: list[str] = []
    while True:
        if not _writes_all_in_order(move, graph.values[node.outputs[0]].shape):
            return None
        values = dict(zip(move.place, place, strict=True))
        place = tuple(
            arith.simplify_index(arith.substitute(e, values), ranges)  # type: ignore[arg-type]
            for e in move.origin
        )
        if _changes_channels_only(axes, place, shape, move.source.shape):
            channels = _values_along(place[CHANNELS], axes[CHANNELS], shape[CHANNELS])
            table = tuple((move.value, channel) for channel in channels)
            return Moved(table, (move.value,), tuple(between))
        before = graph.producer(move.value)
        moves = () if before is None else moves_in(before)
        if before is None or len(moves) != 1:
            return None
        between.append(move.value)
        node, move = before, moves[0]


def _writes_all_in_order(move: _Move, shape: tuple[int, ...]) -> bool:
    """Whether a move writes each element of a tensor by one loop for each axis."""
    return all(isinstance(e, arith.Var) for e in move.place) and shape == tuple(
        move.extents[e]  # type: ignore[index]
        for e in move.place
    )


def _changes_channels_only(
    axes: tuple[arith.Var, ...],
    place: tuple[arith.IndexExpr, ...],
    shape: tuple[int, ...],
    source: tuple[int, ...],
) -> bool:
    """Whether the composed move leaves all axes but the channels unchanged and complete."""
    if len(place) != len(axes):
        return False
    others = [k for k in range(len(axes)) if k != CHANNELS]
    same = all(
        (place[k] is axes[k] or shape[k] == 1 == source[k]) and shape[k] == source[k]
        for k in others
    )
    return same and arith.variables(place[CHANNELS]) <= {axes[CHANNELS]}


def _channel_pairs(move: _Move, shape: tuple[int, ...]) -> Iterator[tuple[int, int]] | None:
    """(output channel, input channel) pairs of a move; None if it does not keep the other axes."""
    if len(move.place) != len(move.origin):
        return None
    for k, (place, origin) in enumerate(zip(move.place, move.origin, strict=True)):
        if k == CHANNELS:
            continue
        kept = isinstance(place, arith.Var) and place is origin
        extent = move.extents[place] if isinstance(place, arith.Var) else 0
        if not kept or not extent == shape[k] == move.source.shape[k]:
            return None
    used = arith.variables(move.place[CHANNELS]) | arith.variables(move.origin[CHANNELS])
    if len(used) != 1 or len(arith.terms_of(move.place[CHANNELS])[0]) != 1:
        return None
    (var,) = used
    count = move.extents[var]
    places, origins = (_values_along(e[CHANNELS], var, count) for e in (move.place, move.origin))
    return zip(places, origins, strict=True)


@lru_cache(maxsize=256)
def _values_along(expr: arith.IndexExpr, var: arith.Var, count: int) -> tuple[int, ...]:
    """The values of `expr` for each value of its only variable; cached, as networks repeat
    moves.
    """
    return tuple(arith.evaluate(expr, {var: value}) for value in range(count))


def segments_of(table: Sequence[Channel]) -> tuple[tuple[str, ...], tuple[Segment, ...]]:
    """The source values of a table, and the segments of channels that it consists of.

    A segment is the longest run of channels of one source with a constant step in the source and a
    constant stride in the table: of (a, 0) (b, 0) (a, 1) (b, 1) the first is of two channels of a,
    at 0 with stride 2, from 0 on with step 1.  Segments are in the order of their first channels.
    """
    by_source: dict[str, list[tuple[int, int]]] = {}
    for c, (value, origin) in enumerate(table):
        by_source.setdefault(value, []).append((c, origin))
    segments: list[Segment] = []
    for number, pairs in enumerate(by_source.values()):
        start = 0
        while start < len(pairs):
            stop = _end_of_run(pairs, start)
            (at, begin), count = pairs[start], stop - start
            stride, step = (
                (pairs[start + 1][0] - at, pairs[start + 1][1] - begin) if count > 1 else (1, 1)
            )
            segments.append(Segment(number, at, stride, begin, step, count))
            start = stop
    return tuple(by_source), tuple(sorted(segments, key=lambda segment: segment.at))


def _end_of_run(pairs: Sequence[tuple[int, int]], start: int) -> int:
    """The end of the run of pairs with equal steps that begins at `start`."""

    def step(k: int) -> tuple[int, int]:
        return pairs[k][0] - pairs[k - 1][0], pairs[k][1] - pairs[k - 1][1]

    stop = start + 1
    while stop < len(pairs) and step(stop) == step(start + 1):
        stop += 1
    return stop
