"""The sizes of a run: extents of its inputs that a program leaves open.

In: the spec of a program and the arrays that a run gives.  Out: the value of each size.  What
always holds: all axes of one size have that extent, it is within the bounds of the program, and the
relations between sizes hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel
from graphflow.program import InputSize, OpenTensor, ProgramSpec, TensorSpec


def open_axes(spec: ProgramSpec) -> dict[int, tuple[int, ...]]:
    """The axes of each input whose extents a run decides, by the number of the input."""
    found: dict[int, tuple[int, ...]] = {}
    for size in spec.sizes:
        for number, axis in size.axes:
            found[number] = (*found.get(number, ()), axis)
    return found


def fits(shape: tuple[int, ...], room: tuple[int, ...], sized: Collection[int]) -> bool:
    """Whether an array of `shape` fits, where the extents of the axes in `sized` are open."""
    if shape == room or not sized:
        return shape == room
    return len(shape) == len(room) and all(
        axis in sized or n == m for axis, (n, m) in enumerate(zip(shape, room, strict=True))
    )


class AdmittedShapes:
    """The shapes of inputs that a program takes, prepared for a question in each run."""

    __slots__ = ("_bounds", "_inputs", "_relations")

    def __init__(self, spec: ProgramSpec) -> None:
        named = {axis: size.name for size in spec.sizes for axis in size.axes}
        self._inputs = {
            tensor.name: tuple(named.get((k, axis), n) for axis, n in enumerate(tensor.shape))
            for k, tensor in enumerate(spec.inputs)
        }
        self._bounds = {size.name: (size.lo, size.hi) for size in spec.sizes}
        self._relations = spec.relations

    def admit(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether the program runs with inputs of these shapes; others may have any shape."""
        extents: dict[str, int] = {}
        for name, shape in shapes.items():
            wanted = self._inputs.get(name)
            if wanted is None or len(wanted) != len(shape):
                return False
            for extent, n in zip(wanted, shape, strict=True):
                if isinstance(extent, int):
                    if extent != n:
                        return False
                elif extents.setdefault(extent, n) != n:
                    return False
        for name, extent in extents.items():
            lo, hi = self._bounds[name]
            if not lo <= extent <= hi:
                return False
        return all(relation.may_hold(extents) for relation in self._relations)


def with_size_names(spec: ProgramSpec, tensor: TensorSpec) -> OpenTensor:
    """An input as users see it: with the names of sizes in place of the room for them."""
    number = next(k for k, known in enumerate(spec.inputs) if known.name == tensor.name)
    names = {axis: size.name for size in spec.sizes for k, axis in size.axes if k == number}
    extents = tuple(names.get(axis, n) for axis, n in enumerate(tensor.shape))
    return OpenTensor(tensor.name, tensor.dtype, extents)


def size_given(
    size: InputSize, spec: ProgramSpec, arrays: Sequence[NDArray[Any]]
) -> NDArray[np.int64]:
    """The extent that a run's inputs have along all axes of a size.

    Raises InvalidModel, with the inputs that differ, if they have several, and for an extent beyond
    the bounds of the program.
    """
    number, axis = size.axes[0]
    extent = arrays[number].shape[axis]
    for other, other_axis in size.axes:
        if arrays[other].shape[other_axis] != extent:
            raise InvalidModel(
                f"{_axis(spec, arrays, other, other_axis)}, and "
                f"{_axis(spec, arrays, number, axis)}; both have the size {size.name}"
            )
    if not size.lo <= extent <= size.hi:
        raise InvalidModel(
            f"{_axis(spec, arrays, number, axis)}; the program is for a size {size.name} from "
            f"{size.lo} to {size.hi}"
        )
    return np.array(extent, np.int64)


def require_relations(spec: ProgramSpec, arrays: Sequence[NDArray[Any]]) -> None:
    """Raise InvalidModel, with the inputs that disagree, where a relation between sizes fails."""
    sizes = {size.name: size for size in spec.sizes}
    for relation in spec.relations:
        extents = {name: int(arrays[size.input]) for name, size in sizes.items()}
        if not relation.may_hold(extents):
            related = (sizes[name] for name in (relation.size, *dict(relation.factors)))
            axes = ", ".join(_axis(spec, arrays, *size.axes[0]) for size in related)
            raise InvalidModel(
                f"{axes}; {relation} has to hold, and that would be {relation.value(extents)}"
            )


def _axis(spec: ProgramSpec, arrays: Sequence[NDArray[Any]], number: int, axis: int) -> str:
    name, extent = spec.inputs[number].name, arrays[number].shape[axis]
    return f"input {name!r} has {extent} elements along axis {axis}"
