"""What is left to import: ONNX nodes, and questions that earlier nodes answer.

A model's nodes are imported in order.  A node with a body (a function, a branch, a loop) is
replaced by the nodes of that body, which stand in its place in the same list; so nothing recurses,
and a node of a body knows the opset that the body was written for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from graphflow.base.errors import InvalidModel

WRITTEN_FOR = 20
"""The opset of the nodes that graphflow's own rewrites make."""


@dataclass(frozen=True, slots=True)
class Step:
    """An ONNX node that is to be imported."""

    node: onnx.NodeProto
    name: str
    """Its name in messages; a node of a body has the name of its outer node in front."""
    opsets: Mapping[str, int]
    """The version of each operator set that the node was written for."""
    origin: str = ""
    """The outermost node whose body this node belongs to, as text; empty for the model's own."""
    guard: str = ""
    """The `If` node that may discard the results, as text: then the node must not fail."""
    depth: int = 0
    """The number of bodies around the node."""
    trusted: bool = False
    """Whether ONNX wrote the node: its bodies do not all agree with its own type inference."""

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


@dataclass(frozen=True, slots=True)
class After:
    """Steps that follow from what the steps in front of it give."""

    step: Step
    """The node whose body is imported."""
    reads: tuple[str, ...]
    """Tensors that must exist by then."""
    writes: tuple[str, ...]
    """Tensors that its steps make."""
    steps: Callable[[], Sequence[Item]]


Item: TypeAlias = Step | After


def derived(
    step: Step, op: str, inputs: Sequence[str], outputs: Sequence[str], part: str, **attributes: Any
) -> Step:
    """A node of the standard domain that does a part of what `step` says."""
    node = helper.make_node(op, inputs, outputs, **attributes)
    return Step(
        node,
        f"{step.name}/{part}",
        {"": WRITTEN_FOR},
        step.origin or str(step),
        step.guard,
        step.depth + 1,
        step.trusted,
    )


def names_in(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Every tensor name that occurs in `nodes` and in the graphs that they hold."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input, node.output)
        for graph in subgraphs(node):
            names.update(info.name for info in (*graph.input, *graph.output))
            names.update(tensor.name for tensor in graph.initializer)
            names.update(tensor.values.name for tensor in graph.sparse_initializer)
            names |= names_in(graph.node)
    names.discard("")
    return names


def names_read(proto: onnx.NodeProto) -> tuple[str, ...]:
    """The tensors of the graph that a node reads, in its subgraphs too; each once."""
    return tuple(dict.fromkeys(_names_read(proto)))


def _names_read(proto: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in proto.input if name)
    for graph in subgraphs(proto):
        own = {info.name for info in graph.input} | {t.name for t in graph.initializer}
        own.update(name for node in graph.node for name in node.output)
        inner = (name for node in graph.node for name in _names_read(node))
        outputs = (info.name for info in graph.output)
        yield from (name for name in (*inner, *outputs) if name not in own)


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs that are attributes of `node`."""
    graphs: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            graphs.append(attribute.g)
        graphs.extend(attribute.graphs)
    return graphs


def only_element(step: Step, array: NDArray[Any], role: str, kinds: str) -> int:
    """The element of `array`, numpy's kind of which is in `kinds`; `InvalidModel` where that has
    another type or not one element, with `role` for what it is to `step`."""
    require_only_element(step, array.dtype, array.shape, role, kinds)
    return int(array.reshape(()).item())


def require_only_element(
    step: Step, dtype: np.dtype[Any], shape: Sequence[int], role: str, kinds: str
) -> None:
    """`InvalidModel` where such a tensor is not one element of one of numpy's `kinds`."""
    if prod(shape) != 1 or dtype.kind not in kinds:
        wanted = "bool" if kinds == "b" else "integer"
        raise InvalidModel(
            f"{step}: {role} is {dtype.name}{list(shape)}; it has to be one {wanted}"
        )
