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


class RunPlaces:
    """The places of an arena for runs with the shapes that `decided` what it says.

    - parts: those of the staging of inputs, in the order of `numbers`; None for an input that
      kernels may read where it is.  Arrays without elements are copied too: their addresses are no
      buffers', and asking for them takes longer.
    - own: (name, position of its address, memory, shape) of each result that is the beginning of a
      buffer of its own, whose shape is None where it is all of that.
    - copied: (name, position of its address, address, part) of each result that has to be copied
      behind the run from a part of a buffer of the arena.
    """

    __slots__ = ("copied", "decided", "own", "parts")

    def __init__(
        self,
        arena: Arena,
        decided: RunShapes,
        numbers: Sequence[int],
        names: Sequence[str],
        shapes: Mapping[int, tuple[int, ...]],
    ) -> None:
        """`names` are those of results, `shapes` of trimmed ones, by the numbers of outputs."""
        self.decided = decided
        self.parts = [
            arena.staging[number][decided.parts.get(number, ...)]
            if number in decided.parts or not arena.staging[number].size
            else None
            for number in numbers
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


def _copied(room: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """What a run has to copy of an output's buffer; None where it keeps that."""
    part = room[tuple(map(slice, shape))]
    return None if is_kept_whole(part, room) else part
