"""Elementwise kernels that return one of their operands, whatever that is, are left out.

In: a graph in which kernels multiply by constants of 1, add constants of 0, or select by constants
that are the same everywhere.  Out: the same without these.

    before:  y = x · 1        y = (Σ a · b) + 0        y = select(false, z, x)
    after:   uses of y read x

What always holds: every element keeps its bits, but for the sign of a zero that a sum of products
has: whether it is −0 depends on where a sum is rounded, which no result does rely on.  Where x may
be −0 for another reason, x + 0 stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import copysign

from graphflow import tir
from graphflow.graph.contents import contents
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.structure import elementwise_store, reads_in_place
from graphflow.layout import Constant, Fact


def drop_neutral_operands(graph: OperatorGraph) -> int:
    """Leave out the elementwise kernels that constants make copies; returns their number."""
    facts, changes = contents(graph), 0  # of constants, whose makers stay
    for name in [node.name for node in graph.topological()]:
        # Looked up here, because an earlier step may have redirected its operands.
        node = graph.node(name)
        source = _copied(graph, node, facts)
        (result, *_) = node.outputs
        if source is None or result in graph.outputs:
            continue
        graph.remove(node.name)
        graph.redirect(result, source)
        graph.remove_value(result)
        graph.removed[result] = Removed(f"its other operands change nothing of {source}", source)
        changes += 1
    return changes


def _copied(graph: OperatorGraph, node: Node, facts: Mapping[str, Fact]) -> str | None:
    """The operand that an elementwise node copies to its output; None for any other node."""
    store = elementwise_store(node.func) if node.has_definition and len(node.inputs) > 1 else None
    if store is None:
        return None
    bound = node.bound

    def number(expr: object) -> float | None:
        if not isinstance(expr, tir.Load) or not graph.is_constant(bound[expr.buffer.name]):
            return None
        fact = facts[bound[expr.buffer.name]]
        return fact.literal.value if isinstance(fact, Constant) else None

    kept: tir.Expr | None = None
    match store.value:
        case tir.Select(condition, if_true, if_false) if not tir.is_predicate(condition):
            known = number(condition)
            kept = None if known is None else if_true if known else if_false
        case tir.Binary("mul", left, right):
            kept = left if number(right) == 1 else right if number(left) == 1 else None
        case tir.Binary("add", left, right):
            pairs = ((left, right), (right, left))
            kept = next((x for x, y in pairs if _adds_nothing(graph, bound, x, number(y))), None)
    if not isinstance(kept, tir.Load):
        return None
    position = node.func.inputs.index(kept.buffer)
    return node.inputs[position] if reads_in_place(node.func, position) else None


def _adds_nothing(
    graph: OperatorGraph, bound: Mapping[str, str], kept: tir.Expr, number: float | None
) -> bool:
    """Whether to add `number` changes nothing: −0, an integer of 0, or 0 to a sum of products."""
    if number != 0 or not isinstance(kept, tir.Load):
        return False
    if kept.buffer.dtype not in tir.FLOATS or copysign(1.0, number) < 0:
        return True
    maker = graph.producer(bound[kept.buffer.name])
    return maker is not None and maker.has_definition and _is_sum(maker.func)


def _is_sum(func: tir.PrimFunc) -> bool:
    """Whether a kernel's output is a sum of products that begins with 0."""
    writes = [s for s in tir.walk(func.body) if isinstance(s, tir.Store | tir.Reduce)]
    return all(
        isinstance(stmt.value, tir.Binary) and stmt.value.op == "mul"
        if isinstance(stmt, tir.Reduce)
        else isinstance(stmt.value, tir.Literal)
        for stmt in writes
        if stmt.buffer == func.outputs[0]
    ) and any(isinstance(stmt, tir.Reduce) and stmt.op is tir.ReduceOp.ADD for stmt in writes)
