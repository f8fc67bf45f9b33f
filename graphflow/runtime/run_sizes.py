"""The sizes of a run: extents of its inputs that a program leaves open, and integers that are one.

In: the spec of a program and the arrays that a run gives, by the numbers of inputs.  Out: the value
of each size, by the number of the input that holds it.  What always holds: all axes of one size
have that extent, an input that states it has it as its element, each size is within the bounds of
the program, and the relations between sizes hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel, VerifyError
from graphflow.program import InputSize, OpenTensor, ProgramSpec, TensorSpec

ArrayShapes: TypeAlias = "tuple[tuple[int, ...], ...]"
Elements: TypeAlias = "tuple[tuple[int, int], ...]"
"""Pairs of the place of an input among those that a run gives, and its only element."""


class RunShapes(Struct, frozen=True):
    """The shapes of a run's arrays, in the order of the inputs, and what they decide: the value of
    each size, by the number of the input that holds it.

    `elements` are the elements of inputs that state sizes, with the places of these inputs.
    """

    shapes: ArrayShapes
    sizes: Mapping[int, int]
    elements: Elements = ()


MOST_SHAPES = 512
"""As many shapes of runs are remembered: a decoder has others for each token."""


class DecidedShapes:
    """What the shapes of runs decide, remembered: small programs take less time than finding it.

    The shapes of a run are those of its arrays, in the order of the inputs.  The elements that
    state sizes decide with them.
    """

    __slots__ = ("_bounds", "_computed", "_inputs", "_known", "_relations", "_stating")

    def __init__(self, spec: ProgramSpec) -> None:
        # The spec is not kept here: it has the model's weights until these are released.
        named = {axis: size.name for size in spec.sizes for axis in size.axes}
        self._inputs = {
            tensor.name: tuple(named.get((k, axis), n) for axis, n in enumerate(tensor.shape))
            for k, tensor in enumerate(spec.inputs)
            if k not in spec.held
        }
        self._bounds = {size.name: (size.input, size.lo, size.hi) for size in spec.sizes}
        self._computed, self._relations = spec.computed, spec.relations
        places = {name: place for place, name in enumerate(self._inputs)}
        stating = [
            (spec.inputs[size.element].name, size.name)
            for size in spec.sizes
            if size.element is not None
        ]
        self._stating = tuple((places[name], name, size) for name, size in stating)
        """The inputs whose elements are sizes: place, name, and the name of the size."""
        self._known: dict[ArrayShapes | tuple[ArrayShapes, Elements], RunShapes] = {}

    @property
    def stated(self) -> dict[str, tuple[int, int]]:
        """The least and the most of each size that is the element of an input, by its name."""
        return {name: self._bounds[size][1:] for _, name, size in self._stating}

    def elements(self, arrays: Sequence[Any]) -> Elements:
        """The elements of a run's arrays, in the order of the inputs, that state sizes.

        Any other array states -1, which no size is.
        """
        if not self._stating:
            return ()
        return tuple((place, stated_integer(arrays[place])) for place, _, _ in self._stating)

    def elements_in(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """The same of arrays by the names of inputs, as far as they are among these."""
        stating = (name for _, name, _ in self._stating if name in inputs)
        return {name: stated_integer(inputs[name]) for name in stating}

    def admit(
        self, shapes: Mapping[str, tuple[int, ...]], elements: Mapping[str, int] | None = None
    ) -> bool:
        """Whether the program runs with inputs of these shapes, of which some have these elements;
        others may have any."""
        if not shapes.keys() <= self._inputs.keys():
            return False
        wanted = [self._inputs[name] for name in shapes]
        known = elements or {}
        stated = [(place, known[name]) for place, name, _ in self._stating if name in known]
        return self._extents(shapes.values(), wanted, stated) is not None

    def decide(self, shapes: ArrayShapes, elements: Elements = ()) -> RunShapes | None:
        """What these decide; None where `values_of_sizes` raises, or one has no room."""
        key = (shapes, elements) if elements else shapes
        found = self._known.get(key)
        if found is None:
            sizes = self._sizes(shapes, elements)
            if sizes is None:
                return None
            if len(self._known) >= MOST_SHAPES:
                self._known = {}
            self._known[key] = found = RunShapes(shapes, sizes, elements)
        return found

    def _sizes(self, shapes: ArrayShapes, elements: Elements) -> dict[int, int] | None:
        """The value of each size by the input that holds it; None if the program refuses."""
        extents = self._extents(shapes, self._inputs.values(), elements)
        if extents is None:
            return None
        sizes = {self._bounds[name][0]: extent for name, extent in extents.items()}
        for computed in self._computed:
            value = computed.formula.value([sizes[number] for number in computed.operands])
            if not computed.lo <= value <= computed.hi:
                return None
            sizes[computed.input] = value
        return sizes

    def _extents(
        self,
        shapes: Iterable[tuple[int, ...]],
        wanted: Iterable[tuple[int | str, ...]],
        elements: Sequence[tuple[int, int]],
    ) -> dict[str, int] | None:
        """The sizes by name that arrays of these shapes and elements have; None if the program
        refuses one."""
        extents: dict[str, int] = {}
        for shape, axes in zip(shapes, wanted, strict=True):
            if len(shape) != len(axes):
                return None
            for n, extent in zip(shape, axes, strict=True):
                known = extent if isinstance(extent, int) else extents.setdefault(extent, n)
                if n != known:
                    return None
        if elements:
            names = {place: size for place, _, size in self._stating}
            for place, element in elements:
                if extents.setdefault(names[place], element) != element:
                    return None
        for name, n in extents.items():
            _, lo, hi = self._bounds[name]
            if not lo <= n <= hi:
                return None
        return extents if all(one.may_hold(extents) for one in self._relations) else None


def stated_integer(array: Any) -> int:
    """The only element of an integer array; -1 for what is no such array, which runs refuse."""
    is_single = getattr(array, "size", 0) == 1 and array.dtype.kind in "iu"
    return int(array.item()) if is_single else -1


def misfit(spec: ProgramSpec, arrays: Mapping[int, NDArray[Any]]) -> int | None:
    """The number of an input whose array has no shape that the program takes."""
    sized = open_axes(spec)
    for number, array in arrays.items():
        if not fits(array.shape, spec.inputs[number].shape, sized.get(number, ())):
            return number
    return None


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


def with_size_names(spec: ProgramSpec, tensor: TensorSpec) -> OpenTensor:
    """An input as users see it: with the names of sizes in place of the room for them."""
    number = next(k for k, known in enumerate(spec.inputs) if known.name == tensor.name)
    names = {axis: size.name for size in spec.sizes for k, axis in size.axes if k == number}
    extents = tuple(names.get(axis, n) for axis, n in enumerate(tensor.shape))
    return OpenTensor(tensor.name, tensor.dtype, extents)


def values_of_sizes(spec: ProgramSpec, arrays: Mapping[int, NDArray[Any]]) -> dict[int, int]:
    """All sizes of a run: the extents of its inputs, and what is computed from these.

    Raises InvalidModel as `size_given` does and where a relation fails, and VerifyError for a
    computed size beyond its bounds, which import has excluded for runs that it allows.
    """
    values = {size.input: size_given(size, spec, arrays) for size in spec.sizes}
    _require_relations(spec, arrays, values)
    for size in spec.computed:
        value = size.formula.value([values[number] for number in size.operands])
        if not size.lo <= value <= size.hi:
            raise VerifyError(f"{size.name} is {value}, has to be from {size.lo} to {size.hi}")
        values[size.input] = value
    return values


def size_given(size: InputSize, spec: ProgramSpec, arrays: Mapping[int, NDArray[Any]]) -> int:
    """The extent that a run's inputs have along all axes of a size, and the element that states it.

    Raises InvalidModel, with the inputs that differ, if they have several, and for an extent beyond
    the bounds of the program.
    """
    (first, extent), *others = _stated(size, spec, arrays)
    for other, value in others:
        if value != extent:
            raise InvalidModel(f"{other}, and {first}; both have the size {size.name}")
    if not size.lo <= extent <= size.hi:
        raise InvalidModel(
            f"{first}; the program is for a size {size.name} from {size.lo} to {size.hi}"
        )
    return extent


def _require_relations(
    spec: ProgramSpec, arrays: Mapping[int, NDArray[Any]], values: Mapping[int, int]
) -> None:
    """Raise InvalidModel, with the inputs that disagree, where a relation between sizes fails."""
    sizes = {size.name: size for size in spec.sizes}
    for relation in spec.relations:
        extents = {name: values[size.input] for name, size in sizes.items()}
        if not relation.may_hold(extents):
            related = (sizes[name] for name in (relation.size, *dict(relation.factors)))
            given = ", ".join(_stated(size, spec, arrays)[0][0] for size in related)
            raise InvalidModel(f"{given}; {relation.wanted(extents)}")


def _stated(
    size: InputSize, spec: ProgramSpec, arrays: Mapping[int, NDArray[Any]]
) -> list[tuple[str, int]]:
    """What each input of a run says of a size, as text, and the value that it gives to it."""
    found: list[tuple[str, int]] = []
    for number, axis in size.axes:
        name, extent = spec.inputs[number].name, arrays[number].shape[axis]
        found.append((f"input {name!r} has {extent} elements along axis {axis}", extent))
    if size.element is not None:
        value = stated_integer(arrays[size.element])
        found.append((f"input {spec.inputs[size.element].name!r} is {value}", value))
    return found
