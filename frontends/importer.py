"""ONNX import: a model becomes a graph of kernels over logical tensors.

In: a path, bytes or a proto, and shapes for symbolic inputs.  Out: an `OperatorGraph` in which each
value has its ONNX name, a dtype and a logical shape, and each node a PrimFunc over row-major
buffers.  If operators have no kernel, one `UnsupportedOp` names all of them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import onnx
from numpy.typing import ArrayLike

from graphflow.base.errors import ExtentsLost, InvalidModel, UnsupportedOp
from graphflow.base.fields import replace
from graphflow.base.sizes import Relation, Size
from graphflow.foreign import ObjectSpec
from graphflow.frontends.control_flow.bodies import copies, feed
from graphflow.frontends.control_flow.control import CONTROL
from graphflow.frontends.control_flow.sequences import SEQUENCES, Resolver, is_of_a_size
from graphflow.frontends.nodes.call import Emitter, Emitters
from graphflow.frontends.operators.ops_bits import OPERATORS as BITS
from graphflow.frontends.operators.ops_compaction import OPERATORS as COMPACTION
from graphflow.frontends.operators.ops_einsum import OPERATORS as EINSUM
from graphflow.frontends.operators.ops_elementwise import OPERATORS as ELEMENTWISE
from graphflow.frontends.operators.ops_indexing import OPERATORS as INDEXING
from graphflow.frontends.operators.ops_linear import OPERATORS as LINEAR
from graphflow.frontends.operators.ops_normalization import OPERATORS as NORMALIZATION
from graphflow.frontends.operators.ops_packed import OPERATORS as PACKED
from graphflow.frontends.operators.ops_quantized import OPERATORS as QUANTIZED
from graphflow.frontends.operators.ops_quantized_recurrent import OPERATORS as QUANTIZED_RECURRENT
from graphflow.frontends.operators.ops_ranking import OPERATORS as RANKING
from graphflow.frontends.operators.ops_recurrent import OPERATORS as RECURRENT
from graphflow.frontends.operators.ops_reduction import OPERATORS as REDUCTION
from graphflow.frontends.operators.ops_resize import OPERATORS as RESIZE
from graphflow.frontends.operators.ops_rotary import OPERATORS as ROTARY
from graphflow.frontends.operators.ops_sampling import OPERATORS as SAMPLING
from graphflow.frontends.operators.ops_scan import OPERATORS as SCAN
from graphflow.frontends.operators.ops_selection import OPERATORS as SELECTION
from graphflow.frontends.operators.ops_shape import OPERATORS as SHAPE
from graphflow.frontends.operators.ops_signal import OPERATORS as SIGNAL
from graphflow.frontends.operators.ops_suppression import OPERATORS as SUPPRESSION
from graphflow.frontends.operators.ops_trees import OPERATORS as WALKS
from graphflow.frontends.operators.ops_window import OPERATORS as WINDOW
from graphflow.frontends.protos.protos import check_dtype, dtype_name, known_array
from graphflow.frontends.protos.steps import ImportStep, names_read, tensor_names_in, versions_of
from graphflow.frontends.reading.load import LoadedModel, load_model
from graphflow.frontends.reading.read import OnnxModel, open_model
from graphflow.frontends.reading.recorded import stated_types, warn_of_contradictions
from graphflow.frontends.reading.signature import signature
from graphflow.frontends.reading.weights import ReadModel
from graphflow.frontends.rewrites.classical import CLASSICAL
from graphflow.frontends.rewrites.contrib import CONTRIB
from graphflow.frontends.rewrites.contrib_attention import CONTRIB_ATTENTION
from graphflow.frontends.rewrites.contrib_grouped_attention import CONTRIB_GROUPED_ATTENTION
from graphflow.frontends.rewrites.contrib_linear_attention import CONTRIB_LINEAR_ATTENTION
from graphflow.frontends.rewrites.contrib_quantized import CONTRIB_QUANTIZED
from graphflow.frontends.rewrites.linear_models import LINEAR_MODELS
from graphflow.frontends.rewrites.rewrites import REWRITES, NodeRewrite
from graphflow.frontends.rewrites.training import TRAINING
from graphflow.frontends.rewrites.trees import TREES
from graphflow.frontends.sections import Around, Member, add_sections, stages_of
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.derived_sizes import SizesRelated
from graphflow.frontends.tensors.sized_data import give_size_data
from graphflow.frontends.tensors.sized_inputs import (
    Axes,
    add_sizes,
    sized_axes,
    stating_inputs,
)
from graphflow.frontends.tensors.values import fixed_values, shapes_with
from graphflow.frontends.walk import Operators, Walk, of_type
from graphflow.graph import Array, OperatorGraph, PackedResult, Removed, Value
from graphflow.tir import DTYPES

OwnOperators: TypeAlias = "Mapping[str, Emitter]"
"""Operators that the caller of a compilation adds, by name, with the domain in front where it is
not the standard one: each a function that reads a node and emits its kernels."""

_FAMILIES = (
    BITS, COMPACTION, EINSUM, ELEMENTWISE, INDEXING, LINEAR, NORMALIZATION, PACKED,
    QUANTIZED, QUANTIZED_RECURRENT, RANKING, RECURRENT, REDUCTION, RESIZE, ROTARY, SAMPLING, SCAN,
    SELECTION, SHAPE, SUPPRESSION, SIGNAL, WALKS, WINDOW,
)  # fmt: skip

_KERNELS: Emitters = {op: emit for family in _FAMILIES for op, emit in family.items()}

OPERATORS: Emitters = {name: emit for name, emit in _KERNELS.items() if "." not in name}
"""The functions that make kernels for the operators of the standard domain."""

VENDOR_OPERATORS: Emitters = {name: emit for name, emit in _KERNELS.items() if "." in name}
"""The same for operators of other domains, by domain and name."""

RESOLVED: dict[str, Resolver] = {**CONTROL, **SEQUENCES}
"""Operators that exist at import only: control flow, sequences, optionals."""

REWRITTEN: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    **REWRITES,
    **CLASSICAL,
    **LINEAR_MODELS,
    **TRAINING,
    **TREES,
    **CONTRIB,
    **CONTRIB_ATTENTION,
    **CONTRIB_GROUPED_ATTENTION,
    **CONTRIB_LINEAR_ATTENTION,
    **CONTRIB_QUANTIZED,
}
"""Operators, by domain and name, that are rewritten as other operators of the standard domain."""


def _operators(own: OwnOperators | None) -> Operators:
    """All operators that import knows, those of the caller before all others."""
    added = dict(own or {})
    kernels = ChainMap(added, OPERATORS, VENDOR_OPERATORS)
    return Operators(kernels, RESOLVED, REWRITTEN, frozenset(added))


def import_model(
    model: OnnxModel,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    overridable: Collection[str] = (),
    fallback: bool = False,
    operators: OwnOperators | None = None,
) -> OperatorGraph:
    """The operator graph of an ONNX model.

    input_shapes: full logical shapes for inputs with symbolic dimensions.
    input_values: whole inputs; the graph is then valid for these values only.
    overridable: graph inputs whose initializers are defaults and not constants.
    fallback: whether nodes without a kernel become sections of the graph.
    operators: the caller's own operators, as `gf.compile` takes them.

    Raises `InvalidModel` if the model, a shape or a value is wrong, `ValuesNeeded` if shapes depend
    on values that are not given, and `UnsupportedOp` for nodes without a kernel if there is no
    fallback.
    """
    opened = open_model(model)
    contents = dict(opened.contents)
    return import_checked(
        opened.proto, input_shapes, input_values, overridable, fallback, contents, (), operators
    )


def import_checked(
    model: onnx.ModelProto,
    input_shapes: Mapping[str, Sequence[int]] | None,
    input_values: Mapping[str, ArrayLike] | None,
    overridable: Collection[str],
    fallback: bool,
    contents: dict[int, Array],
    sizes: Sequence[Size] = (),
    operators: OwnOperators | None = None,
) -> OperatorGraph:
    """`import_model` of what `open_model` gave.

    `contents` has initializers by number, those that the proto lacks and those that earlier imports
    of it read, and gets all others: the graphs share them.

    The dimensions of inputs that have the names of `sizes` have their greatest extents in
    `input_shapes`; a run gives fewer elements.  `ExtentsLost` is raised where some result could
    depend on the elements that it does not give.
    """
    values = fixed_values(model, input_values or {})
    shapes, most = shapes_with(input_shapes or {}, values), {size.name: size.hi for size in sizes}
    try:
        loaded = load_model(model, shapes, overridable)
    except InvalidModel:
        if not sizes:
            raise
        loaded = _with_most_of_sizes(model, shapes, overridable, most)
    # A size of one value is a constant extent.
    sized = sized_axes(model, sizes, overridable)
    axes = {size: axes for size, axes in sized.items() if size.lo < size.hi}
    known = _operators(operators)
    relations: tuple[Relation, ...] = ()
    try:
        while True:
            try:
                return _imported(loaded, values, fallback, contents, known, axes, relations)
            except InvalidModel as error:
                if {size.name for size in axes}.isdisjoint(stating_inputs(model, overridable)):
                    raise
                raise _refused_for_most(most, error) from error  # another number may be valid
            except SizesRelated as found:  # what came before it did not know that
                for relation in found.relations:
                    assert relation not in relations
                    relations = (*_beside(relations, relation), relation)
                    bounds = {size.name: (size.lo, most[size.name]) for size in sizes}
                    given, name = relation.most_given(bounds), relation.size
                    if given is not None and given != most[name]:
                        most[name] = min(given, most[name])
                        axes = {_with_most(size, most, relation): axes[size] for size in axes}
                        shapes = _rooms(shapes, axes)
                        loaded = _with_most_of_sizes(model, shapes, overridable, most)
    except ExtentsLost as error:
        if sizes:
            raise
        # The tensor's producer is in a section then, and so is what reads the tensor.
        if not fallback:
            raise
        return _imported(loaded, values, fallback, contents, known, counts_lost=str(error))


def _with_most_of_sizes(
    model: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]],
    overridable: Collection[str],
    most: Mapping[str, int],
) -> LoadedModel:
    """A model with the most of each size; ExtentsLost where that is refused."""
    try:
        return load_model(model, shapes, overridable, most)
    except InvalidModel as error:
        raise _refused_for_most(most, error) from error


def _refused_for_most(most: Mapping[str, int], error: InvalidModel) -> ExtentsLost:
    listed = ", ".join(f"{name} = {extent}" for name, extent in most.items())
    return ExtentsLost(f"with the most of each size ({listed}): {error}")


def _with_most(size: Size, most: Mapping[str, int], relation: Relation) -> Size:
    """A size with its most; InvalidModel if that is less than its least, by the relation that gives
    it."""
    if most[size.name] < size.lo:
        raise InvalidModel(
            f"{relation} has to hold, which is at most {most[size.name]}, and the least of "
            f"{size.name} is {size.lo}; no run satisfies these bounds"
        )
    return replace(size, hi=most[size.name])


def _rooms(shapes: Mapping[str, Sequence[int]], sized: Mapping[Size, Axes]) -> dict[str, Any]:
    """The shapes of inputs with the most of each size along its axes."""
    found = {name: list(shape) for name, shape in shapes.items()}
    for size, axes in sized.items():
        for name, axis in axes:
            found[name][axis] = size.hi
    return found


def _beside(relations: Sequence[Relation], found: Relation) -> Iterator[Relation]:
    """The relations that are kept beside one that was found: what an inequality helped to show may
    follow from an equation, and multiples of a larger step are those of a smaller one."""
    for one in relations:
        is_replaced = type(one) is type(found) and one.size == found.size and not found.factors
        if not is_replaced and (one.is_exact or not found.is_exact):
            yield one


def _imported(
    loaded: LoadedModel,
    values: Mapping[str, Array],
    fallback: bool,
    contents: dict[int, Array],
    operators: Operators,
    sized: Mapping[Size, Axes] = MappingProxyType({}),
    relations: Sequence[Relation] = (),
    counts_lost: str = "",
) -> OperatorGraph:
    """The graph of a loaded model; `counts_lost` is that of `ImportContext`."""
    proto = loaded.graph
    steps = _steps(proto, versions_of(loaded.header.opset_import))
    context = _context(loaded)
    context.counts_lost = counts_lost
    _add_sources(loaded, context, fallback, contents)
    add_sizes(context, sized, relations)
    context.known.update(values)
    context.import_steps = partial(_import_body, operators)
    walk = Walk(context, operators, fallback)
    walk.run(steps, [info.name for info in proto.output])
    _add_object_outputs(walk, proto, steps)
    _add_foreign(loaded, walk)
    parts = {packed.name: packed.tensors for packed in context.graph.packed}
    context.graph.set_outputs(
        tensor
        for info in proto.output
        if info.name not in context.objects
        for tensor in parts.get(info.name, (info.name,))
    )
    for output in context.graph.results:
        for axis, count in context.counted.get(output, {}).items():
            context.graph.trim_output(output, axis, count)
    context.graph.counted = context.counted_values()
    context.graph.validate()
    warn_of_contradictions(context.recorded, context.graph, context.counted)
    return context.graph


def _import_body(operators: Operators, context: ImportContext, steps: Sequence[ImportStep]) -> None:
    """Import nodes into the graph of a body, which nothing but kernels can compute."""
    names = [name for step in steps for name in step.outputs]
    Walk(context, operators, fallback=False).run(steps, names)


def check_supported(model: OnnxModel | ReadModel, operators: OwnOperators | None = None) -> None:
    """Raise `UnsupportedOp` for what is not supported with any input shapes.

    That is operators without a kernel, and inputs of unsupported dtypes.  Whether attributes and
    shapes are supported shows only when the model is imported.
    """
    proto = open_model(model).proto
    for name, dtype, _ in signature(proto)[0]:
        check_dtype(f"graph input {name}", dtype)
    opsets = versions_of(proto.opset_import)
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    context = ImportContext(OperatorGraph(), opsets.get("", 1), {}, set(), functions=functions)
    walk = Walk(context, _operators(operators), fallback=False)
    walk.refuse_unbuilt(_steps(proto.graph, opsets))


def _steps(graph: onnx.GraphProto, opsets: Mapping[str, int]) -> list[ImportStep]:
    return [
        ImportStep(node, node.name or f"{node.op_type}_{index}", opsets)
        for index, node in enumerate(graph.node)
    ]


def _context(loaded: LoadedModel) -> ImportContext:
    proto = loaded.graph
    consumed = {name for node in proto.node for name in names_read(node)}
    taken = tensor_names_in(proto.node).union(info.name for info in (*proto.input, *proto.output))
    for function in loaded.functions.values():
        taken |= tensor_names_in(function.node)
    infos = (*proto.input, *proto.value_info, *proto.output)
    return ImportContext(
        OperatorGraph(),
        loaded.opset,
        stated_types((*proto.value_info, *proto.output)),
        consumed.union(info.name for info in proto.output),
        taken,
        loaded.functions,
        consumed=consumed,
        types={info.name: info for info in infos if info.HasField("type")},
        is_inferred=loaded.is_inferred,
        interface=loaded.interface,
        recorded=loaded.recorded,
    )


def _add_object_outputs(walk: Walk, proto: onnx.GraphProto, steps: Sequence[ImportStep]) -> None:
    """Let sections make the graph outputs that are sequences or optionals.

    Import resolves these to tensors, so no node is left that makes them.  Without a fallback the
    tensors in them are outputs of the graph, and a run puts them together.
    """
    context = walk.context
    makers = {name: step for step in steps for name in step.outputs}
    for place, info in enumerate(proto.output):
        name, maker = info.name, makers.get(info.name)
        of = "" if maker is None else f" of {maker}"
        if name in context.sized_values and name not in context.graph.inputs:
            give_size_data(context, name)
        if name in context.boxes:
            error = ExtentsLost if is_of_a_size(name, context) else UnsupportedOp
            raise error(
                f"graph output {name}{of} is a sequence whose length a run decides, which is not "
                "built; return its tensors as one tensor (ConcatFromSequence)"
            )
        if name in context.known:
            check_dtype(f"graph output {name}{of}", context.known[name].dtype.name)
        resolved = name in context.sequences or name in context.optionals
        if not resolved or name in context.objects or maker is None:
            continue
        if not walk.fallback:
            _pack(walk, name, place, maker)
            continue
        for step in feed([name], maker, context):
            walk.add_foreign(step, "no kernel makes a sequence or an optional")


def _pack(walk: Walk, name: str, place: int, maker: ImportStep) -> None:
    """Record an output that is a sequence or an optional, and copies of the tensors in it."""
    context = walk.context
    held = context.optionals.get(name, name)
    is_list = held in context.sequences
    parts = context.sequences[held].names if held in context.sequences else (held,)
    named = {f"{name}[{k}]": part for k, part in enumerate(parts) if part is not None}
    walk.run(copies(maker, named), named)
    graph = context.graph
    graph.packed = (*graph.packed, PackedResult(name, tuple(named), is_list, place))


def _add_foreign(loaded: LoadedModel, walk: Walk) -> None:
    """Add the sections, and the inputs and outputs of the model that only sections read or make."""
    context, graph, foreign = walk.context, loaded.graph, walk.foreign
    objects = context.objects
    context.graph.objects_in = tuple(
        ObjectSpec(info.name, objects[info.name], place)
        for place, info in enumerate(loaded.inputs)
        if info.name in objects
    )
    context.graph.objects_out = tuple(
        ObjectSpec(info.name, objects[info.name], place)
        for place, info in enumerate(graph.output)
        if info.name in objects
    )
    if not foreign:
        return
    nodes = [step.node for step in walk.placed]
    stages = stages_of(nodes, foreign.__contains__, context.known.__contains__)
    members: dict[int, list[Member]] = {}
    for index, member in foreign.items():
        members.setdefault(stages[index], []).append(member)
    native = (node for index, node in enumerate(nodes) if index not in foreign)
    read = {name for node in native for name in names_read(node)}
    results = read.union(info.name for info in graph.output)
    add_sections(members, Around(context, context.types, loaded.header, frozenset(results)))
    for name in (name for member in foreign.values() for name in member.proto.output):
        if name in context.graph.values and context.graph.producer(name) is None:
            context.graph.remove_value(name)
            context.graph.removed[name] = Removed("kept by the section that computes it")


def _add_sources(
    loaded: LoadedModel, context: ImportContext, fallback: bool, contents: dict[int, Array]
) -> None:
    """Add inputs and initializers as values; with `fallback`, unsupported inputs as objects."""
    names = {info.name for info in loaded.inputs}
    for info in loaded.inputs:
        tensor = info.type.tensor_type
        dtype = _input_dtype(info)
        if fallback and dtype not in DTYPES:
            context.objects[info.name] = of_type(dtype)
            continue
        check_dtype(f"graph input {info.name}", dtype)
        shape = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
        context.graph.add_value(Value(info.name, dtype, shape))
    for number, tensor in enumerate(loaded.initializers):
        if number not in contents:
            contents[number] = known_array(tensor, f"initializer {tensor.name}")
        array = contents[number]
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
