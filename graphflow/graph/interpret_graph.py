"""The reference semantics of an operator graph: its kernels, interpreted one after the other.

In: a graph and an array for each graph input.  Out: an array for each value asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphflow.base.errors import InvalidModel
from graphflow.graph.operator_graph import OperatorGraph
from graphflow.graph.value import Array
from graphflow.tir import interpret


def interpret_graph(
    graph: OperatorGraph, arrays: Mapping[str, Array], values: Iterable[str] | None = None
) -> dict[str, Array]:
    """The arrays of the graph outputs by name, or of `values` if these are given.

    An input that has an initializer may be left out.  Raises InvalidModel for a missing array.
    """
    memory: dict[str, Array] = {**graph.initializers, **arrays}
    missing = [name for name in graph.inputs if name not in memory]
    if missing:
        raise InvalidModel(f"no array is given for the graph inputs {', '.join(missing)}")
    for node in graph.topological():
        operands = {
            buffer.name: memory[name]
            for buffer, name in zip(node.func.inputs, node.inputs, strict=True)
        }
        results = interpret(node.func, operands)
        for buffer, name in zip(node.func.outputs, node.outputs, strict=True):
            memory[name] = results[buffer.name]
    return {name: memory[name] for name in (graph.outputs if values is None else values)}
