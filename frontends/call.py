"""One ONNX node while it is imported, and what is known of the graph so far.

In: a node proto.  Out: kernels in the operator graph.  What always holds: an operator's function
that returns has read every attribute the node carries (one that it did not read is refused by
name), and every tensor that it made has the shape and dtype that ONNX's own inference gave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import numpy_helper

from graphflow.base.dtypes import DTYPES, HALVES
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends.folding import Folding
from graphflow.frontends.halves import WIDE, moved_as_stored
from graphflow.frontends.inference import output_types, tensor_type
from graphflow.frontends.steps import Step, names_read
from graphflow.frontends.values import contents_missing
from graphflow.graph import Array, Node, OperatorGraph, Removed, Value
from graphflow.kernels.definitions import cast
from graphflow.tir import PrimFunc


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


def check_dtype(what: str, dtype: str) -> None:
    """Raise `UnsupportedOp` where kernels have no such element type."""
    if dtype not in DTYPES:
        raise UnsupportedOp(
            f"{what} has dtype {dtype}, which is not built; use one of {', '.join(DTYPES)}"
        )


class Call:
    """An ONNX node: typed attributes, inputs by position, and `emit` for the kernels it becomes."""

    def __init__(self, step: Step, context: Context) -> None:
        proto = step.node
        self.context = context
        self.op = proto.op_type
        self.opset = step.opset
        """The opset that the node was written for: the model's, or that of a function."""
        self._trusted = step.trusted
        self.name = context.unique_node_name(step.name)
        self.inputs = tuple(proto.input)
        self.outputs = tuple(proto.output)
        self._attributes = {a.name: a for a in proto.attribute}
        self._unread = dict.fromkeys(self._attributes)

    def attribute(self, name: str, default: Any = None) -> Any:
        """The attribute's Python value; strings are decoded; `default` where it is not given."""
        self._unread.pop(name, None)
        if name not in self._attributes:
            return default
        value = onnx.helper.get_attribute_value(self._attributes[name])
        if not isinstance(value, bytes):
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidModel(
                f"{self.op} node {self.name}: attribute {name} is {value!r}, which is not UTF-8"
            ) from None

    def required(self, name: str) -> Any:
        """The attribute's value; `InvalidModel` where it is missing."""
        value = self.attribute(name)
        if value is None:
            raise InvalidModel(f"{self.op} node {self.name} lacks its attribute {name}")
        return value

    def has(self, position: int) -> bool:
        """Whether the optional input is given."""
        return position < len(self.inputs) and self.inputs[position] != ""

    def value(self, position: int) -> Value:
        """The input tensor at `position`; a float of 16 bits is given as float32."""
        value = self._stored_value(position)
        return replace(value, dtype=WIDE) if value.dtype in HALVES else value

    def _stored_value(self, position: int) -> Value:
        if not self.has(position):
            raise InvalidModel(f"{self.op} node {self.name} lacks its input {position}")
        name = self.inputs[position]
        value = self.context.graph.values.get(name)
        if value is not None:
            return value
        if name not in self.context.known:
            self.refuse(f"input {name} is no tensor", "take the tensors out of it in the model")
        # Only constants of element types that kernels do not have are no values of the graph.
        dtype = self.context.known[name].dtype.name
        return self.refuse(f"input {name} has dtype {dtype}", f"use one of {', '.join(DTYPES)}")

    def stored_dtype(self, position: int = 0) -> str:
        """The dtype of an input, floats of 16 bits included; for what converts between dtypes."""
        return self._stored_value(position).dtype

    def shape(self, position: int) -> tuple[int, ...]:
        """The logical shape of an input."""
        return self.value(position).shape

    def dtype(self, position: int = 0) -> str:
        """The dtype in which an input is computed with: float32 for floats of 16 bits."""
        return self.value(position).dtype

    def known(self, position: int) -> Array | None:
        """The contents of an input where they are known at compile time."""
        array = self.context.known.get(self.inputs[position]) if self.has(position) else None
        return array.astype(WIDE) if array is not None and array.dtype.name in HALVES else array

    def constant(self, position: int, role: str, rank: int | None = None) -> Array:
        """The contents of an input that decides shapes.

        `ValuesNeeded` where they follow from values of graph inputs that are not known,
        `UnsupportedOp` where they cannot be found out, `InvalidModel` where the input has another
        rank than the one given; bodies that ONNX itself gives to operators do not all keep to it.
        """
        array = self.context.constant(self.inputs[position]) if self.has(position) else None
        if array is None:
            tensor = self.value(position).name
            asked = f"{self.op} node {self.name}: input {tensor} ({role})"
            raise contents_missing(self.context.graph, self.context.known, tensor, asked)
        if rank is not None and array.ndim != rank and not self._trusted:
            raise InvalidModel(
                f"{self.op} node {self.name}: input {self.inputs[position]} ({role}) has shape "
                f"{array.shape}, and its rank must be {rank}"
            )
        return array

    @property
    def title(self) -> str:
        """The node as messages name it."""
        return f"{self.op} node {self.name}"

    def refuse(self, what: str, remedy: str) -> NoReturn:
        """Raise `UnsupportedOp` for this node."""
        raise UnsupportedOp(f"{self.op} node {self.name}: {what}, which is not built; {remedy}")

    def refuse_outputs_from(self, first: int) -> None:
        """Refuse outputs from position `first` on if anybody reads them; else note them as gone."""
        for name in self.outputs[first:]:
            if name in self.context.read:
                self.refuse(f"its output {name} is used", "cut the model before the nodes that do")
            if name:
                self.context.graph.removed[name] = Removed(
                    f"optional output of {self.op} {self.name} that nobody reads"
                )

    def emit(
        self,
        func: PrimFunc,
        inputs: Sequence[str] | None = None,
        output: str | None = None,
        part: str = "",
        open_axis: int | None = None,
    ) -> str:
        """Add a kernel with one output and give that tensor's name.

        `inputs` are all of the node's unless given, `output` its first; a node that becomes several
        kernels names each by its `part`.  On an `open_axis` the model may say another extent.  A
        kernel on float32 may be given tensors of 16 bits: it moves them as they are, or casts are
        put around it, so that each of the node's results is rounded once.
        """
        result = self.outputs[0] if output is None else output
        self.emit_all(func, self.inputs if inputs is None else inputs, (result,), part, open_axis)
        return result

    def emit_all(
        self,
        func: PrimFunc,
        inputs: Sequence[str],
        outputs: Sequence[str],
        part: str = "",
        open_axis: int | None = None,
    ) -> None:
        """Add a kernel with a tensor for each of its outputs; see `emit`."""
        names = tuple(inputs)
        wanted = [
            self._declared_half(result) if buffer.dtype == WIDE else None
            for result, buffer in zip(outputs, func.outputs, strict=True)
        ]
        halves = self._halves(func, names)
        if len(outputs) == 1 and wanted[0] is not None and set(halves) == {wanted[0]}:
            moved = moved_as_stored(func, wanted[0])
            if moved is not None:
                self._add(moved, names, outputs, part, open_axis)
                return
        if halves:
            names = tuple(
                self._widened(name) if buffer.dtype == WIDE else name
                for buffer, name in zip(func.inputs, names, strict=True)
            )
        wide = [
            result if half is None else self.context.unique_tensor_name(f"{result}.{WIDE}")
            for result, half in zip(outputs, wanted, strict=True)
        ]
        self._add(func, names, wide, part, open_axis)
        for name, result, half in zip(wide, outputs, wanted, strict=True):
            if half is not None:
                rounding = cast(self.context.graph.values[name].shape, WIDE, half)
                title = f"{part}.{half}" if part else half
                self._add(rounding, (name,), (result,), title, open_axis)

    def _declared_half(self, result: str) -> str | None:
        """The type of a tensor that is declared as a float of 16 bits."""
        declared, _ = self.context.declared.get(result, (None, None))
        return declared if declared in HALVES else None

    def _halves(self, func: PrimFunc, names: Sequence[str]) -> list[str]:
        """The dtypes of the tensors that a kernel reads as float32, if one of them is narrower."""
        values = self.context.graph.values
        read = [
            values[name].dtype
            for buffer, name in zip(func.inputs, names, strict=True)
            if buffer.dtype == WIDE and name in values
        ]
        return read if any(dtype in HALVES for dtype in read) else []

    def _widened(self, name: str) -> str:
        """The tensor in float32; one cast serves all readers."""
        context = self.context
        value = context.graph.values[name]
        if value.dtype not in HALVES:
            return name
        if name not in context.widened:
            wide = context.unique_tensor_name(f"{name}.{WIDE}")
            self._add(cast(value.shape, value.dtype, WIDE), (name,), (wide,), f"{name}.{WIDE}")
            context.widened[name] = wide
        return context.widened[name]

    def _add(
        self,
        func: PrimFunc,
        names: tuple[str, ...],
        outputs: Sequence[str],
        part: str,
        open_axis: int | None = None,
    ) -> None:
        self._require_dtypes(func, names)
        for result, buffer in zip(outputs, func.outputs, strict=True):
            self.expect(result, buffer.dtype, buffer.shape, open_axis)
        name = self.context.unique_node_name(f"{self.name}.{part}") if part else self.name
        op = f"{self.op}.{part}" if part else self.op
        self.context.graph.add(Node(name, op, func, names, tuple(outputs), (self.name,)))

    def _require_dtypes(self, func: PrimFunc, names: Sequence[str]) -> None:
        """Refuse inputs of other element types than the kernel has; ONNX lets some differ."""
        values = self.context.graph.values
        for buffer, name in zip(func.inputs, names, strict=True):
            if name in values and values[name].dtype != buffer.dtype:
                self.refuse(
                    f"input {name} is {values[name].dtype} beside others of {buffer.dtype}",
                    f"cast it to {buffer.dtype}",
                )

    def emit_part(self, func: PrimFunc, inputs: Sequence[str], part: str) -> str:
        """Add a kernel whose output is a new tensor that other kernels of this node read."""
        name = self.context.unique_tensor_name(f"{self.outputs[0]}.{part}")
        return self.emit(func, inputs, name, part)

    def add_part(self, array: Array, part: str) -> str:
        """Add a constant that kernels of this node read, and give its name."""
        name = self.context.unique_tensor_name(f"{self.outputs[0]}.{part}")
        self.context.add_constant(name, array)
        return name

    def emit_constant(self, array: Array) -> None:
        """Let the node's output be `array`, rounded where it is declared as a float of 16 bits."""
        half = self._declared_half(self.outputs[0])
        if half is not None and array.dtype == WIDE:
            array = array.astype(DTYPES[half])
        if array.dtype.name in DTYPES:
            self.expect(self.outputs[0], array.dtype.name, array.shape)
        self.context.add_constant(self.outputs[0], array)

    def emit_bounded(
        self,
        func: PrimFunc,
        inputs: Sequence[str],
        output: str,
        axis: int,
        count: str,
        part: str = "",
    ) -> None:
        """Add a kernel whose output has room for more than a run gives along `axis`.

        How many elements a run gives there is the only element of the integer tensor `count`.
        `UnsupportedOp` where another node reads the output, as no kernel has such an extent.
        """
        if output in self.context.consumed:
            self.refuse(
                f"how many elements its output {output} has is only known at run time, and other "
                "nodes read it",
                "cut the model behind this node",
            )
        self.emit(func, inputs, output, part, axis)
        if output in self.context.read:
            self.context.trimmed.append((output, axis, count))

    def expect(
        self, name: str, dtype: str, shape: tuple[int, ...], open_axis: int | None = None
    ) -> None:
        """Check a result against what ONNX infers for it, but for the extent of an open axis."""
        check_dtype(f"{self.op} node {self.name}: tensor {name}", dtype)
        declared_dtype, declared = self.context.declared.get(name, (dtype, None))
        agrees = declared is None or (
            len(declared) == len(shape)
            and all(
                n is None or n == m or axis == open_axis
                for axis, (n, m) in enumerate(zip(declared, shape, strict=True))
            )
        )
        if not agrees or declared_dtype != dtype:
            raise InvalidModel(
                f"{self.op} node {self.name}: output {name} is {dtype}{shape} by its inputs and "
                f"attributes, but the model says {declared_dtype}{declared}"
            )

    def single(self, array: Array, role: str) -> Any:
        """The one element of an array; InvalidModel, with `role` for what it is, where it has
        none or several."""
        if array.size != 1:
            raise InvalidModel(
                f"{self.op} node {self.name}: {role} has the extents {list(array.shape)}; it has "
                "to be one number"
            )
        return array.reshape(()).item()

    def finish(self) -> None:
        """Refuse attributes that the operator's function did not look at."""
        if self._unread:
            names = ", ".join(self._unread)
            self.refuse(f"attribute {names}", f"remove it, or convert from opset {self.opset}")


