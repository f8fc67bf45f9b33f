"""One ONNX node while it is imported: its attributes and inputs, and the kernels it becomes.

In: a step and the context of the import.  Out: kernels in the operator graph.  What always holds:
an operator's function that returns has read every attribute of the node (`finish` refuses one that
it did not read, by name), and every tensor that it made has the shape and dtype that ONNX's own
inference gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import onnx

from graphflow.base.dtypes import DTYPES, HALVES
from graphflow.base.errors import ExtentsLost, InvalidModel, UnsupportedOp, VerifyError
from graphflow.base.fields import replace
from graphflow.base.sizes import Size
from graphflow.frontends.nodes.halves import WIDE, moved_as_stored
from graphflow.frontends.protos.protos import check_dtype
from graphflow.frontends.protos.steps import ImportStep, existing_axis
from graphflow.frontends.reading.recorded import shapes_agree
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import (
    Counts,
    CountsDiffer,
    passed_counts,
)
from graphflow.frontends.tensors.data_sizes import add_data_size
from graphflow.frontends.tensors.derived_sizes import Element, require_all_equal, require_equal
from graphflow.frontends.tensors.values import contents_missing
from graphflow.graph import Array, Node, Removed, Value
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.tir import PrimFunc

MOST_OPERANDS = 64
"""The most operands of a kernel that joins the inputs of a node.

