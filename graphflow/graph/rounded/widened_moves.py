"""Rounded numbers are widened before they are moved, not behind.

In: a graph in which kernels move elements of float16 or bfloat16.  Out: the same, in which a kernel
moves float32 numbers where only float32 is read of what it moves.

    before:  h = f16(v); m = move(h, c); w = f32(m); Conv(w, …)
    after:   h = f16(v); u = f32(h); w = move(u, f32(c)); Conv(w, …)

What always holds: widening is exact and done element by element, so it commutes with movement.
Rounding and widening are then parts of the kernel that makes v: its variants that write float32
remain, such as transformed tiles, and its result lies in the moved tensor where that is a view.
What a run is given, and what it stores as an output, keeps its type.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.base.dtypes import HALVES
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.rounded.roundings import converted_value, converting_node, stores_halves

WIDE = "float32"


def widen_moves(graph: OperatorGraph) -> int:
    """Let kernels that move rounded numbers for readers of float32 move float32; returns how many
    do."""
    if not stores_halves(graph):
        return 0
    changes = 0
    for name in [node.name for node in reversed(graph.topological())]:
        # From the last to the first, as a kernel that moves float32 reads a widened operand.
        if name in graph and _moves_for_wide_readers(graph, graph.node(name)):
            _move_widened(graph, graph.node(name))
            changes += 1
    return changes


def _moves_for_wide_readers(graph: OperatorGraph, node: Node) -> bool:
    """Whether a node moves rounded numbers, and all that reads them reads them widened."""
    if not _moves(node) or not _is_rounded(graph, node.outputs[0]):
        return False
    readers = [reader for reader, _ in graph.consumers(node.outputs[0])]
    return bool(readers) and all(_widens(graph, reader) for reader in readers)


def _moves(node: Node) -> bool:
    """Whether a node moves elements of 16 bits, and constants, to its one output.

    No kernel computes in a stored type; without a cast it moves its elements.
    """
    func = node.func
    if not node.has_definition or len(func.outputs) != 1 or func.outputs[0].dtype not in HALVES:
        return False
    return not any(
        isinstance(part, tir.Cast)
        for stmt in tir.walk(func.body)
        for expr in tir.expressions_of(stmt)
        for part in tir.walk_expr(expr)
    )


def _widens(graph: OperatorGraph, node: Node) -> bool:
    """Whether a node widens 16-bit numbers one by one, to something that is no output."""
    source = converted_value(node)
    if source is None or node.outputs[0] in graph.outputs:
        return False
    return graph.values[source].dtype in HALVES and graph.values[node.outputs[0]].dtype == WIDE


def _is_rounded(graph: OperatorGraph, value: str) -> bool:
    """Whether a kernel rounds the elements of a value, or moves rounded ones and constants, and
    nothing but such movement and widening reads what is moved on the way."""
    maker = graph.producer(value)
    if maker is None or graph.is_constant(value):
        return False
    source = converted_value(maker)
    if source is not None:
        return graph.values[source].dtype == WIDE
    if not _moves(maker) or value in graph.outputs:
        return False
    read = (reader for reader, _ in graph.consumers(value))
    if not all(_moves(reader) or _widens(graph, reader) for reader in read):
        return False
    computed = [v for v in _moved_operands(maker) if not graph.is_constant(v)]
    return bool(computed) and all(_is_rounded(graph, v) for v in computed)


def _moved_operands(node: Node) -> tuple[str, ...]:
    """The values of the output's type that a node reads."""
    dtype = node.func.outputs[0].dtype
    return tuple(node.bound[b.name] for b in node.func.inputs if b.dtype == dtype)


def _move_widened(graph: OperatorGraph, node: Node) -> None:
    """Exchange a node, and the nodes that widen what it moves, by one that moves float32."""
    moved = node.outputs[0]
    wide = [reader.outputs[0] for reader, _ in graph.consumers(moved)]
    for value in wide:
        graph.remove(_maker(graph, value).name)
    for value in wide[1:]:
        graph.redirect(value, wide[0])
        graph.remove_value(value)
        graph.removed[value] = Removed("equal to another widened tensor", wide[0])
    casts: dict[str, Node] = {}
    for value in _moved_operands(node):
        if value not in casts and _widened(graph, value) is None:
            casts[value] = converting_node(graph, value, WIDE)
    operands = set(_moved_operands(node))
    graph.replace(node.name, *casts.values())
    inputs = tuple(_widened(graph, v) or v if v in operands else v for v in node.inputs)
    func = moved_as(node.func, WIDE)
    graph.add(replace(node, func=func, inputs=inputs, outputs=(wide[0],)))
    graph.remove_value(moved)
    graph.removed[moved] = Removed(f"{node.op} {node.name} moves it widened", wide[0])


def _maker(graph: OperatorGraph, value: str) -> Node:
    maker = graph.producer(value)
    assert maker is not None
    return maker


def _widened(graph: OperatorGraph, value: str) -> str | None:
    """A value that is another one widened; None where there is none yet."""
    found = (r.outputs[0] for r, _ in graph.consumers(value) if _widens(graph, r))
    return next(found, None)


def moved_as(func: tir.PrimFunc, dtype: str) -> tir.PrimFunc:
    """A kernel that moves elements, with another type in place of theirs."""
    own = func.outputs[0].dtype
    exchanged = {
        buffer: replace(buffer, dtype=dtype)
        for buffer in tir.buffers_of(func)
        if buffer.dtype == own
    }

    def change(expr: tir.Expr) -> tir.Expr:
        if isinstance(expr, tir.Literal) and expr.dtype == own:
            return tir.Literal(expr.value, dtype)
        return expr

    body = tir.map_expressions(tir.rename_buffers(func.body, exchanged), change)
    params = tuple(replace(p, buffer=exchanged.get(p.buffer, p.buffer)) for p in func.params)
    return replace(func, params=params, body=body)
