"""Inputs that are sequences or optionals of tensors, as as many inputs that are tensors.

In: a model, and for each such input the types of the tensors that a run gives.  Out: a model whose
inputs are these tensors, and which begins by putting them together.  What always holds: the given
proto is not edited, and the model that is made computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
from msgspec import Struct
from onnx import helper

from graphflow.frontends.protos.steps import tensor_names_in

ListedTypes: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...] | None"
"""Element type and shape of each tensor of a sequence or optional; None for an empty optional."""


class ListedInput(Struct, frozen=True):
    """An input of a model that is a sequence of tensors, an optional of one, or an optional tensor.

    `elem_type` is that of the tensors, as ONNX numbers them.
    """

    name: str
    elem_type: int
    is_sequence: bool
    is_optional: bool


def listed_inputs(proto: onnx.ModelProto) -> tuple[ListedInput, ...]:
    """The inputs of a model that are sequences or optionals of tensors."""
    found = []
    for info in proto.graph.input:
        kind, is_optional = info.type, info.type.HasField("optional_type")
        if is_optional:
            kind = kind.optional_type.elem_type
        is_sequence = kind.HasField("sequence_type")
        if is_sequence:
            kind = kind.sequence_type.elem_type
        if (is_optional or is_sequence) and kind.HasField("tensor_type"):
            elem_type = kind.tensor_type.elem_type
            found.append(ListedInput(info.name, elem_type, is_sequence, is_optional))
    return tuple(found)


def with_tensors(
    proto: onnx.ModelProto,
    listed: Sequence[ListedInput],
    given: Mapping[str, ListedTypes],
) -> tuple[onnx.ModelProto, dict[str, tuple[str, ...]]]:
    """The model whose inputs are the tensors of `listed`, and their names by input.

    `given` has the types of these tensors.
    """
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    graph, of = made.graph, {one.name: one for one in listed}
    taken = tensor_names_in(graph.node).union(info.name for info in graph.input)
    inputs, nodes = list[onnx.ValueInfoProto](), list[onnx.NodeProto]()
    names: dict[str, tuple[str, ...]] = {}
    for info in proto.graph.input:
        one = of.get(info.name)
        if one is None:
            inputs.append(info)
            continue
        types = given[one.name]
        parts = [_free(f"{one.name}[{k}]", taken) for k in range(len(types or ()))]
        names[one.name] = tuple(parts)
        for part, (dtype, shape) in zip(parts, types or (), strict=True):
            elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            inputs.append(helper.make_tensor_value_info(part, elem_type, shape))
        nodes += _assembly(one, info, parts, types is None, taken)
    nodes += graph.node
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend(nodes)
    return made, names


def _assembly(
    one: ListedInput,
    info: onnx.ValueInfoProto,
    parts: Sequence[str],
    is_empty: bool,
    taken: set[str],
) -> list[onnx.NodeProto]:
    """The nodes that put an input together."""
    if is_empty:
        kind = info.type.optional_type.elem_type
        return [helper.make_node("Optional", [], [one.name], type=kind)]
    nodes, held = list[onnx.NodeProto](), list(parts)
    if one.is_sequence:
        result = _free(f"{one.name}[]", taken) if one.is_optional else one.name
        if parts:
            nodes.append(helper.make_node("SequenceConstruct", held, [result]))
        else:
            nodes.append(helper.make_node("SequenceEmpty", [], [result], dtype=one.elem_type))
        held = [result]
    if one.is_optional:
        nodes.append(helper.make_node("Optional", held, [one.name]))
    return nodes


def _free(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted
