"""Types of single nodes, as ONNX infers them.

In: a node and what is known of its inputs.  Out: the types of its outputs.  The nodes of a body are
asked for one by one, when the shapes of their inputs are known.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import checker, defs, helper, numpy_helper, shape_inference

from graphflow.base.errors import InvalidModel
from graphflow.frontends.steps import Step
from graphflow.graph import Array

CONTENTS = 1024
"""Elements of the largest tensor whose contents inference is told."""


def schema_of(step: Step) -> defs.OpSchema | None:
    """How ONNX defines the operator in the opset that the node was written for, if it does."""
    try:
        return defs.get_schema(step.node.op_type, step.opset, step.domain)
    except defs.SchemaError:
        return None


def tensor_type(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> onnx.TypeProto:
    """The ONNX type of an array."""
    if dtype.kind in "OUS":
        return helper.make_tensor_type_proto(onnx.TensorProto.STRING, shape)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), shape)


def defaults_of(schema: defs.OpSchema) -> dict[str, onnx.AttributeProto]:
    """The attributes that a node has where it does not state them."""
    return {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED
    }


_OTHER_DEFAULTS = frozenset({"STFT"})
"""Operators for which ONNX's inference takes another default than their schemas state."""


def write_defaults(schema: defs.OpSchema, node: onnx.NodeProto) -> None:
    """State, in place, the default attributes of a node where ONNX's inference needs them.

    Inference from a body knows only the attributes that a node has.
    """
    from_body = schema.has_function and not schema.has_type_and_shape_inference_function
    if from_body or (schema.domain == "" and schema.name in _OTHER_DEFAULTS):
        given = {attribute.name for attribute in node.attribute}
        defaults = defaults_of(schema).items()
        node.attribute.extend(default for name, default in defaults if name not in given)


def output_types(
    step: Step, types: Mapping[str, onnx.TypeProto], arrays: Mapping[str, Array]
) -> dict[str, onnx.TypeProto]:
    """The types of the outputs, from the types of what `step` reads and the contents known of it.

    Empty where ONNX does not define the operator.  Raises `InvalidModel` where inference refuses.
    """
    schema = schema_of(step)
    if schema is None:
        return {}
    contents = {
        name: numpy_helper.from_array(array, name)
        for name, array in arrays.items()
        if array.size <= CONTENTS
    }
    node = onnx.NodeProto()
    node.CopyFrom(step.node)
    write_defaults(schema, node)
    opsets = [helper.make_opsetid(domain, version) for domain, version in step.opsets.items()]
    try:
        found: dict[str, onnx.TypeProto] = shape_inference.infer_node_outputs(
            schema, node, dict(types), contents, opset_imports=opsets
        )
    except (shape_inference.InferenceError, checker.ValidationError, ValueError) as error:
        raise InvalidModel(f"{step}: ONNX type inference refuses it: {error}") from None
    return found
