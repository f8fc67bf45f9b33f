"""Where the inputs and outputs of a run lie in an arena, once the shapes of the run are known.

In: an arena and the shapes of a run.  Out: for each input, the view of its staging buffer that the
run copies the input to; for each output, the buffer or the part of a buffer that holds the result.
What always holds: successive runs with equal shapes share one `RunPlaces`, and the results are
those that `Results` gives.
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
    """The inputs and outputs in an arena, for every run whose shapes give `decided`.

    - parts: for each input of `numbers`, the view of its staging buffer that the input is copied
      to; None for an input that kernels may read in the caller's array.  An array without elements
      is copied too: its address belongs to no buffer, and asking for it takes longer.
    - own: (name, position of its address, memory, shape) of each result at the beginning of an
      output buffer, which the caller keeps; the shape is None if the result fills the buffer.
    - copied: (name, position of its address, address, view) of each result that is copied from a
      view of an output buffer after the run.
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
        """`numbers` are the inputs to give places to, `names` the names of all outputs in order,
        and `shapes` the shapes of trimmed outputs by number."""
        self.decided = decided
        self.parts = [
            staging[tuple(map(slice, shape))]
            if shape != staging.shape or not staging.size
            else None
            for shape, staging in zip(
                decided.shapes, (arena.staging[number] for number in numbers), strict=True
            )
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
    """The view of an output buffer that holds a result of this shape; None if the caller keeps the
    buffer, which needs no copy."""
    part = room[tuple(map(slice, shape))]
    return None if is_kept_whole(part, room) else part
