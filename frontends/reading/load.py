"""Loading a model: from the proto that a user gives to a checked graph with all shapes known.

In: a checked model and shapes for its symbolic inputs.  Out: a `LoadedModel`; the given proto is
never edited.  Deviations from the standard are repaired, an old opset is converted, input shapes
are fixed, and ONNX's own checker and shape inference have accepted the result.  A wrong model
raises `InvalidModel`; a correct one that is not supported raises `UnsupportedOp`.

Weights are not copied: for onnx's own code large initializers are replaced by graph inputs, since
it would serialize hundreds of megabytes three times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

import onnx
from msgspec import Struct
from onnx import checker, helper

from graphflow.base.errors import InvalidModel, UnsupportedOp, shapes_remedy
from graphflow.frontends.protos.inference import (
    POOLS_COUNTED,
    pools_rounding_up,
    schema_of,
    write_defaults,
)
from graphflow.frontends.protos.payload import require_extents
from graphflow.frontends.protos.protos import declared_extents, is_open
from graphflow.frontends.protos.steps import STANDARD, ImportStep, subgraphs
from graphflow.frontends.reading.graph_types import graph_types
from graphflow.frontends.reading.recorded import Described, stated_types
from graphflow.frontends.reading.refused_nodes import REFUSALS, refused_node, text_with_operands
from graphflow.frontends.reading.repair import repair
from graphflow.frontends.reading.upgrade import upgraded
from graphflow.frontends.reading.vendor import move_added

LARGE = 1024
"""Initializers of at least this many elements are assumed not to decide shapes."""


class LoadedModel(Struct, frozen=True):
    """A model whose shapes are known."""

    graph: onnx.GraphProto
    """Nodes and inferred types; graph inputs are those a caller may set, and large initializers."""
    opset: int
    inputs: tuple[onnx.ValueInfoProto, ...]
    """The graph inputs that a caller may set, with static shapes."""
    initializers: tuple[onnx.TensorProto, ...]
    header: onnx.ModelProto
    """The model without its graph: IR version and opsets."""
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    """The model's own functions by domain, name and overload."""
    is_inferred: bool
    """Whether ONNX could infer the whole model; if not, import infers node by node."""
    interface: Mapping[str, Described]
    """What the model states of its outputs, unless the caller chose extents of inputs; binding."""
    recorded: Mapping[str, Described]
    """What the model states of its other tensors, which is not."""


def load_model(
    given: onnx.ModelProto,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    overridable: Collection[str] = (),
    sizes: Collection[str] = (),
) -> LoadedModel:
    """Fix the shapes of a model that `read_model` gave, as the module's text describes.

    Initializers that are also graph inputs are constants, unless `overridable` names them.
    `sizes` names symbolic dimensions that have their most in `input_shapes`; ONNX infers types that
    hold for all of their values, as the most of one may exceed what those of others allow.
    """
    # The order matters: the checker knows neither what exporters get wrong nor vendors' operators,
    # the converter of old opsets needs input shapes, and inference through the bodies of functions
    # needs default attributes, which are those of the final opset.
    settable = settable_inputs(given, overridable)
    proto = _repaired(given, settable)
    inputs = {info.name: info for info in proto.graph.input}
    extents = {tensor.name: tuple(tensor.dims) for tensor in given.graph.initializer}
    wanted = dict(input_shapes or {})
    frozen = [name for name in wanted if name in extents and name not in settable]
    if frozen:
        raise InvalidModel(
            f"shapes are given for {frozen}, whose initializers are constants; leave them out, or "
            f"compile with overridable={frozen}"
        )
    require_inputs(proto, wanted)
    _fix_shapes([inputs[name] for name in settable], extents, wanted)
    older = _opset(proto)
    _check(proto)
    proto = _upgraded(proto, older)
    opset = _opset(proto)
    _write_defaults(proto, opset)
    is_chosen = any(map(_open_dimensions, (i for i in given.graph.input if i.name in settable)))
    typed, is_inferred = _inferred_for(sizes, proto, given.graph.input, is_chosen)
    graph = typed.graph
    for info in (*graph.value_info, *graph.output):
        dims = info.type.tensor_type.shape.dim
        inferred_extents = [d.dim_value for d in dims if d.HasField("dim_value")]
        if min(inferred_extents, default=0) < 0:
            raise _without_elements(graph, info.name, inferred_extents)
        require_extents(inferred_extents, info.name)
    inputs = {info.name: info for info in graph.input}
    outputs = {info.name for info in graph.output}
    inner = (info for info in given.graph.value_info if info.name not in outputs)
    # Stated shapes that agree with an inference that is wrong were written by it.
    is_free = is_chosen or (is_inferred and _misinfers_pools(proto))
    return LoadedModel(
        graph,
        opset,
        inputs=tuple(inputs[name] for name in settable),
        initializers=tuple(given.graph.initializer),
        header=onnx.ModelProto(ir_version=typed.ir_version, opset_import=typed.opset_import),
        functions={(f.domain, f.name, f.overload): f for f in proto.functions},
        is_inferred=is_inferred,
        interface=stated_types(() if is_free else given.graph.output),
        recorded=stated_types((*inner, *given.graph.output) if is_free else inner),
    )


