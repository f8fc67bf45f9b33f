"""Operators with a body: those of a model's own functions, and those that ONNX defines by one.

In: a node.  Out: the function that defines its operator for the opset that the node was written
for.  A body may itself be written for another opset; its nodes then have that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import defs

from graphflow.errors import UnsupportedOp
from graphflow.frontends.bodies import called
from graphflow.frontends.call import Context
from graphflow.frontends.folding import tensor_type
from graphflow.frontends.steps import Step


def has_function(step: Step, context: Context) -> bool:
    """Whether `step` calls a function of the model or one of ONNX."""
    if _key(step) in context.functions:
        return True
    schema = _schema(step)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def expand_function(step: Step, context: Context) -> Sequence[Step] | None:
    """The steps of the function that `step` calls; None where it calls none.

    Raises `UnsupportedOp` where ONNX has a body that depends on types or attributes, and none for
    those of this node.
    """
    function = context.functions.get(_key(step))
    if function is None:
        schema = _schema(step)
        function = None if schema is None else _schema_function(schema, step, context)
    return None if function is None else called(function, step, context)


def write_defaults(proto: onnx.ModelProto) -> None:
    """State, in place, the default attributes of nodes whose types ONNX infers from a body.

    That inference knows only the attributes that a node has.
    """
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    for node in proto.graph.node if versions else ():
        try:
            schema = defs.get_schema(node.op_type, versions[0], node.domain)
        except defs.SchemaError:
            continue
        if schema.has_function and not schema.has_type_and_shape_inference_function:
            given = {attribute.name for attribute in node.attribute}
            defaults = _defaults(schema).items()
            node.attribute.extend(default for name, default in defaults if name not in given)


def _key(step: Step) -> tuple[str, str, str]:
    return (step.domain, step.node.op_type, step.node.overload)


def _schema(step: Step) -> defs.OpSchema | None:
    try:
        return defs.get_schema(step.node.op_type, step.opset, step.domain)
    except defs.SchemaError:
        return None


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
        default for name, default in _defaults(schema).items() if name not in given
    )
    return function


def _version(versions: Sequence[int], opset: int) -> int:
    """The newest body that `opset` knows, else the oldest: all say the same of the operator."""
    return max((v for v in versions if v <= opset), default=min(versions))


def _defaults(schema: defs.OpSchema) -> Mapping[str, onnx.AttributeProto]:
    return {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED
    }


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
