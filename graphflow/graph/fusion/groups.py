"""Fusion: an anchor kernel and the elementwise kernels that follow it become one group, and so do
kernels that reduce rows and those that read the rows again.

In: a canonical graph, not fused yet.  Out: an equivalent graph whose nodes are the groups.  What
always holds: legality follows from access relations; operator names decide nothing, and no layout
is involved.

A group starts at a node that computes, and grows by the consumers of its result: by the one that
there is, or by several whose results meet again, as x and sigmoid(x) do in x * sigmoid(x).  All of
them are elementwise and read what is inside exactly where they write.  Each value inside has no
consumer outside, so every path out of the group leads through its last node: an operand from
elsewhere cannot depend on the group, and groups cannot form a cycle.

A norm or a softmax that is written as several nodes becomes a group where the stages of its kernel
meet at loops over rows (`row_stages.py`): members may reduce, and read what is inside at other
places than those that they write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from heapq import heappop, heappush
from typing import TypeAlias

from graphflow.base.fields import replace
from graphflow.graph.fusion.fuse_kernels import BoundKernel, FusedKernel, KernelFuser
from graphflow.graph.fusion.row_stages import keeps_axes, keeps_rows_apart, recomputed, reduces
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.structure import (
    elementwise_store,
    only_fills,
    reads_in_place,
)
from graphflow.kernels.recipes import reads_offered
from graphflow.tir import buffers_of, loads_in, matched_variables, only_moves

GROUP_LIMIT = 128
"""The most kernels in a group.