def require_valid(given: onnx.ModelProto, overridable: Collection[str] = ()) -> None:
    """Raise the errors of `load_model` that are the same for all shapes of a model's inputs."""
    _check(_repaired(given, settable_inputs(given, overridable)))


def _repaired(given: onnx.ModelProto, settable: Sequence[str]) -> onnx.ModelProto:
    """A copy of the model without what exporters get wrong, and without the data of its weights."""
    proto = _without_large_initializers(given, settable)
    repair(proto)
    move_added(proto)
    return proto


def _write_defaults(proto: onnx.ModelProto, opset: int) -> None:
    for node in proto.graph.node:
        schema = schema_of(ImportStep(node, node.name, {"": opset}))
        if schema is not None:
            write_defaults(schema, node)


def _without_large_initializers(given: onnx.ModelProto, settable: Sequence[str]) -> onnx.ModelProto:
    """A copy of the model with graph inputs in place of large initializers.

    An initializer that was declared as an input too loses that declaration, since the type of the
    data itself is more exact.
    """
    graph = onnx.GraphProto(name=given.graph.name)
    for field in ("node", "output", "value_info", "sparse_initializer"):
        getattr(graph, field).extend(getattr(given.graph, field))
    wanted = set(settable)
    frozen = {tensor.name for tensor in given.graph.initializer} - wanted
    graph.input.extend(info for info in given.graph.input if info.name not in frozen)
    for tensor in given.graph.initializer:
        if tensor.name in wanted:
            continue  # a default that a run may override decides no shape
        if prod(tensor.dims) < LARGE:
            graph.initializer.append(tensor)
        else:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(info)
    # From version 4 on an initializer need not be listed as an input.
    proto = onnx.ModelProto(ir_version=max(given.ir_version, 4), graph=graph)
    proto.opset_import.extend(given.opset_import)
    proto.functions.extend(given.functions)
    if given.ir_version < 3 and not given.opset_import:
        proto.opset_import.add(domain="", version=1)  # as the standard has it
    return proto


def _check(proto: onnx.ModelProto) -> None:
    """Run onnx's checker, and refuse what no model may have here.

    The checker requires a type and a shape on each output, although both can be inferred, and on
    inputs whose shapes a run gives; those without them get placeholders while it runs.
    """
    infos = (*proto.graph.output, *proto.graph.input)
    bare = [info for info in infos if not _has_tensor_shape(info)]
    kept = onnx.GraphProto(output=bare)
    for info in bare:
        if not info.type.WhichOneof("value"):
            info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.elem_type = info.type.tensor_type.elem_type or 1
            info.type.tensor_type.shape.SetInParent()
    try:
        checker.check_model(proto)
    except REFUSALS as error:
        raise InvalidModel(f"the ONNX checker refuses the model: {error}") from None
    for info, before in zip(bare, kept.output, strict=True):
        info.CopyFrom(before)
    if proto.graph.sparse_initializer:
        names = [sparse.values.name for sparse in proto.graph.sparse_initializer]
        raise UnsupportedOp(f"sparse initializers {names} are not built; store them as dense ones")


def _has_tensor_shape(info: onnx.ValueInfoProto) -> bool:
    tensor = info.type.tensor_type
    return bool(tensor.elem_type) and tensor.HasField("shape")


