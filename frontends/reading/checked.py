"""The first check of a model, which may come from a stranger, before any other code reads it.

In: a proto that was parsed and nothing more.  Out: nothing, or `InvalidModel`.  What always holds
after the check: names are text, extents and attributes are in range, each tensor has as much data
as its extents require, the nesting of graphs is bounded, functions do not call themselves, and the
graph has a bounded size once functions are inlined.  onnx's own checker, inliner and shape
inference run after it, because the models that are refused here would crash or hang them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

import onnx

from graphflow.base.errors import InvalidModel
from graphflow.frontends.protos.payload import check_tensor, require_extents, text_of
from graphflow.frontends.protos.steps import graphs_of

DEEPEST = 24
"""The deepest nesting of graphs; protobuf itself parses about 33 levels."""

DEEPEST_CALL = 100
"""The deepest nesting of function calls; exporters nest about ten."""

MOST_NODES = 1_000_000
"""The most nodes that a model may have after its functions are expanded."""

_LARGEST = (1 << 31) - 1
_WINDOW = (1, _LARGEST)
_SIGNED = (-_LARGEST, _LARGEST)

FLAGS = (
    "allowzero", "antialias", "ceil_mode", "center_point_box", "count_include_pad",
    "exclude_outside", "exclusive", "input_forget", "interleaved", "inverse", "is_causal",
    "keepdims", "largest", "layout", "linear_before_reset", "new_axis", "noop_with_empty_axes",
    "onesided", "reverse", "saturate", "select_last_index", "sorted", "transA", "transB", "upper",
)  # fmt: skip
"""Integer attributes that are booleans.

Runtimes disagree about numbers other than 0 and 1: some take every number but 0 for true, others,
such as onnxruntime for `keepdims`, only 1.
"""

RANGES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("kernel_shape", "strides", "dilations", "group", "num_groups"), _WINDOW),
    **dict.fromkeys(("blocksize", "num_outputs", "hidden_size", "num_heads", "size"), _WINDOW),
    **dict.fromkeys(("pads", "axis", "axes", "batch_axis", "time_axis", "perm"), _SIGNED),
    **dict.fromkeys(("start_axis", "end_axis", "batch_dims"), _SIGNED),
    **dict.fromkeys(FLAGS, (0, 1)),
    **dict.fromkeys(("output_padding", "output_shape", "split"), (0, _LARGEST)),
}
"""Integer attributes of the standard domain that count or select, and their valid range."""

_TERM = rb"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
_EQUATION = re.compile(rb"%s(?:,%s)*(?:->%s)?" % (_TERM, _TERM, _TERM))
"""The syntax of an Einsum equation."""


def check_proto(proto: onnx.ModelProto, apart: Collection[int] = ()) -> None:
    """Raise `InvalidModel`, which says what is wrong and where, unless the model passes all
    checks.

    The initializers whose numbers are in `apart` lack data that was found to fit them.
    """
    versions: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = text_of(entry.domain, "the domain of an opset")
        domain = "" if domain == "ai.onnx" else domain
        _check_version(entry, "the model")
        if versions.setdefault(domain, entry.version) != entry.version:
            raise InvalidModel(
                f"the model imports the opsets {versions[domain]} and {entry.version} of the "
                f"domain {domain or 'ai.onnx'}; remove one"
            )
    text_of(proto.graph.name, "the name of the graph")
    _check_graph(proto.graph, "the graph", 0, False, apart)
    for function in proto.functions:
        where = f"the function {text_of(function.name, 'the name of a function')}"
        text_of(function.domain, f"the domain of {where}")
        for name in (*function.input, *function.output, *function.attribute):
            text_of(name, f"a name in {where}")
        for entry in function.opset_import:
            text_of(entry.domain, f"the domain of an opset of {where}")
            _check_version(entry, where)
        _check_nodes(function.node, where, 0, True)
        for attribute in function.attribute_proto:
            _check_attribute(attribute, where, "", 0, True)
        for info in function.value_info:
            _check_info(info, where)
    _check_calls(proto)


def _check_version(entry: onnx.OperatorSetIdProto, where: str) -> None:
    """Refuse versions that onnx's own code, which has 32 bits for them, cannot take."""
    if not -_LARGEST <= entry.version <= _LARGEST:
        raise InvalidModel(
            f"{where} imports opset {entry.version} of the domain {entry.domain or 'ai.onnx'}, "
            "which no operator set has; correct its opset_import"
        )


