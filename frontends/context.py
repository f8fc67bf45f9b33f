"""The operator graph while a model is imported, and what is known of its tensors so far.

In: what operators' functions and rewrites add.  Out: the graph, the constants, the types that ONNX
infers, the names that are taken.  What always holds: what was added behind a `mark` can be taken
back by `undo`, since every table keeps the order in which its entries came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from graphflow.dtypes import DTYPES
from graphflow.errors import UnsupportedOp
from graphflow.frontends.folding import Folding
from graphflow.frontends.inference import output_types, tensor_type
from graphflow.frontends.protos import declared_type
from graphflow.frontends.steps import Step, names_read
from graphflow.graph import Array, OperatorGraph, Removed


@dataclass(frozen=True, slots=True)
class Tensors:
    """An ONNX sequence whose length is known: the element type and the tensors in it."""

    elem_type: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """How much of a graph there was at some time, in numbers of what comes one after another."""

    values: int
    nodes: int
    removed: int
    known: int
    sequences: int
    optionals: int
    objects: int
    trimmed: int
    widened: int
    unrolled: int


@dataclass(slots=True)
class Context:
    """The graph under construction, and the constants that operators may ask for."""

    graph: OperatorGraph
    opset: int
    declared: dict[str, tuple[str, tuple[int | None, ...] | None]]
    """dtype and shape of each tensor, as ONNX infers them; None where it does not know."""
    read: set[str]
    """Tensors that a node reads or the graph returns."""
    taken: set[str] = field(default_factory=set)
    """Names that no new tensor may have."""
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto] = field(default_factory=dict)
    """The model's own functions by domain, name and overload."""
    folding: Folding = field(default_factory=Folding)
    sequences: dict[str, Tensors] = field(default_factory=dict)
    optionals: dict[str, str | None] = field(default_factory=dict)
    """For each optional the tensor or sequence in it; None where it is empty."""
    unrolled: int = 0
    """Nodes that unrolled loops have brought."""
    consumed: set[str] = field(default_factory=set)
    """Tensors that a node reads."""
    objects: dict[str, str] = field(default_factory=dict)
    """Tensors that no kernel can take, and what they are; only foreign nodes read them."""
    widened: dict[str, str] = field(default_factory=dict)
    """Tensors of 16 bits that were cast to float32, and the names of those casts."""
    node_names: set[str] = field(default_factory=set)
    node_order: list[str] = field(default_factory=list)
    """The same, in the order they were given."""
    types: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)
    """Types of tensors of the model and its bodies, as ONNX infers them."""
    is_inferred: bool = True
    """Whether ONNX inferred the types of the model as a whole."""
    trimmed: list[tuple[str, int, str]] = field(default_factory=list)
    """Outputs of the model that a run cuts along an axis, to the extent in an integer tensor."""

    @property
    def known(self) -> dict[str, Array]:
        """Contents of tensors that cannot change, as far as they are computed."""
        return self.folding.known

    def add_constant(self, name: str, array: Array) -> None:
        """Add a tensor whose contents cannot change.

        One of an element type that kernels do not have is no value of the graph; what is computed
        from it may be.
        """
        if array.dtype.name in DTYPES:
            self.graph.add_initializer(name, array)
        else:
            self.graph.removed[name] = Removed(f"a constant of dtype {array.dtype}")
        self.known[name] = array

    def add_sequence(self, name: str, sequence: Tensors) -> None:
        """Note the tensors of a sequence, which is no value of the graph."""
        self.sequences[name] = sequence
        self.graph.removed[name] = Removed(f"a sequence of {len(sequence.names)} tensors")

    def add_optional(self, name: str, element: str | None) -> None:
        """Note what an optional holds, which is no value of the graph."""
        self.optionals[name] = element
        self.graph.removed[name] = Removed("an optional", element)

    def type_of(self, name: str) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
        """Element type and shape of a tensor; `UnsupportedOp` where `name` is none."""
        array = self.known.get(name)
        if array is not None:
            return array.dtype, array.shape
        if name not in self.graph.values:
            raise UnsupportedOp(
                f"{name} is no tensor, which is not built here; take the tensors out of it"
            )
        value = self.graph.values[name]
        return DTYPES[value.dtype], value.shape

    def declare(self, step: Step) -> None:
        """Ask ONNX for the types of what `step` makes; `InvalidModel` where it refuses the node.

        Nothing is asked where the type of something that the node reads is not known.
        """
        reads = names_read(step.node)
        if any(name not in self.known and name not in self.graph.values for name in reads):
            return
        types = {name: tensor_type(*self.type_of(name)) for name in reads}
        arrays = {name: self.known[name] for name in reads if name in self.known}
        for name, found in output_types(step, types, arrays).items():
            self.types[name] = onnx.ValueInfoProto(name=name, type=found)
            described = declared_type(self.types[name])
            if described is not None:
                self.declared[name] = described

    def mark(self) -> Mark:
        """What there is now; see `undo`."""
        graph = self.graph
        return Mark(
            len(graph.values), len(self.node_order), len(graph.removed), len(self.known),
            len(self.sequences), len(self.optionals), len(self.objects), len(self.trimmed),
            len(self.widened), self.unrolled,
        )  # fmt: skip

    def undo(self, mark: Mark) -> None:
        """Take everything back that came after `mark`, the latest first."""
        graph = self.graph
        for name in reversed(self.node_order[mark.nodes :]):
            if name in graph:
                graph.remove(name)
            self.node_names.discard(name)
        del self.node_order[mark.nodes :]
        values = list(graph.values)[mark.values :]
        for name in values:
            graph.remove_value(name)
        graph.guards = tuple(guard for guard in graph.guards if guard.value in graph.values)
        del self.trimmed[mark.trimmed :]
        tables: tuple[tuple[dict[str, Any], int], ...] = (
            (graph.removed, mark.removed),
            (self.known, mark.known),
            (self.sequences, mark.sequences),
            (self.optionals, mark.optionals),
            (self.objects, mark.objects),
            (self.widened, mark.widened),
        )
        for table, length in tables:
            for name in list(table)[length:]:
                del table[name]
        self.unrolled = mark.unrolled

    def constant(self, name: str) -> Array | None:
        """The contents of a tensor, None where a run decides them; see `Folding.constant`."""
        return self.folding.constant(name)

    def unique_node_name(self, wanted: str) -> str:
        """`wanted`, or with a number behind it where a node has that name."""
        name, number = wanted, 0
        while name in self.node_names:
            number += 1
            name = f"{wanted}_{number}"
        self.node_names.add(name)
        self.node_order.append(name)
        return name

    def unique_tensor_name(self, wanted: str) -> str:
        """`wanted`, or with a number behind it where the model has such a tensor."""
        name, number = wanted, 0
        while name in self.graph.values or name in self.declared or name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name
