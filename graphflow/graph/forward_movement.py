"""Let reductions over the channels of a moved tensor read the tensors that it was moved from.

In: a graph of fusion groups, and the values whose movement is to be avoided.  Out: an equivalent
graph, or None where nothing changes.  Such a reduction becomes a sum of reductions over segments of
the tensors from which the channels were moved, each with the matching part of its constant
operands; then the moved tensor need not be computed for it.  A moved tensor that other kernels
still read remains, and is put together directly from the tensors where its channels were computed.

    before:  y = Concat(a, b); z = Conv(y, w)
    after:   z = Conv(a, w[:, :ca]) + Conv(b, w[:, ca:]), as one kernel
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from graphflow.graph.canonicalize import canonicalize
from graphflow.graph.channels import Channel, channel_tables, segments_of
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.kernels.definitions import (
    ReadThrough,
    Weight,
    copied,
    reduced_through,
    take_slice,
)
from graphflow.tir import only_moves

MOST_SEGMENTS = 32
"""The most segments of one operand; each becomes a loop of its own in the kernel."""

SHUFFLE = "ChannelShuffle"
"""The operator name of nodes that put a tensor together from where its channels were computed."""

Tables = Mapping[str, tuple[Channel, ...]]
"""For each moved value the source of each of its channels."""


def read_through(graph: OperatorGraph, moved: Set[str]) -> OperatorGraph | None:
    """The graph in which reductions read the sources of moved operands; None where nothing changes.

    Considered are the values in `moved` and all values that movement connects with them.  Only
    readers with a variant without the movement are changed: those that reduce over the channels of
    an operand, in at most `MOST_SEGMENTS` segments, with constant other operands where these have
    to be cut.  Movement that no reader needs any more is removed.
    """
    region = _region(graph, moved)
    tables = {v: table for v, table in channel_tables(graph).items() if v in region}
    out = graph.copy()
    changed = [_reduce_through(out, node.name, tables) for node in graph.nodes]
    if not any(changed):
        return None
    for value in _moved_twice(out, tables):
        _take_from_sources(out, value, tables[value])
    _drop_unread(out, tables)
    return canonicalize(out)


def _region(graph: OperatorGraph, moved: Set[str]) -> set[str]:
    """The values that are connected with those in `moved` through nodes that only move elements."""
    region = set(moved)
    movers = [{*n.inputs, *n.outputs} for n in graph.nodes if _moves(graph, n)]
    growing = True
    while growing:
        reached = [touched for touched in movers if touched & region and not touched <= region]
        region.update(*reached)
        growing = bool(reached)
    return region


def _moves(graph: OperatorGraph, node: Node) -> bool:
    return only_moves(node.func) and not all(graph.is_constant(v) for v in node.outputs)


def _reduce_through(out: OperatorGraph, name: str, tables: Tables) -> bool:
    """Make a node read operands in segments if it reduces over their channels; whether any
    changed.
    """
    changed = False
    if out.node(name).by_user or only_moves(out.node(name).func):
        return False
    for value in out.node(name).inputs:
        node = out.node(name)
        if value in tables and node.inputs.count(value) == 1:
            sources, segments = segments_of(tables[value])
            shapes = [out.values[source].shape for source in sources]
            operand = node.func.inputs[node.inputs.index(value)].name
            if len(segments) > MOST_SEGMENTS:
                continue
            made = reduced_through(node.func, operand, shapes, segments)
            if isinstance(made, ReadThrough) and _parts_are_known(out, node, made):
                inputs = _inputs(out, node, sources, made)
                out.replace(name, replace(node, func=made.func, inputs=inputs))
                changed = True
    return changed


def _bound(node: Node) -> dict[str, str]:
    return dict(zip((b.name for b in node.func.inputs), node.inputs, strict=True))


def _parts_are_known(out: OperatorGraph, node: Node, made: ReadThrough) -> bool:
    """Whether the operands that have to be cut into parts are constants."""
    bound = _bound(node)
    return all(out.is_constant(bound[w.name]) for w in made.inputs if isinstance(w, Weight))


def _inputs(
    out: OperatorGraph, node: Node, sources: tuple[str, ...], made: ReadThrough
) -> tuple[str, ...]:
    """The values bound to the inputs of the new kernel; parts of constants become new values."""
    bound = _bound(node)
    found = []
    for what in made.inputs:
        if isinstance(what, int):
            found.append(sources[what])
        else:
            operand = bound[what.name if isinstance(what, Weight) else what]
            found.append(_part(out, operand, what) if isinstance(what, Weight) else operand)
    return tuple(found)


def _part(out: OperatorGraph, value: str, wanted: Weight) -> str:
    """The value of a part of a constant, added if new; the constant itself where the part is all of
    it.
    """
    constant, part = out.values[value], wanted.segment
    ranges = [range(extent) for extent in constant.shape]
    ranges[wanted.axis] = range(part.at, part.at + part.stride * part.count, part.stride)
    if ranges[wanted.axis] == range(constant.shape[wanted.axis]):
        return value
    name = f"{value}[{wanted.axis}:{part.at}+{part.stride}*{part.count}]"
    if name not in out.values:
        func = take_slice(constant.shape, ranges, constant.dtype)
        out.add(Node(name, "Slice", func, (value,), (name,)))
    return name


def _moved_twice(out: OperatorGraph, tables: Tables) -> list[str]:
    """Moved values that are inputs of a movement of several tensors whose result is still needed.

    Such a value cannot be both inside its source and inside the result, so its movement costs a
    copy; taking the result from the sources avoids that.
    """
    needed = [v for v in out.outputs if v in tables]
    for node in out.nodes:
        resolved = node.outputs[0] in tables
        needed += [v for v in node.inputs if v in tables and not resolved]
    found: dict[str, None] = {}
    seen = set(needed)
    while needed:
        maker = out.producer(needed.pop())
        assert maker is not None, "what has a table was moved by a node"
        moved = [v for v in maker.inputs if v in tables and v not in seen]
        seen.update(moved)
        if len(maker.inputs) > 1:
            found.update(dict.fromkeys(moved))
        else:
            needed += moved
    return list(found)


def _take_from_sources(out: OperatorGraph, value: str, table: tuple[Channel, ...]) -> None:
    """Make the producer of `value` read the tensors where the channels were computed."""
    maker = out.producer(value)
    assert maker is not None, "what has a table was moved by a node"
    sources, segments = segments_of(table)
    if len(segments) > MOST_SEGMENTS or set(sources) <= set(maker.inputs):
        return
    shapes = [out.values[source].shape for source in sources]
    func = copied(shapes, segments, out.values[value].dtype)
    out.replace(maker.name, replace(maker, op=SHUFFLE, func=func, inputs=sources))


def _drop_unread(out: OperatorGraph, tables: Tables) -> None:
    """Remove the movement whose results are no longer read."""
    for node in reversed(out.nodes):
        value = node.outputs[0]
        if value in tables and value not in out.outputs and not out.consumers(value):
            out.remove(node.name)
            out.remove_value(value)
            reason = f"the readers of {node.op} {node.name} read the tensors that it moved"
            out.removed[value] = Removed(reason)