def tensors_of(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All dense tensors of a model: initializers and attributes, in subgraphs and functions too."""
    yield from _graph_tensors(proto.graph, 0)
    for function in proto.functions:
        yield from _node_tensors(function.node, 0)


def _graph_tensors(graph: onnx.GraphProto, depth: int) -> Iterator[onnx.TensorProto]:
    _check_depth(depth)
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node, depth)


def _node_tensors(nodes: Sequence[onnx.NodeProto], depth: int) -> Iterator[onnx.TensorProto]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for graph in graphs_of(attribute):
            yield from _graph_tensors(graph, depth + 1)


# Parts of a model -------------------------------------------------------------------------------


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise InvalidModel(
            f"the model has graphs within graphs, more than {DEEPEST} deep; simplify its control "
            "flow"
        )


def _check_graph(
    graph: onnx.GraphProto,
    where: str,
    depth: int,
    in_function: bool,
    apart: Collection[int] = (),
) -> None:
    _check_depth(depth)
    for info in (*graph.input, *graph.output, *graph.value_info):
        _check_info(info, where)
    for number, tensor in enumerate(graph.initializer):
        check_tensor(tensor, f"{where}: initializer", number in apart)
    for sparse in graph.sparse_initializer:
        _check_sparse(sparse, f"{where}: sparse initializer")
    _check_nodes(graph.node, where, depth, in_function)


def _check_nodes(
    nodes: Sequence[onnx.NodeProto], where: str, depth: int, in_function: bool
) -> None:
    for index, node in enumerate(nodes):
        op = text_of(node.op_type, f"{where}: the operator of node {index}")
        name = text_of(node.name, f"{where}: the name of node {index} ({op})")
        what = f"{op} node {name or index}"
        domain = text_of(node.domain, f"{what}: its domain")
        for tensor in (*node.input, *node.output):
            text_of(tensor, f"{what}: the name of a tensor")
        seen = set[str]()
        for attribute in node.attribute:
            _check_attribute(attribute, what, domain, depth, in_function)
            if attribute.name in seen:
                raise InvalidModel(f"{what} has the attribute {attribute.name} twice")
            seen.add(attribute.name)
            if op == "Einsum" and attribute.name == "equation":
                _check_equation(attribute.s, what)


def _check_attribute(
    attribute: onnx.AttributeProto, what: str, domain: str, depth: int, in_function: bool
) -> None:
    name = text_of(attribute.name, f"{what}: the name of an attribute")
    text_of(attribute.ref_attr_name, f"{what}: the name that its attribute {name} refers to")
    if attribute.ref_attr_name and not in_function:
        raise InvalidModel(
            f"{what}: attribute {name} refers to {attribute.ref_attr_name}, an attribute of a "
            "function, and stands outside of one"
        )
    if domain in ("", "ai.onnx") and name in RANGES:
        low, high = RANGES[name]
        for value in (attribute.i, *attribute.ints) if attribute.HasField("i") else attribute.ints:
            if not low <= value <= high:
                raise InvalidModel(
                    f"{what}: attribute {name} has {value}, which is not from {low} to {high}"
                )
    if attribute.HasField("t"):
        check_tensor(attribute.t, f"{what}: attribute {name}")
    for tensor in attribute.tensors:
        check_tensor(tensor, f"{what}: attribute {name}")
    for sparse in _sparse_of(attribute):
        _check_sparse(sparse, f"{what}: attribute {name}")
    if attribute.HasField("tp"):
        _check_type(attribute.tp, f"{what}: attribute {name}")
    for kind in attribute.type_protos:
        _check_type(kind, f"{what}: attribute {name}")
    for graph in graphs_of(attribute):
        _check_graph(graph, f"{what}: graph {name}", depth + 1, in_function)


def _check_equation(equation: bytes, what: str) -> None:
    """Refuse malformed Einsum equations: on some of them ONNX's inference does not terminate."""
    if not _EQUATION.fullmatch(equation):
        raise InvalidModel(
            f"{what}: {equation!r} is no equation; an equation has letters for axes, at most one "
            "`...` in each operand, commas between operands, and at most one `->` before the result"
        )


def _sparse_of(attribute: onnx.AttributeProto) -> tuple[onnx.SparseTensorProto, ...]:
    one = (attribute.sparse_tensor,) if attribute.HasField("sparse_tensor") else ()
    return (*one, *attribute.sparse_tensors)


def _check_sparse(sparse: onnx.SparseTensorProto, what: str) -> None:
    require_extents(sparse.dims, what)
    check_tensor(sparse.values, what)
    check_tensor(sparse.indices, what)


def _check_info(info: onnx.ValueInfoProto, where: str) -> None:
    name = text_of(info.name, f"{where}: the name of a tensor")
    if info.HasField("type"):
        _check_type(info.type, f"{where}: tensor {name}")


def _check_type(kind: onnx.TypeProto, what: str) -> None:
    """Check that fixed extents are in range; a negative extent counts as unknown."""
    match kind.WhichOneof("value"):
        case "tensor_type" | "sparse_tensor_type" as which:
            tensor = getattr(kind, which)
            for dim in tensor.shape.dim:
                text_of(dim.dim_param, f"{what}: the name of a dimension")
            fixed = [dim.dim_value for dim in tensor.shape.dim if dim.HasField("dim_value")]
            require_extents([n for n in fixed if n >= 0], what)
        case "sequence_type" | "optional_type" as which:
            _check_type(getattr(kind, which).elem_type, what)
        case "map_type":
            _check_type(kind.map_type.value_type, what)


# Functions --------------------------------------------------------------------------------------

_Key: TypeAlias = "tuple[str, str, str]"


def _check_calls(proto: onnx.ModelProto) -> None:
    """Raise `InvalidModel` if functions call themselves or expand to too many nodes."""
    bodies: dict[_Key, onnx.FunctionProto] = {
        (function.domain, function.name, function.overload): function
        for function in proto.functions
    }
    sizes: dict[_Key, int] = {}
    calls: list[_Key] = []

    def size(nodes: Sequence[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type, node.overload)
            total += expanded(key) if key in bodies else 1
            inner = (graph for attribute in node.attribute for graph in graphs_of(attribute))
            total += sum(size(graph.node) for graph in inner)
        return total

    def expanded(key: _Key) -> int:
        if key in calls or len(calls) >= DEEPEST_CALL:
            chain = " calls ".join(name for _, name, _ in (*calls, key)[-5:])
            raise InvalidModel(
                f"functions of the model call themselves, or nest more than {DEEPEST_CALL} deep: "
                f"{chain}; only an acyclic nesting can be expanded"
            )
        if key not in sizes:
            calls.append(key)
            sizes[key] = size(bodies[key].node)
            calls.pop()
        return sizes[key]

    if not bodies:
        return
    total = size(proto.graph.node)
    if max(total, *map(expanded, bodies)) > MOST_NODES:
        raise InvalidModel(
            f"the model's functions expand to more than {MOST_NODES} nodes; simplify the model"
        )
