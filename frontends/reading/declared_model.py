"""What an ONNX file declares: its inputs and outputs in onnxruntime's words, and its metadata.

In: the proto of a model.  Out: a `Declaration`.  What always holds: names, types, shapes and their
order are those that onnxruntime gives.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from graphflow.base.declaration import UNKNOWN_VERSION, Declaration, ModelMetadata, NodeArg
from graphflow.base.element_types import type_string_of_number
from graphflow.frontends.protos.protos import declared_extents
from graphflow.frontends.reading.graph_types import graph_types

_FIRST_WITH_DEFAULTS = 4
"""The first IR version in which an input with an initializer may be given."""


def declaration(proto: onnx.ModelProto) -> Declaration:
    """What the file of a model declares."""
    graph = proto.graph
    constant = {tensor.name for tensor in graph.initializer}
    takes_defaults = proto.ir_version >= _FIRST_WITH_DEFAULTS
    return Declaration(
        _args(info for info in graph.input if info.name not in constant),
        _args(_typed_outputs(proto)),
        _args(info for info in graph.input if info.name in constant and takes_defaults),
        _metadata(proto),
    )


def _typed_outputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The outputs with their types and shapes, as far as these are declared or follow."""
    outputs = list(proto.graph.output)
    if all(_is_declared(info.type) for info in outputs):
        return outputs
    try:
        found = list(graph_types(proto, check_type=False, strict_mode=False).graph.output)
    except Exception:  # whatever it does not understand; the compiler says what is wrong
        return outputs
    for info in found:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param.startswith(_MADE_UP):
                dim.ClearField("dim_param")
    return found


_MADE_UP = "unk__"
"""Begins the names that ONNX's shape inference gives to extents that it does not know."""


def _is_declared(kind: onnx.TypeProto) -> bool:
    match kind.WhichOneof("value"):
        case None:
            return False
        case "tensor_type":
            return bool(kind.tensor_type.HasField("shape"))
        case _:
            return True


def _args(infos: Iterable[onnx.ValueInfoProto]) -> tuple[NodeArg, ...]:
    return tuple(NodeArg(info.name, _type(info.type), _shape(info.type)) for info in infos)


def _type(kind: onnx.TypeProto) -> str:
    """A type in onnxruntime's words."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            return type_string_of_number(kind.tensor_type.elem_type)
        case "sparse_tensor_type":
            return f"sparse_{type_string_of_number(kind.sparse_tensor_type.elem_type)}"
        case "sequence_type":
            return f"seq({_type(kind.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({_type(kind.optional_type.elem_type)})"
        case "map_type":
            key = type_string_of_number(kind.map_type.key_type).removeprefix("tensor(")[:-1]
            return f"map({key},{_type(kind.map_type.value_type)})"
        case _:
            return "unknown"


def _shape(kind: onnx.TypeProto) -> list[int | str | None]:
    """The shape of a tensor, or of one that may be missing; empty for other types, as in
    onnxruntime."""
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    return declared_extents(kind.tensor_type)


def _metadata(proto: onnx.ModelProto) -> ModelMetadata:
    return ModelMetadata(
        producer_name=_text(proto.producer_name),
        graph_name=proto.graph.name,
        domain=_text(proto.domain),
        description=_text(proto.doc_string),
        graph_description=_text(proto.graph.doc_string),
        version=proto.model_version if proto.HasField("model_version") else UNKNOWN_VERSION,
        custom_metadata_map={_text(p.key): _text(p.value) for p in proto.metadata_props},
    )


def _text(stored: str | bytes) -> str:
    """A text about a model, which protobuf gives as bytes where it is no UTF-8; in names of tensors
    and dimensions the import refuses that."""
    return stored if isinstance(stored, str) else stored.decode(errors="replace")
