"""The model as it was imported: its operators, each with the nodes of the program that it became.

In: a `Compiled` model and its program as shown.  Out: a `ShownGraph`.  What always holds: every
operator that is not computed before the first run is a node; its arrows have the edge types that
were decided for the tensors, where these have storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphflow.graph import Node
from graphflow.inspect.page.page_data import ShownArrow, ShownGraph, ShownNode, ShownTensor
from graphflow.inspect.page.repeated_blocks import repeated_blocks
from graphflow.inspect.page.shown_program import block_keys, plain_node
from graphflow.pipeline.compiler import Compiled


def shown_imported(
    compiled: Compiled, program: Sequence[ShownNode], tensors: Sequence[ShownTensor]
) -> ShownGraph:
    """The imported graph; `program` are the nodes of the program that runs."""
    graph = compiled.imported
    known = {tensor.name: tensor for tensor in tensors}
    operators = [node for node in graph.nodes if not all(map(graph.is_constant, node.outputs))]
    became = _Becoming(compiled, program)
    nodes = [
        *(plain_node("input", name, (), (name,)) for name in graph.inputs),
        *(_operator(node, tuple(became.places(node)), known) for node in operators),
        *(plain_node("output", name, (("", name),)) for name in graph.results),
    ]
    makers = {name: place for place, node in enumerate(nodes) for name in node.outputs}
    arrows = tuple(
        ShownArrow(makers[name], place, name, known[name].edge_type if name in known else None)
        for place, node in enumerate(nodes)
        for _, name in node.inputs
        if name in makers
    )
    return ShownGraph(tuple(nodes), arrows, repeated_blocks(block_keys(nodes)))


def _operator(node: Node, became: tuple[int, ...], known: Mapping[str, ShownTensor]) -> ShownNode:
    """An operator of the model; where it became nothing, with the reason."""
    reasons = (known[name].reason for name in node.outputs if name in known)
    because = "" if became else "; ".join(dict.fromkeys(reasons))
    return plain_node(
        "operator",
        node.name,
        tuple(node.bound.items()),
        node.outputs,
        operators=(node.op,),
        origins=node.origins,
        because=because,
        became=became,
    )


class _Becoming:
    """Which nodes of the program do the work of an imported node."""

    def __init__(self, compiled: Compiled, program: Sequence[ShownNode]) -> None:
        self.compiled = compiled
        self.by_origin: dict[str, list[int]] = {}
        self.by_output: dict[str, int] = {}
        for place, node in enumerate(program):
            for origin in node.origins:
                self.by_origin.setdefault(origin, []).append(place)
            for name in node.outputs if node.kind != "input" else ():
                self.by_output.setdefault(name, place)

    def places(self, node: Node) -> Iterator[int]:
        """Their positions: those that name the same ONNX node as their origin, else those that
        make what holds its outputs."""
        found = [place for origin in node.origins for place in self.by_origin.get(origin, ())]
        outputs = map(self.compiled.graph.resolved, node.outputs)
        made = (self.by_output[name] for name in outputs if name in self.by_output)
        yield from dict.fromkeys(found or made)
