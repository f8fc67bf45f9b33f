"""Types of all tensors of a model, by ONNX's shape inference.

In: a model without the data of large initializers.  Out: a copy with the types of its tensors.
What always holds: it takes memory in proportion to the model, and ends; ONNX's propagation of
contents, which a model can make endless, is used only where neither is in question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

import numpy as np
import onnx
from onnx import defs, shape_inference

from graphflow.base.errors import InvalidModel
from graphflow.frontends.protos.protos import known_array
from graphflow.frontends.protos.steps import STANDARD, subgraphs

LONG_VECTOR = 1 << 23
"""Elements of a vector beyond which ONNX's data propagation is not used: it keeps track of every
element, which takes 3 s and 1.3 GB for 2^23 of them."""

UNGUARDED = {
    ("", "RegexFullMatch"),
    ("ai.onnx.ml", "DictVectorizer"),
    ("ai.onnx.ml", "LabelEncoder"),
}
"""The operators whose inference in onnx 1.23 reads the type of an input that has none,
such as the output of a custom operator, and so ends the process; of all operators, tried one by
one."""

HIDDEN = "graphflow.hidden."
"""Stands in front of the domain of a node that ONNX's inference passes over."""

LARGE_STEP = 1 << 30
"""Steps of a Slice beyond which ONNX's data propagation is not used.  It counts the elements of a
vector in 32 bits: a step of 2^32 is 0 there, so that the count does not end and takes all memory,
and one of 2^31 leads in front of the vector.  A smaller one stays in 32 bits for vectors up to
`LONG_VECTOR`."""


def graph_types(
    proto: onnx.ModelProto, check_type: bool = True, strict_mode: bool = True
) -> onnx.ModelProto:
    """The model with the types of its tensors; what onnx's own code raises where it refuses it.

    What only the propagation of contents refuses stands: it takes floats without elements for the
    contents of a shape, and indices are checked with the operators, which name the one that is
    outside."""
    plain = _inferred(proto, check_type, strict_mode, data_prop=False)
    infos = (*plain.graph.input, *plain.graph.value_info)
    if any(map(_is_long_vector, infos)) or _has_large_steps(proto):
        return plain
    try:
        return _inferred(proto, check_type, strict_mode, data_prop=True)
    except (MemoryError, shape_inference.InferenceError):
        return plain


def _inferred(
    proto: onnx.ModelProto, check_type: bool, strict_mode: bool, data_prop: bool
) -> onnx.ModelProto:
    """The model with the types that ONNX infers; it passes over `UNGUARDED` nodes that read a
    tensor of unknown type, and over calls of functions in which one may."""
    bodies = (*_graphs([proto.graph]), *_function_bodies(proto.functions))
    if not any(_operator(node) in UNGUARDED for body in bodies for node in body.node):
        return shape_inference.infer_shapes(proto, check_type, strict_mode, data_prop)
    typed, functions = _typed_names(proto), _unguarded_functions(proto)
    while True:
        model, hidden = _with_hidden_nodes(proto, typed, functions)
        found = shape_inference.infer_shapes(model, check_type, strict_mode, data_prop)
        typed = _typed_names(found)
        if typed.isdisjoint(hidden):  # else what they read has a type now
            return _with_all_nodes(found)


def _operator(node: onnx.NodeProto) -> tuple[str, str]:
    return "" if node.domain in STANDARD else node.domain, node.op_type


def _unguarded_functions(proto: onnx.ModelProto) -> dict[tuple[str, str], int | None]:
    """The functions that have unguarded nodes, or call functions that have: how many inputs each
    has; None for those in which a tensor has no type whatever types the inputs have."""
    made = {(f.domain, f.name): f for f in proto.functions}
    nodes = {
        key: [n for body in _function_bodies([f]) for n in body.node] for key, f in made.items()
    }
    found: dict[tuple[str, str], int | None] = {}
    while True:
        reached = UNGUARDED | found.keys()
        more = [
            key
            for key, inside in nodes.items()
            if key not in found and any(_operator(node) in reached for node in inside)
        ]
        if not more:
            return found
        for key in more:
            # What calls others is not followed into these.
            is_typed = all(map(_gives_types, nodes[key]))
            found[key] = len(made[key].input) if is_typed else None


