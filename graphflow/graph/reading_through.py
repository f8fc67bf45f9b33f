"""Reading through movement: expansions that read what a moved tensor was put together from.

In: a graph with the expansions that are known, and its moved values.  Out: further expansions.  A
reduction over the channels of a moved tensor has one in which it reads the tensors that the
channels come from, as a sum of reductions over segments, each with the matching part of its
constant operands.  Where every reader does that the tensor is unmoved: it is never put together.  A
moved tensor that other kernels read has an expansion that puts it together directly from the
tensors where its channels were computed.

    before:  y = Concat(a, b); z = Conv(y, w)
    after:   z = Conv(a, w[:, :ca]) + Conv(b, w[:, ca:]), as one kernel
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from msgspec import Struct, field

from graphflow.base.fields import replace
from graphflow.graph.channels import Moved, segments_of
from graphflow.graph.expansions import Expansion, Expansions
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.kernels.definitions.movements import selection
from graphflow.kernels.definitions.movements.segments import (
    ReadThrough,
    Weight,
    copied,
    reduced_through,
)
from graphflow.tir import only_moves

MOST_SEGMENTS = 32
"""The most segments of one operand; each becomes a loop of its own in the kernel."""

SHUFFLE = "ChannelShuffle"
"""The operator name of nodes that put a tensor together from where its channels were computed."""


class _Widened(Struct, frozen=True):
    """A graph to which `parts` of its constants are added: names by constant and ranges of axes."""

    graph: OperatorGraph
    parts: dict[tuple[str, tuple[range, ...]], str] = field(default_factory=dict)


def shuffled(moves: Mapping[str, Moved]) -> set[str]:
    """The moved values that cannot all be parts of other tensors.

    These are the results of several nodes, as a channel shuffle is, and what several nodes put
    together with other values, since a value is a part of at most one.
    """
    joined = Counter(
        origin for moved in moves.values() if len(moved.origins) > 1 for origin in moved.origins
    )
    return {value for value, moved in moves.items() if moved.between or joined[value] > 1}


def reading_through(known: Expansions, moves: Mapping[str, Moved], wanted: Set[str]) -> Expansions:
    """`known` and the expansions of the nodes that read or make moved values, `moves`.

    Considered are the values in `wanted` and all that movement connects with them.  A reader, or an
    expansion of it, is expanded if it reduces over the channels of an operand, in at most
    `MOST_SEGMENTS` segments, with constant other operands where these have to be cut.
    """
    graph = known.graph
    region = _region(graph, wanted)
    within = {value: moved for value, moved in moves.items() if value in region}
    wide = _Widened(graph.copy())
    by_node: dict[str, list[Expansion]] = {}
    for node in graph.nodes:
        for definition in known.definitions(node):
            read = _reading_through(wide, definition, within)
            if read is not None:
                by_node.setdefault(node.name, []).append(read)
    if not by_node:
        return known
    readers = {name: expansions[0] for name, expansions in by_node.items()}
    for value in _put_together(within, _needed(graph, within, readers)):
        maker = graph.producer(value)
        assert maker is not None, "a moved value was moved by a node"
        joined = _taken_from_sources(wide.graph, maker, within[value], within)
        if joined is not None:
            by_node[maker.name] = [joined]
    origins: dict[str, tuple[str, ...]] = {}
    for value, moved in within.items():
        origins |= {between: () for between in moved.between if between not in within}
        origins[value] = moved.origins
    return Expansions(
        wide.graph, (*known.constants, *wide.parts.values()), known.adding(by_node), origins
    )


def _needed(
    graph: OperatorGraph, moves: Mapping[str, Moved], readers: Mapping[str, Expansion]
) -> Iterator[str]:
    """The moved values that have to be computed, for readers that read nothing in their place."""
    for value in moves:
        through = (
            _moves(graph, node)
            or (node.name in readers and value in readers[node.name].through.values())
            for node, _ in graph.consumers(value)
        )
        if value in graph.outputs or not all(through):
            yield value


def _put_together(moves: Mapping[str, Moved], needed: Iterable[str]) -> list[str]:
    """The moved values that may be put together from their sources, where these are `needed`.

    A needed value itself, or the tensors that are joined in it: a tensor cannot be both inside its
    source and inside another one, so one of the two costs a copy.
    """
    assembled: dict[str, None] = {}
    left = list(needed)
    for value in left:  # grows
        assembled[value] = None
        moved = [origin for origin in moves[value].origins if origin in moves]
        if len(moves[value].origins) > 1:
            assembled.update(dict.fromkeys(moved))
        else:
            left += [origin for origin in moved if origin not in assembled]
    return list(assembled)


def _region(graph: OperatorGraph, wanted: Set[str]) -> set[str]:
    """The values that are connected with those wanted through nodes that only move elements."""
    region = set(wanted)
    movers = [{*n.inputs, *n.outputs} for n in graph.nodes if _moves(graph, n)] if wanted else []
    growing = True
    while growing:
        reached = [touched for touched in movers if touched & region and not touched <= region]
        region.update(*reached)
        growing = bool(reached)
    return region


def _moves(graph: OperatorGraph, node: Node) -> bool:
    return only_moves(node.func) and not all(graph.is_constant(v) for v in node.outputs)


def _reading_through(
    wide: _Widened, known: Expansion, moves: Mapping[str, Moved]
) -> Expansion | None:
    """What takes the place of a node, with every operand read in segments over whose channels it
    reduces; None if there is no such operand.

    Constants that it reads are added to the graph.
    """
    node = known.node
    if node.by_user or only_moves(node.func):
        return None
    read = known
    for value in node.inputs:
        if value in moves and node.inputs.count(value) == 1:
            read = _through_operand(wide, read, value, moves[value]) or read
    return read if read.through else None


def _through_operand(
    wide: _Widened, so_far: Expansion, value: str, moved: Moved
) -> Expansion | None:
    node = so_far.node
    sources, segments = segments_of(moved.table)
    if len(segments) > MOST_SEGMENTS:
        return None
    shapes = [wide.graph.values[source].shape for source in sources]
    operand = node.func.inputs[node.inputs.index(value)].name
    made = reduced_through(node.func, operand, shapes, segments)
    if not isinstance(made, ReadThrough) or not _parts_are_known(wide.graph, node, made):
        return None
    inputs = _inputs(wide, node, sources, made)
    taking = replace(node, func=made.func, inputs=inputs, offered=(), found=())
    bound = zip(made.func.inputs, made.inputs, strict=True)
    through = {buffer.name: value for buffer, what in bound if isinstance(what, int)}
    reads = f"it reads {', '.join(sources)} in place of {value}"
    because = "; ".join(filter(None, (so_far.because, reads)))
    return replace(so_far, node=taking, through={**so_far.through, **through}, because=because)


def _parts_are_known(graph: OperatorGraph, node: Node, made: ReadThrough) -> bool:
    """Whether the operands that have to be cut into parts are constants."""
    cut = (node.bound[what.name] for what in made.inputs if isinstance(what, Weight))
    return all(map(graph.is_constant, cut))


def _inputs(
    wide: _Widened, node: Node, sources: Sequence[str], made: ReadThrough
) -> tuple[str, ...]:
    """The values bound to the inputs of the new kernel; parts of constants become new values."""
    bound = node.bound

    def value_of(what: int | Weight | str) -> str:
        if isinstance(what, int):
            return sources[what]
        return _part(wide, bound[what.name], what) if isinstance(what, Weight) else bound[what]

    return tuple(map(value_of, made.inputs))


def _part(wide: _Widened, value: str, wanted: Weight) -> str:
    """The value of a part of a constant, added if new; the constant itself where the part is all of
    it.
    """
    constant, part = wide.graph.values[value], wanted.segment
    ranges = [range(extent) for extent in constant.shape]
    ranges[wanted.axis] = range(part.at, part.at + part.stride * part.count, part.stride)
    if ranges[wanted.axis] == range(constant.shape[wanted.axis]):
        return value
    key = value, tuple(ranges)
    if key not in wide.parts:
        text = f"{value}[{wanted.axis}:{part.at}+{part.stride}*{part.count}]"
        wide.parts[key] = name = wide.graph.free_name(text)
        func = selection.take_slice(constant.shape, ranges, constant.dtype)
        wide.graph.add(Node(name, "Slice", func, (value,), (name,)))
    return wide.parts[key]


def _taken_from_sources(
    graph: OperatorGraph, maker: Node, moved: Moved, moves: Mapping[str, Moved]
) -> Expansion | None:
    """The kernel that puts a value together from where its channels were computed.

    None where these are what it is moved from, where only one tensor is, and for too many segments.
    """
    sources, segments = segments_of(moved.table)
    if len(segments) > MOST_SEGMENTS or len(sources) == 1 or maker.by_user:
        return None
    if set(sources) <= set(moved.origins):
        return None
    shapes = [graph.values[source].shape for source in sources]
    func = copied(shapes, segments, graph.values[maker.outputs[0]].dtype)
    through = {}
    for buffer, source in zip(func.inputs, sources, strict=True):
        if source not in moved.origins:
            through[buffer.name] = next(
                origin
                for origin in moved.origins
                if origin in moves and any(source == value for value, _ in moves[origin].table)
            )
    because = f"it is put together from {', '.join(sources)}, in which its channels are computed"
    taking = replace(maker, op=SHUFFLE, func=func, inputs=sources, offered=(), found=())
    return Expansion(taking, through, because=because)
