"""Networks whose floats have 16 bits, as `model.half()` and `model.bfloat16()` leave them.

In: a model of float32.  Out: the same nodes on float16 or bfloat16: inputs, outputs, weights and
all tensors between.  What always holds: weights beyond the largest number of the type become that
number, so that a mask of -3e38 stays finite, as converters write it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from graphflow.base.dtypes import DTYPES, largest

ELEMENTS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def in_sixteen_bits(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """A copy of `model`, which has no subgraphs, with `dtype` for float32.

    `dtype` is float16 or bfloat16.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph, element = changed.graph, ELEMENTS[dtype]
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = element
    for tensor in _tensors(graph):
        if tensor.data_type == TensorProto.FLOAT:
            limit = largest(dtype)
            bounded = np.clip(numpy_helper.to_array(tensor), -limit, limit)
            rounded = bounded.astype(DTYPES[dtype])
            packed = onnx.helper.make_tensor(
                tensor.name, element, tensor.dims, rounded.tobytes(), raw=True
            )
            tensor.CopyFrom(packed)
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = element
    return changed


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Initializers and constants."""
    yield from graph.initializer
    for node in graph.node:
        yield from (a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR)
