"""Sequences and optionals, which exist at import only.

A sequence is a list of tensors whose length and order are known, so an operator on a sequence gives
another sequence, one of its tensors, or a constant.  Of tensors of one type that lie in a box, a
run may take one; other positions and sizes decide shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
import onnx

from graphflow.base.errors import ExtentsLost, InvalidModel, UnsupportedOp
from graphflow.frontends.control_flow.bodies import copies, known_extent
from graphflow.frontends.protos.inference import tensor_type
from graphflow.frontends.protos.steps import ImportStep, Item, derived, existing_axis, only_element
from graphflow.frontends.tensors.context import ImportContext, TensorSequence
from graphflow.frontends.tensors.data_extents import SizedArray
from graphflow.frontends.tensors.values import contents_missing
from graphflow.graph import Array, Removed

Resolver = Callable[[ImportStep, ImportContext], Sequence[Item] | None]


MOST_PARTS = 1000
"""The most tensors that one node may make: each is made by a node, and 100,000 take minutes."""


def _elem_type(name: str, context: ImportContext) -> int:
    return int(tensor_type(*context.type_of(name)).tensor_type.elem_type)


def _refuse(step: ImportStep, what: str, remedy: str) -> NoReturn:
    raise UnsupportedOp(f"{step}: {what}, which is not built; {remedy}")


def _sequence(step: ImportStep, context: ImportContext) -> TensorSequence:
    name = step.input(0)
    name = context.optionals.get(name) or name
    if is_of_a_size(name, context):
        raise ExtentsLost(
            f"{step}: how many tensors sequence {name} has is only known at run time; cut the "
            "model before this node"
        )
    if name not in context.sequences:
        _refuse(step, f"the contents of sequence {name} are not known", "make it of tensors")
    return context.sequences[name]


def is_of_a_size(name: str, context: ImportContext) -> bool:
    """Whether a sequence has as many tensors as a size says."""
    box = context.boxes.get(name, "")
    return context.counted.get(box, {}).get(0, "") in context.sizes


def _number(step: ImportStep, position: int, context: ImportContext) -> Array:
    array = context.constant(step.input(position))
    if array is None:
        asked = f"{step}: input {step.input(position)} (a position or size)"
        raise contents_missing(context.graph, context.known, step.input(position), asked)
    return array


def _position(
    step: ImportStep, operand: int, length: int, context: ImportContext, end: int = 0
) -> int:
    """The position in a sequence of `length` that an input names, counted from the front.

    With `end` 1 the position behind the last tensor is valid too.
    """
    place = int(only_element(step, _number(step, operand, context), "its position", "iu"))
    if not -length <= place < length + end:
        raise InvalidModel(f"{step}: position {place} is not in a sequence of {length} tensors")
    return place + length if place < 0 else place


def _construct(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    names = tuple(step.node.input)
    context.add_sequence(step.node.output[0], TensorSequence(_elem_type(names[0], context), names))
    return ()


def _empty(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    elem_type = step.attribute("dtype", onnx.TensorProto.FLOAT)
    context.add_sequence(step.node.output[0], TensorSequence(elem_type, ()))
    return ()


def _at(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    if step.input(0) in context.boxes:
        return _taken_row(step, context.boxes[step.input(0)], context)
    names = _sequence(step, context).names
    if context.constant(step.input(1)) is None and _are_alike(names, context):
        return _at_position_of_run(step, names, context)
    place = _position(step, 1, len(names), context)
    return copies(step, {step.node.output[0]: names[place]})


def _are_alike(names: Sequence[str], context: ImportContext) -> bool:
    """Whether all tensors of a sequence have one type."""
    if not names or any(name in context.counted for name in names):
        return False
    return len({context.type_of(name) for name in names}) == 1


def _at_position_of_run(
    step: ImportStep, names: Sequence[str], context: ImportContext
) -> Sequence[Item]:
    """The tensor at a position that a run computes: a row of all of them in one box."""
    axes = context.new_constant(f"{step.name}/axes", np.array([0], np.int64))
    rows = [context.unique_tensor_name(f"{step.name}/row{k}") for k in range(len(names))]
    box = context.unique_tensor_name(f"{step.name}/box")
    return [
        *(
            derived(step, "Unsqueeze", [name, axes], [row], f"row_{k}")
            for k, (name, row) in enumerate(zip(names, rows, strict=True))
        ),
        derived(step, "Concat", rows, [box], "box", axis=0),
        *_taken_row(step, box, context),
    ]


def _taken_row(step: ImportStep, box: str, context: ImportContext) -> list[Item]:
    """The row of a box at the position that is the second input."""
    shape = context.new_constant(f"{step.name}/shape", np.array([], np.int64))
    place = context.unique_tensor_name(f"{step.name}/position")
    return [
        derived(step, "Reshape", [step.input(1), shape], [place], "position"),
        derived(step, "Gather", [box, place], [step.node.output[0]], "taken", axis=0),
    ]


def _length(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    if (box := context.boxes.get(step.input(0))) is not None:
        count = context.counted.get(box, {}).get(0)
        if count in context.sizes:
            number = np.array(context.sizes[count].hi, np.int64)
            context.add_sized(step.node.output[0], SizedArray(number, {0: count}))
            return ()
        if count is not None:
            return copies(step, {step.node.output[0]: count})
        context.add_constant(step.node.output[0], np.array(context.type_of(box)[1][0], np.int64))
        return ()
    names = _sequence(step, context).names
    context.add_constant(step.node.output[0], np.array(len(names), np.int64))
    return ()


def _insert(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    given = _sequence(step, context)
    names = given.names
    place = _position(step, 2, len(names), context, 1) if step.input(2) else len(names)
    result = (*names[:place], step.input(1), *names[place:])
    context.add_sequence(
        step.node.output[0], TensorSequence(_elem_type(step.input(1), context), result)
    )
    return ()


def _erase(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    given = _sequence(step, context)
    names = given.names
    last = len(names) - 1
    place = _position(step, 1, len(names), context) if step.input(1) else last
    result = names[:place] + names[place + 1 :]
    context.add_sequence(step.node.output[0], TensorSequence(given.elem_type, result))
    return ()


def _joined_rows(step: ImportStep, box: str, context: ImportContext) -> Sequence[Item]:
    """The rows of a box, joined along an axis of theirs or along a new one."""
    _, shape = context.type_of(box)
    is_new = bool(step.attribute("new_axis", 0))
    axis = existing_axis(step, step.attribute("axis"), len(shape) - (not is_new))
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape))]
    (result,) = step.node.output
    moved = result if is_new else context.unique_tensor_name(f"{result}/moved")
    steps: list[Item] = [derived(step, "Transpose", [box], [moved], "moved", perm=order)]
    if is_new:
        return steps
    joined = context.new_constant(f"{result}/joined", np.array([-1], np.int64))
    before, behind, wanted = (
        context.unique_tensor_name(f"{result}/{part}") for part in ("before", "behind", "shape")
    )
    return [
        *steps,
        derived(step, "Shape", [moved], [before], "before", end=axis),
        derived(step, "Shape", [moved], [behind], "behind", start=axis + 2),
        derived(step, "Concat", [before, joined, behind], [wanted], "shape", axis=0),
        derived(step, "Reshape", [moved, wanted], [result], "joined"),
    ]


def _concat(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    if step.input(0) in context.boxes:
        return _joined_rows(step, context.boxes[step.input(0)], context)
    names, axis = _sequence(step, context).names, step.attribute("axis")
    (result,) = step.node.output
    if not names:
        _refuse(step, "an empty sequence is concatenated", "put a tensor in it")
    steps: list[Item] = []
    if step.attribute("new_axis", 0):
        axes = context.new_constant(f"{result}/axes", np.array([axis], np.int64))
        rows = [context.unique_tensor_name(f"{result}/{k}") for k in range(len(names))]
        steps += [
            derived(step, "Unsqueeze", [name, axes], [row], f"row_{k}")
            for k, (name, row) in enumerate(zip(names, rows, strict=True))
        ]
        names = tuple(rows)
    return [*steps, derived(step, "Concat", names, [result], "concat", axis=axis)]


def _split(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    source, (result,) = step.input(0), step.node.output
    _, shape = context.type_of(source)
    axis = existing_axis(step, step.attribute("axis", 0), len(shape))
    if context.counted.get(source, {}).get(axis, "") in context.sizes and not step.input(1):
        return _rows_along_size(step, axis, context)
    sizes = _sizes(step, known_extent(step, source, axis, context), context)
    if len(sizes) > MOST_PARTS:
        _refuse(step, f"it makes {len(sizes)} tensors, more than {MOST_PARTS}", "make larger ones")
    parts = [context.unique_tensor_name(f"{result}/{k}") for k in range(len(sizes))]
    context.add_sequence(result, TensorSequence(_elem_type(source, context), tuple(parts)))
    if not parts:
        return ()
    given = context.new_constant(f"{result}/sizes", np.array(sizes, np.int64))
    if step.input(1) or step.attribute("keepdims", 1):
        return [derived(step, "Split", [source, given], parts, "split", axis=axis)]
    rows = [context.unique_tensor_name(f"{part}/row") for part in parts]
    axes = context.new_constant(f"{result}/axes", np.array([axis], np.int64))
    squeezes = [
        derived(step, "Squeeze", [row, axes], [part], f"squeeze_{k}")
        for k, (row, part) in enumerate(zip(rows, parts, strict=True))
    ]
    return [derived(step, "Split", [source, given], rows, "split", axis=axis), *squeezes]


def _rows_along_size(step: ImportStep, axis: int, context: ImportContext) -> Sequence[Item]:
    """The elements along an axis, of which a run decides how many there are, as rows of a box."""
    source, (result,) = step.input(0), step.node.output
    shape = context.type_of(source)[1]
    box = context.boxes[result] = context.unique_tensor_name(f"{result}/rows")
    context.graph.removed[result] = Removed("a sequence of which a run decides the length", box)
    order = [axis, *(k for k in range(len(shape)) if k != axis)]
    if not step.attribute("keepdims", 1):
        return [derived(step, "Transpose", [source], [box], "rows", perm=order)]
    rows = context.unique_tensor_name(f"{result}/moved")
    axes = context.new_constant(f"{result}/axes", np.array([axis + 1], np.int64))
    return [
        derived(step, "Transpose", [source], [rows], "moved", perm=order),
        derived(step, "Unsqueeze", [rows, axes], [box], "rows"),
    ]


def _sizes(step: ImportStep, extent: int, context: ImportContext) -> list[int]:
    """The extents of the parts: equal ones with a shorter last part, a given list, or all 1."""
    if not step.input(1):
        return [1] * extent
    split = _number(step, 1, context)
    if split.ndim > 1:
        raise InvalidModel(f"{step}: the sizes have {split.ndim} axes; one list is needed")
    if split.ndim:
        return [int(n) for n in split.tolist()]
    size = int(split.item())
    if size < 1:
        raise InvalidModel(f"{step}: parts of {size} elements")
    return [min(size, extent - start) for start in range(0, extent, size)]


def _identity(step: ImportStep, context: ImportContext) -> Sequence[Item] | None:
    """Another name for a sequence or an optional; None for a tensor, for which there is a
    kernel."""
    source, result = step.input(0), step.node.output[0]
    if source in context.optionals:
        context.add_optional(result, context.optionals[source])
    elif source in context.sequences:
        context.add_sequence(result, context.sequences[source])
    elif source in context.boxes:
        context.boxes[result] = context.boxes[source]
        context.graph.removed[result] = context.graph.removed[source]
    else:
        return None
    return ()


def _optional(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    context.add_optional(step.node.output[0], step.input(0) or None)
    return ()


def _has_element(step: ImportStep, context: ImportContext) -> Sequence[Item] | None:
    source = step.input(0)
    if source in context.objects:
        return None  # a run decides
    held = context.optionals.get(source, source)
    context.add_constant(step.node.output[0], np.array(bool(held)))
    return ()


def _get_element(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    source = step.input(0)
    held = context.optionals.get(source, source)
    if held is None:
        raise InvalidModel(f"{step}: optional {source} is empty")
    return copies(step, {step.node.output[0]: held})


SEQUENCES: dict[str, Resolver] = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceAt": _at,
    "SequenceLength": _length,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "ConcatFromSequence": _concat,
    "SplitToSequence": _split,
    "Identity": _identity,
    "Optional": _optional,
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
}
"""The function for each operator on sequences.

It returns None if the node has tensors only, which a kernel handles.
"""
