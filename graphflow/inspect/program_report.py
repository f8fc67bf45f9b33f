"""The program that runs, as the report has it: its nodes, and the blocks of them that repeat.

In: a `Compiled` model.  Out: plain values.  What always holds: nodes, blocks and edge types are
those that the page shows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from graphflow.base.run_profile import RunProfile
from graphflow.inspect.page.page_data import ShownArrow, ShownGraph, ShownNode
from graphflow.inspect.page.shown_imported import shown_imported, with_blocks
from graphflow.inspect.page.shown_layouts import ShownEdgeTypes
from graphflow.inspect.page.shown_program import shown_program
from graphflow.inspect.page.shown_run import shown_run
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import EdgeType


def program_report(compiled: Compiled) -> dict[str, Any]:
    """The nodes in the order of the run, and the blocks: a repetition begins at each node of
    `starts` and ends before the next one, the last before the node `after`."""
    known = ShownEdgeTypes()
    graph = shown_program(compiled, known)
    blocks = with_blocks(graph, shown_imported(compiled, graph.nodes, ())).blocks
    read = _Read(compiled, graph, tuple(known.edge_types))
    return {
        "nodes": [_node(read, place, node) for place, node in enumerate(graph.nodes)],
        "blocks": [{"starts": list(block.starts), "after": block.after} for block in blocks],
    }


def measured_nodes(compiled: Compiled, profile: RunProfile) -> dict[int, float]:
    """The measured seconds of the nodes of `program_report`, by their places."""
    run = shown_run(profile, shown_program(compiled, ShownEdgeTypes()).nodes)
    found: dict[int, float] = defaultdict(float)
    for place, step in zip(run.nodes, profile.steps, strict=True):
        if place is not None:
            found[place] += step.seconds
    return dict(found)


class _Read:
    """The arrows of a graph by the nodes that they come from and lead to."""

    def __init__(
        self, compiled: Compiled, graph: ShownGraph, edge_types: tuple[EdgeType, ...]
    ) -> None:
        self.compiled, self.edge_types = compiled, edge_types
        self.into: dict[tuple[int, str], deque[ShownArrow]] = defaultdict(deque)
        """In the order of the inputs that read the tensor."""
        self.out_of: dict[tuple[int, str], ShownArrow] = {}
        self.written: dict[int, dict[str, None]] = defaultdict(dict)
        """The tensors that leave each node; the copy of a constant names them only here."""
        for arrow in graph.arrows:
            self.into[arrow.end, arrow.tensor].append(arrow)
            self.out_of.setdefault((arrow.start, arrow.tensor), arrow)
            self.written[arrow.start][arrow.tensor] = None

    def edge_type(self, arrow: ShownArrow | None) -> EdgeType | None:
        """The edge type in which the tensor of an arrow is read."""
        known = arrow is not None and arrow.edge_type is not None
        return self.edge_types[arrow.edge_type] if known else None  # type: ignore[index, union-attr]


def _node(read: _Read, place: int, node: ShownNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "kind": node.kind,
        "operators": list(node.operators),
        "origins": list(node.origins),
        "variant": node.variant,
        "because": node.because,
        "seconds": node.seconds,
        "measured": node.measured,
        "bytes": node.bytes,
        "inputs": [_input(read, place, *named) for named in node.inputs],
        "outputs": [_output(read, place, name) for name in node.outputs or read.written[place]],
        "notes": list(node.notes),
    }


def _input(read: _Read, place: int, parameter: str, tensor: str) -> dict[str, Any]:
    """An input with the node that it comes from, and the edge type in which it is read; both None
    for a constant."""
    arrows = read.into[place, tensor]
    arrow = arrows.popleft() if arrows else None
    return {
        "parameter": parameter,
        "tensor": tensor,
        "from": None if arrow is None else arrow.start,
        **_described(read.edge_type(arrow)),
    }


def _output(read: _Read, place: int, name: str) -> dict[str, Any]:
    """What a node writes: a tensor in its own edge type, or a copy of it in another one."""
    value = read.compiled.graph.values.get(name)
    written = read.edge_type(read.out_of.get((place, name)))
    decided = read.compiled.plan.edges.get(name)
    if written is None and decided is not None:
        written = decided.edge_type
    return {
        "tensor": name,
        "dtype": None if value is None else value.dtype,
        "logical_shape": None if value is None else list(value.shape),
        **_described(written),
    }


def _described(edge_type: EdgeType | None) -> dict[str, Any]:
    if edge_type is None:
        return {"edge_type": None, "physical_shape": None}
    return {
        "edge_type": edge_type.describe(),
        "physical_shape": list(edge_type.layout.physical_shape),
    }
