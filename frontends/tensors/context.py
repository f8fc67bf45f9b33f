"""The operator graph while a model is imported, and what is known of its tensors so far.

In: what operators' functions and rewrites add.  Out: the graph, the constants, the types that ONNX
infers, the names that are taken.  What always holds: what was added behind a `mark` can be taken
back by `undo`, since every table keeps the order in which its entries came.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from msgspec import Struct

from graphflow.base.dtypes import DTYPES
from graphflow.base.errors import UnsupportedOp
from graphflow.base.sizes import Size, SizeStep
from graphflow.frontends.protos.inference import output_types, tensor_type
from graphflow.frontends.protos.protos import declared_type
from graphflow.frontends.protos.steps import ImportStep, names_read
from graphflow.frontends.reading.recorded import Described, shapes_agree
from graphflow.frontends.tensors.data_extents import Counts, SizedArray
from graphflow.frontends.tensors.folding import Folding
from graphflow.frontends.tensors.size_sums import SizeSum
from graphflow.graph import Array, OperatorGraph, Removed, Value
from graphflow.tir import PrimFunc


class TensorSequence(Struct, frozen=True):
    """A sequence of known length: its element type and the names of its tensors."""

    elem_type: int
    names: tuple[str, ...]


class Mark(Struct, frozen=True):
    """The state of an import at some time, for `ImportContext.undo`."""

    values: int
    nodes: int
    unrolled: int
    lengths: tuple[int, ...]
    """The length of each of the context's tables."""


