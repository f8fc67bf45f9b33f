"""The program that runs, as the report has it: its nodes, and the blocks of them that repeat.

In: a `Compiled` model.  Out: plain values.  What always holds: nodes, blocks and edge types are
those that the page shows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

from graphflow.base.run_profile import RunProfile
from graphflow.inspect.page.page_data import ShownArrow, ShownNode
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
    edge_types = tuple(known.edge_types)
    arrows: dict[int, dict[str, deque[ShownArrow]]] = defaultdict(lambda: defaultdict(deque))
    for arrow in graph.arrows:
        arrows[arrow.end][arrow.tensor].append(arrow)
    return {
        "nodes": [
            _node(node, [*_inputs(node, arrows[place], edge_types)])
            for place, node in enumerate(graph.nodes)
        ],
        "blocks": [
            {"starts": starts, "after": starts[-1] + block.period}
            for block in graph.blocks
            for starts in [[block.first + k * block.period for k in range(block.count)]]
        ],
    }


def measured_nodes(compiled: Compiled, profile: RunProfile) -> dict[int, float]:
    """The measured seconds of the nodes of `program_report`, by their places."""
    run = shown_run(profile, shown_program(compiled, ShownEdgeTypes()).nodes)
    found: dict[int, float] = defaultdict(float)
    for place, step in zip(run.nodes, profile.steps, strict=True):
        if place is not None:
            found[place] += step.seconds
    return dict(found)


def _node(node: ShownNode, inputs: list[dict[str, Any]]) -> dict[str, Any]:
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
        "inputs": inputs,
        "outputs": list(node.outputs),
        "notes": list(node.notes),
    }


def _inputs(
    node: ShownNode, arrows: dict[str, deque[ShownArrow]], edge_types: tuple[EdgeType, ...]
) -> Iterator[dict[str, Any]]:
    """Each input with the node that it comes from, and the edge type in which it is read; both None
    for a constant.  Arrows of a tensor are in the order of the inputs."""
    for parameter, tensor in node.inputs:
        arrow = arrows[tensor].popleft() if arrows[tensor] else None
        read = None if arrow is None or arrow.edge_type is None else edge_types[arrow.edge_type]
        yield {
            "parameter": parameter,
            "tensor": tensor,
            "from": None if arrow is None else arrow.start,
            "edge_type": None if read is None else read.describe(),
            "physical_shape": None if read is None else list(read.layout.physical_shape),
        }
