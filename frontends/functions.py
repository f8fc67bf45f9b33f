"""Operators with a body: those of a model's own functions, and those that ONNX defines by one.

In: a node.  Out: the function that defines its operator for the opset that the node was written
for.  A body may itself be written for another opset; its nodes then have that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx
from onnx import defs

from graphflow.base.errors import UnsupportedOp
from graphflow.frontends.bodies import called
from graphflow.frontends.call import Context
from graphflow.frontends.inference import defaults_of, schema_of, tensor_type
from graphflow.frontends.steps import Step


def has_function(step: Step, context: Context) -> bool:
    """Whether `step` calls a function of the model or one of ONNX."""
    if _key(step) in context.functions:
        return True
    schema = schema_of(step)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def expand_function(step: Step, context: Context) -> Sequence[Step] | None:
    """The steps of the function that `step` calls; None where it calls none.

    Raises `UnsupportedOp` where ONNX has a body that depends on types or attributes, and none for
    those of this node.
    """
    function = context.functions.get(_key(step))
    if function is not None:
        return called(function, step, context)
    schema = schema_of(step)
    function = None if schema is None else _schema_function(schema, step, context)
    return None if function is None else called(function, replace(step, trusted=True), context)


def _key(step: Step) -> tuple[str, str, str]:
    return (step.domain, step.node.op_type, step.node.overload)


def _schema_function(
    schema: defs.OpSchema, step: Step, context: Context
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
    """The newest body that `opset` knows, else the oldest: all say the same of the operator."""
    return max((v for v in versions if v <= opset), default=min(versions))


def _type(name: str, context: Context) -> onnx.TypeProto:
    """The type of a tensor, or of a sequence by its first element; empty for no input."""
    if not name:
        return onnx.TypeProto()
    if name in context.sequences:
        sequence = onnx.TypeProto()
        element = sequence.sequence_type.elem_type
        element.tensor_type.elem_type = context.sequences[name].elem_type
        return sequence
    return tensor_type(*context.type_of(name))
