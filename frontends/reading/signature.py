"""The inputs and outputs that a model declares, with symbolic dimensions still open."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import onnx

from graphflow.frontends.protos.protos import dtype_name, tensor_array
from graphflow.frontends.reading.load import named_extents, settable_inputs
from graphflow.frontends.reading.weights import ReadModel
from graphflow.graph import Array

Declared: TypeAlias = "tuple[str, str, tuple[int | str, ...] | None]"
"""Name, dtype and extents of a tensor; a symbolic dimension has its name, or `?`."""


def signature(
    proto: onnx.ModelProto, overridable: Collection[str] = ()
) -> tuple[tuple[Declared, ...], tuple[Declared, ...]]:
    """The inputs that a caller may set, and the outputs, as the model declares them."""
    graph, settable = proto.graph, settable_inputs(proto, overridable)
    inputs = {info.name: info for info in graph.input}
    return _declared([inputs[name] for name in settable]), _declared(graph.output)


def input_defaults(opened: ReadModel, overridable: Collection[str] = ()) -> dict[str, Array]:
    """The contents of the inputs that a caller may leave out."""
    proto, contents = opened.proto, opened.contents
    settable = set(settable_inputs(proto, overridable))
    return {
        tensor.name: contents[number]
        if number in contents
        else tensor_array(tensor, f"initializer {tensor.name}")
        for number, tensor in enumerate(proto.graph.initializer)
        if tensor.name in settable
    }


def _declared(infos: Sequence[onnx.ValueInfoProto]) -> tuple[Declared, ...]:
    found: list[Declared] = []
    for info in infos:
        tensor = info.type.tensor_type
        dtype = dtype_name(tensor.elem_type) if tensor.elem_type else "?"
        found.append((info.name, dtype, named_extents(tensor)))
    return tuple(found)
