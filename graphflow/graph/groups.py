"""Fusion: an anchor kernel and the elementwise kernels that follow it become one group.

In: a canonical graph, not fused yet.  Out: an equivalent graph whose nodes are the groups.  What
always holds: legality follows from access relations; operator names decide nothing, and no layout
is involved.

A group is a chain.  It starts at a node that computes, and grows by the one consumer of its result
as long as that consumer is elementwise and reads the result exactly where it writes.  Each value
inside has one consumer, so every path out of the group leads through its last node: an operand from
elsewhere cannot depend on the group, and groups cannot form a cycle.
"""

from __future__ import annotations

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


def fuse(graph: OperatorGraph) -> OperatorGraph:
    """The graph of fusion groups.

    Nodes that only move elements, or whose outputs are constant, remain single.  Ties break by the
    order of `graph.topological()`: where two chains could take the same consumer, the chain that
    starts first takes it.
    """
    out = graph.copy()
    fuser = KernelFuser()
    taken: set[str] = set()
    for node in graph.topological():
        if node.name in taken:
            continue
        chain = _chain(graph, node, taken)
        taken.update(member.name for member in chain)
        if len(chain) > 1:
            _merge(out, chain, fuser)
    out.validate()
    return out


def _chain(graph: OperatorGraph, first: Node, taken: set[str]) -> list[Node]:
    chain = [first]
    if not _may_start(graph, first):
        return chain
    while len(chain) < GROUP_LIMIT:
        tail = _tail(graph, chain[-1])
        if tail is None or tail.name in taken:
            break
        chain.append(tail)
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


def _tail(graph: OperatorGraph, last: Node) -> Node | None:
    """The node that may follow `last` in its group; None if there is none."""
    if len(last.outputs) != 1 or last.outputs[0] in graph.outputs:
        return None
    uses = graph.consumers(last.outputs[0])
    if not uses or len({node.name for node, _ in uses}) != 1:
        return None
    consumer = uses[0][0]
    if consumer.by_user:
        return None
    if elementwise_store(consumer.func) is None or only_moves(consumer.func):
        return None
    if all(reads_in_place(consumer.func, position) for _, position in uses):
        return consumer
    return None


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