Scheduling a kernel takes time quadratic in its loop nests, and equal kernels are made once: 5,000
rows are concatenated by two kernels in place of one that takes three minutes to make.
"""

Given: TypeAlias = "Mapping[int, Iterable[int]]"
"""Axes of tensors, by the position of the tensor among the inputs of a kernel."""

Emitter: TypeAlias = "Callable[[NodeCall], None]"
"""A function that makes the kernels of a node."""

Emitters: TypeAlias = dict[str, Emitter]
"""These functions by operator."""


class NodeCall:
    """An ONNX node during import: attributes, inputs by position, and `emit` to add its kernels."""

    def __init__(self, step: ImportStep, context: ImportContext) -> None:
        proto = step.node
        self.step, self.context = step, context
        self.op = proto.op_type
        self.opset = step.opset
        """The opset that the node was written for: the model's, or that of a function."""
        self._trusted = step.trusted
        self.name = context.unique_node_name(step.name)
        self.inputs = tuple(proto.input)
        self.outputs = tuple(proto.output)
        self._attributes = {a.name: a for a in proto.attribute}
        self._unread = dict.fromkeys(self._attributes)
        self._is_constant = context.folding.has_constant_inputs(step)
        self.drops_counts = False
        """Whether the node allows for what a run does not give, so that an output may lack it."""
        self.read_with_fill: dict[str, frozenset[int]] = {}
        """By tensor the axes along which kernels of this node read all elements: it is known what
        stands behind those that a run gives."""

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
                f"{self.title}: attribute {name} is {value!r}, which is not UTF-8"
            ) from None

    def required(self, name: str) -> Any:
        """The attribute's value; `InvalidModel` where it is missing."""
        value = self.attribute(name)
        if value is None:
            raise InvalidModel(f"{self.title} lacks its attribute {name}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """The value of an attribute that is 0 or 1."""
        return bool(self.attribute(name, default))

    def choice(self, name: str, choices: Iterable[str], default: str | None = None) -> str:
        """The value of an attribute that is one of some words; required without a default."""
        word = str(self.required(name) if default is None else self.attribute(name, default))
        if word not in choices:
            raise self.invalid(f"{name} {word} does not exist")
        return word

    def axis(self, default: int) -> int:
        """The attribute `axis` as an axis of input 0, counted from the front."""
        return self.normalized_axis(int(self.attribute("axis", default)))

    def has(self, position: int) -> bool:
        """Whether the optional input is given."""
        return position < len(self.inputs) and self.inputs[position] != ""

    @property
    def given_inputs(self) -> list[str]:
        """The inputs that are given, without the gaps that optional ones leave."""
        return [name for name in self.inputs if name]

    def normalized_axis(self, axis: int) -> int:
        """An axis of input 0, counted from the front; `InvalidModel` where it does not exist."""
        return existing_axis(self.title, axis, len(self.shape(0)))

    def value(self, position: int) -> Value:
        """The input tensor at `position`; float16 and bfloat16 tensors are reported as float32."""
        value = self._stored_value(position)
        return replace(value, dtype=WIDE) if value.dtype in HALVES else value

    def _stored_value(self, position: int) -> Value:
        if not self.has(position):
            raise InvalidModel(f"{self.title} lacks its input {position}")
        name = self.inputs[position]
        value = self.context.graph.values.get(name)
        if value is not None:
            return value
        if name not in self.context.known:
            self.refuse(f"input {name} is not a tensor", "use the tensors in it one by one")
        # Only constants of element types that kernels do not have are no values of the graph.
        dtype = self.context.known[name].dtype.name
        return self.refuse(f"input {name} has dtype {dtype}", f"use one of {', '.join(DTYPES)}")

    def stored_dtype(self, position: int = 0) -> str:
        """The dtype in which an input is stored, also if that is float16 or bfloat16."""
        return self._stored_value(position).dtype

    def shape(self, position: int) -> tuple[int, ...]:
        """The logical shape of an input."""
        return self.value(position).shape

    def optional_shape(self, position: int) -> tuple[int, ...] | None:
        """The logical shape of an input, None where it is not given."""
        return self.shape(position) if self.has(position) else None

    def extent(self, position: int) -> int:
        """The extent of an input that is a vector; InvalidModel if it has no axis, or several."""
        shape = self.shape(position)
        if len(shape) != 1:
            raise InvalidModel(f"{self.title}: {self.inputs[position]} is {list(shape)}, no vector")
        return shape[0]

    def dtype(self, position: int = 0) -> str:
        """The dtype in which an input is computed with: float32 for float16 and bfloat16."""
        return self.value(position).dtype

    def known(self, position: int) -> Array | None:
        """The contents of an input where they are known at compile time."""
        array = self.context.known.get(self.inputs[position]) if self.has(position) else None
        return array.astype(WIDE) if array is not None and array.dtype.name in HALVES else array

    def constant(self, position: int, role: str, rank: int | None = None) -> Array:
        """The contents of an input on which shapes depend; `role` names it in errors.

        Raises `ValuesNeeded` if they follow from values of graph inputs that are not known,
        `UnsupportedOp` if a run computes them otherwise, and `InvalidModel` if the rank is not
        `rank`.  Nodes of functions that ONNX defines are exempt from the last, as some of these
        have other ranks.
        """
        context = self.context
        array = context.constant(self.inputs[position]) if self.has(position) else None
        if array is None and self.has(position) and self.inputs[position] in context.sized_values:
            array = context.sized_values[self.inputs[position]].array
        if array is None:
            tensor = self.value(position).name
            asked = f"{self.title}: input {tensor} ({role})"
            raise contents_missing(self.context.graph, self.context.known, tensor, asked)
        if rank is not None and array.ndim != rank and not self._trusted:
            raise InvalidModel(
                f"{self.title}: input {self.inputs[position]} ({role}) has shape "
                f"{array.shape}, and its rank must be {rank}"
            )
        return array

    def numbers(self, position: int, role: str) -> tuple[int, ...]:
        """The contents of an input as integers, in row-major order; see `constant`."""
        return tuple(int(n) for n in self.constant(position, role).reshape(-1))

    @property
    def title(self) -> str:
        """The node as messages name it."""
        return f"{self.op} node {self.name}"

    def invalid(self, what: str) -> InvalidModel:
        """The error that something is wrong with this node."""
        return InvalidModel(f"{self.title}: {what}")

    def refuse(self, what: str, remedy: str) -> NoReturn:
        """Raise `UnsupportedOp` for this node."""
        raise UnsupportedOp(f"{self.title}: {what}, which is not built; {remedy}")

    def refuse_further_outputs(self) -> None:
        """Refuse the outputs behind the first one if something reads them; else record that they do
        not exist."""
        for name in self.outputs[1:]:
            if name in self.context.read:
                self.refuse(
                    f"its output {name} is used", "cut the model before the nodes that use it"
                )
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
        given: Given = MappingProxyType({}),
    ) -> str:
        """Add a kernel with one output and return the name of the output tensor.

        inputs: tensor names; by default all inputs of the node.
        output: the name of the result; by default the node's first output.
        part: distinguishes the kernels of a node that becomes several.
        open_axis: an axis on which the model may declare another extent.
        given: axes of tensors, by position in `inputs`, along which the kernel takes only elements
        that every run gives, though a run decides how many there are.

        If tensors are float16 or bfloat16, a kernel on float32 is retyped if it only moves
        elements; else casts are put around it, so that each result of the node is rounded once.
        """
        result = self.outputs[0] if output is None else output
        names = self.inputs if inputs is None else inputs
        self.emit_all(func, names, (result,), part, open_axis, given)
        return result

    def emit_all(
        self,
        func: PrimFunc,
        inputs: Sequence[str],
        outputs: Sequence[str],
        part: str = "",
        open_axis: int | None = None,
        given: Given = MappingProxyType({}),
    ) -> None:
        """Add a kernel with several outputs, named `outputs`; otherwise like `emit`."""
        names = tuple(inputs)
        if (len(names), len(outputs)) != (len(func.inputs), len(func.outputs)):
            raise VerifyError(
                f"{self.title}: the kernel {func.name} reads {len(func.inputs)} and writes "
                f"{len(func.outputs)} parameters; it is given {len(names)} inputs and "
                f"{len(outputs)} outputs"
            )
        wanted = [
            self._declared_half(result) if buffer.dtype == WIDE else None
            for result, buffer in zip(outputs, func.outputs, strict=True)
        ]
        halves = self._halves(func, names)
        if len(outputs) == 1 and wanted[0] is not None and set(halves) == {wanted[0]}:
            moved = moved_as_stored(func, wanted[0])
            if moved is not None:
                self.add_kernel(moved, names, outputs, part, open_axis, given)
                return
        if halves:
            names = tuple(
                self.widened(name) if buffer.dtype == WIDE else name
                for buffer, name in zip(func.inputs, names, strict=True)
            )
        wide = [
            result if half is None else self.context.unique_tensor_name(f"{result}.{WIDE}")
            for result, half in zip(outputs, wanted, strict=True)
        ]
        self.add_kernel(func, names, wide, part, open_axis, given)
        for name, result, half in zip(wide, outputs, wanted, strict=True):
            if half is not None:
                rounding = elementwise.cast(self.context.graph.values[name].shape, WIDE, half)
                title = f"{part}.{half}" if part else half
                self.add_kernel(rounding, (name,), (result,), title, open_axis)

    def _declared_half(self, result: str) -> str | None:
        """float16 or bfloat16 if the tensor is declared as one of these, else None."""
        declared, _ = self.context.declared.get(result, (None, None))
        return declared if declared in HALVES else None

    def _halves(self, func: PrimFunc, names: Sequence[str]) -> list[str]:
        """The stored dtypes of the tensors that a kernel reads as float32; empty if none is a
        16-bit type."""
        values = self.context.graph.values
        read = [
            values[name].dtype
            for buffer, name in zip(func.inputs, names, strict=True)
            if buffer.dtype == WIDE and name in values
        ]
        return read if any(dtype in HALVES for dtype in read) else []

    def widened(self, name: str) -> str:
        """The name of the tensor cast to float32; all readers share one cast."""
        context = self.context
        value = context.graph.values[name]
        if value.dtype not in HALVES:
            return name
        if name not in context.widened:
            wide = context.unique_tensor_name(f"{name}.{WIDE}")
            self.add_kernel(
                elementwise.cast(value.shape, value.dtype, WIDE), (name,), (wide,), f"{name}.{WIDE}"
            )
            context.widened[name] = wide
        return context.widened[name]

    def add_kernel(
        self,
        func: PrimFunc,
        names: tuple[str, ...],
        outputs: Sequence[str],
        part: str,
        open_axis: int | None = None,
        given: Given = MappingProxyType({}),
        gives_all: bool = False,
    ) -> None:
        """Add a kernel on the tensors as they are stored; otherwise like `emit_all`.

        With `gives_all`, the caller says how many elements of the outputs a run gives.
        """
        self._require_dtypes(func, names)
        for result, buffer in zip(outputs, func.outputs, strict=True):
            self.expect(result, buffer.dtype, buffer.shape, open_axis)
        if not gives_all:
            self._pass_counts(func, names, outputs, given)
        name = self.context.unique_node_name(f"{self.name}.{part}") if part else self.name
        op = f"{self.op}.{part}" if part else self.op
        func = self.context.kernels.setdefault(func, func)
        self.context.graph.add(Node(name, op, func, names, tuple(outputs), (self.name,)))

    def _pass_counts(
        self,
        func: PrimFunc,
        names: Sequence[str],
        outputs: Sequence[str],
        given: Given = MappingProxyType({}),
    ) -> None:
        """Record how many elements of the outputs a run gives, if that is so of an input, of which
        the axes in `given` are left out."""
        counted = self.context.counted
        counts = {
            buffer: self._counts_without_fill(name)
            for buffer, name in zip(func.inputs, names, strict=True)
            if name in counted
        }
        for position, axes in given.items():
            left_out, counted_axes = set(axes), counts.get(func.inputs[position], {})
            if not left_out.isdisjoint(counted_axes):
                self.drops_counts = True
                counts[func.inputs[position]] = {
                    axis: n for axis, n in counted_axes.items() if axis not in left_out
                }
        if not any(counts.values()):
            return
        try:
            chosen = self.context.sizes.keys() - self.context.data_sizes.keys()
            passed = passed_counts(func, counts, chosen)
        except CountsDiffer as error:
            require_all_equal(self.context, error.pairs)
            raise self.extents_lost(names, str(error)) from error
        except ExtentsLost as error:
            raise self.extents_lost(names, str(error)) from error
        for result, buffer in zip(outputs, func.outputs, strict=True):
            if buffer in passed:
                counted[result] = passed[buffer]

    def _counts_without_fill(self, name: str) -> Counts:
        filled, counts = self.read_with_fill.get(name), self.context.counted[name]
        return counts if filled is None else {k: n for k, n in counts.items() if k not in filled}

    def extents_lost(self, names: Iterable[str], reason: str) -> ExtentsLost:
        """The error for a node that reads the tensors `names`: it names all axes of the first of
        them whose extents a run decides, as the reason may concern any of these."""
        name = next(name for name in names if name in self.context.counted)
        axes = sorted(self.context.counted[name])
        listed = f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes))}"
        return ExtentsLost(
            f"{self.title}: how many elements its input {name} has along {listed} is only known "
            f"at run time, and {reason}; cut the model before this node"
        )

    def relate_counts(self) -> None:
        """Raise SizesRelated where a relation between sizes makes two inputs equally long along
        axes that meet if their shapes are aligned at the end."""
        counted = [name for name in self.given_inputs if name in self.context.counted]
        ranks = {name: len(self.context.graph.values[name].shape) for name in counted}
        for one, other in combinations(counted, 2):
            others = self.context.counted[other]
            for axis, count in self.context.counted[one].items():
                met = others.get(axis - ranks[one] + ranks[other], count)
                if met != count:
                    require_equal(self.context, count, met)

    def counts(self, position: int) -> Counts:
        """The axes of an input whose extents a run decides, with the tensors that count."""
        return self.context.counted.get(self.inputs[position], {})

    def elements_along(self, position: int, axis: int) -> Element:
        """How many elements a run gives of an input along an axis."""
        return self.context.elements_along(self.inputs[position], axis)

    def is_counted(self, position: int, axes: Iterable[int]) -> bool:
        """Whether a run decides the extent of an input along one of `axes`."""
        counts = self.counts(position)
        return any(axis in counts for axis in axes)

    def _require_dtypes(self, func: PrimFunc, names: Sequence[str]) -> None:
        """Refuse inputs whose dtypes differ from the kernel's; ONNX allows mixed dtypes in some
        operators."""
        values = self.context.graph.values
        for buffer, name in zip(func.inputs, names, strict=True):
            if name in values and values[name].dtype != buffer.dtype:
                self.refuse(
                    f"input {name} is {values[name].dtype} beside others of {buffer.dtype}",
                    f"cast it to {buffer.dtype}",
                )

    def part_name(self, part: str, of: str = "") -> str:
        """A new name for a tensor that one kernel of this node gives to another: a part of the
        first output, or `of` what is given."""
        return self.context.unique_tensor_name(f"{of or self.outputs[0] or self.name}.{part}")

    def emit_part(
        self,
        func: PrimFunc,
        inputs: Sequence[str],
        part: str,
        of: str = "",
        given: Given = MappingProxyType({}),
    ) -> str:
        """Add a kernel whose output is a new tensor that other kernels of this node read."""
        return self.emit(func, inputs, self.part_name(part, of), part, given=given)

    def reshaped(
        self, name: str, shape: tuple[int, ...], part: str, dtype: str = "", of: str = ""
    ) -> str:
        """The name of the tensor `name` in another shape: a part, where it has another one.

        The kernel is one on `dtype`, by default the dtype in which the tensor is stored.
        """
        value = self.context.graph.values[name]
        if value.shape == shape:
            return name
        func = movement.reshape(value.shape, shape, dtype or value.dtype)
        return self.emit_part(func, (name,), part, of)

    def transposed(self, name: str, order: Sequence[int], part: str, dtype: str = "") -> str:
        """The name of the tensor `name` with its axes in another order; otherwise like
        `reshaped`."""
        value = self.context.graph.values[name]
        if tuple(order) == tuple(range(len(value.shape))):
            return name
        func = movement.transpose(value.shape, order, dtype or value.dtype)
        return self.emit_part(func, (name,), part)

    def sliced(self, name: str, axis: int, kept: range, part: str, dtype: str = "") -> str:
        """The name of the elements `kept` of the tensor `name` along an axis; otherwise like
        `reshaped`."""
        value = self.context.graph.values[name]
        ranges = [kept if k == axis else range(n) for k, n in enumerate(value.shape)]
        func = selection.take_slice(value.shape, ranges, dtype or value.dtype)
        return self.emit_part(func, (name,), part)

    def emit_tree(
        self,
        join: Callable[[list[tuple[int, ...]]], PrimFunc],
        joined: Callable[[list[tuple[int, ...]]], PrimFunc] | None = None,
        stored: str = "",
    ) -> None:
        """Add kernels that join all inputs of the node, which has one output.

        `join` and `joined` make the kernels from the shapes of their operands: `joined` the last
        one, and, where there are more than `MOST_OPERANDS`, `join` those that join groups of them.
        The tensors between them have the dtype `stored`, if it is given, else that of the kernels.
        """
        names, level = list(self.inputs), 0
        while len(names) > MOST_OPERANDS:
            groups = [names[k : k + MOST_OPERANDS] for k in range(0, len(names), MOST_OPERANDS)]
            names = []
            for k, group in enumerate(groups):
                func = join([self.context.graph.values[name].shape for name in group])
                part = self.part_name(f"{level}.{k}")
                if stored:
                    self.context.declared[part] = stored, func.outputs[0].shape
                names.append(self.emit(func, group, part, f"{level}.{k}"))
            level += 1
        last = join if joined is None else joined
        self.emit(last([self.context.graph.values[name].shape for name in names]), names)

    def add_part(self, array: Array, part: str) -> str:
        """Add a constant that kernels of this node read, and give its name."""
        return self.context.new_constant(f"{self.outputs[0] or self.name}.{part}", array)

    def emit_constant(self, array: Array) -> None:
        """Make `array` the node's output, rounded if that is declared as float16 or bfloat16."""
        if any(name in self.context.counted for name in self.inputs):
            raise self.extents_lost(self.inputs, "its output is that number, or depends on it")
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
        given: Given = MappingProxyType({}),
    ) -> None:
        """Add a kernel whose output extent along `axis` is an upper bound; a run trims the output.

        The integer tensor `count`, of one element, says how many elements a run gives.  Raises
        `UnsupportedOp` if another node reads the output and is known to need its extent.
        """
        if output in self.context.consumed and (self._is_constant or self.context.counts_lost):
            self.refuse(
                f"how many elements its output {output} has is only known at run time, and "
                f"{self.context.counts_lost or 'other nodes read it'}",
                "cut the model behind this node",
            )
        self.emit(func, inputs, output, part, axis, given=given)
        context, value = self.context, self.context.graph.values[count]
        if count not in context.sizes and (value.dtype, value.shape) == ("int64", ()):
            most = context.graph.values[output].shape[axis]
            add_data_size(context, count, Size(f"the elements of {output}", 0, most))
        context.counted[output] = {**context.counted.get(output, {}), axis: count}

    def expect(
        self, name: str, dtype: str, shape: tuple[int, ...], open_axis: int | None = None
    ) -> None:
        """Check dtype and shape of a result against what ONNX infers, except on `open_axis`.

        A shape that the model records of an inner tensor gives way to that of the result.
        """
        check_dtype(f"{self.title}: tensor {name}", dtype)
        declared_dtype, declared = self.context.expected(name, dtype, shape, open_axis)
        if not shapes_agree(declared, shape, open_axis) or declared_dtype != dtype:
            raise InvalidModel(
                f"{self.title}: output {name} is {dtype}{shape} by its inputs and "
                f"attributes, but the model says {declared_dtype}{declared}"
            )

    def finish(self) -> None:
        """Refuse attributes that the operator's function has not read, and outputs whose extents
        do not follow those of the inputs."""
        if self._unread:
            names = ", ".join(self._unread)
            self.refuse(f"attribute {names}", f"remove it, or convert from opset {self.opset}")
        context = self.context
        if not self.drops_counts and any(name in context.counted for name in self.inputs):
            for name in self.outputs:
                if name in context.graph.values and name not in context.counted:
                    raise self.extents_lost(self.inputs, f"output {name} does not depend on it")
