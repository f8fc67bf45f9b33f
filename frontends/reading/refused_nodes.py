"""The node that ONNX's shape inference refuses, and what it reads, for the text of an error.

In: a model whose nodes are in an order in which they can run, and the inference that refuses it.
Out: text that names the node and the types of its operands; ONNX's own messages name its operator
alone.  What always holds: the model is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import checker, shape_inference

from graphflow.frontends.protos.protos import dtype_name

REFUSALS = (checker.ValidationError, shape_inference.InferenceError, RuntimeError, ValueError)
"""What onnx's own code raises; exceptions of its C++ code arrive as RuntimeError."""


def refused_node(
    proto: onnx.ModelProto, infer: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> str:
    """The first node that `infer` refuses, by halving; "the model" where there is none."""
    nodes, part = list(proto.graph.node), onnx.ModelProto()
    part.CopyFrom(proto)

    def inferred(count: int) -> onnx.ModelProto | None:
        del part.graph.node[:]
        part.graph.node.extend(nodes[:count])
        try:
            return infer(part)
        except REFUSALS:
            return None

    typed, low, high = inferred(0), 0, len(nodes)
    if typed is None:
        return "the model"
    while high - low > 1:
        middle = (low + high) // 2
        found = inferred(middle)
        if found is None:
            high = middle
        else:
            typed, low = found, middle
    return text_with_operands(nodes[low], low, typed.graph) if nodes else "the model"


def text_with_operands(node: onnx.NodeProto, index: int, graph: onnx.GraphProto) -> str:
    """A node with the types of its operands, where the types in `graph` have them."""
    infos = (*graph.input, *graph.value_info, *graph.output)
    types = {info.name: _type_text(info.type.tensor_type) for info in infos}
    types |= {t.name: f"{dtype_name(t.data_type)}{list(t.dims)}" for t in graph.initializer}
    operands = ", ".join(f"{name}: {types.get(name, '?')}" for name in node.input if name)
    return f"{node.op_type} node {node.name or index} ({operands})"


def _type_text(tensor: onnx.TypeProto.Tensor) -> str:
    if not tensor.elem_type:
        return "?"
    dims = [
        d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim
    ]
    extents = f"[{', '.join(map(str, dims))}]" if tensor.HasField("shape") else ""
    return dtype_name(tensor.elem_type) + extents
