"""Repairs of models that deviate from the ONNX standard in ways that onnxruntime accepts.

In: a proto that passed `check_proto` and belongs to this module's caller.  Out: the same model as
the standard requires it, for onnx's checker.  Nothing is guessed: the repaired model computes what
the given one does.

    nodes in any order                     sorted; a cycle is `InvalidModel`
    an output listed twice                 listed once
    a negative extent in a type            an unknown one
    no opset of the standard domain        the newest one, where no node needs to know
    no name of the graph                   "graph"
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import onnx

from graphflow.base.errors import InvalidModel
from graphflow.frontends.protos.steps import STANDARD, names_read, subgraphs


def repair(proto: onnx.ModelProto) -> None:
    """Repair `proto` in place, as the table of the module describes."""
    graph = proto.graph
    graph.name = graph.name or "graph"
    outputs = {info.name: info for info in graph.output}
    if len(outputs) < len(graph.output):
        kept = onnx.GraphProto(output=outputs.values())
        del graph.output[:]
        graph.output.extend(kept.output)
    _repair_graph(graph)
    for function in proto.functions:
        _sort(function)
        for info in function.value_info:
            _free_negative_extents(info.type)
    named = any(entry.domain in STANDARD for entry in proto.opset_import)
    if not named and not _uses_standard(proto.graph.node):
        proto.opset_import.add(domain="", version=onnx.defs.onnx_opset_version())


def _repair_graph(graph: onnx.GraphProto) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        _free_negative_extents(info.type)
    _sort(graph)
    for node in graph.node:
        for inner in subgraphs(node):
            _repair_graph(inner)


def _uses_standard(nodes: Sequence[onnx.NodeProto]) -> bool:
    return any(
        node.domain in STANDARD or any(_uses_standard(g.node) for g in subgraphs(node))
        for node in nodes
    )


def _free_negative_extents(kind: onnx.TypeProto) -> None:
    match kind.WhichOneof("value"):
        case "tensor_type" | "sparse_tensor_type" as which:
            for dim in getattr(kind, which).shape.dim:
                if dim.dim_value < 0:
                    dim.ClearField("dim_value")
        case "sequence_type" | "optional_type" as which:
            _free_negative_extents(getattr(kind, which).elem_type)
        case "map_type":
            _free_negative_extents(kind.map_type.value_type)


# The order of nodes -----------------------------------------------------------------------------


def _sort(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Put producers before readers; otherwise nodes keep their order."""
    nodes = list(graph.node)
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.output:
            producers.setdefault(name, index)
    producers.pop("", None)
    needs = [{producers[name] for name in names_read(node) if name in producers} for node in nodes]
    if all(max(need, default=-1) < index for index, need in enumerate(needs)):
        return
    order = _order(nodes, needs)
    kept = onnx.GraphProto(node=[nodes[index] for index in order])
    del graph.node[:]
    graph.node.extend(kept.node)


def _order(nodes: Sequence[onnx.NodeProto], needs: Sequence[set[int]]) -> list[int]:
    readers: list[list[int]] = [[] for _ in nodes]
    for index, need in enumerate(needs):
        for producer in need:
            readers[producer].append(index)
    missing = [len(need) for need in needs]
    ready = [index for index, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        _refuse_cycle(nodes, needs, {k for k, count in enumerate(missing) if count})
    return order


def _refuse_cycle(
    nodes: Sequence[onnx.NodeProto], needs: Sequence[set[int]], stuck: set[int]
) -> None:
    """Raise `InvalidModel` with the nodes of one cycle.

    Every node in `stuck` needs another stuck node, so following these must come back to a node.
    """
    path = [min(stuck)]
    while (following := min(needs[path[-1]] & stuck)) not in path:
        path.append(following)
    cycle = path[path.index(following) :]
    named = " reads ".join(
        f"{nodes[k].op_type} {nodes[k].name or k} ({', '.join(nodes[k].output)})"
        for k in (*cycle, cycle[0])
    )
    raise InvalidModel(f"the graph has a cycle: {named}; a model must be without cycles")
