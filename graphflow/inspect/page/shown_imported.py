"""The model as it was imported: its operators, each with the nodes of the program that it became.

In: a `Compiled` model and its program as shown.  Out: a `ShownGraph`.  What always holds: every
operator that is not computed before the first run is a node; its arrows have the edge types that
were decided for the tensors, where these have storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from graphflow.base.fields import replace
from graphflow.graph import Node, OperatorGraph
from graphflow.inspect.page.page_data import ShownArrow, ShownGraph, ShownNode, ShownTensor
from graphflow.inspect.page.repeated_blocks import (
    blocks_of_program,
    repeated_blocks,
    widths_before,
)
from graphflow.pipeline.compiler import Compiled
from graphflow.tir import to_text

NUMBER = re.compile(r"\b\d+\b(?!\*)")
"""The extents, offsets and bounds in the text of a kernel, which are no factors of an index."""


def shown_imported(
    compiled: Compiled, program: Sequence[ShownNode], tensors: Sequence[ShownTensor]
) -> ShownGraph:
    """The imported graph; `program` are the nodes of the program that runs."""
    graph = compiled.imported
    known = {tensor.name: tensor for tensor in tensors}
    operators = [node for node in graph.nodes if not all(map(graph.is_constant, node.outputs))]
    became = _Becoming(compiled, program)
    nodes = [
        *(ShownNode("input", name, (), (name,)) for name in graph.inputs),
        *(_operator(node, tuple(became.places(node)), known) for node in operators),
        *(ShownNode("output", name, (("", name),)) for name in graph.results),
    ]
    makers = {name: place for place, node in enumerate(nodes) for name in node.outputs}
    arrows = tuple(
        ShownArrow(makers[name], place, name, known[name].edge_type if name in known else None)
        for place, node in enumerate(nodes)
        for _, name in node.inputs
        if name in makers
    )
    ways = [(arrow.start, arrow.end, arrow.tensor) for arrow in arrows]
    blocks = repeated_blocks(_block_keys(graph, nodes), widths_before(ways, len(nodes)))
    return ShownGraph(tuple(nodes), arrows, blocks)


def with_blocks(program: ShownGraph, imported: ShownGraph) -> ShownGraph:
    """The program with the blocks of the imported model, as what these became."""
    became = [node.became for node in imported.nodes]
    blocks = blocks_of_program(imported.blocks, became, len(program.nodes))
    return replace(program, blocks=blocks)


def _block_keys(graph: OperatorGraph, nodes: Sequence[ShownNode]) -> list[str]:
    """What must be equal in repetitions of a block: the operators, and their definitions without
    extents, so that the growing layers of a dense block are equal, and others in strides are not.

    What the caller gives and takes is in no block, so each has a key of its own.
    """
    made = {node.name: node for node in graph.nodes}
    return [
        f"{node.kind} {node.name}"
        if node.kind != "operator"
        else f"{node.operators[0]} {NUMBER.sub('#', to_text(made[node.name].func))}"
        for node in nodes
    ]


def _operator(node: Node, became: tuple[int, ...], known: Mapping[str, ShownTensor]) -> ShownNode:
    """An operator of the model; where it became nothing, with the reason."""
    reasons = (known[name].reason for name in node.outputs if name in known)
    because = "" if became else "; ".join(dict.fromkeys(reasons))
    return ShownNode(
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
