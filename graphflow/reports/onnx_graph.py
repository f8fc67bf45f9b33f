"""A program as an ONNX model that viewers such as Netron open: it shows, and does not run.

In: a `ProgramGraph`.  Out: an `onnx.ModelProto` that onnx's checker accepts.  Its operators are in
the domain `graphflow`, which has no definitions; values have the physical shapes of their boxes;
layouts, facts, demands, proofs and reasons are in the metadata of nodes and values.  What always
holds: weights are named and described, but not in the file.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from graphflow.base.version import VERSION
from graphflow.reports.decision_rows import INPUT
from graphflow.reports.program_graph import OUTPUT, ProgramGraph, ProgramNode, ProgramValue

DOMAIN = "graphflow"

IR_VERSION = 10
"""The first version of the format with metadata of nodes and values."""

FLOATS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
"""The element types that ONNX has another name for."""


def onnx_program(graph: ProgramGraph) -> onnx.ModelProto:
    """The model: one node for each node of the program."""
    inputs = [value for node in graph.of_kind(INPUT) for value in node.outputs]
    returned = [value for node in graph.of_kind(OUTPUT) for value in node.inputs]
    outputs = [*dict.fromkeys(value for value in returned if value is not None)]
    apart = {value.name for value in (*inputs, *outputs)}
    inner = [value for node in graph.nodes for value in node.outputs if value.name not in apart]
    proto = helper.make_graph(
        [_node(node) for node in graph.nodes if node.kind not in (INPUT, OUTPUT)],
        graph.title,
        [_value(value) for value in inputs],
        [_value(value) for value in outputs],
        doc_string=graph.summary,
        value_info=[_value(value) for value in inner],
    )
    model = helper.make_model(
        proto,
        producer_name=DOMAIN,
        producer_version=VERSION,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid(DOMAIN, 1)],
        doc_string=f"A program that graphflow made, to be looked at: {graph.title}.",
    )
    _add_metadata(model, graph.about)
    return model


def _node(node: ProgramNode) -> onnx.NodeProto:
    """A node; a constant is an omitted input, so that the others keep their positions."""
    names = ["" if value is None else value.name for value in node.inputs]
    attributes = {"kind": node.kind}
    if node.variant:
        attributes["variant"] = node.variant
    proto = helper.make_node(
        node.operator or node.kind,
        names,
        [value.name for value in node.outputs],
        name=node.name,
        doc_string=node.because,
        domain=DOMAIN,
        **attributes,
    )
    if node.seconds is not None:
        proto.attribute.append(helper.make_attribute("price_us", 1e6 * node.seconds))
    _add_metadata(proto, node.about)
    return proto


def _value(value: ProgramValue) -> onnx.ValueInfoProto:
    """The type of a value: its element type and the shape of its box, as far as they are known;
    for a value without an edge type, such as a constant that is returned, the logical shape."""
    shape = value.logical_shape if value.physical_shape is None else value.physical_shape
    decision = dict(value.about).get("decision", "")
    kind = _element_type(value.dtype)
    proto = helper.make_tensor_value_info(value.name, kind, shape, doc_string=decision)
    _add_metadata(proto, value.about)
    return proto


def _element_type(dtype: str | None) -> int:
    """The number that ONNX has for an element type; 0, undefined, for one that it does not have."""
    if dtype in FLOATS:
        return int(FLOATS[dtype])
    names = dict(TensorProto.DataType.items())
    return int(names.get((dtype or "undefined").upper().replace("_", ""), TensorProto.UNDEFINED))


def _add_metadata(
    proto: onnx.ModelProto | onnx.NodeProto | onnx.ValueInfoProto,
    about: tuple[tuple[str, str], ...],
) -> None:
    for word, text in about:
        if text:
            entry = proto.metadata_props.add()
            entry.key, entry.value = word, text