def _upgraded(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model in a supported opset."""
    try:
        return upgraded(proto, opset)
    except REFUSALS as error:
        raise _refused(proto, error) from None


def _inferred(proto: onnx.ModelProto, is_chosen: bool) -> tuple[onnx.ModelProto, bool]:
    """The model with the types of all tensors, and whether inference accepted all of it.

    1. Strict inference of the model as it is.
    2. Strict inference without the declared shapes of inner tensors, as editing a model's batch
       size often leaves wrong ones behind.  Declared shapes of inputs and outputs must be right.
    3. If extents of inputs were chosen, the same without the declared shapes of outputs: exporters
       leave those of the inputs that they traced.
    4. If the model has branches, inference that ignores errors, as it also looks into branches
       that are never taken, such as those in which exporters squeeze an axis if its extent is 1;
       and so if it has nodes for which ONNX infers wrong shapes.
    """
    for plain in _with_fewer_shapes(proto, is_chosen):
        try:
            return graph_types(plain), True
        except REFUSALS as error:
            refusal = error.with_traceback(None)  # which has this frame, and callers' weights
    if not _misinfers_pools(proto) and not any(map(subgraphs, _nodes(proto))):
        raise _refused(plain, refusal)
    try:
        return graph_types(plain, check_type=False, strict_mode=False), False
    except REFUSALS as error:  # of types, which are not ignored
        raise _refused(plain, error) from None


def _nodes(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    bodies = (node for function in proto.functions for node in function.node)
    return [*proto.graph.node, *bodies]


def _misinfers_pools(proto: onnx.ModelProto) -> bool:
    """Whether ONNX's inference may give pools of a model a window too many."""
    return _opset(proto) < POOLS_COUNTED and any(map(pools_rounding_up, _nodes(proto)))


def _with_fewer_shapes(proto: onnx.ModelProto, is_chosen: bool) -> Iterator[onnx.ModelProto]:
    """The model as it is, and then with fewer of the shapes that it declares."""
    yield proto
    plain = _without_inner_shapes(proto)
    yield plain
    if is_chosen:
        for info in plain.graph.output:
            info.type.tensor_type.ClearField("shape")
        yield plain


def _refused(proto: onnx.ModelProto, error: Exception) -> InvalidModel:
    reason = str(error).strip()
    return InvalidModel(
        f"ONNX shape inference refuses {refused_node(proto, graph_types)}: {reason}"
    )


def _without_elements(graph: onnx.GraphProto, name: str, extents: Sequence[int]) -> InvalidModel:
    makers = [(k, node) for k, node in enumerate(graph.node) if name in node.output]
    maker = text_with_operands(makers[0][1], makers[0][0], graph) if makers else "the model"
    return InvalidModel(
        f"{maker} gives {name} the extents {list(extents)}, none of which may be negative; check "
        "its attributes and the extents of its operands"
    )


def _inferred_for(
    sizes: Collection[str],
    proto: onnx.ModelProto,
    stated: Sequence[onnx.ValueInfoProto],
    is_chosen: bool,
) -> tuple[onnx.ModelProto, bool]:
    """As `_inferred`, with the dimensions that `sizes` name as the inputs are `stated`."""
    if not sizes:
        return _inferred(proto, is_chosen)
    dims_of = {info.name: info.type.tensor_type.shape.dim for info in stated}
    symbolic = onnx.ModelProto()
    symbolic.CopyFrom(proto)
    for info in symbolic.graph.input:
        dims = info.type.tensor_type.shape.dim
        for dim, given in zip(dims, dims_of.get(info.name, ()), strict=False):
            if given.dim_param in sizes:
                dim.dim_param = given.dim_param
    typed, is_inferred = _inferred(symbolic, is_chosen)
    del typed.graph.input[:]
    typed.graph.input.extend(proto.graph.input)
    return typed, is_inferred


def _without_inner_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the declared shapes of inner tensors that standard operators make."""
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    found = {name for node in plain.graph.node if node.domain in STANDARD for name in node.output}
    for info in plain.graph.value_info:
        if info.name in found and info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    return plain


def _opset(proto: onnx.ModelProto) -> int:
    versions = [entry.version for entry in proto.opset_import if entry.domain in STANDARD]
    if not versions:
        raise InvalidModel(
            "the model imports no opset of the standard domain, and has operators of it; add an "
            "entry to opset_import"
        )
    if versions[0] < 1:
        raise InvalidModel(f"the model imports opset {versions[0]}; the first one is 1")
    if versions[0] > onnx.defs.onnx_opset_version():
        raise UnsupportedOp(
            f"the model imports opset {versions[0]}; the newest one that onnx {onnx.__version__} "
            f"knows is {onnx.defs.onnx_opset_version()}; install a newer onnx"
        )
    return int(versions[0])


def settable_inputs(proto: onnx.ModelProto, overridable: Collection[str] = ()) -> list[str]:
    """The names of the graph inputs that a caller may set.

    These are inputs without an initializer, and the ones that `overridable` names.  Before IR
    version 4 each initializer had to be declared as an input too, which did not mean that it could
    be overridden.
    """
    constants = {tensor.name for tensor in proto.graph.initializer}
    both = [info.name for info in proto.graph.input if info.name in constants]
    possible = both if proto.ir_version >= 4 else []
    unknown = [name for name in overridable if name not in possible]
    if unknown:
        raise InvalidModel(
            f"overridable names {unknown}; the graph inputs that have an initializer are "
            f"{possible}"
            + (
                f" (IR version {proto.ir_version} has none that can be set)"
                if not possible and both
                else ""
            )
        )
    return [
        info.name
        for info in proto.graph.input
        if info.name not in constants or info.name in overridable
    ]


def frozen_inputs(proto: onnx.ModelProto, overridable: Collection[str] = ()) -> tuple[str, ...]:
    """The graph inputs that are constants: inputs with an initializer that `overridable` does not
    name.

    Raises `InvalidModel` if `overridable` names anything else.
    """
    settable = set(settable_inputs(proto, overridable))
    return tuple(info.name for info in proto.graph.input if info.name not in settable)


def tensor_names(proto: onnx.ModelProto) -> tuple[str, ...]:
    """The names of all tensors in order: inputs, initializers, nodes' inputs and outputs,
    outputs."""
    graph = proto.graph
    names = [info.name for info in graph.input] + [tensor.name for tensor in graph.initializer]
    for node in graph.node:
        names += [*node.input, *node.output]
    names += [info.name for info in graph.output]
    return tuple(dict.fromkeys(name for name in names if name))


def symbolic_inputs(proto: onnx.ModelProto) -> tuple[str, ...]:
    """The graph inputs that a caller must set and whose shape is not fully known."""
    infos = {info.name: info for info in proto.graph.input}
    return tuple(
        name
        for name in settable_inputs(proto)
        if infos[name].type.HasField("tensor_type") and _open_dimensions(infos[name])
    )


def require_inputs(proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Raise InvalidModel for a shape of something that is no graph input, and for one that does not
    fit its input."""
    inputs = {info.name: info for info in proto.graph.input}
    unknown = [name for name in shapes if name not in inputs]
    if unknown:
        raise InvalidModel(
            f"shapes are given for {', '.join(unknown)}; the model's inputs are {', '.join(inputs)}"
        )
    for name, shape in shapes.items():
        if inputs[name].type.HasField("tensor_type"):
            _require_fit(inputs[name], tuple(shape))


def _fix_shapes(
    inputs: Sequence[onnx.ValueInfoProto],
    defaults: Mapping[str, tuple[int, ...]],
    wanted: Mapping[str, Sequence[int]],
) -> None:
    """Write the shapes `wanted`, or those of their defaults, into the inputs.

    Raises `InvalidModel` if a shape does not fit, or if a dimension is still open.
    """
    infos = {info.name: info for info in inputs}
    open_dimensions: list[str] = []
    open_shapes: dict[str, tuple[int | str, ...] | None] = {}
    for name, info in infos.items():
        if not info.type.HasField("tensor_type"):
            continue  # only a foreign node can take it
        if name in wanted:
            _write_shape(info, tuple(wanted[name]))
        elif name in defaults and _open_dimensions(info):
            _write_shape(info, defaults[name])
        if dimensions := _open_dimensions(info):
            open_dimensions += dimensions
            open_shapes[name] = named_extents(info.type.tensor_type)
    if open_dimensions:
        raise InvalidModel(
            f"these input dimensions are not known: {'; '.join(open_dimensions)}",
            remedies=(shapes_remedy(open_shapes),),
        )


def _require_fit(info: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    """Raise InvalidModel for a shape that differs from the input's in more than open dimensions."""
    tensor = info.type.tensor_type
    dims = list(tensor.shape.dim)
    fits = not tensor.HasField("shape") or (
        len(dims) == len(shape)
        and all(
            is_open(dim) or dim.dim_value == extent for dim, extent in zip(dims, shape, strict=True)
        )
    )
    if not fits or any(n < 0 for n in shape):
        raise InvalidModel(
            f"the shape {shape} is given for {info.name}, the model says {_text(tensor)}; only "
            "symbolic dimensions can be chosen"
        )
    require_extents(shape, f"input_shapes: {info.name}")


def _write_shape(info: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    _require_fit(info, shape)
    tensor = info.type.tensor_type
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
        if is_open(dim)
    ]


def named_extents(tensor: onnx.TypeProto.Tensor) -> tuple[int | str, ...] | None:
    """The extents of a type, `?` for those without a name; None without a rank."""
    if not tensor.HasField("shape"):
        return None
    return tuple("?" if extent is None else extent for extent in declared_extents(tensor))


def _text(tensor: onnx.TypeProto.Tensor) -> str:
    return f"({', '.join(map(str, named_extents(tensor) or ()))})"
