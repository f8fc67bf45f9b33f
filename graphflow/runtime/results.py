"""From the output buffers of a run to the arrays that the caller gets.

In: a spec, one array for each of its outputs, hidden ones included, as the kernels left them, and
the sizes of the run.  Out: the model's own outputs by name.  What always holds: guards are checked
before anything is returned, and no element beyond a trimmed extent reaches the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from graphflow.base.errors import RunError, VerifyError, outside_interval
from graphflow.program import ProgramSpec

Buffers: TypeAlias = "Sequence[NDArray[Any]]"

MOST_PARTS = 512
"""For so many extents it is remembered which part of an output they leave."""


class _TrimmedTensor:
    """An output with all that is trimmed of it, and the parts that are left for known extents."""

    __slots__ = ("_known", "_room", "_trims", "name", "number")

    def __init__(self, spec: ProgramSpec, number: int) -> None:
        self.name, self.number = spec.outputs[number].name, number
        self._room = spec.outputs[number].shape
        self._trims = [trim for trim in spec.trimmed if trim.output == number]
        self._known: dict[tuple[int, ...], tuple[slice, ...]] = {}

    def view(self, buffers: Buffers, sizes: Mapping[int, int]) -> NDArray[Any]:
        """What is left of the buffer; VerifyError for an extent that only a wrong kernel gives."""
        extents = tuple(
            [
                sizes[t.extents] if t.is_size else int(buffers[t.extents].item(t.element))
                for t in self._trims
            ]
        )
        part = self._known.get(extents)
        if part is None:
            part = tuple(map(slice, self._shape(extents)))
            if len(self._known) < MOST_PARTS:
                self._known[extents] = part
        view: NDArray[Any] = buffers[self.number][part]
        return view

    @property
    def kind(self) -> object:
        """What is the same for tensors of which sizes leave the same."""
        return self._room, tuple((t.axis, t.extents, t.element, t.is_size) for t in self._trims)

    @property
    def is_known(self) -> bool:
        """Whether sizes decide what is left."""
        return all(trim.is_size for trim in self._trims)

    def shape(self, sizes: Mapping[int, int]) -> tuple[int, ...]:
        """The shape of what is left, where it `is_known`."""
        return self._shape([sizes[trim.extents] for trim in self._trims])

    def _shape(self, extents: Sequence[int]) -> tuple[int, ...]:
        shape = list(self._room)
        for trim, extent in zip(self._trims, extents, strict=True):
            bound = self._room[trim.axis]
            if not 0 <= extent <= bound:
                raise VerifyError(
                    f"output {self.name} has extent {extent} on axis {trim.axis}, and room for "
                    f"{bound}"
                )
            shape[trim.axis] = min(extent, shape[trim.axis])
        return tuple(shape)


class Results:
    """The results of a program, prepared for each run.

    An output that is trimmed becomes a contiguous copy, so that it does not keep a larger buffer
    alive; but where it is one piece and half of its buffer, a view.  All others are the buffers
    themselves.
    """

    __slots__ = ("_alike", "_guards", "_names", "_objects", "_packed", "_trimmed")

    def __init__(self, spec: ProgramSpec) -> None:
        self._names = tuple(tensor.name for tensor in spec.results)
        self._guards = spec.guards
        # In ascending order, so that each place counts the objects that were put in front of it.
        self._objects = sorted(spec.objects_out, key=lambda known: known.place)
        self._packed = sorted(spec.packed, key=lambda packed: packed.place)
        numbers = dict.fromkeys(trim.output for trim in spec.trimmed)
        self._trimmed = [_TrimmedTensor(spec, number) for number in numbers]
        # The keys and values of all layers of a decoder have one shape.
        alike: dict[object, list[_TrimmedTensor]] = {}
        for tensor in self._trimmed:
            alike.setdefault(tensor.kind, []).append(tensor)
        self._alike = [(same[0], [one.number for one in same]) for same in alike.values()]

    def checked(
        self, buffers: Buffers, sizes: Mapping[int, int], viewed: Collection[str] = ()
    ) -> dict[str, Any]:
        """The model's outputs that kernels wrote, by name and in order; those in `viewed` are views
        of their buffers in any case.

        Raises RunError if a guard does not hold.
        """
        if self._guards:
            self.require_guards(buffers)
        results: dict[str, Any] = self.named(buffers)
        for name, view in self.trimmed(buffers, sizes).items():
            is_kept = name in viewed or is_kept_whole(view, results[name])
            results[name] = view if is_kept else view.copy()
        return results

    def with_objects(self, results: dict[str, Any], objects: Mapping[str, Any]) -> dict[str, Any]:
        """The model's outputs in its order: arrays that kernels wrote, and objects from sections;
        lists and optionals in the place of their tensors."""
        if not self._objects and not self._packed:
            return results
        parts = {self._names[number] for packed in self._packed for number in packed.outputs}
        found = [(name, array) for name, array in results.items() if name not in parts]
        others = [(known.place, known.name, objects[known.name]) for known in self._objects]
        for packed in self._packed:
            tensors = [results[self._names[number]] for number in packed.outputs]
            value = tensors if packed.is_list else (tensors[0] if tensors else None)
            others.append((packed.place, packed.name, value))
        for place, name, value in sorted(others, key=lambda other: other[0]):
            found.insert(place, (name, value))
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

    def trimmed(self, buffers: Buffers, sizes: Mapping[int, int]) -> dict[str, NDArray[Any]]:
        """The trimmed outputs by name, as views of their buffers; raises VerifyError."""
        return {tensor.name: tensor.view(buffers, sizes) for tensor in self._trimmed}

    @property
    def are_plain(self) -> bool:
        """Whether all results are buffers, or parts of them that sizes decide, of which no guard
        looks at one."""
        cut = {tensor.number for tensor in self._trimmed}
        looked_at = {guard.output for guard in self._guards}
        has_others = self._objects or self._packed or cut & looked_at
        return not has_others and all(tensor.is_known for tensor in self._trimmed)

    def known_shapes(self, sizes: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """The shapes of trimmed results by the numbers of outputs, where they `are_plain`."""
        found: dict[int, tuple[int, ...]] = {}
        for tensor, numbers in self._alike:
            found.update(dict.fromkeys(numbers, tensor.shape(sizes)))
        return found


def leading_part(buffer: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A result of this shape at the beginning of each axis of its buffer, for the caller."""
    view = buffer[tuple(map(slice, shape))]
    return view if is_kept_whole(view, buffer) else view.copy()


def is_kept_whole(view: NDArray[Any], whole: NDArray[Any]) -> bool:
    """Whether a result is a view of its buffer, and no copy."""
    return 2 * view.size >= whole.size and view.flags.c_contiguous
