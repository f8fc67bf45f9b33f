"""What is known of the inputs of a node, as the recipes of its kernel ask for it.

In: a graph, a node, and the facts about the contents of values.  Out: the inputs that are bound to
constants, and those with a property that some variant may rest on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from graphflow.graph.contents import is_finite, reciprocals_above
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.value import Array
from graphflow.kernels.recipes import KnownContents, contents_query
from graphflow.layout import Fact


def constant_inputs(graph: OperatorGraph, node: Node) -> frozenset[str]:
    """The parameters of `node` that are bound to constants."""
    bound = zip(node.func.inputs, node.inputs, strict=True)
    return frozenset(buffer.name for buffer, value in bound if graph.is_constant(value))


def finite_inputs(node: Node, asked: Collection[str], facts: Mapping[str, Fact]) -> frozenset[str]:
    """Those of the parameters `asked` that are proven to hold neither NaN nor infinity."""
    bound = zip((b.name for b in node.func.inputs), node.inputs, strict=True)
    return frozenset(name for name, value in bound if name in asked and is_finite(facts[value]))


def known_inputs(graph: OperatorGraph, node: Node, facts: Mapping[str, Fact]) -> KnownContents:
    """The facts about the contents of a node's inputs that its recipes can use."""
    bound = dict(zip((b.name for b in node.func.inputs), node.inputs, strict=True))
    asked = contents_query(node.func)
    return KnownContents(
        finite=finite_inputs(node, asked.finite, facts),
        excludes_negative_zero=frozenset(
            name
            for name in asked.excludes_negative_zero
            if reciprocals_above(facts[bound[name]], _array(graph, bound[name]))
        ),
    )


def _array(graph: OperatorGraph, value: str) -> Array | None:
    """The elements of `value` if it is an initializer and constant, else None."""
    return graph.initializers.get(value) if graph.is_constant(value) else None
