"""ONNX import: a model becomes a graph of logical kernels.

In: a path, bytes or a proto, and shapes for symbolic inputs.  Out: an `OperatorGraph` in which each
value has its ONNX name, a dtype and a logical shape, and each node a PrimFunc over row-major
buffers.  A model with operators that are not built is refused once, with all of them named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx
from numpy.typing import ArrayLike

from graphflow.errors import GraphflowError, InvalidModel, UnsupportedOp, ValuesNeeded
from graphflow.foreign import ForeignNode, ObjectSpec
from graphflow.frontends.call import Call, Context, check_dtype, dtype_name, tensor_array
from graphflow.frontends.load import LoadedModel, load_model, read_model, without_functions
from graphflow.frontends.ops_compaction import COMPACTION
from graphflow.frontends.ops_elementwise import ELEMENTWISE
from graphflow.frontends.ops_indexing import INDEXING
from graphflow.frontends.ops_linear import LINEAR
from graphflow.frontends.ops_normalization import NORMALIZATION
from graphflow.frontends.ops_ranking import RANKING
from graphflow.frontends.ops_reduction import REDUCTION
from graphflow.frontends.ops_resize import RESIZE
from graphflow.frontends.ops_sampling import SAMPLING
from graphflow.frontends.ops_selection import SELECTION
from graphflow.frontends.ops_shape import SHAPE
from graphflow.frontends.ops_suppression import SUPPRESSION
from graphflow.frontends.ops_window import WINDOW
from graphflow.frontends.sections import Around, Member, add_sections, names_read, stages_of
from graphflow.frontends.signature import signature
from graphflow.frontends.values import fixed_values, shapes_with
from graphflow.graph import OperatorGraph, Removed, Value
from graphflow.tir import DTYPES

OPERATORS: dict[str, Callable[[Call], None]] = {
    **COMPACTION,
    **ELEMENTWISE,
    **INDEXING,
    **LINEAR,
    **NORMALIZATION,
    **RANKING,
    **REDUCTION,
    **RESIZE,
    **SAMPLING,
    **SELECTION,
    **SHAPE,
    **SUPPRESSION,
    **WINDOW,
}
"""What each ONNX operator of the standard domain becomes."""


def import_model(
    model: str | Path | bytes | onnx.ModelProto,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    fallback: bool = False,
) -> OperatorGraph:
    """The operator graph of an ONNX model, opset 7 or later.

    `input_shapes` gives full logical shapes for inputs with symbolic dimensions, `input_values`
    whole inputs; the graph then means something for these values only.  Raises `InvalidModel` for a
    model, shapes or values that are wrong, and `ValuesNeeded` where shapes depend on values that
    are not given.  What no kernel is built for raises `UnsupportedOp`, or with `fallback` becomes
    part of a section of the graph.
    """
    model = read_model(model)
    values = fixed_values(model, input_values or {})
    loaded = load_model(model, shapes_with(input_shapes or {}, values))
    proto = loaded.graph
    consumed = frozenset(name for node in proto.node for name in names_read(node))
    read = consumed.union(info.name for info in proto.output)
    context = Context(OperatorGraph(), loaded.opset, _declared(proto), read, consumed)
    if not fallback:
        _refuse_unknown_operators(proto)
    _add_sources(loaded, context, fallback)
    context.known.update(values)
    foreign: dict[int, Member] = {}
    for index, node in enumerate(proto.node):
        call = Call(node, index, context)
        try:
            _import_node(call, node)
        except UnsupportedOp as error:
            # Given these values the node has a kernel, and one that knows its shapes.
            if not fallback or isinstance(error, ValuesNeeded):
                raise
            call.undo()
            reason = str(error).removeprefix(f"{call.op} node {call.name}: ")
            foreign[index] = _foreign(call, node, reason)
    _add_foreign(loaded, foreign, context)
    context.graph.set_outputs(i.name for i in proto.output if i.name not in context.objects)
    for output, axis, count in context.trimmed:
        context.graph.trim_output(output, axis, count)
    context.graph.validate()
    return context.graph


def check_supported(model: str | Path | bytes | onnx.ModelProto) -> None:
    """Raise `UnsupportedOp` for what no shapes can make importable.

    These are operators that are not built, and inputs of dtypes that kernels do not have.  Whether
    attributes and shapes are supported shows when the model is imported.
    """
    proto = read_model(model)
    for name, dtype, _ in signature(proto)[0]:
        check_dtype(f"graph input {name}", dtype)
    _refuse_unknown_operators(without_functions(proto))


def _import_node(call: Call, proto: onnx.NodeProto) -> None:
    """Add the kernels of a node; every error of its own names it."""
    objects = call.context.objects
    taken = next((name for name in names_read(proto) if name in objects), None)
    if taken is not None:
        raise UnsupportedOp(f"its input {taken} is {objects[taken]}, which no kernel takes")
    if not _is_built(proto):
        raise UnsupportedOp("no kernel is built for this operator")
    try:
        OPERATORS[call.op](call)
    except GraphflowError as error:
        if call.name in str(error):
            raise
        raise type(error)(f"{call.op} node {call.name}: {error}") from error
    call.finish()


def _is_built(proto: onnx.NodeProto) -> bool:
    return proto.domain in ("", "ai.onnx") and proto.op_type in OPERATORS


def _foreign(call: Call, proto: onnx.NodeProto, reason: str) -> Member:
    """The node as a member of a section, its outputs as values or as objects."""
    context = call.context
    for name in filter(None, call.outputs):
        dtype, shape = context.declared.get(name, (None, None))
        if dtype in DTYPES and shape is not None and None not in shape:
            extents = tuple(n for n in shape if n is not None)
            context.graph.add_value(Value(name, dtype, extents))
        else:
            open_shape = "a tensor whose shape is not known before a run"
            context.objects[name] = open_shape if dtype in DTYPES else _of_type(dtype)
    node = ForeignNode(call.name, proto.op_type, reason)
    return Member(proto, node, names_read(proto))


def _of_type(dtype: str | None) -> str:
    """What a message says of a tensor, or of something else, that kernels cannot take."""
    if dtype is None:
        return "of a type that ONNX does not know"
    return "a tensor of strings" if dtype == "object" else f"of type {dtype}"


def _add_foreign(loaded: LoadedModel, foreign: Mapping[int, Member], context: Context) -> None:
    """Add the sections, and say which inputs and outputs of the model pass kernels by."""
    graph, objects = loaded.graph, context.objects
    context.graph.objects_in = tuple(
        ObjectSpec(info.name, objects[info.name]) for info in loaded.inputs if info.name in objects
    )
    context.graph.objects_out = tuple(
        ObjectSpec(info.name, objects[info.name]) for info in graph.output if info.name in objects
    )
    if not foreign:
        return
    stages = stages_of(graph.node, foreign.__contains__, context.known.__contains__)
    members: dict[int, list[Member]] = {}
    for index, member in foreign.items():
        members.setdefault(stages[index], []).append(member)
    native = (node for index, node in enumerate(graph.node) if index not in foreign)
    read = {name for node in native for name in names_read(node)}
    infos = (*graph.input, *graph.value_info, *graph.output)
    around = Around(
        context,
        {info.name: info for info in infos if info.HasField("type")},
        loaded.header,
        frozenset(read.union(info.name for info in graph.output)),
    )
    add_sections(members, around)
    for name in (name for member in foreign.values() for name in member.proto.output):
        if name in context.graph.values and context.graph.producer(name) is None:
            context.graph.remove_value(name)
            context.graph.removed[name] = Removed("kept by the section that computes it")


def _refuse_unknown_operators(proto: onnx.GraphProto) -> None:
    unknown: dict[str, list[str]] = {}
    for index, node in enumerate(proto.node):
        if _is_built(node):
            continue
        standard = node.domain in ("", "ai.onnx")
        title = node.op_type if standard else f"{node.domain}.{node.op_type}"
        unknown.setdefault(title, []).append(node.name or f"{node.op_type}_{index}")
    if unknown:
        listed = "; ".join(
            f"{title} ({len(names)} nodes, the first is {names[0]})"
            if len(names) > 1
            else f"{title} (node {names[0]})"
            for title, names in sorted(unknown.items())
        )
        raise UnsupportedOp(
            f"operators that are not built: {listed}. Rewrite the model without them; built are "
            f"{', '.join(sorted(OPERATORS))}"
        )


def _declared(proto: onnx.GraphProto) -> dict[str, tuple[str, tuple[int | None, ...] | None]]:
    found: dict[str, tuple[str, tuple[int | None, ...] | None]] = {}
    for info in (*proto.value_info, *proto.output):
        tensor = info.type.tensor_type
        if not tensor.elem_type:
            continue
        shape = None
        if tensor.HasField("shape"):
            shape = tuple(
                int(d.dim_value) if d.HasField("dim_value") else None for d in tensor.shape.dim
            )
        found[info.name] = (dtype_name(tensor.elem_type), shape)
    return found


def _add_sources(loaded: LoadedModel, context: Context, fallback: bool) -> None:
    """Inputs and initializers as values; with `fallback` others than kernels take as objects."""
    names = {info.name for info in loaded.inputs}
    for info in loaded.inputs:
        tensor = info.type.tensor_type
        dtype = _input_dtype(info)
        if fallback and dtype not in DTYPES:
            context.objects[info.name] = _of_type(dtype)
            continue
        check_dtype(f"graph input {info.name}", dtype)
        shape = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
        context.graph.add_value(Value(info.name, dtype, shape))
    for tensor in loaded.initializers:
        dtype = dtype_name(tensor.data_type)
        if fallback and dtype not in DTYPES:
            context.objects[tensor.name] = _of_type(dtype)
            context.object_constants[tensor.name] = tensor
            continue
        array = tensor_array(tensor, f"initializer {tensor.name}")
        if tensor.name not in names:
            context.add_constant(tensor.name, array)
            continue
        # A default that the caller may override decides nothing at compile time.
        given = context.graph.values[tensor.name]
        if (array.dtype.name, array.shape) != (given.dtype, given.shape):
            raise InvalidModel(
                f"the default of graph input {tensor.name} is {array.dtype}{array.shape}, "
                f"the input itself {given.dtype}{given.shape}"
            )
        context.graph.add_initializer(tensor.name, array)
    context.graph.set_inputs(i.name for i in loaded.inputs if i.name not in context.objects)


def _input_dtype(info: onnx.ValueInfoProto) -> str:
    kind = info.type.WhichOneof("value")
    return dtype_name(info.type.tensor_type.elem_type) if kind == "tensor_type" else str(kind)
