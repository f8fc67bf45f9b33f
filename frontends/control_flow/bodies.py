"""Inlining of bodies: the nodes of a function, branch or loop replace the node that owns it.

In: the nodes of a body, and for each of its formal inputs and outputs the tensor of the outer graph
that it stands for.  Out: import steps whose tensor names are unique in the model.  A name that the
body does not define belongs to the enclosing graph and is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from msgspec import Struct

from graphflow.base.errors import ExtentsLost, InvalidModel, UnsupportedOp
from graphflow.frontends.protos.protos import known_array
from graphflow.frontends.protos.steps import (
    STANDARD,
    ImportStep,
    derived,
    named_apart,
    names_read,
    tensor_names_in,
    versions_of,
)
from graphflow.frontends.tensors.context import ImportContext

DEEPEST = 100
"""The deepest nesting of bodies that is expanded; a function that calls itself exceeds it."""

Attributes = Mapping[str, onnx.AttributeProto]


class BodyGraph(Struct, frozen=True):
    """A subgraph whose constants are already in the graph, so that all copies of its nodes share
    them."""

    graph: onnx.GraphProto
    nodes: tuple[onnx.NodeProto, ...]
    """The nodes of the subgraph that are not constants."""
    constants: Mapping[str, str]
    """The tensor of the outer graph for each constant of the body."""
    steps: tuple[ImportStep, ...]
    """The Constant nodes of the subgraph, as steps."""


def body_of(step: ImportStep, attribute: str, context: ImportContext) -> BodyGraph:
    """The subgraph `attribute` of `step`; its initializers are added to the graph.

    Raises `InvalidModel` where the node has no such attribute.
    """
    graph = step.attribute(attribute)
    if not isinstance(graph, onnx.GraphProto):
        raise InvalidModel(f"{step} lacks its attribute {attribute}")
    if graph.sparse_initializer:
        raise UnsupportedOp(
            f"{step}: sparse initializers of its {attribute} are not built; "
            f"store them as dense ones"
        )
    context.taken |= tensor_names_in(graph.node)
    names: dict[str, str] = {}
    for tensor in graph.initializer:
        name = context.unique_tensor_name(f"{step.name}/{tensor.name}")
        names[tensor.name] = name
        context.add_constant(name, known_array(tensor, f"initializer {tensor.name} of {step}"))
    constants = [node for node in graph.node if _is_constant(node)]
    steps = _renamed_steps(constants, names, {}, step, step.opsets, context)
    nodes = tuple(node for node in graph.node if not _is_constant(node))
    return BodyGraph(graph, nodes, names, tuple(steps))


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.domain in STANDARD


def inlined(
    body: BodyGraph,
    step: ImportStep,
    inputs: Sequence[str],
    context: ImportContext,
    part: str = "",
    outputs: Sequence[str] = (),
) -> tuple[list[ImportStep], tuple[str, ...]]:
    """The steps of `body` applied to the tensors `inputs`, and the names of the results.

    The results are named `outputs` if these are given, except that a body that returns an input, a
    constant or an outer tensor gives that tensor itself.
    """
    formal = [info.name for info in body.graph.input]
    if len(formal) != len(inputs):
        raise InvalidModel(f"{step}: its body has {len(formal)} inputs, {len(inputs)} are given")
    names = {**body.constants, **dict(zip(formal, inputs, strict=True))}
    made = {name for node in body.nodes for name in node.output}
    for info, result in zip(body.graph.output, outputs, strict=False):
        if result and info.name in made:
            names.setdefault(info.name, result)
    steps = _renamed_steps(body.nodes, names, {}, step, step.opsets, context, part)
    return steps, tuple(names.get(info.name, info.name) for info in body.graph.output)


def called(
    function: onnx.FunctionProto, step: ImportStep, context: ImportContext
) -> list[ImportStep]:
    """The steps of the body of `function`, which replace its caller `step`.

    Attributes that the caller does not give have the function's defaults.  If such an attribute has
    no default either, nodes of the body that refer to it go without, as ONNX defines.
    """
    if step.depth > DEEPEST:
        raise InvalidModel(
            f"{step} is inside of {DEEPEST} bodies; the functions of the model call themselves, or "
            "are nested too deep"
        )
    context.taken |= tensor_names_in(function.node)
    attributes = {attribute.name: attribute for attribute in function.attribute_proto}
    attributes.update((attribute.name, attribute) for attribute in step.node.attribute)
    names = {name: step.input(position) for position, name in enumerate(function.input)}
    results = dict(zip(function.output, step.node.output, strict=False))
    made = {name for node in function.node for name in node.output}
    names.update((formal, name) for formal, name in results.items() if name and formal in made)
    # What the function does not import cannot be in it, unless a caller's subgraph brings it.
    opsets = {**step.opsets, **versions_of(function.opset_import)}
    steps = _renamed_steps(function.node, names, attributes, step, opsets, context)
    passed = {result: names[formal] for formal, result in results.items() if formal in names}
    return steps + copies(step, named_apart([*passed], [*passed.values()]))


def feed(names: Iterable[str], step: ImportStep, context: ImportContext) -> list[ImportStep]:
    """Steps that build the sequences and optionals among `names` at run time.

    Import has resolved these to their tensors; a foreign node needs them as objects.
    """
    steps: list[ImportStep] = []
    for name in names:
        if name in context.objects:
            continue
        if name in context.optionals:
            held = context.optionals[name]
            steps += feed([held] if held else [], step, context)
            steps.append(derived(step, "Optional", [held] if held else [], [name], f"make_{name}"))
        elif name in context.sequences:
            tensors = context.sequences[name]
            op = "SequenceConstruct" if tensors.names else "SequenceEmpty"
            attributes = {} if tensors.names else {"dtype": tensors.elem_type}
            part = f"make_{name}"
            steps.append(derived(step, op, tensors.names, [name], part, **attributes))
    return steps


def known_extent(step: ImportStep, name: str, axis: int, context: ImportContext) -> int:
    """The extent of a tensor along an axis, by which the step is expanded; ExtentsLost if a run
    decides it."""
    shape = context.type_of(name)[1]
    if axis % len(shape) in context.counted.get(name, {}):
        raise ExtentsLost(
            f"{step}: how many elements its input {name} has is only known at run time, and the "
            "node is expanded at import; cut the model before this node"
        )
    return shape[axis]


def copies(step: ImportStep, sources: Mapping[str, str]) -> list[ImportStep]:
    """Identity steps: each tensor that is a key of `sources` becomes a copy of its value."""
    return [
        derived(step, "Identity", [source], [result], f"Identity_{number}")
        for number, (result, source) in enumerate(sources.items())
    ]


def _renamed_steps(
    nodes: Sequence[onnx.NodeProto],
    names: dict[str, str],
    attributes: Attributes,
    step: ImportStep,
    opsets: Mapping[str, int],
    context: ImportContext,
    part: str = "",
) -> list[ImportStep]:
    """Steps for `nodes` with the tensor names of the outer graph.

    `names` maps names of the body to outer ones; the results of the nodes are added to it.
    """
    label = f"{step.name}{part}"
    for node in nodes:
        for name in node.output:
            if name and name not in names:
                names[name] = context.unique_tensor_name(f"{label}/{name}")
    steps = [
        ImportStep(
            _renamed(node, names, attributes),
            f"{label}/{node.name or f'{node.op_type}_{index}'}",
            opsets,
            step.origin or str(step),
            step.guard,
            step.depth + 1,
            step.trusted,
        )
        for index, node in enumerate(nodes)
    ]
    for made in steps:
        context.consumed.update(names_read(made.node))
    context.read |= context.consumed
    return steps


def _renamed(
    node: onnx.NodeProto, names: Mapping[str, str], attributes: Attributes
) -> onnx.NodeProto:
    out = onnx.NodeProto(
        op_type=node.op_type, domain=node.domain, name=node.name, overload=node.overload
    )
    out.input.extend(names.get(name, name) for name in node.input)
    out.output.extend(names.get(name, name) for name in node.output)
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in attributes:
                out.attribute.add().CopyFrom(attributes[attribute.ref_attr_name])
                out.attribute[-1].name = attribute.name
        elif attribute.HasField("g"):
            copy = out.attribute.add(name=attribute.name, type=attribute.type)
            copy.g.CopyFrom(_renamed_graph(attribute.g, names, attributes))
        else:
            out.attribute.add().CopyFrom(attribute)
    return out


def _renamed_graph(
    graph: onnx.GraphProto, names: Mapping[str, str], attributes: Attributes
) -> onnx.GraphProto:
    """`graph` with its references to outer tensors renamed; names that it defines itself stay."""
    own = {info.name for info in graph.input}
    own |= {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    outer = {name: new for name, new in names.items() if name not in own}
    out = onnx.GraphProto()
    out.CopyFrom(graph)
    del out.node[:]
    out.node.extend(_renamed(node, outer, attributes) for node in graph.node)
    for info in out.output:
        info.name = outer.get(info.name, info.name)
    return out
