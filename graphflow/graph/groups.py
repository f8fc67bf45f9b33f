"""Fusion: an anchor kernel and the elementwise kernels that follow it become one group.

In: a canonical graph, not fused yet.  Out: an equivalent graph whose nodes are the groups.  What
always holds: legality follows from access relations; operator names decide nothing, and no layout
is involved.

A group starts at a node that computes, and grows by the consumers of its result: by the one that
there is, or by several whose results meet again, as x and sigmoid(x) do in x * sigmoid(x).  All of
them are elementwise and read what is inside exactly where they write.  Each value inside has no
consumer outside, so every path out of the group leads through its last node: an operand from
elsewhere cannot depend on the group, and groups cannot form a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from heapq import heappop, heappush

from graphflow.graph.fuse_kernels import BoundKernel, KernelFuser
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.structure import (
    elementwise_store,
    only_fills,
    reads_in_place,
)
from graphflow.tir import matched_variables, only_moves

GROUP_LIMIT = 128
"""The most kernels in a group.

Deriving the variants of a group takes time quadratic in its size, and up to about this size less
time than generating its code.  Each member saves one pass through memory and each cut costs one, so
the limit gives away less than a hundredth of what fusion saves.
"""


def fuse_groups(graph: OperatorGraph) -> OperatorGraph:
    """The graph of fusion groups.

    Nodes that only move elements, or whose outputs are constant, remain single.  Ties break by the
    order of `graph.topological()`: where two chains could take the same consumer, the chain that
    starts first takes it.
    """
    out = graph.copy()
    fuser = KernelFuser()
    taken: set[str] = set()
    outputs = frozenset(graph.outputs)
    order = {node.name: place for place, node in enumerate(graph.topological())}
    for node in graph.topological():
        if node.name in taken:
            continue
        chain = _chain(graph, node, taken, order, outputs)
        taken.update(member.name for member in chain)
        if len(chain) > 1:
            _merge(out, chain, fuser)
    out.validate()
    return out


def _chain(
    graph: OperatorGraph,
    first: Node,
    taken: Set[str],
    order: Mapping[str, int],
    outputs: Set[str],
) -> list[Node]:
    chain = [first]
    if not _may_start(graph, first):
        return chain
    while len(chain) < GROUP_LIMIT:
        tails = _tails(graph, chain[-1], taken, order, GROUP_LIMIT - len(chain), outputs)
        if not tails:
            break
        chain += tails
    return chain


def _may_start(graph: OperatorGraph, node: Node) -> bool:
    if node.func.callee is not None or node.by_user:
        return False
    if only_fills(node.func) or only_moves(node.func):
        return False
    if matched_variables(node.func.body):
        # Recipes make no tiles of a kernel with matched variables, and the staged recipe
        # parallelizes only kernels of a single nest: fused, it would run on one thread.
        return False
    return not all(graph.is_constant(name) for name in node.outputs)


def _tails(
    graph: OperatorGraph,
    last: Node,
    taken: Set[str],
    order: Mapping[str, int],
    most: int,
    outputs: Set[str],
) -> list[Node]:
    """The fewest nodes that may follow `last` in its group, in topological order.

    All consumers of its result, and of theirs, up to the first node that leaves one value to be
    read outside.  Nothing if these are more than `most`, or one of them may not be in the group.
    """
    if len(last.outputs) != 1:
        return []
    found: list[Node] = []
    inside: set[str] = set()
    value = last.outputs[0]
    waiting: list[tuple[int, str]] = []
    """A heap of the nodes that read what is inside, by their place: the first reads nothing of the
    group that is not computed before it."""
    while not found or waiting:
        if value in outputs or len(found) == most:
            return []
        inside.add(value)
        # A reader that may not follow leaves its value to be read outside, beside the last one.
        for node in {node.name: node for node, _ in graph.consumers(value)}.values():
            if node.name in taken or not _may_follow(node, inside):
                return []
            if (order[node.name], node.name) not in waiting:
                heappush(waiting, (order[node.name], node.name))
        if not waiting:
            return []
        following = graph.node(heappop(waiting)[1])
        if not _may_follow(following, inside):
            return []
        found.append(following)
        value = following.outputs[0]
    return found


def _may_follow(node: Node, inside: Set[str]) -> bool:
    """Whether a node is elementwise and reads the values that are inside its group in place."""
    if node.by_user or elementwise_store(node.func) is None or only_moves(node.func):
        return False
    there = (position for position, value in enumerate(node.inputs) if value in inside)
    return all(reads_in_place(node.func, position) for position in there)


def _merge(graph: OperatorGraph, chain: list[Node], fuser: KernelFuser) -> None:
    """Replace the chain by one node, at the position of its last member."""
    calls = [BoundKernel(node.func, node.inputs, node.outputs) for node in chain]
    title = "_".join(node.func.name for node in chain)
    fused = fuser.fuse(title, calls, chain[-1].outputs)
    group = Node(
        chain[0].name,
        "+".join(node.op for node in chain),
        fused.func,
        fused.inputs,
        fused.outputs,
        tuple(origin for node in chain for origin in node.origins),
        fused.inner,
    )
    for node in chain[:-1]:
        graph.remove(node.name)
    graph.replace(chain[-1].name, group)
    for value, _ in fused.inner:
        graph.remove_value(value)
