"""Type inference of single nodes, by ONNX's own rules.

In: a node and the types of its inputs, with the contents of those that are known.  Out: the types
of its outputs.  Inlined bodies are inferred node by node, because the shapes of their inputs are
known only then.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import checker, defs, helper, numpy_helper, shape_inference

from graphflow.base.errors import InvalidModel
from graphflow.frontends.protos.steps import ImportStep
from graphflow.graph import Array

CONTENTS = 1024
"""The most elements of a tensor whose contents are given to inference."""

POOLS_COUNTED = 22
"""The first opset for which ONNX's inference leaves out the windows of a pool, rounded up in
number, that would begin behind the image; kernels and onnxruntime do so in all."""


def pools_rounding_up(node: onnx.NodeProto) -> bool:
    """Whether a node is a pool that rounds the number of its windows up."""
    rounds_up = any(attribute.name == "ceil_mode" and attribute.i for attribute in node.attribute)
    return rounds_up and node.op_type.endswith("Pool")


def schema_of(step: ImportStep) -> defs.OpSchema | None:
    """The schema of the operator in the node's opset; None if ONNX does not define it."""
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
    """The default values of attributes, by name."""
    return {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED
    }


_OTHER_DEFAULTS = frozenset({"STFT"})
"""Operators for which ONNX's inference assumes another default than their schemas state."""


def write_defaults(schema: defs.OpSchema, node: onnx.NodeProto) -> None:
    """Write default attributes into a node, in place, if ONNX's inference needs them.

    Inference through a function's body sees only attributes that the node states.
    """
    from_body = schema.has_function and not schema.has_type_and_shape_inference_function
    if from_body or (schema.domain == "" and schema.name in _OTHER_DEFAULTS):
        given = {attribute.name for attribute in node.attribute}
        defaults = defaults_of(schema).items()
        node.attribute.extend(default for name, default in defaults if name not in given)


def output_types(
    step: ImportStep, types: Mapping[str, onnx.TypeProto], arrays: Mapping[str, Array]
) -> dict[str, onnx.TypeProto]:
    """The types of the outputs of `step`, inferred by ONNX from input types and known contents.

    Empty if ONNX does not define the operator.  Raises `InvalidModel` if inference refuses the
    node.
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
