"""Inputs whose extents are sizes: a run gives fewer elements than there is room for.

In: a model and the sizes of its symbolic dimensions, and of inputs of one integer.  Out: for each
size an integer input of the graph, which counts the elements that a run gives along the axes of
that size, or has the integer.  What always holds: axes of one name have one count, so elements of
several inputs meet only where each of them is given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx

from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.base.sizes import Relation, Size, SizeRelation, SizeStep
from graphflow.frontends.reading.load import settable_inputs
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import SizedArray
from graphflow.frontends.tensors.derived_sizes import add_step, total
from graphflow.frontends.tensors.size_sums import SizeSum
from graphflow.graph import SizeInput, Value

Axes: TypeAlias = "tuple[tuple[str, int], ...]"
"""Pairs of an input and an axis."""


def stating_inputs(proto: onnx.ModelProto, overridable: Collection[str] = ()) -> list[str]:
    """The graph inputs that have one integer, which may be a size in each run; those with an
    initializer only if `overridable` names them."""
    return [
        info.name
        for info in _given(proto, overridable)
        if info.type.tensor_type.elem_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
        and info.type.tensor_type.HasField("shape")
        and all(dim.dim_value == 1 for dim in info.type.tensor_type.shape.dim)
    ]


def _given(proto: onnx.ModelProto, overridable: Collection[str]) -> Iterator[onnx.ValueInfoProto]:
    """The graph inputs that a run may give."""
    names = {*settable_inputs(proto, overridable)}
    return (info for info in proto.graph.input if info.name in names)


def sized_axes(
    proto: onnx.ModelProto, sizes: Sequence[Size], overridable: Collection[str] = ()
) -> dict[Size, Axes]:
    """The axes of graph inputs whose dimension has the name of a size; an input of one integer may
    have it, too.  Inputs with an initializer are constants unless `overridable` names them.

    Raises `InvalidModel` for a size that no dimension and no such input has the name of.
    """
    named = [
        (dim.dim_param, (info.name, axis))
        for info in _given(proto, overridable)
        for axis, dim in enumerate(info.type.tensor_type.shape.dim)
        if dim.dim_param
    ]
    sized = {size: tuple(axis for name, axis in named if name == size.name) for size in sizes}
    stating = stating_inputs(proto, overridable)
    for size, axes in sized.items():
        if not axes and size.name not in stating:
            known = ", ".join(dict.fromkeys(name for name, _ in named)) or "none"
            integers = f", and their single integers {', '.join(stating)}" if stating else ""
            raise InvalidModel(
                f"sizes names {size.name!r}; the symbolic dimensions of the inputs are {known}"
                f"{integers}"
            )
    return sized


def add_sizes(
    context: ImportContext, sized: Mapping[Size, Axes], relations: Sequence[Relation]
) -> None:
    """Add an input for each size, and count the elements along its axes by that input; by another
    size, where one of `relations` says that both are equal.

    The element of an input of its name is the size, and no kernel reads that input itself.
    """
    graph, tensors = context.graph, dict[str, str]()
    for size in sized:
        tensors[size.name] = context.unique_tensor_name(size.name)
        graph.add_value(Value(tensors[size.name], "int64", ()))
    graph.sizes = tuple(
        SizeInput(size, tensors[size.name], axes, _stating(context, size, sized))
        for size, axes in sized.items()
    )
    graph.relations = tuple(relations)
    graph.set_inputs((*graph.inputs, *tensors.values()))
    context.sizes = {one.tensor: one.size for one in graph.sizes}
    between = [one for one in relations if isinstance(one, SizeRelation) and one.factors]
    for relation in relations:
        if isinstance(relation, SizeRelation) and not relation.factors:
            size = context.sizes[tensors[relation.size]]
            context.sizes[tensors[relation.size]] = replace(size, lo=relation.offset)
    for relation in relations:
        if isinstance(relation, SizeStep):
            add_step(context, tensors[relation.size], relation.step)
    for relation in between:
        tensor, same = tensors[relation.size], _right_side(relation, between, tensors)
        if relation.is_exact:
            context.sums[same], context.summed[tensor] = tensor, same
            context.limiting.append(tensor)
        else:
            left = SizeSum(((tensor, 1),), 0)
            context.nonnegative.append(left.plus(same, -1))
    for one in graph.sizes:
        count = total(context, (one.tensor,))
        assert isinstance(count, str)
        for name, axis in one.axes:
            context.counted.setdefault(name, {})[axis] = count
        if one.element is not None:
            value = graph.values[one.element]
            most = np.full(value.shape, one.size.hi, value.dtype)
            context.sized_values[one.element] = SizedArray(most, {0: count})


def _stating(context: ImportContext, size: Size, sized: Mapping[Size, Axes]) -> str | None:
    """The input of one integer that has the name of a size; None if there is none."""
    graph = context.graph
    with_sizes = {name for axes in sized.values() for name, _ in axes}
    if size.name not in graph.inputs or size.name in with_sizes:
        return None
    value = graph.values[size.name]
    return size.name if value.size == 1 and value.dtype in ("int32", "int64") else None


def _right_side(
    relation: SizeRelation, relations: Sequence[SizeRelation], tensors: Mapping[str, str]
) -> SizeSum:
    """The right side of a relation, in sizes that no other relation determines."""
    result = SizeSum((), relation.offset)
    exact = {other.size: other for other in relations if other.is_exact}
    for name, factor in relation.factors:
        known = SizeSum(((tensors[name], 1),), 0)
        if name in exact:
            known = _right_side(exact[name], relations, tensors)
        result = result.plus(known, factor)
    return result
