"""An ONNX model as a session needs it: its signature, its metadata, and its executables.

In: a path or the bytes of a model, and the options of a session.  Out: an `OpenedModel`.  This
module imports ONNX and the compiler, so a session imports it only for an ONNX model.

Graph inputs with an initializer may be given in a run, as in onnxruntime (from IR version 4 on).
They are constants until a run gives one: then the model is compiled once more, with defaults in
their place.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cached_property
from typing import Any, TypeAlias

import onnx

from graphflow.api.compilation import compile
from graphflow.api.executable import Executable
from graphflow.api.session.element_types import type_string_of_number
from graphflow.api.session.node_args import UNKNOWN_VERSION, ModelMetadata, NodeArg
from graphflow.api.session.session_options import (
    SessionOptions,
    compile_options,
    stated_sizes,
)
from graphflow.frontends import OnnxModel, ReadModel, graph_types, open_model

Args: TypeAlias = "tuple[NodeArg, ...]"

_FIRST_WITH_DEFAULTS = 4
"""The first IR version in which an input with an initializer may be given."""


class OpenedModel:
    """A model that was read and compiled.

    inputs: what each run gives; overridable: what a run may give in place of an initializer.
    """

    def __init__(self, source: Any, options: SessionOptions) -> None:
        opened = open_model(source)
        _fix_dimensions(opened.proto, options.dimensions)
        self.inputs, self.outputs, self.overridable = args_of(opened.proto)
        self.metadata = _metadata(opened.proto)
        self._options = options
        self._opened = opened if self.overridable else None
        # As it was given, so that cached programs of it are found, unless it was changed here.
        self.executable = _compiled(opened if options.dimensions else source, options, ())

    @cached_property
    def with_defaults(self) -> Executable:
        """The executable in which the overridable initializers are defaults of inputs."""
        assert self._opened is not None, "there is no overridable initializer"
        return _compiled(self._opened, self._options, [arg.name for arg in self.overridable])


def args_of(proto: onnx.ModelProto) -> tuple[Args, Args, Args]:
    """The inputs that each run gives, the outputs, and the inputs that a run may give."""
    graph = proto.graph
    constant = {tensor.name for tensor in graph.initializer}
    takes_defaults = proto.ir_version >= _FIRST_WITH_DEFAULTS
    return (
        _args(info for info in graph.input if info.name not in constant),
        _args(_typed_outputs(proto)),
        _args(info for info in graph.input if info.name in constant and takes_defaults),
    )


def _compiled(
    model: OnnxModel | ReadModel, options: SessionOptions, overridable: Iterable[str]
) -> Executable:
    return compile(
        model,
        overridable=tuple(overridable),
        sizes=stated_sizes(options),
        options=compile_options(options),
    )


def _fix_dimensions(proto: onnx.ModelProto, dimensions: dict[str, int]) -> None:
    """Write the extents of dimensions into inputs, outputs and tensors; warns of names that no
    input has."""
    graph, found = proto.graph, set[str]()
    for infos in (graph.input, graph.output, graph.value_info):
        for info in infos:
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_param in dimensions:
                    found.add(dim.dim_param)
                    dim.dim_value = dimensions[dim.dim_param]
    if unknown := sorted(dimensions.keys() - found):
        warnings.warn(
            f"the model has no dimensions {', '.join(unknown)} to fix", stacklevel=_CALLER
        )


_CALLER = 5
"""The frame of a session's caller, counted from the function that warns."""


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
    """The shape of a tensor; empty for other types, as in onnxruntime."""
    return [
        # Negative extents are how many exporters write that they do not know.
        int(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value >= 0
        else dim.dim_param or None
        for dim in kind.tensor_type.shape.dim
    ]


def _metadata(proto: onnx.ModelProto) -> ModelMetadata:
    return ModelMetadata(
        producer_name=proto.producer_name,
        graph_name=proto.graph.name,
        domain=proto.domain,
        description=proto.doc_string,
        graph_description=proto.graph.doc_string,
        version=proto.model_version if proto.HasField("model_version") else UNKNOWN_VERSION,
        custom_metadata_map={entry.key: entry.value for entry in proto.metadata_props},
    )