@dataclass(slots=True)
class ImportContext:
    """The operator graph under construction, and what is known of the model's tensors."""

    graph: OperatorGraph
    opset: int
    declared: dict[str, Described]
    """dtype and shape of each tensor as ONNX infers them; the shape, or an extent, is None if
    unknown."""
    read: set[str]
    """Tensors that a node reads or that the graph returns."""
    taken: set[str] = field(default_factory=set)
    """Names that no new tensor may have."""
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto] = field(default_factory=dict)
    """The model's own functions by domain, name and overload."""
    folding: Folding = field(default_factory=Folding)
    sequences: dict[str, TensorSequence] = field(default_factory=dict)
    boxes: dict[str, str] = field(default_factory=dict)
    """The sequences of which a run decides the length: for each the tensor that has its tensors,
    which have one shape, as rows."""
    optionals: dict[str, str | None] = field(default_factory=dict)
    """For each optional the name of the tensor or sequence in it; None if it is empty."""
    unrolled: int = 0
    """How many nodes were added by unrolling loops."""
    consumed: set[str] = field(default_factory=set)
    """Tensors that a node reads."""
    counts_lost: str = ""
    """Why no tensor that a node reads may have an extent that a run decides; empty if it may."""
    objects: dict[str, str] = field(default_factory=dict)
    """Values that only foreign nodes can read, with a description: strings, sequences, tensors
    whose shape is not known."""
    widened: dict[str, str] = field(default_factory=dict)
    """For each 16-bit float tensor that was cast to float32, the name of the cast tensor."""
    node_names: set[str] = field(default_factory=set)
    node_order: list[str] = field(default_factory=list)
    """`node_names` in the order in which they were given."""
    node_numbers: dict[str, int] = field(default_factory=dict)
    tensor_numbers: dict[str, int] = field(default_factory=dict)
    """The last number that was put behind a name to make it unique."""
    types: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)
    """Types of tensors of the model and its bodies, as ONNX infers them."""
    is_body: bool = False
    """Whether the graph is that of a body, of whose inputs no caller knows the values."""
    is_inferred: bool = True
    """Whether ONNX could infer the types of the whole model at once."""
    interface: Mapping[str, Described] = field(default_factory=dict)
    """What the model states of its outputs, unless the caller chose extents of inputs; binding."""
    recorded: Mapping[str, Described] = field(default_factory=dict)
    """What the model states of its other tensors, which is not."""
    misinferred: set[str] = field(default_factory=set)
    """Outputs of nodes whose shapes ONNX is known to infer wrongly at times."""
    contradicted: bool = False
    """Whether a recorded or inferred shape contradicts what its node computes."""
    counted: dict[str, Counts] = field(default_factory=dict)
    """The tensors that have room for more elements than a run gives them."""
    filled: dict[str, Mapping[int, float]] = field(default_factory=dict)
    """By counted tensor the axes along which its kernel writes all elements, with what it writes
    behind those that a run gives."""
    sizes: dict[str, Size] = field(default_factory=dict)
    """The tensors that hold sizes: how many elements a run gives along axes of its inputs, and
    sums of these."""
    data_sizes: dict[str, None] = field(default_factory=dict)
    """The sizes among these that kernels compute: data decides them, so no run knows them before
    its first step, and in a body each execution may have another one."""
    sums: dict[SizeSum, str] = field(default_factory=dict)
    """The tensors that hold sums of sizes, while they are in the graph."""
    summed: dict[str, SizeSum] = field(default_factory=dict)
    """The sums that tensors hold."""
    nonnegative: list[SizeSum] = field(default_factory=list)
    """Sums of sizes that are not negative in any run that satisfies the relations of the graph."""
    limiting: list[str] = field(default_factory=list)
    """Tensors that hold sizes which are sums of others, and may limit these more than their own
    bounds do."""
    sized_values: dict[str, SizedArray] = field(default_factory=dict)
    """Integer tensors with elements that are sizes; only nodes that move them or make tensors of
    such a shape read them."""

    steps: dict[str, SizeStep] = field(default_factory=dict)
    """Of sizes of inputs that are multiples of a step, by the tensor with the number of steps."""
    lesser_counts: dict[tuple[int | str, int | str], str] = field(default_factory=dict)
    """For two counts, or a count and a number, the tensor with the lesser of both, while it is in
    the graph."""

    shared: dict[tuple[Hashable, ...], str] = field(default_factory=dict)
    """Tensors that several nodes, or rewrites of these, share, by what they are."""

    import_steps: Callable[[ImportContext, Sequence[ImportStep]], None] | None = None
    """Imports steps into another context, that of a body, without a fallback; None where bodies
    cannot become graphs of their own."""

    kernels: dict[PrimFunc, PrimFunc] = field(default_factory=dict)
    """Of equal kernels the first one: what comes behind knows a kernel sooner than an equal one."""

    @property
    def known(self) -> dict[str, Array]:
        """The contents of tensors that are constant, as far as they have been computed."""
        return self.folding.known

    def add_constant(self, name: str, array: Array) -> None:
        """Add a constant tensor.

        If kernels do not have its element type it is no value of the graph, but values of the graph
        may be computed from it at compile time.
        """
        if array.dtype.name in DTYPES:
            self.graph.add_initializer(name, array)
        else:
            self.graph.removed[name] = Removed(f"a constant of dtype {array.dtype}")
        self.known[name] = array

    def new_constant(self, wanted: str, array: Array) -> str:
        """Add a constant tensor, called `wanted` where that name is free; returns its name."""
        name = self.unique_tensor_name(wanted)
        self.add_constant(name, array)
        return name

    def add_sized(self, name: str, value: SizedArray) -> None:
        """Record a tensor of shape arithmetic; it is a constant if no element of it is a size."""
        if value.sizes:
            self.sized_values[name] = value
            self.graph.removed[name] = Removed("a shape, of which a run decides elements")
        else:
            self.add_constant(name, value.array)

    def add_sequence(self, name: str, sequence: TensorSequence) -> None:
        """Record the tensors of a sequence; a sequence is no value of the graph."""
        self.sequences[name] = sequence
        self.graph.removed[name] = Removed(f"a sequence of {len(sequence.names)} tensors")

    def add_optional(self, name: str, element: str | None) -> None:
        """Record what an optional holds; an optional is no value of the graph."""
        self.optionals[name] = element
        self.graph.removed[name] = Removed("an optional", element)

    def type_of(self, name: str) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
        """Element type and shape of a tensor; `UnsupportedOp` if `name` is a sequence or an
        optional."""
        array = self.known.get(name)
        if array is not None:
            return array.dtype, array.shape
        if name not in self.graph.values:
            raise UnsupportedOp(
                f"{name} is not a tensor, which is not built here; use the tensors in it one by one"
            )
        value = self.graph.values[name]
        return DTYPES[value.dtype], value.shape

    def declare(self, step: ImportStep) -> None:
        """Infer the types of the outputs of `step` by ONNX, and record them.

        Does nothing if the type of an input is not known.  Raises `InvalidModel` if ONNX refuses
        the node.
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

    def expected(
        self, name: str, dtype: str, shape: tuple[int, ...], open_axis: int | None
    ) -> Described:
        """The dtype and shape that a result has to have.

        That is what the model states of its outputs, and else what ONNX infers.  If ONNX is known
        to be wrong about this result, or inferred from recorded shapes that contradict it, or
        earlier ones, it is the result's own shape, and from then on ONNX infers node by node.
        """
        if name in self.interface and not shapes_agree(self.interface[name][1], shape, open_axis):
            return self.interface[name]
        declared_dtype, declared = self.declared.get(name, (dtype, None))
        if shapes_agree(declared, shape, open_axis):
            return declared_dtype, declared
        recorded = self.recorded.get(name)
        is_wrong = recorded is not None and not shapes_agree(recorded[1], shape, open_axis)
        if not is_wrong and name not in self.misinferred and not self.contradicted:
            return declared_dtype, declared
        self.contradicted, self.is_inferred = True, False
        type_proto = tensor_type(DTYPES[dtype], shape)
        self.types[name] = onnx.ValueInfoProto(name=name, type=type_proto)
        self.declared[name] = declared_dtype, shape
        return self.declared[name]

    @property
    def _tables(self) -> tuple[dict[Any, Any], ...]:
        """What is known of tensors by name, in the order in which it became known."""
        return (
            self.graph.removed, self.known, self.sequences, self.optionals, self.objects,
            self.counted, self.widened, self.boxes, self.sized_values, self.sizes, self.summed,
            self.shared, self.data_sizes,
        )  # fmt: skip

    def elements_along(self, name: str, axis: int) -> int | str:
        """How many elements a run gives of a tensor along an axis: a number, or the tensor that
        counts them."""
        return self.counted.get(name, {}).get(axis, self.graph.values[name].shape[axis])

    def mark(self) -> Mark:
        """The current state, for `undo`."""
        lengths = tuple(map(len, self._tables))
        return Mark(len(self.graph.values), len(self.node_order), self.unrolled, lengths)

    def undo(self, mark: Mark) -> None:
        """Remove everything that was added after `mark`."""
        graph = self.graph
        for name in reversed(self.node_order[mark.nodes :]):
            if name in graph:
                graph.remove(name)
            self.node_names.discard(name)
        del self.node_order[mark.nodes :]
        self.node_numbers.clear()  # names are free again
        for name in list(graph.values)[mark.values :]:
            graph.remove_value(name)
        called = {node.func.callee for node in graph.nodes} if graph.regions else set()
        for name in [name for name in graph.regions if name not in called]:
            del graph.regions[name]
        graph.guards = tuple(guard for guard in graph.guards if guard.value in graph.values)
        graph.derived = tuple(one for one in graph.derived if one.tensor in graph.values)
        graph.set_inputs(name for name in graph.inputs if name in graph.values)
        for table, length in zip(self._tables, mark.lengths, strict=True):
            for name in list(table)[length:]:
                del table[name]
        self.unrolled = mark.unrolled

    def constant(self, name: str) -> Array | None:
        """The contents of a tensor; None if a run decides them.  See `Folding.constant`."""
        return self.folding.constant(name)

    def counted_values(self) -> dict[Value, Counts]:
        """The counted tensors as values of the graph, without axes whose elements are all written,
        and without sizes that may be more than there is room for."""
        values = self.graph.values
        return {
            values[name]: {
                axis: count
                for axis, count in counts.items()
                if axis not in self.filled.get(name, {})
                if (size := self.sizes.get(count)) is None
                or 0 <= size.lo <= size.hi <= values[name].shape[axis]
            }
            for name, counts in self.counted.items()
        }

    def unique_node_name(self, wanted: str) -> str:
        """`wanted`, followed by a number if a node has that name already."""
        name = _numbered(wanted, self.node_numbers, lambda name: name in self.node_names)
        self.node_names.add(name)
        self.node_order.append(name)
        return name

    def unique_tensor_name(self, wanted: str) -> str:
        """`wanted`, followed by a number if the model has a tensor of that name."""
        values = self.graph.values
        name = _numbered(
            wanted,
            self.tensor_numbers,
            lambda name: name in self.taken or name in values or name in self.declared,
        )
        self.taken.add(name)
        return name


def _numbered(wanted: str, numbers: dict[str, int], is_taken: Callable[[str], bool]) -> str:
    """`wanted`, followed by the lowest free number if it is taken; all below `numbers[wanted]` are.

    Without that memory, n names of one kind would take n² steps.
    """
    name = wanted
    while is_taken(name):
        numbers[wanted] = numbers.get(wanted, 0) + 1
        name = f"{wanted}_{numbers[wanted]}"
    return name
