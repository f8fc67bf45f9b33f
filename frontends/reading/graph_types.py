"""Types of all tensors of a model, by ONNX's shape inference.

In: a model without the data of large initializers.  Out: a copy with the types of its tensors.
What always holds: it takes memory in proportion to the model, and ends; ONNX's propagation of
contents, which a model can make endless, is used only where neither is in question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import shape_inference

from graphflow.base.errors import InvalidModel
from graphflow.frontends.protos.protos import known_array
from graphflow.frontends.protos.steps import subgraphs

LONG_VECTOR = 1 << 23
"""Elements of a vector beyond which ONNX's data propagation is not used: it keeps track of every
element, which takes 3 s and 1.3 GB for 2^23 of them."""

LARGE_STEP = 1 << 30
"""Steps of a Slice beyond which ONNX's data propagation is not used.  It counts the elements of a
vector in 32 bits: a step of 2^32 is 0 there, so that the count does not end and takes all memory,
and one of 2^31 leads in front of the vector.  A smaller one stays in 32 bits for vectors up to
`LONG_VECTOR`."""


def graph_types(
    proto: onnx.ModelProto, check_type: bool = True, strict_mode: bool = True
) -> onnx.ModelProto:
    """The model with the types of its tensors; what onnx's own code raises where it refuses it.

    What only the propagation of contents refuses stands: it takes floats without elements for the
    contents of a shape, and indices are checked with the operators, which name the one that is
    outside."""
    plain = shape_inference.infer_shapes(proto, check_type, strict_mode, data_prop=False)
    infos = (*plain.graph.input, *plain.graph.value_info)
    if any(map(_is_long_vector, infos)) or _has_large_steps(proto):
        return plain
    try:
        return shape_inference.infer_shapes(proto, check_type, strict_mode, data_prop=True)
    except (MemoryError, shape_inference.InferenceError):
        return plain


def _is_long_vector(info: onnx.ValueInfoProto) -> bool:
    dims = info.type.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > LONG_VECTOR


def _has_large_steps(proto: onnx.ModelProto) -> bool:
    """Whether a constant that has the name of a Slice's steps holds a large number; it may be the
    constant of another graph."""
    graphs = [*_graphs([proto.graph])]
    bodies = [*graphs, *proto.functions]
    bodies += _graphs(g for f in proto.functions for node in f.node for g in subgraphs(node))
    nodes = [node for body in bodies for node in body.node]
    steps = {n.input[4] for n in nodes if n.op_type == "Slice" and len(n.input) > 4}
    if not steps:
        return False
    named = [tensor for graph in graphs for tensor in graph.initializer if tensor.name in steps]
    for node in nodes:
        if node.op_type == "Constant" and not steps.isdisjoint(node.output):
            named += [attribute.t for attribute in node.attribute if attribute.HasField("t")]
            numbers = (n for attribute in node.attribute for n in (attribute.i, *attribute.ints))
            if any(abs(n) > LARGE_STEP for n in numbers):
                return True
    return any(map(_is_large, named))


def _graphs(graphs: Iterable[onnx.GraphProto]) -> Iterator[onnx.GraphProto]:
    for graph in graphs:
        yield graph
        yield from _graphs(inner for node in graph.node for inner in subgraphs(node))


def _is_large(tensor: onnx.TensorProto) -> bool:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False  # inference does not read it
    try:
        array = known_array(tensor, tensor.name)
    except InvalidModel:
        return False  # nor such data
    return array.dtype.kind in "iu" and bool((np.abs(array.astype(np.float64)) > LARGE_STEP).any())
