"""From the output buffers of a run to the arrays that the caller gets.

In: a spec and one array for each of its outputs, hidden ones included, as the kernels left them.
Out: the model's own outputs by name.  What always holds: guards are checked before anything is
returned, and no element beyond a trimmed extent reaches the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from graphflow.base.errors import RunError, VerifyError, outside_interval
from graphflow.program import ProgramSpec, TrimmedOutput

Buffers: TypeAlias = "Sequence[NDArray[Any]]"


@dataclass(frozen=True, slots=True)
class _TrimmedTensor:
    """An output with all that is trimmed of it; its room is the shape of its buffer."""

    name: str
    number: int
    room: tuple[int, ...]
    trims: tuple[TrimmedOutput, ...]

    def view(self, buffers: Buffers) -> NDArray[Any]:
        """What is left of the buffer; VerifyError for an extent that only a wrong kernel gives."""
        extents = list(self.room)
        for trim in self.trims:
            extent, bound = int(buffers[trim.extents].item(trim.element)), self.room[trim.axis]
            if not 0 <= extent <= bound:
                raise VerifyError(
                    f"output {self.name} has extent {extent} on axis {trim.axis}, and room for "
                    f"{bound}"
                )
            extents[trim.axis] = min(extent, extents[trim.axis])
        view: NDArray[Any] = buffers[self.number][tuple(map(slice, extents))]
        return view


class Results:
    """The results of a program, prepared for each run.

    An output that is trimmed becomes a contiguous copy, so that it does not keep a larger buffer
    alive; but where it is one piece and half of its buffer, a view.  All others are the buffers
    themselves.
    """

    __slots__ = ("_guards", "_names", "_objects", "_trimmed")

    def __init__(self, spec: ProgramSpec) -> None:
        self._names = tuple(tensor.name for tensor in spec.results)
        self._guards = spec.guards
        # In ascending order, so that each place counts the objects that were put in front of it.
        self._objects = sorted(spec.objects_out, key=lambda known: known.place)
        self._trimmed = [
            _TrimmedTensor(spec.outputs[number].name, number, spec.outputs[number].shape, trims)
            for number in dict.fromkeys(trim.output for trim in spec.trimmed)
            if (trims := tuple(trim for trim in spec.trimmed if trim.output == number))
        ]

    def checked(self, buffers: Buffers, viewed: Collection[str] = ()) -> dict[str, Any]:
        """The model's outputs that kernels wrote, by name and in order; those in `viewed` are views
        of their buffers in any case.

        Raises RunError if a guard does not hold.
        """
        if self._guards:
            self.require_guards(buffers)
        results: dict[str, Any] = self.named(buffers)
        for name, view in self.trimmed(buffers).items():
            whole = results[name]
            is_small = 2 * view.size < whole.size or not view.flags.c_contiguous
            results[name] = view.copy() if is_small and name not in viewed else view
        return results

    def with_objects(self, results: dict[str, Any], objects: Mapping[str, Any]) -> dict[str, Any]:
        """The model's outputs in its order: arrays that kernels wrote, and objects from
        sections."""
        if not self._objects:
            return results
        found = list(results.items())
        for known in self._objects:
            found.insert(known.place, (known.name, objects[known.name]))
        return dict(found)

    def named(self, buffers: Buffers) -> dict[str, NDArray[Any]]:
        """The buffers of the model's own outputs, by name and in order."""
        return dict(zip(self._names, buffers, strict=False))

    def require_guards(self, buffers: Buffers) -> None:
        """Raise RunError, with the first element outside of its interval, if a guard does not
        hold."""
        for guard in self._guards:
            array = buffers[guard.output]
            if array.size == 1 and guard.lo <= array.item() <= guard.hi:
                continue  # comparing arrays of one element takes ten times as long
            outside = (array < guard.lo) | (array > guard.hi)
            if outside.any():
                found = array[outside][0]
                raise RunError(outside_interval(guard.subject, found, guard.lo, guard.hi))

    def trimmed(self, buffers: Buffers) -> dict[str, NDArray[Any]]:
        """The trimmed outputs by name, as views of their buffers; raises VerifyError."""
        return {tensor.name: tensor.view(buffers) for tensor in self._trimmed}
