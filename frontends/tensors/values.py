"""Graph inputs whose values are fixed at compile time, because shapes depend on them.

In: values by input name; or the name of a tensor whose contents an operator needs.  Out: the values
in the dtypes and shapes that the model declares; or the error that names the graph inputs on which
the tensor depends.  What always holds: an input with a fixed value is still an input of the graph,
and every run has to give exactly that value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import ArrayLike

from graphflow.base.errors import InvalidModel, UnsupportedOp, ValuesNeeded
from graphflow.frontends.tensors.data_extents import ExtentComputed
from graphflow.graph import Array, Node, OperatorGraph

VALUE_LIMIT = 64
"""The most elements of an input whose values may decide shapes; each set of values is compiled for
anew."""


def fixed_values(proto: onnx.ModelProto, given: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """The values `given` for inputs, as arrays of the declared dtypes in native byte order.

    Arrays are never cast; other values, such as `[2, 3]`, are converted.  Raises InvalidModel for a
    name that is no input, for another dtype or shape, and if a number would change.
    """
    infos = {info.name: info for info in proto.graph.input}
    unknown = [name for name in given if name not in infos]
    if unknown:
        raise InvalidModel(
            f"values are given for {', '.join(unknown)}; the model's inputs are {', '.join(infos)}"
        )
    return {name: _fixed(infos[name], value) for name, value in given.items()}


def _fixed(info: onnx.ValueInfoProto, value: ArrayLike) -> Array:
    tensor = info.type.tensor_type
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    array: Array = np.asarray(value)
    if not isinstance(value, np.ndarray | np.generic):
        cast = array.astype(dtype)
        array = cast if np.array_equal(cast, array) else array
    if array.dtype.newbyteorder("=") != dtype:
        raise InvalidModel(
            f"the value of input {info.name} is {array.dtype}{list(array.shape)}, the model "
            f"declares {dtype}"
        )
    extents = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    declared = tensor.HasField("shape")
    if declared and (
        len(extents) != array.ndim
        or any(n not in (None, m) for n, m in zip(extents, array.shape, strict=True))
    ):
        raise InvalidModel(
            f"the value of input {info.name} has shape {list(array.shape)}, the model declares "
            f"{['?' if n is None else n for n in extents]}"
        )
    return np.array(array, dtype, order="C")


def shapes_with(
    shapes: Mapping[str, Sequence[int]], values: Mapping[str, Array]
) -> dict[str, Sequence[int]]:
    """The shapes of inputs, extended by those of fixed values; InvalidModel if the two
    contradict."""
    for name, array in values.items():
        if name in shapes and tuple(shapes[name]) != array.shape:
            raise InvalidModel(
                f"input {name} is given the shape {tuple(shapes[name])} and a value of shape "
                f"{array.shape}; leave out one of them"
            )
    return {**shapes, **{name: array.shape for name, array in values.items()}}


def contents_missing(
    graph: OperatorGraph, known: Mapping[str, Array], name: str, asked: str
) -> UnsupportedOp:
    """The error for a tensor `name` whose contents are needed and not known; `asked` says by whom.

    It is `ValuesNeeded` if the contents follow from small graph inputs, else `UnsupportedOp` with
    the reason.
    """
    sources, stuck = _sources(graph, known, name)
    what = f"{asked} is only known at run time"
    given = frozenset(graph.inputs)
    inputs = tuple(source for source in sources if source in given)
    sizes = {one.tensor: one.size.name for one in graph.sizes}
    sizes |= {one.element: one.size.name for one in graph.sizes if one.element is not None}
    sizes |= {one.tensor: one.size.name for one in graph.derived}
    if found := [sizes[name] for name in inputs if name in sizes]:
        return ExtentComputed(
            f"{what}: it is computed from {found[0]}, by more than sums, products, quotients "
            "by numbers, minima and maxima; cut the model before this node"
        )
    if len(inputs) < len(sources):
        other = next(source for source in sources if source not in inputs)
        return UnsupportedOp(f"{what}: it depends on {other}, which no kernel computes")
    large = [n for n in inputs if graph.values[n].size > VALUE_LIMIT]
    if large:
        size = graph.values[large[0]].size
        return UnsupportedOp(
            f"{what}: it depends on the values of graph input {large[0]}, and that has {size} "
            f"elements; at most {VALUE_LIMIT} may decide shapes; make it an initializer, or "
            "compute outside of the model what decides"
        )
    if stuck is not None and not inputs:
        return UnsupportedOp(
            f"{what}: {stuck.op} node {stuck.name} computes too many elements to be evaluated when "
            "the model is compiled; simplify the model with constant folding first"
        )
    return ValuesNeeded(f"{what}: it depends on the values of {', '.join(inputs)}", inputs)


def _sources(
    graph: OperatorGraph, known: Mapping[str, Array], name: str
) -> tuple[tuple[str, ...], Node | None]:
    """What the unknown contents of `name` depend on.

    First the unknown tensors that have no producer, then a node of known inputs whose result was
    not computed, or None.
    """
    pending, stuck = [name], None
    seen: set[str] = set()
    sources: list[str] = []
    while pending:
        tensor = pending.pop()
        if tensor in known or tensor in seen:
            continue
        seen.add(tensor)
        node = graph.producer(tensor)
        if node is None:
            sources.append(tensor)
            continue
        if all(n in known for n in node.inputs):
            stuck = node
        pending += reversed(node.inputs)
    return tuple(sources), stuck
