"""Where an arena has the inputs and the outputs of runs whose shapes are known.

In: an arena, and what the shapes of a run decide.  Out: for each input the part of its staging that
is copied to, and for each output what of a buffer is its result.  What always holds: both are found
once for successive runs with these shapes, and results are those that `Results` gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from graphflow.runtime.aligned_memory import Recycled, data_address
from graphflow.runtime.results import is_kept_whole
from graphflow.runtime.run_sizes import RunShapes
from graphflow.runtime.step_table import Arena


class ResultPlace:
    """Where kernels write an output of a run.

    `copied` is the part of a buffer of the arena that has to be copied behind the run; None where
    the result is the beginning of a buffer of its own.
    """

    __slots__ = ("_memory", "_shape", "address", "copied")

    def __init__(
        self, memory: Recycled, shape: tuple[int, ...] | None, copied: NDArray[Any] | None
    ) -> None:
        """`shape` is that of the result, None if it is all of its buffer."""
        self._memory, self._shape, self.copied = memory, shape, copied
        self.address = 0 if copied is None else data_address(copied)

    def begin(self) -> NDArray[Any] | None:
        """The result of a run that begins, where it is not copied; kernels write to `address`."""
        if self.copied is not None:
            return None
        array = self._memory.array(self._shape)
        self.address = self._memory.address
        return array


class RunPlaces:
    """The places of an arena for runs with the shapes that `decided` what it says.

    `parts` are those of the staging of inputs, in the order of `numbers`; None for an input that
    kernels may read where it is.  Arrays without elements are copied too: their addresses are no
    buffers', and asking for them takes longer.
    """

    __slots__ = ("decided", "parts", "results")

    def __init__(
        self,
        arena: Arena,
        decided: RunShapes,
        numbers: Sequence[int],
        shapes: Mapping[int, tuple[int, ...]],
    ) -> None:
        """`shapes` are those of trimmed results, by the numbers of outputs."""
        self.decided = decided
        self.parts = [
            arena.staging[number][decided.parts.get(number, ...)]
            if number in decided.parts or not arena.staging[number].size
            else None
            for number in numbers
        ]
        self.results = [
            ResultPlace(memory, shapes.get(number), _copied(arena, number, shapes.get(number)))
            for number, memory in enumerate(arena.outputs)
        ]


def _copied(arena: Arena, number: int, shape: tuple[int, ...] | None) -> NDArray[Any] | None:
    """What a run has to copy of an output's buffer; None where it keeps that."""
    if shape is None:
        return None
    room = arena.room(number)
    part = room[tuple(map(slice, shape))]
    return None if is_kept_whole(part, room) else part
