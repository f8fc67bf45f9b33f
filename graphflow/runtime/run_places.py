"""Where the inputs and outputs of a run lie in an arena, once the shapes of the run are known.

In: an arena and the shapes of a run.  Out: for each input, the view of its staging buffer that the
run copies the input to; for each output, the buffer or the part of a buffer that holds the result.
What always holds: successive runs with equal shapes share one `RunPlaces`, the results are those
that `Results` gives, and inputs of other names, types or shapes are not taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphflow.runtime.aligned_memory import Recycled, data_address, lies_in_place
from graphflow.runtime.results import is_kept_whole
from graphflow.runtime.run_sizes import RunShapes
from graphflow.runtime.step_table import Arena

GivenInput: TypeAlias = "tuple[int, str, np.dtype[Any]]"
"""The number, the name and the type, in native byte order, of an input that runs are given."""


class RunPlaces:
    """The inputs and outputs in an arena, for every run whose shapes give `decided`.

    - inputs: (name, type, shape, number, view) of each input: the view of its staging buffer that
      the array is copied to; None for an input that kernels read in the caller's array.  An array
      without elements is copied too: its address belongs to no buffer.
    - own: (name, position of its address, memory, shape) of each result at the beginning of an
      output buffer, which the caller keeps; the shape is None if the result fills the buffer.
    - copied: (name, position of its address, address, view) of each result that is copied from a
      view of an output buffer after the run.
    """

    __slots__ = ("_addresses", "_names", "_staged", "copied", "decided", "inputs", "own")

    def __init__(
        self,
        arena: Arena,
        decided: RunShapes,
        given: Sequence[GivenInput],
        names: Sequence[str],
        shapes: Mapping[int, tuple[int, ...]],
    ) -> None:
        """`given` are the inputs to give places to, `names` the names of all outputs in order,
        and `shapes` the shapes of trimmed outputs by number."""
        self.decided, self._names = decided, tuple(names)
        self._addresses, self._staged = arena.addresses, arena.staged
        self.inputs = [
            (name, dtype, shape, number, _staging_part(arena.staging[number], shape))
            for (number, name, dtype), shape in zip(given, decided.shapes, strict=True)
        ]
        self.own: list[tuple[str, int, Recycled, tuple[int, ...] | None]] = []
        self.copied: list[tuple[str, int, int, NDArray[Any]]] = []
        first = len(arena.staging)
        for number, (name, memory) in enumerate(zip(names, arena.outputs, strict=True)):
            shape = shapes.get(number)
            part = None if shape is None else _copied(arena.room(number), shape)
            if part is None:
                self.own.append((name, first + number, memory, shape))
            else:
                self.copied.append((name, first + number, data_address(part), part))

    def take(self, inputs: Mapping[str, Any]) -> list[NDArray[Any]] | None:
        """Have the run read these inputs, whose arrays are to be kept until it ends.

        None, and no run may follow, unless all are arrays of the names, types and shapes that this
        is for, which kernels can read in place where nothing is copied.
        """
        addresses: Any = self._addresses
        arrays: list[NDArray[Any]] = []
        for name, dtype, shape, number, part in self.inputs:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            if part is not None:
                np.copyto(part, array)
                addresses[number] = self._staged[number]
            elif lies_in_place(array):
                addresses[number] = data_address(array)
            else:
                return None
            arrays.append(array)  # another thread may take it out of the mapping meanwhile
        for place, element in self.decided.elements:
            if arrays[place].item() != element:
                return None
        return arrays

    def results(self) -> dict[str, NDArray[Any]]:
        """The arrays of a run's outputs, which it writes, by name and in order; those in `copied`
        are to be copied behind the run."""
        addresses: Any = self._addresses
        found: dict[str, Any] = dict.fromkeys(self._names) if self.copied else {}
        for name, position, memory, shape in self.own:
            found[name] = memory.array(shape)
            addresses[position] = memory.address
        for name, position, address, part in self.copied:
            found[name] = part
            addresses[position] = address
        return found


def _staging_part(staging: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The view of a staging buffer that an array of this shape is copied to; None for one that is
    read where it is."""
    if shape == staging.shape and staging.size:
        return None
    return staging[tuple(map(slice, shape))]


def _copied(room: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The view of an output buffer that holds a result of this shape; None if the caller keeps the
    buffer, which needs no copy."""
    part = room[tuple(map(slice, shape))]
    return None if is_kept_whole(part, room) else part
