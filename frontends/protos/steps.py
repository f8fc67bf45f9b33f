"""The work list of an import: nodes to import, and expansions that wait for results of earlier
nodes.

Nodes are imported in order.  A node with a body (a function, a branch, a loop) is replaced in the
list by the nodes of that body, so nothing recurses, and each node keeps the opset that its body was
written for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx
from msgspec import Struct
from numpy.typing import NDArray
from onnx import helper

from graphflow.base.errors import InvalidModel

STANDARD = ("", "ai.onnx")
"""The names of the standard domain."""

WRITTEN_FOR = 20
"""The opset for which graphflow's own rewrites are written."""

ANY_NUMBER = ""
"""Accepts all dtypes, where otherwise numpy's letters for kinds of dtypes are listed."""


class Guard(Struct, frozen=True):
    """An `If` whose condition is not known, so that both of its branches are computed."""

    title: str
    """The outermost such node around a step, for messages."""
    conditions: tuple[str, ...]
    """The conditions of all such nodes, the outermost first."""

    def __str__(self) -> str:
        return self.title


class ImportStep(Struct, frozen=True):
    """An ONNX node that is to be imported."""

    node: onnx.NodeProto
    name: str
    """The name for messages; nodes of a body have the outer node's name as a prefix."""
    opsets: Mapping[str, int]
    """The version of each operator set that the node was written for."""
    origin: str = ""
    """The outermost node whose body contains this node, as text; empty for the model's own
    nodes."""
    guard: Guard | None = None
    """The `If` nodes that may discard the results of this node, which therefore must not fail."""
    depth: int = 0
    """The number of bodies that enclose the node."""
    trusted: bool = False
    """Whether the node is from a function that ONNX defines; some of these contradict ONNX's own
    type inference."""

    @property
    def op(self) -> str:
        """The operator's name; those outside the standard domain have the domain in front."""
        return self.node.op_type if self.is_standard else f"{self.domain}.{self.node.op_type}"

    @property
    def domain(self) -> str:
        """The operator's domain, '' for the standard one."""
        return "" if self.node.domain == "ai.onnx" else self.node.domain

    @property
    def key(self) -> tuple[str, str]:
        """The operator's domain and name."""
        return self.domain, self.node.op_type

    @property
    def is_standard(self) -> bool:
        """Whether the operator is of ONNX's standard domain."""
        return self.domain == ""

    @property
    def opset(self) -> int:
        """The version of the operator's own set; 1 where none is imported."""
        return self.opsets.get(self.domain, 1)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that are given."""
        return tuple(name for name in self.node.input if name)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that have a name."""
        return tuple(name for name in self.node.output if name)

    def input(self, position: int) -> str:
        """The name of the input at `position`, '' where it is not given."""
        return self.node.input[position] if position < len(self.node.input) else ""

    def attribute(self, name: str, default: Any = None) -> Any:
        """The attribute's Python value, `default` where it is not given."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def __str__(self) -> str:
        return f"{self.op} node {self.name}"


class After(Struct, frozen=True):
    """Steps that can be made only when earlier steps have been imported."""

    step: ImportStep
    """The node whose body is imported."""
    reads: tuple[str, ...]
    """The tensors that the steps depend on."""
    writes: tuple[str, ...]
    """The tensors that the steps make."""
    steps: Callable[[], Sequence[Item]]


Item: TypeAlias = ImportStep | After


def derived(
    step: ImportStep,
    op: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    part: str,
    **attributes: Any,
) -> ImportStep:
    """A node of the standard domain that computes a part of `step`."""
    node = helper.make_node(op, inputs, outputs, **attributes)
    return ImportStep(
        node,
        f"{step.name}/{part}",
        {"": WRITTEN_FOR},
        step.origin or str(step),
        step.guard,
        step.depth + 1,
        step.trusted,
    )


def tensor_names_in(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """All tensor names in `nodes` and in their subgraphs."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input, node.output)
        for graph in subgraphs(node):
            names.update(info.name for info in (*graph.input, *graph.output))
            names.update(tensor.name for tensor in graph.initializer)
            names.update(tensor.values.name for tensor in graph.sparse_initializer)
            names |= tensor_names_in(graph.node)
    names.discard("")
    return names


def names_read(proto: onnx.NodeProto) -> tuple[str, ...]:
    """The tensors of the enclosing graph that a node and its subgraphs read, each once."""
    return tuple(dict.fromkeys(_names_read(proto)))


def _names_read(proto: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in proto.input if name)
    for graph in subgraphs(proto):
        yield from names_read_inside(graph)


def names_read_inside(graph: onnx.GraphProto) -> Iterator[str]:
    """The tensors of the enclosing graph that a subgraph reads, some several times."""
    own = {info.name for info in graph.input} | {t.name for t in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    inner = (name for node in graph.node for name in _names_read(node))
    outputs = (info.name for info in graph.output)
    yield from (name for name in (*inner, *outputs) if name not in own)


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs among the attributes of `node`."""
    return [graph for attribute in node.attribute for graph in graphs_of(attribute)]


def graphs_of(attribute: onnx.AttributeProto) -> tuple[onnx.GraphProto, ...]:
    """The graphs that an attribute holds."""
    return (attribute.g, *attribute.graphs) if attribute.HasField("g") else (*attribute.graphs,)


def versions_of(opsets: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The version of each operator set by its domain, '' for the standard one."""
    return {"" if e.domain == "ai.onnx" else e.domain: e.version for e in opsets}


def named_apart(names: Sequence[str], sources: Sequence[str]) -> dict[str, str]:
    """The source of each output that has a name, and another one than its source."""
    pairs = zip(names, sources, strict=True)
    return {name: source for name, source in pairs if name not in ("", source)}


def existing_axis(subject: ImportStep | str, axis: int, rank: int) -> int:
    """An axis of a tensor of this rank, counted from the front.

    `InvalidModel`, which begins with the node that is the `subject`, where it does not exist.
    """
    if not -rank <= axis < rank:
        raise InvalidModel(f"{subject}: axis {axis} does not exist in rank {rank}")
    return axis % rank


def only_element(
    subject: ImportStep | str, array: NDArray[Any], role: str, kinds: str = ANY_NUMBER
) -> Any:
    """The one element of `array` as a Python number; `InvalidModel` where it has none or several,
    or its dtype is of none of numpy's `kinds`.

    The message says what the array is to `subject`, a node, by `role`.
    """
    require_only_element(subject, array.dtype, array.shape, role, kinds)
    return array.reshape(()).item()


def require_only_element(
    subject: ImportStep | str, dtype: np.dtype[Any], shape: Sequence[int], role: str, kinds: str
) -> None:
    """Raise `InvalidModel` as `only_element` does, for a tensor of unknown contents."""
    if prod(shape) != 1 or (kinds != ANY_NUMBER and dtype.kind not in kinds):
        wanted = {"b": "bool", "iu": "integer"}.get(kinds, "number")
        raise InvalidModel(
            f"{subject}: {role} is {dtype.name}{list(shape)}; it has to be one {wanted}"
        )
