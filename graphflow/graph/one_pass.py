"""Two products in one pass: expansions that never store what is between them.

In: a graph with the expansions that are known.  Out: further expansions.  A product whose operand
is made of another product, row by row, has one in which a single kernel computes all of it.  What
lies between the two products is *absorbed*: where the expansion is taken it is not computed for
itself.

    before:  s = MatMul(q, k); p = Softmax(s); y = MatMul(p, v)
    after:   for a few rows: s = q · k; p = Softmax(s); y = p · v, as one kernel

Keys of an open length end at a count, from which on their weights are zero.  Values are made zero
there by a node of their own; the expansion reads them before that, and sums up to the count.

What always holds: legality follows from access relations.  The first product leaves one row for
each row of the last one, the kernel between them keeps rows apart, and nothing else reads what lies
between.  The kernel has the same stages, but that shares of a softmax scale the sums of products
and not their terms; `kernels/definitions/linear_algebra/common_factor.py` has the error bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphflow.base.fields import replace
from graphflow.graph.counted_sums import Zeroed, is_read_once, zeroed
from graphflow.graph.expansions import Expansion, Expansions
from graphflow.graph.fusion import BoundKernel, KernelFuser
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.quantized import with_inlined
from graphflow.graph.structure import composed_store
from graphflow.kernels.definitions.linear_algebra.common_factor import with_factors_behind
from graphflow.kernels.definitions.linear_algebra.counted_terms import with_counted_terms
from graphflow.kernels.recipes import (
    ONE_PASS,
    RefusedVariant,
    refused_row_bands,
    summed_operands,
)
from graphflow.tir import (
    PrimFunc,
    Reduce,
    Unary,
    buffers_of,
    matched_variables,
    moves_of,
    walk,
    walk_expr,
)


def in_one_pass(known: Expansions) -> Expansions:
    """`known` and the expansions of products that compute their operand in the same pass."""
    graph, fuser = known.graph, KernelFuser()
    found: dict[str, list[Expansion]] = {}
    refused: dict[str, tuple[RefusedVariant, ...]] = {}
    origins: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        for chain in _chains(graph, node):
            expansion = _expansion(graph, chain, fuser)
            refusal = refused_row_bands(expansion.node.func)
            if refusal is None:
                found.setdefault(node.name, []).append(expansion)
                origins.update(dict.fromkeys(expansion.absorbed, ()))
            else:
                refused[node.name] = (RefusedVariant(ONE_PASS, refusal),)
    if not found and not refused:
        return known
    return replace(
        known,
        of_node=known.adding(found),
        origins={**known.origins, **origins},
        refused={**known.refused, **refused},
    )


def _chains(graph: OperatorGraph, last: Node) -> Iterator[tuple[Node, Node, Node]]:
    """The nodes that compute an operand of the product `last`: a product, one that reduces each of
    its rows, and `last` itself.
    """
    if not _may_join(graph, last):
        return
    operands = summed_operands(last.func)
    for buffer, value in zip(last.func.inputs, last.inputs, strict=True):
        between = graph.producer(value) if buffer.name in operands else None
        if between is None or not is_read_once(graph, value) or not _reduces(graph, between):
            continue
        shape = graph.values[value].shape
        for operand in between.inputs:
            first = graph.producer(operand)
            if first is None or graph.values[operand].shape != shape:
                continue
            joins = is_read_once(graph, operand) and _may_join(graph, first)
            if joins and summed_operands(first.func):
                yield first, between, last


def _may_join(graph: OperatorGraph, node: Node) -> bool:
    """Whether a node is computed in each run, by a definition of one output."""
    if (
        not node.has_definition
        or matched_variables(node.func.body)
        or any(b.size == 0 for b in node.func.outputs)
    ):
        return False
    return not graph.is_constant(node.outputs[0])


def _reduces(graph: OperatorGraph, node: Node) -> bool:
    """Whether a node reduces an operand, and does not multiply two of them for it."""
    reduces = any(isinstance(stmt, Reduce) for stmt in walk(node.func.body))
    return _may_join(graph, node) and reduces and not moves_of(node.func)


def _expansion(graph: OperatorGraph, chain: tuple[Node, ...], fuser: KernelFuser) -> Expansion:
    """The last node of a chain, with the kernels of all of them as its own."""
    *before, last = chain
    calls = [BoundKernel(node.func, node.inputs, node.outputs) for node in chain]
    fused = fuser.fuse("_".join(node.func.name for node in chain), calls, last.outputs)
    func, inputs = with_factors_behind(fused.func), fused.inputs
    for read in zeroed(graph, inputs):
        counted = _with_count(func, inputs, read)
        if counted is not None:
            func, inputs, before = counted, (*_replaced(inputs, read),), [*before, read.node]
    kept = {buffer.name for buffer in buffers_of(func)}
    absorbed = tuple(node.outputs[0] for node in before)
    taking = replace(
        last,
        op="+".join(node.op for node in chain),
        func=func,
        inputs=inputs,
        origins=tuple(origin for node in chain for origin in node.origins),
        inner=tuple((value, buffer) for value, buffer in fused.inner if buffer in kept),
        offered=(),
        found=(),
    )
    taking, masks = _with_masks(graph, taking)
    names = ", ".join(f"{node.op} {node.name}" for node in before)
    why = f"computed by {last.op} {last.name} in the same pass"
    gone = {value: why for node in chain for value, _ in node.inner}
    gone |= {value: why for value, buffer in fused.inner if buffer not in kept}
    made = (graph.producer(value) for value in masks)
    gone |= dict.fromkeys((*masks, *(v for node in made if node for v, _ in node.inner)), why)
    return Expansion(
        taking,
        gone=gone,
        absorbed=(*absorbed, *masks),
        because=f"it computes {names} for the rows that it reads, in the same pass",
    )


def _with_masks(graph: OperatorGraph, node: Node) -> tuple[Node, tuple[str, ...]]:
    """A node that computes the masks itself which are made, element by element, of fewer elements;
    and these masks.

    A mask of open lengths is a comparison of places: what it is made of has an element for each row
    or for each key, and the mask one for each of both.
    """
    masks: tuple[str, ...] = ()
    while found := [value for value in dict.fromkeys(node.inputs) if _is_outer(graph, value)]:
        node, masks = with_inlined(graph, node, found), (*masks, *found)
    return node, masks


def _is_outer(graph: OperatorGraph, value: str) -> bool:
    """Whether a value of open extents is made of fewer elements in each run, by an elementwise
    kernel without functions."""
    maker, tensor = graph.producer(value), graph.values[value]
    if maker is None or not maker.has_definition or value in graph.outputs:
        return False
    if graph.is_constant(value):
        return False  # no run computes it
    if not graph.counted.get(tensor):
        return False  # of exact lengths, bands look for keys to leave out in the mask's memory
    store = composed_store(maker.func)
    if store is None or any(isinstance(e, Unary) for e in walk_expr(store.value)):
        return False
    return 2 * sum(graph.values[name].size for name in maker.inputs) <= tensor.size


def _with_count(func: PrimFunc, inputs: Sequence[str], read: Zeroed) -> PrimFunc | None:
    """A kernel that reads what a node makes of its source, as one that reads the source."""
    buffers = dict(zip(inputs, func.inputs, strict=True))
    if read.count not in buffers:
        return None
    return with_counted_terms(func, buffers[read.made], read.axis, buffers[read.count])


def _replaced(inputs: Sequence[str], read: Zeroed) -> Iterator[str]:
    return (read.source if value == read.made else value for value in inputs)
