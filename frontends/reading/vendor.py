"""Operators that onnxruntime defines in the standard domain, although ONNX's checker rejects them.

onnxruntime's optimizer writes LayerNormalization into models of opsets before 17, the first that
has the operator, and SimplifiedLayerNormalization into any model.  Import moves such nodes to
onnxruntime's own domain; for sections that onnxruntime runs they are moved back.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import defs, helper

from graphflow.frontends.protos.steps import STANDARD, subgraphs

DOMAIN = "com.microsoft"
_ADDED = ("LayerNormalization", "SimplifiedLayerNormalization")
"""onnxruntime has no operators of these names in its own domain."""


def move_added(proto: onnx.ModelProto) -> None:
    """Move nodes of onnxruntime's additions to the standard opset, in place, to its own domain."""
    version = next((e.version for e in proto.opset_import if e.domain in STANDARD), 0)
    added = {name for name in _ADDED if not _is_defined(name, version)}
    moved = _move(proto.graph.node, added, STANDARD, DOMAIN)
    if moved and all(entry.domain != DOMAIN for entry in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def for_onnxruntime(node: onnx.NodeProto) -> onnx.NodeProto:
    """A copy of `node` in which the nodes that `move_added` moved are in the standard domain
    again."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    _move([copy], _ADDED, (DOMAIN,), "")
    return copy


def _is_defined(op: str, version: int) -> bool:
    try:
        defs.get_schema(op, version, "")
    except defs.SchemaError:
        return False
    return True


def _move(
    nodes: Iterable[onnx.NodeProto], ops: Iterable[str], sources: Iterable[str], domain: str
) -> int:
    """Change the domain of nodes and of their subgraphs' nodes; returns how many changed."""
    moved = 0
    for node in nodes:
        if node.domain in sources and node.op_type in ops:
            node.domain = domain
            moved += 1
        moved += sum(_move(graph.node, ops, sources, domain) for graph in subgraphs(node))
    return moved
