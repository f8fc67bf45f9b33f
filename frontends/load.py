"""Reading ONNX models: from a path, bytes or a proto to a checked graph with all shapes known.

In: a model and shapes for its symbolic inputs.  Out: a `LoadedModel`; the proto given is never
edited.  Input shapes are fixed, and ONNX's own checker and shape inference
have run without complaint.  Wrong models raise `InvalidModel`, right ones of a kind that is not
built raise `UnsupportedOp`.

Weights are not copied: checker and inference see a graph in which large initializers stand as
inputs, so that hundreds of megabytes are not serialized three times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import checker, helper, shape_inference

from graphflow.errors import SHAPES, InvalidModel, UnsupportedOp
from graphflow.frontends.inference import schema_of, write_defaults
from graphflow.frontends.steps import Step, subgraphs
from graphflow.frontends.vendor import move_added

OLDEST_OPSET = 7
"""The first opset with today's broadcasting."""


LARGE = 1024
"""Elements from which on an initializer is taken not to decide shapes."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model whose shapes are known."""

    graph: onnx.GraphProto
    """Nodes and inferred types; its inputs are those a caller may set, and large initializers."""
    opset: int
    inputs: tuple[onnx.ValueInfoProto, ...]
    """The graph inputs that a caller may set, with static shapes."""
    initializers: tuple[onnx.TensorProto, ...]
    header: onnx.ModelProto
    """The model without its graph: IR version and opsets."""
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    """The model's own functions by domain, name and overload."""
    is_inferred: bool
    """Whether ONNX's type inference agreed to every node; else import asks it node by node."""


def load_model(
    model: str | Path | bytes | onnx.ModelProto,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> LoadedModel:
    """`model`, checked and with static shapes; see the module's text."""
    given = read_model(model)
    proto = _without_large_initializers(given)
    move_added(proto)
    try:
        checker.check_model(proto)
    except (checker.ValidationError, ValueError) as error:
        raise InvalidModel(f"the ONNX checker refuses the model: {error}") from None
    opset = _opset(proto)
    _write_defaults(proto, opset)
    if given.graph.sparse_initializer:
        names = [sparse.values.name for sparse in given.graph.sparse_initializer]
        raise UnsupportedOp(f"sparse initializers {names} are not built; store them as dense ones")
    inputs = {info.name: info for info in proto.graph.input}
    settable = [inputs[name] for name in settable_inputs(given)]
    _fix_shapes(settable, dict(input_shapes or {}))
    typed, is_inferred = _inferred(proto)
    header = onnx.ModelProto(ir_version=typed.ir_version, opset_import=typed.opset_import)
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    initializers = tuple(given.graph.initializer)
    return LoadedModel(
        typed.graph, opset, tuple(settable), initializers, header, functions, is_inferred
    )


def _write_defaults(proto: onnx.ModelProto, opset: int) -> None:
    for node in proto.graph.node:
        schema = schema_of(Step(node, node.name, {"": opset}))
        if schema is not None:
            write_defaults(schema, node)


def _inferred(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, bool]:
    """The model with its types, and whether inference agreed to all of it.

    It looks into branches that are never taken: exporters guard the squeezing of an axis by a
    question for its extent.  So where there are branches, a second look forgives errors.
    """
    try:
        typed = shape_inference.infer_shapes(
            proto, check_type=True, strict_mode=True, data_prop=True
        )
    except (shape_inference.InferenceError, checker.ValidationError, ValueError) as error:
        bodies = (node for function in proto.functions for node in function.node)
        if not any(subgraphs(node) for node in (*proto.graph.node, *bodies)):
            raise InvalidModel(f"ONNX shape inference refuses the model: {error}") from None
    else:
        return typed, True
    return shape_inference.infer_shapes(proto, data_prop=True), False


def _without_large_initializers(given: onnx.ModelProto) -> onnx.ModelProto:
    graph = onnx.GraphProto(name=given.graph.name or "graph")
    for field in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, field).extend(getattr(given.graph, field))
    named, settable = {info.name for info in given.graph.input}, set(settable_inputs(given))
    for tensor in given.graph.initializer:
        if tensor.name in settable:
            continue  # a default that a run may override decides no shape
        if prod(tensor.dims) < LARGE:
            graph.initializer.append(tensor)
        elif tensor.name not in named:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(info)
    proto = onnx.ModelProto(ir_version=given.ir_version, graph=graph)
    proto.opset_import.extend(given.opset_import)
    proto.functions.extend(given.functions)
    return proto


