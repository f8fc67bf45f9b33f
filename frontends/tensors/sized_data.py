"""Sizes as data: a run computes with their numbers, as in a mean over a length.

In: a tensor of shape arithmetic, whose elements are numbers and sizes.  Out: a tensor of the graph
with the same elements in each run.  What always holds: its contents are not known at import, so
nothing is decided by the most of a size; what would have to know them raises `ExtentsLost`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphflow.base.dtypes import DTYPES, HALVES
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import SizedArray
from graphflow.frontends.tensors.data_sizes import add_size_kernel
from graphflow.frontends.tensors.derived_sizes import held
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement
from graphflow.tir import PrimFunc


def size_data(context: ImportContext, name: str) -> str:
    """The tensor that has the elements of the sized value `name` in a run."""
    value = context.sized_values[name]
    shape, dtype = value.array.shape, value.array.dtype.name
    result = _integers(context, name, value)
    if len(shape) > 1:
        func = movement.reshape((value.array.size,), shape, "int64")
        result = _added(context, func, (result,), name)
    wide = "float32" if dtype in HALVES else dtype
    if wide != "int64":
        result = _added(context, elementwise.cast(shape, "int64", wide), (result,), name)
    if value.divisor != 1:  # a power of two, so floats hold the quotient
        by = context.new_constant(f"{name}.divisor", np.array(value.divisor, DTYPES[wide]))
        func = elementwise.binary("div", shape, (), wide)
        result = _added(context, func, (result, by), name)
    if wide != dtype:
        result = _added(context, elementwise.cast(shape, wide, dtype), (result,), name)
    return result


def give_size_data(context: ImportContext, name: str) -> None:
    """Make a sized value, under its own name, a tensor of the graph, behind all that moves it."""
    data = size_data(context, name)
    value = context.graph.values[data]
    del context.sized_values[name], context.graph.removed[name]
    add_size_kernel(context, movement.copy(value.shape, value.dtype), (data,), name)


def _integers(context: ImportContext, name: str, value: SizedArray) -> str:
    """The elements of `value`, times its divisor, as a vector; a scalar as one."""
    numbers = (value.array.astype(np.float64) * value.divisor).reshape(-1)
    elements = [
        held(context, value.sizes.get(place, int(number))) for place, number in enumerate(numbers)
    ]
    if not value.array.shape:
        return elements[0]
    func = movement.reshape((), (1,), "int64")
    parts = [_added(context, func, (element,), name) for element in elements]
    if len(parts) == 1:
        return parts[0]
    return _added(context, movement.concat([(1,)] * len(parts), 0, "int64"), parts, name)


def _added(context: ImportContext, func: PrimFunc, names: Sequence[str], of: str) -> str:
    """Add a kernel with one output, which has a name of its own; returns that."""
    result = context.unique_tensor_name(f"{of}.data")
    add_size_kernel(context, func, names, result)
    return result
