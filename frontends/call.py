"""One ONNX node while it is imported, and what is known of the graph so far.

In: a node proto.  Out: kernels in the operator graph.  What always holds: an operator's function
that returns has read every attribute the node carries (one that it did not read is refused by
name), and every tensor that it made has the shape and dtype that ONNX's own inference gave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import numpy_helper

from graphflow.errors import InvalidModel, UnsupportedOp
from graphflow.graph import Array, Node, OperatorGraph, Removed, Value, elements_touched
from graphflow.tir import DTYPES, PrimFunc, interpret

EVALUATED_AT_IMPORT = 64
"""Elements of the largest tensor that is computed at once: shape arithmetic, bounds of a Clip."""


@dataclass(slots=True)
class Context:
    """The graph under construction, and the constants that operators may ask for."""

    graph: OperatorGraph
    opset: int
    declared: Mapping[str, tuple[str, tuple[int | None, ...] | None]]
    """dtype and shape of each tensor, as ONNX infers them; None where it does not know."""
    read: frozenset[str]
    """Tensors that a node reads or the graph returns."""
    known: dict[str, Array] = field(default_factory=dict)
    node_names: set[str] = field(default_factory=set)

    def add_constant(self, name: str, array: Array) -> None:
        """Add a tensor whose contents cannot change."""
        check_dtype(f"constant {name}", array.dtype.name)
        self.graph.add_initializer(name, array)
        self.known[name] = array

    def unique_node_name(self, wanted: str) -> str:
        """`wanted`, or with a number behind it where a node has that name."""
        name, number = wanted, 0
        while name in self.node_names:
            number += 1
            name = f"{wanted}_{number}"
        self.node_names.add(name)
        return name

    def unique_tensor_name(self, wanted: str) -> str:
        """`wanted`, or with a number behind it where the model has such a tensor."""
        name, number = wanted, 0
        while name in self.graph.values or name in self.declared or name in self.read:
            number += 1
            name = f"{wanted}_{number}"
        return name


def check_dtype(what: str, dtype: str) -> None:
    """Raise `UnsupportedOp` where kernels have no such element type."""
    if dtype not in DTYPES:
        raise UnsupportedOp(
            f"{what} has dtype {dtype}, which is not built; use one of {', '.join(DTYPES)}"
        )


class Call:
    """An ONNX node: typed attributes, inputs by position, and `emit` for the kernels it becomes."""

    def __init__(self, proto: onnx.NodeProto, index: int, context: Context) -> None:
        self.context = context
        self.op = proto.op_type
        self.name = context.unique_node_name(proto.name or f"{proto.op_type}_{index}")
        self.inputs = tuple(proto.input)
        self.outputs = tuple(proto.output)
        self._attributes = {a.name: a for a in proto.attribute}
        self._unread = dict.fromkeys(self._attributes)

    @property
    def opset(self) -> int:
        """The opset of the model."""
        return self.context.opset

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
        """The input tensor at `position`."""
        if not self.has(position):
            raise InvalidModel(f"{self.op} node {self.name} lacks its input {position}")
        return self.context.graph.values[self.inputs[position]]

    def shape(self, position: int) -> tuple[int, ...]:
        """The logical shape of an input."""
        return self.value(position).shape

    def dtype(self, position: int = 0) -> str:
        """The dtype of an input."""
        return self.value(position).dtype

    def known(self, position: int) -> Array | None:
        """The contents of an input where they are known at compile time."""
        return self.context.known.get(self.inputs[position]) if self.has(position) else None

    def constant(self, position: int, role: str, rank: int | None = None) -> Array:
        """The contents of an input that decides shapes; `UnsupportedOp` where it is not known,
        `InvalidModel` where it has another rank than the one given."""
        array = self.known(position)
        if array is None:
            self.refuse(
                f"input {self.inputs[position]} ({role}) is only known at run time",
                "make it an initializer, or simplify the model with constant folding first",
            )
        if rank is not None and array.ndim != rank:
            raise InvalidModel(
                f"{self.op} node {self.name}: input {self.inputs[position]} ({role}) has shape "
                f"{array.shape}, and its rank must be {rank}"
            )
        return array

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
    ) -> str:
        """Add a kernel with one output and give that tensor's name.

        `inputs` are all of the node's unless given, `output` its first; a node that becomes several
        kernels names each by its `part`.
        """
        names = tuple(self.inputs if inputs is None else inputs)
        result = self.outputs[0] if output is None else output
        buffer = func.outputs[0]
        self.expect(result, buffer.dtype, buffer.shape)
        name = self.context.unique_node_name(f"{self.name}.{part}") if part else self.name
        op = f"{self.op}.{part}" if part else self.op
        node = Node(name, op, func, names, (result,), (self.name,))
        self.context.graph.add(node)
        self._evaluate(node)
        return result

    def emit_constant(self, array: Array) -> None:
        """Let the node's output be `array`."""
        self.expect(self.outputs[0], array.dtype.name, array.shape)
        self.context.add_constant(self.outputs[0], array)

    def expect(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Check a result against what ONNX infers for it."""
        check_dtype(f"{self.op} node {self.name}: tensor {name}", dtype)
        declared_dtype, declared = self.context.declared.get(name, (dtype, None))
        agrees = declared is None or (
            len(declared) == len(shape)
            and all(n is None or n == m for n, m in zip(declared, shape, strict=True))
        )
        if not agrees or declared_dtype != dtype:
            raise InvalidModel(
                f"{self.op} node {self.name}: output {name} is {dtype}{shape} by its inputs and "
                f"attributes, but the model says {declared_dtype}{declared}"
            )

    def _evaluate(self, node: Node) -> None:
        arrays = [self.context.known.get(name) for name in node.inputs]
        known = [array for array in arrays if array is not None]
        if len(known) < len(arrays) or elements_touched(node.func) > EVALUATED_AT_IMPORT:
            return
        names = [buffer.name for buffer in node.func.inputs]
        results = interpret(node.func, dict(zip(names, known, strict=True)))
        self.context.known[node.outputs[0]] = results[node.func.outputs[0].name]

    def finish(self) -> None:
        """Refuse attributes that the operator's function did not look at."""
        if self._unread:
            names = ", ".join(self._unread)
            self.refuse(f"attribute {names}", f"remove it, or convert from opset {self.opset}")


def dtype_name(elem_type: int) -> str:
    """numpy's name of an ONNX element type."""
    name: str = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)).name
    return name


def tensor_array(tensor: onnx.TensorProto, what: str) -> Array:
    """A tensor proto as numpy; `UnsupportedOp` for element types that kernels do not have."""
    check_dtype(what, dtype_name(tensor.data_type))
    # Protos hand out read-only views into their bytes; those are fine, nothing here writes.
    try:
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise InvalidModel(
            f"{what}: its data does not fit dtype and shape {tuple(tensor.dims)}: {error}"
        ) from None
    return array