def dtype_name(elem_type: int) -> str:
    """numpy's name of an ONNX element type; InvalidModel for a number that stands for none."""
    if elem_type not in onnx.helper.get_all_tensor_dtypes():
        raise InvalidModel(
            f"a tensor has the element type {elem_type}, which ONNX {onnx.__version__} does not "
            "know; state its type in the model"
        )
    name: str = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)).name
    return name


def declared_type(
    info: onnx.ValueInfoProto,
) -> tuple[str, tuple[int | None, ...] | None] | None:
    """Element type and shape of a tensor, as far as they are stated; None where it is none."""
    tensor = info.type.tensor_type
    if not tensor.elem_type:
        return None
    if not tensor.HasField("shape"):
        return dtype_name(tensor.elem_type), None
    dims = tensor.shape.dim
    shape = tuple(int(d.dim_value) if d.HasField("dim_value") else None for d in dims)
    return dtype_name(tensor.elem_type), shape


def tensor_array(tensor: onnx.TensorProto, what: str) -> Array:
    """A tensor proto as numpy; `UnsupportedOp` for element types that kernels do not have."""
    check_dtype(what, dtype_name(tensor.data_type))
    return known_array(tensor, what)


def known_array(tensor: onnx.TensorProto, what: str) -> Array:
    """A tensor proto as numpy, whatever its element type; `InvalidModel` where it is damaged."""
    # Protos hand out read-only views into their bytes; those are fine, nothing here writes.
    try:
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise InvalidModel(
            f"{what}: its data does not fit dtype and shape {tuple(tensor.dims)}: {error}"
        ) from None
    return array
