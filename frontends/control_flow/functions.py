"""Operators that are defined by a function: one of the model's own, or the one in ONNX's schema.

In: a node.  Out: the function that defines its operator for the opset that the node was written
for.  The body of a function may import another opset; the nodes of the body then belong to that.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import defs

from graphflow.base.errors import UnsupportedOp
from graphflow.base.fields import replace
from graphflow.frontends.control_flow.bodies import called
from graphflow.frontends.protos.inference import defaults_of, schema_of, tensor_type
from graphflow.frontends.protos.steps import ImportStep
from graphflow.frontends.tensors.context import ImportContext


def calls_model_function(step: ImportStep, context: ImportContext) -> bool:
    """Whether the operator of `step` is a function of the model, which no section can call."""
    return _key(step) in context.functions


def has_function(step: ImportStep, context: ImportContext) -> bool:
    """Whether the operator of `step` is defined by a function, of the model or of ONNX."""
    if calls_model_function(step, context):
        return True
    schema = schema_of(step)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def expand_function(step: ImportStep, context: ImportContext) -> Sequence[ImportStep] | None:
    """The steps of the function that defines the operator of `step`; None if there is none.

    Raises `UnsupportedOp` if ONNX's function depends on types or attributes, and there is none for
    those of this node.
    """
    function = context.functions.get(_key(step))
    if function is not None:
        return called(function, step, context)
    schema = schema_of(step)
    function = None if schema is None else _schema_function(schema, step, context)
    return None if function is None else called(function, replace(step, trusted=True), context)


def _key(step: ImportStep) -> tuple[str, str, str]:
    return (step.domain, step.node.op_type, step.node.overload)


def _schema_function(
    schema: defs.OpSchema, step: ImportStep, context: ImportContext
) -> onnx.FunctionProto | None:
    function = onnx.FunctionProto()
    if schema.has_function:
        version = _version(schema.function_opset_versions, step.opset)
        function.ParseFromString(schema.get_function_with_opset_version(version))
    elif schema.has_context_dependent_function:
        version = _version(schema.context_dependent_function_opset_versions, step.opset)
        types = [_type(name, context).SerializeToString() for name in step.node.input]
        body = schema.get_context_dependent_function_with_opset_version(
            version, step.node.SerializeToString(), types
        )
        function.ParseFromString(body)
        if not function.node:
            raise UnsupportedOp(
                f"{step}: ONNX defines no body for this operator with these types and attributes, "
                f"which is not built; write the node as simpler operators"
            )
    else:
        return None
    given = {attribute.name for attribute in function.attribute_proto}
    function.attribute_proto.extend(
        default for name, default in defaults_of(schema).items() if name not in given
    )
    return function


def _version(versions: Sequence[int], opset: int) -> int:
    """The newest version up to `opset`, else the oldest: all versions of the function are
    equivalent."""
    return max((v for v in versions if v <= opset), default=min(versions))


def _type(name: str, context: ImportContext) -> onnx.TypeProto:
    """The type of a tensor, or of a sequence by its first element; empty for no input.

    Extents that a run decides are left open.
    """
    if not name:
        return onnx.TypeProto()
    if name in context.sequences:
        sequence = onnx.TypeProto()
        element = sequence.sequence_type.elem_type
        element.tensor_type.elem_type = context.sequences[name].elem_type
        return sequence
    found = tensor_type(*context.type_of(name))
    for axis in context.counted.get(name, ()):
        found.tensor_type.shape.dim[axis].ClearField("dim_value")
    return found
