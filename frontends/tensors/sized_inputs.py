"""Inputs whose extents are sizes: a run gives fewer elements than there is room for.

In: a model and the sizes of its symbolic dimensions.  Out: for each size an integer input of the
graph, which counts the elements that a run gives along the axes of that size.  What always holds:
axes of one name have one count, so elements of several inputs meet only where each of them is
given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import onnx

from graphflow.base.errors import InvalidModel
from graphflow.base.sizes import Size
from graphflow.frontends.tensors.context import ImportContext
from graphflow.graph import SizeInput, Value

Axes: TypeAlias = "tuple[tuple[str, int], ...]"
"""Pairs of an input and an axis."""


def sized_axes(proto: onnx.ModelProto, sizes: Sequence[Size]) -> dict[Size, Axes]:
    """The axes of graph inputs whose dimension has the name of a size.

    Raises `InvalidModel` for a size that no dimension has the name of.
    """
    named = [
        (dim.dim_param, (info.name, axis))
        for info in proto.graph.input
        for axis, dim in enumerate(info.type.tensor_type.shape.dim)
        if dim.dim_param
    ]
    sized = {size: tuple(axis for name, axis in named if name == size.name) for size in sizes}
    for size, axes in sized.items():
        if not axes:
            known = ", ".join(dict.fromkeys(name for name, _ in named)) or "none"
            raise InvalidModel(
                f"sizes names {size.name!r}; the symbolic dimensions of the inputs are {known}"
            )
    return sized


def add_sizes(context: ImportContext, sized: Mapping[Size, Axes]) -> None:
    """Add an input for each size, and count the elements along its axes by that input."""
    graph, found = context.graph, []
    for size, axes in sized.items():
        tensor = context.unique_tensor_name(size.name)
        graph.add_value(Value(tensor, "int64", ()))
        found.append(SizeInput(size, tensor, axes))
        for name, axis in axes:
            context.counted.setdefault(name, {})[axis] = tensor
    graph.sizes = tuple(found)
    context.sizes = {one.tensor: one.size for one in found}
    graph.set_inputs((*graph.inputs, *(one.tensor for one in found)))