def _opset(proto: onnx.ModelProto) -> int:
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions:
        raise InvalidModel("the model imports no opset of the standard domain; it needs one")
    if versions[0] < OLDEST_OPSET:
        raise UnsupportedOp(
            f"opset {versions[0]} is older than {OLDEST_OPSET}, the first one that is built; "
            f"convert the model with onnx.version_converter.convert_version(model, 17)"
        )
    return int(versions[0])


def settable_inputs(proto: onnx.ModelProto) -> list[str]:
    """The names of the graph inputs that a caller may set.

    Before IR version 4 each initializer had to be listed as an input too, without meaning that it
    could be overridden; those are left out.
    """
    constants = {tensor.name for tensor in proto.graph.initializer if proto.ir_version < 4}
    return [info.name for info in proto.graph.input if info.name not in constants]


def read_model(model: str | Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """The proto itself, unchecked; `InvalidModel` where the file is missing or is not ONNX."""
    if isinstance(model, onnx.ModelProto):
        return model
    try:
        return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(str(model))
    except FileNotFoundError as error:
        raise InvalidModel(f"cannot read the model: {error}; check the path") from None
    except DecodeError as error:
        raise InvalidModel(f"this is not an ONNX file: {error}") from None


def tensor_names(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Every tensor that the graph names, in the order it names them: inputs, initializers, nodes'
    inputs and outputs, outputs."""
    graph = proto.graph
    names = [info.name for info in graph.input] + [tensor.name for tensor in graph.initializer]
    for node in graph.node:
        names += [*node.input, *node.output]
    names += [info.name for info in graph.output]
    return tuple(dict.fromkeys(name for name in names if name))


def symbolic_inputs(proto: onnx.ModelProto) -> tuple[str, ...]:
    """The graph inputs that a caller may set and whose shape is not fully known."""
    infos = {info.name: info for info in proto.graph.input}
    return tuple(
        name
        for name in settable_inputs(proto)
        if infos[name].type.HasField("tensor_type") and _open_dimensions(infos[name])
    )


def _fix_shapes(inputs: Sequence[onnx.ValueInfoProto], wanted: dict[str, Sequence[int]]) -> None:
    """Write `wanted` into the inputs; raise where one does not fit or a dimension stays open."""
    infos = {info.name: info for info in inputs}
    unknown = [name for name in wanted if name not in infos]
    if unknown:
        raise InvalidModel(
            f"shapes are given for {unknown}, the model's inputs are {list(infos)}; correct the "
            "names"
        )
    open_dimensions: list[str] = []
    for name, info in infos.items():
        if not info.type.HasField("tensor_type"):
            continue  # only a foreign node can take it
        if name in wanted:
            _write_shape(info, tuple(wanted[name]))
        open_dimensions += _open_dimensions(info)
    if open_dimensions:
        raise InvalidModel(
            f"these input dimensions are not known: {'; '.join(open_dimensions)}",
            remedies=(SHAPES,),
        )


def _write_shape(info: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    tensor = info.type.tensor_type
    dims = list(tensor.shape.dim)
    fits = not tensor.HasField("shape") or (
        len(dims) == len(shape)
        and all(
            not dim.HasField("dim_value") or dim.dim_value == extent
            for dim, extent in zip(dims, shape, strict=True)
        )
    )
    if not fits or any(n < 0 for n in shape):
        raise InvalidModel(
            f"the shape {shape} is given for {info.name}, the model says {_text(dims)}; only "
            "symbolic dimensions can be chosen"
        )
    # The shape must exist also for a scalar, whose list of dimensions is empty.
    tensor.shape.ClearField("dim")
    tensor.shape.SetInParent()
    for extent in shape:
        tensor.shape.dim.add().dim_value = extent


def _open_dimensions(info: onnx.ValueInfoProto) -> list[str]:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return [f"{info.name} has no shape at all"]
    return [
        f"{info.name} axis {axis} ({dim.dim_param or 'unnamed'})"
        for axis, dim in enumerate(tensor.shape.dim)
        if not dim.HasField("dim_value")
    ]


def _text(dims: list[Any]) -> str:
    texts = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in dims]
    return f"({', '.join(texts)})"
