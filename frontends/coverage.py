"""Operator coverage: for each ONNX operator how it runs, in which opsets and with which element
types.

In: the schemas of the installed onnx, up to opset `LATEST`.  Out: one `Coverage` for each operator.
Coverage is measured by importing: for each version of the operator's definition, and for each
element type that a type variable of the newest version allows, a model of one node
(`frontends/probes.py`) is imported without a fallback, with the other type variables at their usual
types.  Nothing is compiled or run, and the result does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from msgspec import Struct
from onnx import TensorProto, defs

from graphflow.base.errors import GraphflowError
from graphflow.frontends.importer import (
    OPERATORS,
    RESOLVED,
    REWRITTEN,
    VENDOR_OPERATORS,
    import_model,
)
from graphflow.frontends.probes import (
    CONTRIB_PROBES,
    PROBES,
    ElementType,
    Filling,
    contrib_model,
    schema_model,
    tensor_element,
)
from graphflow.frontends.reading.upgrade import OLDEST_OPSET
from graphflow.frontends.tensors.folding import RANDOM
from graphflow.graph import OperatorGraph

LATEST = 28
"""The newest opset that the table knows; what a later onnx adds is left out of it."""

CONTRIB = "com.microsoft"

NATIVE = "kernels"
REWRITE = "other operators"
FUNCTION = "the body in its schema"
FIXED = "a constant"
GONE = "resolved at import"
FOREIGN = "onnxruntime; a constant where all inputs are"
DRAWN = "onnxruntime; refused without it (random numbers)"

_USUAL = ("FLOAT", "INT64", "INT32", "BOOL", "UINT8", "INT8")
"""The element type for the type variables that are not varied: the first of these that is
allowed."""


class Coverage(Struct, frozen=True):
    """The coverage of one operator."""

    operator: str
    way: str
    versions: tuple[int, ...] = ()
    """The opsets of the operator versions that import supports."""
    refused_versions: tuple[int, ...] = ()
    types: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """For each type variable the supported element types."""
    refused_types: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """For each type variable the element types that the schema allows and import refuses."""


def operator_coverage() -> tuple[Coverage, ...]:
    """The operators of ONNX's standard domain, by name."""
    schemas: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= LATEST:
            schemas.setdefault(schema.name, []).append(schema)
    return tuple(_coverage(name, schemas[name]) for name in sorted(schemas))


def contrib_coverage() -> tuple[Coverage, ...]:
    """The coverage of onnxruntime's operators that have kernels, or are rewritten as standard
    ones, by name."""
    ways = {name: REWRITE for domain, name in REWRITTEN if domain == CONTRIB}
    kernels = (name.rpartition(".") for name in VENDOR_OPERATORS)
    ways |= {name: NATIVE for domain, _, name in kernels if domain == CONTRIB}
    found = []
    for name, way in sorted(ways.items()):
        elements = CONTRIB_PROBES[name].elements
        kinds = {e: TensorProto.DataType.Value(e) for e in elements}
        taken = [e for e, kind in kinds.items() if _imports(contrib_model(name, 17, kind))]
        refused = [e for e in elements if e not in taken]
        found.append(
            Coverage(
                name, way, (1,), (), _of_variables({"T": taken}), _of_variables({"T": refused})
            )
        )
    return tuple(found)


def way_of(name: str, schemas: Sequence[defs.OpSchema]) -> str:
    """How an operator of the standard domain runs."""
    if name in RANDOM:
        return DRAWN
    if name in OPERATORS:
        return NATIVE
    if name in RESOLVED:
        return GONE
    if ("", name) in REWRITTEN:
        return REWRITE
    if any(s.has_function or s.has_context_dependent_function for s in schemas):
        return FUNCTION
    return FOREIGN


