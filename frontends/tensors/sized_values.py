"""Integer tensors whose elements are sizes: what the shape of a tensor is that a run completes.

In: a node that takes the shape of such a tensor, or moves elements of one.  Out: a `SizedArray`,
its value with the most of each size, and which elements are which size.  What always holds: an
element that is a size is moved, added to others or multiplied by a number, or the lesser or the
greater one of several is taken, which gives a size that a run computes; what would need its number
is left to the run (`sized_data.py`), so that a program for many sizes never contains one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, reduce

import numpy as np
import onnx
from numpy.typing import NDArray

from graphflow.base.errors import ExtentsLost
from graphflow.base.fields import replace
from graphflow.frontends.protos.steps import ImportStep, existing_axis, names_read
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import (
    Counts,
    SizedArray,
)
from graphflow.frontends.tensors.derived_sizes import (
    COMBINING,
    FMOD,
    Element,
    combined,
    greater,
    lesser,
    merged,
)
from graphflow.frontends.tensors.folding import Folding
from graphflow.frontends.tensors.sized_data import size_data
from graphflow.frontends.tensors.sized_fractions import keeps_sizes, sized_fractions
from graphflow.graph import Array

_MOVES = {
    "Cast": (0,), "Concat": None, "Flatten": (0,), "Gather": (0,), "Identity": (0,),
    "Expand": (0,), "Reshape": (0,), "Slice": (0,), "Split": (0,), "Squeeze": (0,),
    "Transpose": (0,), "Unsqueeze": (0,), "Where": (1, 2),
}  # fmt: skip
"""Operators that move elements, and the inputs whose elements they move (None: all)."""

_TAKE_SHAPES = {
    "ConstantOfShape": {0}, "Expand": {1}, "Pad": {1}, "Range": {0, 1}, "Reshape": {1},
    "Resize": {3}, "Slice": {1, 2}, "Split": {1}, "Tile": {1}, "TopK": {1}, "Trilu": {1},
    "com.microsoft.GroupQueryAttention": {6},
}  # fmt: skip
"""Operators that sizes give the extents of their output, or places, and these inputs; with the
domain in front where that is not the standard one."""


_EXPANDED = {"If": {0}, "Loop": {1}, "Scan": set[int]()}
"""Operators that become the nodes of their bodies, and the inputs that decide which."""

_EXTREMES = {"Min": lesser, "Max": greater}
_COMPUTED = {*COMBINING, "Neg", *_EXTREMES}
"""Operators whose results are sizes that a run computes."""

_REDUCING = {"ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Mul", "ReduceSum": "Add"}
"""Operators that combine elements along axes, and the ones that combine two of these."""


class NumbersNeeded(ExtentsLost):
    """A step needs the numbers of sizes, which are known in a run: it may compute with them."""


def sized_results(step: ImportStep, context: ImportContext) -> dict[str, SizedArray] | None:
    """The outputs of a step that takes or moves sizes; None for any other step.

    Raises `NumbersNeeded` for a step that needs the number of a size.
    """
    op = step.op if step.is_standard else ""
    counts = context.counted.get(step.input(0), {}) if op in ("Shape", "Size") else {}
    if counts and context.sizes.keys() >= set(counts.values()):
        make = _shape if op == "Shape" else _size
        return {step.outputs[0]: make(step, context, counts)}
    read = [name for name in names_read(step.node) if name in context.sized_values]
    if not read:
        return None
    if op in ("Shape", "Size"):  # how many sizes there are, as exporters ask in front of an Expand
        values = {name: context.sized_values[name].array for name in read}
        found = Folding(known=values).evaluate(step)
        return {name: SizedArray(array, {}) for name, array in found.items()}
    places = [k for k, name in enumerate(step.node.input) if name in context.sized_values]
    if op in _EXPANDED and not {*places} & _EXPANDED[op]:
        return None  # the nodes of its body read them
    is_whole = all(context.sized_values[name].divisor == 1 for name in read)
    if is_whole and set(places) <= _TAKE_SHAPES.get(step.op, frozenset()):
        return None
    if (fractions := sized_fractions(step, context, places)) is not None:
        return {step.outputs[0]: fractions}
    if op == "Equal" and (unequal := _unequal(step, context)) is not None:
        return {step.outputs[0]: SizedArray(unequal, {})}
    if op in _COMPUTED and (results := _combined(step, context)) is not None:
        return {step.outputs[0]: results}
    if op in _REDUCING and (results := _reduced(step, context)) is not None:
        return {step.outputs[0]: results}
    moved = _MOVES.get(op, ()) if keeps_sizes(step, context) else ()
    if not places or not (moved is None or set(places) <= set(moved)):
        raise _numbers_needed(step, context, read[0])
    return _moved(step, context)


def with_size_data(step: ImportStep, context: ImportContext) -> ImportStep:
    """The step with tensors that a run computes in the place of sizes among its inputs."""
    node = onnx.NodeProto()
    node.CopyFrom(step.node)
    data: dict[str, str] = {}
    for place, name in enumerate(node.input):
        if name in context.sized_values:
            data[name] = data.get(name) or size_data(context, name)
            node.input[place] = data[name]
    return replace(step, node=node)


def _numbers_needed(step: ImportStep, context: ImportContext, name: str) -> NumbersNeeded:
    known = context.sized_values[name].sizes.values()
    sizes = sorted({context.sizes[tensor].name for tensor in known})
    return NumbersNeeded(
        f"{step}: its input {name} has elements that are only known at run time "
        f"({', '.join(sizes)}), and it does not only move them; cut the model before this node"
    )


def _combined(step: ImportStep, context: ImportContext) -> SizedArray | None:
    """The result of arithmetic on integers, of which some are sizes; None for other operands, and
    where an element is no sum of sizes."""
    arrays = [_array(name, context) for name in step.inputs]
    if any(array is None or array.dtype != np.int64 for array in arrays):
        return None
    operands = [_elements(name, context) for name in step.inputs]
    if step.op == "Neg":
        operands.insert(0, np.zeros((), object))
    op = FMOD if step.op == "Mod" and step.attribute("fmod", 0) else step.op
    broadcast = np.broadcast_arrays(*operands)
    rows = zip(*(one.flat for one in broadcast), strict=True)
    return _sized(context, broadcast[0].shape, (_result(context, op, row) for row in rows))


def _reduced(step: ImportStep, context: ImportContext) -> SizedArray | None:
    """The result of combining integers along axes, of which some are sizes; None for other
    operands, and where an element is no sum of sizes."""
    array, axes = _array(step.inputs[0], context), _axes(step, context)
    if array is None or array.dtype != np.int64 or axes is None or not array.size:
        return None
    rest = [axis for axis in range(array.ndim) if axis not in axes]
    elements = _elements(step.inputs[0], context).transpose(*rest, *axes)
    shape = [array.shape[axis] for axis in rest]
    if step.attribute("keepdims", 1):
        shape = [1 if axis in axes else extent for axis, extent in enumerate(array.shape)]
    rows = elements.reshape(int(np.prod(shape)), -1).tolist()
    return _sized(context, shape, (_folded(context, _REDUCING[step.op], row) for row in rows))


def _axes(step: ImportStep, context: ImportContext) -> list[int] | None:
    """The axes along which a step reduces its first input, ascending; None if a run decides."""
    array, given = _array(step.inputs[0], context), step.attribute("axes", None)
    if step.input(1):
        constant = context.constant(step.input(1))
        if constant is None:
            return None
        given = constant.reshape(-1).tolist()
    rank = 0 if array is None else array.ndim
    if not given:
        return [] if step.attribute("noop_with_empty_axes", 0) else [*range(rank)]
    return sorted(existing_axis(step, int(axis), rank) for axis in given)


def _folded(context: ImportContext, op: str, elements: Sequence[Element]) -> Element | None:
    """What an operator makes of some elements, of two after two; None if that is no size."""
    found, *others = elements
    for element in others:
        joined = _result(context, op, (found, element))
        if joined is None:
            return None
        found = joined
    return found


def _sized(
    context: ImportContext, shape: Sequence[int], elements: Iterable[Element | None]
) -> SizedArray | None:
    """The array of these elements, in row-major order; None if one is None."""
    array, sizes = np.zeros(shape, np.int64), dict[int, str]()
    for place, element in enumerate(elements):
        if element is None:
            return None
        if isinstance(element, str):
            sizes[place] = element
            element = context.sizes[element].hi
        array.flat[place] = element
    return SizedArray(array, sizes)


def _result(context: ImportContext, op: str, elements: Sequence[Element]) -> Element | None:
    """The result of an operator of `_COMPUTED` for one element of each operand, of Neg for 0 and
    one; None if it is no size."""
    if op in _EXTREMES:
        return reduce(partial(_EXTREMES[op], context), elements)
    left, right = elements
    return combined(context, "Sub" if op == "Neg" else op, left, right)


def _array(name: str, context: ImportContext) -> Array | None:
    """The contents of a tensor, with the most of each size; None if a run decides them."""
    sized = context.sized_values.get(name)
    return context.constant(name) if sized is None else sized.array


def _elements(name: str, context: ImportContext) -> NDArray[np.object_]:
    """The numbers in a tensor, and in place of sizes the tensors that hold these."""
    array, sized = _array(name, context), context.sized_values.get(name)
    assert array is not None
    elements = array.astype(object)
    for place, tensor in ({} if sized is None else sized.sizes).items():
        elements.flat[place] = tensor
    return elements


def _shape(step: ImportStep, context: ImportContext, counts: Counts) -> SizedArray:
    shape = context.graph.values[step.input(0)].shape
    axes = range(len(shape))[step.attribute("start", 0) : step.attribute("end", len(shape))]
    sizes = {place: counts[axis] for place, axis in enumerate(axes) if axis in counts}
    return SizedArray(np.array([shape[axis] for axis in axes], np.int64), sizes)


def _size(step: ImportStep, context: ImportContext, counts: Counts) -> SizedArray:
    extents = dict(enumerate(context.graph.values[step.input(0)].shape)) | counts
    number = merged(context, extents.values())
    if isinstance(number, int):
        return SizedArray(np.array(number, np.int64), {})
    return SizedArray(np.array(context.sizes[number].hi, np.int64), {0: number})


def _unequal(step: ImportStep, context: ImportContext) -> Array | None:
    """The result of Equal of sizes and numbers that no size has; None if these are not such.

    Exporters compare each extent of an Expand with -1.
    """
    if any(_array(name, context) is None for name in step.inputs):
        return None
    left, right = np.broadcast_arrays(*(_elements(name, context) for name in step.inputs))
    equal = np.empty(left.shape, np.bool_)
    for place, pair in enumerate(zip(left.flat, right.flat, strict=True)):
        sizes = [context.sizes[one] for one in pair if isinstance(one, str)]
        numbers = [one for one in pair if not isinstance(one, str)]
        if len(sizes) > 1 or any(size.lo <= n <= size.hi for size in sizes for n in numbers):
            return None
        equal.flat[place] = not sizes and numbers[0] == numbers[1]
    return equal


def _moved(step: ImportStep, context: ImportContext) -> dict[str, SizedArray]:
    """The step on the elements, and on numbers in their place that say where each came from."""
    data = _MOVES[step.op]
    names = [name for name in step.inputs if name]
    arrays, numbered, origins = {}, {}, dict[int, str]()
    for position, name in enumerate(names):
        sized, array = context.sized_values.get(name), _array(name, context)
        if array is None:
            raise NumbersNeeded(
                f"{step}: it joins sizes and {name}, which is only known at run time"
            )
        arrays[name] = numbered[name] = array
        if data is None or position in data:
            numbered[name] = np.zeros(array.shape, np.int64)
            if sized is not None:
                for place, tensor in sized.sizes.items():
                    origins[len(origins) + 1] = tensor
                    numbered[name].flat[place] = len(origins)
    values, sources = (Folding(known=dict(known)).evaluate(step) for known in (arrays, numbered))
    return {
        name: SizedArray(
            values[name],
            {k: origins[int(n)] for k, n in enumerate(sources[name].reshape(-1)) if n},
        )
        for name in step.outputs
    }
