"""ONNX import: a model becomes a graph of logical kernels.

In: a path, bytes or a proto, and shapes for symbolic inputs.  Out: an `OperatorGraph` in which each
value has its ONNX name, a dtype and a logical shape, and each node a PrimFunc over row-major
buffers.  A model with operators that are not built is refused once, with all of them named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import onnx

from graphflow.errors import GraphflowError, InvalidModel, UnsupportedOp
from graphflow.frontends.call import Call, Context, check_dtype, dtype_name, tensor_array
from graphflow.frontends.load import LoadedModel, load_model
from graphflow.frontends.ops_elementwise import ELEMENTWISE
from graphflow.frontends.ops_linear import LINEAR
from graphflow.frontends.ops_normalization import NORMALIZATION
from graphflow.frontends.ops_reduction import REDUCTION
from graphflow.frontends.ops_resize import RESIZE
from graphflow.frontends.ops_selection import SELECTION
from graphflow.frontends.ops_shape import SHAPE
from graphflow.frontends.ops_window import WINDOW
from graphflow.frontends.read import Model
from graphflow.graph import OperatorGraph, Value

OPERATORS: dict[str, Callable[[Call], None]] = {
    **ELEMENTWISE,
    **LINEAR,
    **NORMALIZATION,
    **REDUCTION,
    **RESIZE,
    **SELECTION,
    **SHAPE,
    **WINDOW,
}
"""What each ONNX operator of the standard domain becomes."""


def import_model(
    model: Model,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    overridable: Collection[str] = (),
) -> OperatorGraph:
    """The operator graph of an ONNX model.

    `input_shapes` gives full logical shapes for inputs with symbolic dimensions; `overridable`
    names graph inputs whose initializers are defaults and not constants.  Raises
    `InvalidModel` for a model or shapes that are wrong, `UnsupportedOp` for what is not built.
    """
    loaded = load_model(model, input_shapes, overridable)
    proto = loaded.graph
    _refuse_unknown_operators(proto)
    context = Context(OperatorGraph(), loaded.opset, _declared(proto), _tensors_read(proto))
    _add_sources(loaded, context)
    for index, node in enumerate(proto.node):
        call = Call(node, index, context)
        try:
            OPERATORS[call.op](call)
        except GraphflowError as error:
            if call.name in str(error):
                raise
            raise type(error)(f"{call.op} node {call.name}: {error}") from error
        call.finish()
    context.graph.set_outputs(info.name for info in proto.output)
    context.graph.validate()
    return context.graph


def _refuse_unknown_operators(proto: onnx.GraphProto) -> None:
    unknown: dict[str, list[str]] = {}
    for index, node in enumerate(proto.node):
        standard = node.domain in ("", "ai.onnx")
        if standard and node.op_type in OPERATORS:
            continue
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


def _tensors_read(proto: onnx.GraphProto) -> frozenset[str]:
    read = {name for node in proto.node for name in node.input if name}
    return frozenset(read.union(info.name for info in proto.output))


def _add_sources(loaded: LoadedModel, context: Context) -> None:
    names = {info.name for info in loaded.inputs}
    for info in loaded.inputs:
        tensor = info.type.tensor_type
        dtype = dtype_name(tensor.elem_type)
        check_dtype(f"graph input {info.name}", dtype)
        shape = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
        context.graph.add_value(Value(info.name, dtype, shape))
    for tensor in loaded.initializers:
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
    context.graph.set_inputs(info.name for info in loaded.inputs)