def _gives_types(node: onnx.NodeProto) -> bool:
    """Whether ONNX infers the outputs of a node that reads tensors of known types."""
    domain, name = _operator(node)
    try:
        return bool(defs.get_schema(name, domain).has_type_and_shape_inference_function)
    except defs.SchemaError:
        return False


def _untyped(
    node: onnx.NodeProto, typed: Set[str], functions: Mapping[tuple[str, str], int | None]
) -> list[str] | None:
    """The tensors without which ONNX may not infer a node, which it has to pass over; None where it
    may infer it."""
    operator = _operator(node)
    if operator in UNGUARDED and node.input:
        names = list(node.input[:1])
    elif operator in functions:
        count = functions[operator]
        if count is None or len(node.input) < count or "" in node.input:
            return []
        names = list(node.input)
    else:
        return None
    return [name for name in names if name not in typed] or None


def _typed_names(proto: onnx.ModelProto) -> set[str]:
    """The tensors with a known type; a name may be that of tensors in several graphs."""
    names: set[str] = set()
    for graph in _graphs([proto.graph]):
        names.update(tensor.name for tensor in graph.initializer)
        infos = (*graph.input, *graph.value_info, *graph.output)
        names.update(info.name for info in infos if info.type.WhichOneof("value"))
    return names


def _with_hidden_nodes(
    proto: onnx.ModelProto, typed: Set[str], functions: Mapping[tuple[str, str], int | None]
) -> tuple[onnx.ModelProto, list[str]]:
    """A copy in which ONNX passes over nodes that it may not infer, and the tensors of unknown type
    for which it does."""
    model, hidden = onnx.ModelProto(), list[str]()
    model.CopyFrom(proto)
    domains: set[str] = set()
    for graph in _graphs([model.graph]):
        for node in graph.node:
            untyped = _untyped(node, typed, functions)
            if untyped is not None:
                hidden += untyped
                node.domain = f"{HIDDEN}{node.domain}"
                domains.add(node.domain)
    for domain in sorted(domains):
        model.opset_import.add(domain=domain, version=1)
    return model, hidden


def _with_all_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that has no hidden nodes any more."""
    for graph in _graphs([model.graph]):
        for node in graph.node:
            node.domain = node.domain.removeprefix(HIDDEN)
    kept = [one for one in model.opset_import if not one.domain.startswith(HIDDEN)]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return model


def _is_long_vector(info: onnx.ValueInfoProto) -> bool:
    dims = info.type.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > LONG_VECTOR


def _has_large_steps(proto: onnx.ModelProto) -> bool:
    """Whether a constant that has the name of a Slice's steps holds a large number; it may be the
    constant of another graph."""
    graphs = [*_graphs([proto.graph])]
    bodies = (*graphs, *_function_bodies(proto.functions))
    nodes = [node for body in bodies for node in body.node]
    steps = {n.input[4] for n in nodes if n.op_type == "Slice" and len(n.input) > 4}
    if not steps:
        return False
    named = [tensor for graph in graphs for tensor in graph.initializer if tensor.name in steps]
    for node in nodes:
        if node.op_type == "Constant" and not steps.isdisjoint(node.output):
            named += [attribute.t for attribute in node.attribute if attribute.HasField("t")]
            numbers = (n for attribute in node.attribute for n in (attribute.i, *attribute.ints))
            if any(abs(n) > LARGE_STEP for n in numbers):
                return True
    return any(map(_is_large, named))


def _function_bodies(
    functions: Iterable[onnx.FunctionProto],
) -> Iterator[onnx.FunctionProto | onnx.GraphProto]:
    for function in functions:
        yield function
        yield from _graphs(g for node in function.node for g in subgraphs(node))


def _graphs(graphs: Iterable[onnx.GraphProto]) -> Iterator[onnx.GraphProto]:
    for graph in graphs:
        yield graph
        yield from _graphs(inner for node in graph.node for inner in subgraphs(node))


def _is_large(tensor: onnx.TensorProto) -> bool:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False  # inference does not read it
    try:
        array = known_array(tensor, tensor.name)
    except InvalidModel:
        return False  # nor such data
    return array.dtype.kind in "iu" and bool((np.abs(array.astype(np.float64)) > LARGE_STEP).any())