Deriving the variants of a group takes time quadratic in its size, and up to about this size less
time than generating its code.  Each member saves one pass through memory and each cut costs one, so
the limit gives away less than a hundredth of what fusion saves.
"""

MOST_REDUCTIONS = 3
"""The most kernels that reduce in a group that keeps rows apart: a norm or a softmax has two, and
the schedule that joins stages takes no more than some four."""


def fuse_groups(graph: OperatorGraph, pinned: Collection[str] = ()) -> OperatorGraph:
    """The graph of fusion groups, in which no group that reduces rows holds a value of `pinned`.

    Nodes that only move elements, or whose outputs are constant, remain single; values that count
    elements of others are stored, as kernels end at them.  Ties break by the order of
    `graph.topological()`: where two chains could take the same consumer, the chain that starts
    first takes it.
    """
    out = graph.copy()
    fuser = KernelFuser()
    taken: set[str] = set()
    outputs = graph.counting.union(graph.outputs)
    stored = outputs.union(pinned)
    order = {node.name: place for place, node in enumerate(graph.topological())}
    for node in graph.topological():
        if node.name in taken:
            continue
        *_, chain = _chains(graph, node, taken, order, outputs, _may_follow)
        fused = _fused(chain, fuser) if len(chain) > 1 else None
        for rows in _by_reductions([*_chains(graph, node, taken, order, stored, _may_keep_rows)]):
            if len(rows) <= len(chain):
                break
            in_one_pass = _rows_fused(graph, rows, fuser)
            if in_one_pass is not None:
                chain, fused = rows, in_one_pass
                break
        taken.update(member.name for member in chain)
        if fused is not None:
            _merge(out, chain, fused)
    out.validate()
    return out


_Follows: TypeAlias = Callable[[Node, Set[str]], bool]
"""Whether a node may follow in a group with these values inside."""


def _chains(
    graph: OperatorGraph,
    first: Node,
    taken: Set[str],
    order: Mapping[str, int],
    outputs: Set[str],
    follows: _Follows,
) -> Iterator[list[Node]]:
    """The groups that start at a node, each with the fewest members more than the one before."""
    chain = [first]
    yield [first]
    if not _may_start(graph, first) or (follows is _may_keep_rows and not keeps_axes(first.func)):
        return
    while len(chain) < GROUP_LIMIT:
        tails = _tails(graph, chain[-1], taken, order, GROUP_LIMIT - len(chain), outputs, follows)
        if not tails:
            break
        chain += tails
        yield [*chain]


def _by_reductions(chains: list[list[Node]]) -> Iterator[list[Node]]:
    """The longest of growing chains, and those behind which a reduction follows, longest first:
    where such a chain is no kernel, it is none either without elementwise nodes at its end.

    None with more than `MOST_REDUCTIONS`.
    """
    counts = [sum(reduces(node.func) for node in chain) for chain in chains]
    for chain, count, following in zip(
        chains[::-1], counts[::-1], [-1, *counts[:0:-1]], strict=True
    ):
        if count <= MOST_REDUCTIONS and count != following:
            yield chain


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
    follows: _Follows,
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
            if node.name in taken or not follows(node, inside):
                return []
            if (order[node.name], node.name) not in waiting:
                heappush(waiting, (order[node.name], node.name))
        if not waiting:
            return []
        following = graph.node(heappop(waiting)[1])
        if not follows(following, inside):
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


def _may_keep_rows(node: Node, inside: Set[str]) -> bool:
    """Whether a node may follow in a group whose kernels keep rows apart."""
    return not node.by_user and not only_moves(node.func) and keeps_axes(node.func)


def _rows_fused(graph: OperatorGraph, chain: list[Node], fuser: KernelFuser) -> FusedKernel | None:
    """The kernel of a group that reduces rows, in one pass over them; None where there is none.

    One pass gains where several stages read a tensor of the largest size, and the result has that
    size too, as in norms; else each kernel chooses the layouts of what it reads by itself.  Where a
    run gives a part of what is reduced, each decides by itself what it leaves out.
    """
    if not any(reduces(node.func) for node in chain):
        return None
    values = [[graph.values[v] for v in (*node.inputs, *node.outputs)] for node in chain]
    largest = max(value.size for each in values for value in each)
    stages = Counter(name for node in chain for name in _read_by_stages(node))
    read_again = any(graph.values[name].size == largest for name, n in stages.items() if n > 1)
    if not read_again or values[-1][-1].size < largest:
        return None
    counted = {axis for each in values for value in each for axis in graph.counted.get(value, ())}
    if counted & {axis for node in chain for axis in _axes_lost(graph, node)}:
        return None
    fused = _fused(chain, fuser)
    return fused if keeps_rows_apart(fused.func) else None


def _read_by_stages(node: Node) -> Iterator[str]:
    """What the stages of a kernel read, each of them what it reads once."""
    names = dict(zip(node.func.inputs, node.inputs, strict=True))
    for stage in node.func.body:
        yield from {names[load.buffer] for load in loads_in((stage,)) if load.buffer in names}


def _axes_lost(graph: OperatorGraph, node: Node) -> set[int]:
    """The axes of what a node reads that its result lacks, or has one element of."""
    kept = graph.values[node.outputs[0]].shape
    read = [graph.values[name].shape for name in node.inputs]
    lost = {k for shape in read for k in range(len(shape)) if len(shape) > len(kept)}
    same = (shape for shape in read if len(shape) == len(kept))
    return lost | {k for shape in same for k, n in enumerate(shape) if kept[k] == 1 < n}


def _fused(chain: list[Node], fuser: KernelFuser) -> FusedKernel:
    """The kernels of a group as one.

    Where no register tile makes it, what lies between elementwise stages is not stored.
    """
    calls = [BoundKernel(node.func, node.inputs, node.outputs) for node in chain]
    fused = fuser.fuse("_".join(node.func.name for node in chain), calls, chain[-1].outputs)
    if not reduces(fused.func) or reads_offered(fused.func):
        return fused
    func = recomputed(fused.func)
    kept = {buffer.name for buffer in buffers_of(func)}
    inner = tuple((value, name) for value, name in fused.inner if name in kept)
    return replace(fused, func=func, inner=inner)


def _merge(graph: OperatorGraph, chain: list[Node], fused: FusedKernel) -> None:
    """Replace the chain by one node, at the position of its last member."""
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
    stored = {value for value, _ in fused.inner}
    for value in (value for node in chain[:-1] for value in node.outputs):
        graph.remove_value(value)
        if value not in stored:
            graph.removed[value] = Removed(f"computed anew where {group.op} {group.name} reads it")