def _coverage(name: str, schemas: Sequence[defs.OpSchema]) -> Coverage:
    way = way_of(name, schemas)
    spans = list(_spans(schemas))
    versions = tuple(schema.since_version for schema, _ in spans)
    if way not in (NATIVE, REWRITE, FUNCTION) or not _reads_tensors(spans[-1][0]):
        return Coverage(name, way, versions)
    graphs = {s.since_version: _imported(_usual_model(s, opset)) for s, opset in spans}
    taken = tuple(version for version, graph in graphs.items() if graph is not None)
    newest = graphs[versions[-1]]
    if newest is not None and not newest.nodes:
        way = FIXED
    refused = tuple(version for version in versions if version not in taken)
    types, missing = _types(*spans[-1])
    return Coverage(name, way, taken, refused, _of_variables(types), _of_variables(missing))


def _spans(schemas: Iterable[defs.OpSchema]) -> Iterable[tuple[defs.OpSchema, int]]:
    """The operator versions that are valid in some opset from 7 on, each with its last such
    opset."""
    ordered = sorted(schemas, key=lambda schema: schema.since_version)
    following = [schema.since_version - 1 for schema in ordered[1:]]
    for schema, opset in zip(ordered, [*following, LATEST], strict=True):
        if opset >= OLDEST_OPSET and not schema.deprecated:
            yield schema, opset


def _reads_tensors(schema: defs.OpSchema) -> bool:
    """Whether every input may be a tensor; operators on sequences have no probe."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    kinds = [allowed.get(formal.type_str, [formal.type_str]) for formal in schema.inputs]
    return all(any(tensor_element(text) for text in texts) for texts in kinds)


def _types(schema: defs.OpSchema, opset: int) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """For each type variable of a schema the element types that import supports, and those it
    refuses."""
    taken: dict[str, list[str]] = {}
    refused: dict[str, list[str]] = {}
    allowed = _allowed(schema)
    for variable in sorted(_bound(schema).intersection(allowed)):
        for element in allowed[variable]:
            takes = any(
                _imports(schema_model(schema, opset, types))
                for types in _assignments(allowed, variable, element)
            )
            name = TensorProto.DataType.Name(element)
            (taken if takes else refused).setdefault(variable, []).append(name)
    return taken, refused


def _allowed(schema: defs.OpSchema) -> dict[str, list[int]]:
    """The element types that each type variable may have."""
    return {
        constraint.type_param_str: sorted(
            filter(None, (tensor_element(text) for text in constraint.allowed_type_strs))
        )
        for constraint in schema.type_constraints
    }


def _assignments(
    allowed: Mapping[str, Sequence[int]], variable: str, element: int
) -> Iterator[dict[str, int]]:
    """Element types for all variables, with `variable` at `element`.

    The others have their usual types first, then the same type where that is allowed.
    """
    usual = {name: _usual(elements) for name, elements in allowed.items() if elements}
    yield {**usual, variable: element}
    alike = {name: element for name, elements in allowed.items() if element in elements}
    if len(alike) > 1:
        yield {**usual, **alike}


def _bound(schema: defs.OpSchema) -> set[str]:
    """The type variables that the probe of an operator decides."""
    bound = {formal.type_str for formal in schema.inputs}
    given = PROBES[schema.name].named.values() if schema.name in PROBES else ()
    return bound | {v.variable for v in given if isinstance(v, ElementType | Filling)}


def _usual(elements: Sequence[int]) -> int:
    wanted = [TensorProto.DataType.Value(name) for name in _USUAL]
    return next((element for element in wanted if element in elements), elements[0])


def _usual_model(schema: defs.OpSchema, opset: int) -> onnx.ModelProto:
    usual = {name: _usual(elements) for name, elements in _allowed(schema).items() if elements}
    return schema_model(schema, opset, usual)


def _imports(model: onnx.ModelProto) -> bool:
    return _imported(model) is not None


def _imported(model: onnx.ModelProto) -> OperatorGraph | None:
    try:
        return import_model(model)
    except GraphflowError:
        return None


def _of_variables(types: Mapping[str, Sequence[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((variable, tuple(names)) for variable, names in types.items() if names)
