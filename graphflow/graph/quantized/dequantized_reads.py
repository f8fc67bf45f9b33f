"""Dequantized tensors computed where they are read, so that bytes are stored and not floats.

In: a graph.  Out: the same with the kernels that dequantize inlined in those that read them.

    before:  x = f32(i32(q) − z) · s; y = f(x, …)
    after:   y = f(f32(i32(q) − z) · s, …)

The elements are the same, bit for bit.  A product of floats keeps its operands, since its tiles
read them many times; so does a kernel whose indices are data.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.base.dtypes import BYTES
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.quantized.dequantized import dequantization, dequantized, with_inlined
from graphflow.graph.structure import elementwise_store


def inline_dequantized(graph: OperatorGraph) -> int:
    """Inline dequantized values in their readers; returns the number of readers."""
    changes = 0
    for node in graph.topological():
        if not _may_compute_operands(graph, node):
            continue
        values = [
            value
            for value in dict.fromkeys(node.inputs)
            if not graph.is_constant(value) and _is_wide(graph, value)
        ]
        if values:
            graph.replace(node.name, with_inlined(graph, node, values))
            changes += 1
    return changes


def _is_wide(graph: OperatorGraph, value: str) -> bool:
    """Whether a value is dequantized, or shifted, from fewer bytes."""
    known = dequantized(graph, value)
    return known is not None and known.stored.buffer.bytes < known.maker.func.outputs[0].bytes


def _may_compute_operands(graph: OperatorGraph, node: Node) -> bool:
    """Whether a node may compute what it reads: it computes anything, and multiplies no two
    operands that it reads in many places."""
    if tir.only_moves(node.func) or not graph.may_rewrite(node):
        return False
    if tir.matched_variables(node.func.body):
        return False
    return not any(
        isinstance(stmt, tir.Reduce) and len(_read(stmt.value)) > 1
        for stmt in tir.walk(node.func.body)
    )


def _read(expr: tir.Expr) -> set[tir.Buffer]:
    return {e.buffer for e in tir.walk_expr(expr) if isinstance(e, tir.Load)}


def remove_unread(graph: OperatorGraph) -> int:
    """Remove the kernels that dequantize what nothing reads any more; returns their number."""
    changes = 0
    for node in reversed(graph.topological()):
        known = dequantization(node)
        value = node.outputs[0]
        if known is None or value in graph.outputs or graph.consumers(value):
            continue
        graph.remove(node.name)
        graph.remove_value(value)
        graph.removed[value] = Removed(f"its readers compute it from {known.source}")
        changes += 1
    return changes


def round_quantized_outputs(graph: OperatorGraph) -> int:
    """Let kernels that dequantize what only they read quantize it too; returns their number."""
    nodes = [node for node in graph.topological() if dequantization(node) is not None]
    return sum(round_where_read(graph, node) for node in nodes)


def round_where_read(graph: OperatorGraph, node: Node) -> bool:
    """Let an elementwise node of one input that alone reads a quantized tensor compute what it
    reads; returns whether it does.

    before:  q = u8(saturate(round(x / s) + z)); y = f(i32(q) − z)
    after:   y = f(i32(u8(saturate(round(x / s) + z))) − z)

    Nothing makes bytes of the integers and widens these again then.
    """
    source = node.inputs[0]
    maker = graph.producer(source)
    if maker is None or source in graph.outputs or len(graph.consumers(source)) > 1:
        return False
    store = elementwise_store(maker.func) if maker.has_definition else None
    if store is None or not isinstance(store.value, tir.Cast) or store.value.dtype not in BYTES:
        return False
    graph.replace(node.name, with_inlined(graph, node, (source,)))
    graph.remove(maker.name)
    graph.remove_value(source)
    graph.removed[source] = Removed(f"only {node.op} {node.name} reads it, and computes it")
    return True
