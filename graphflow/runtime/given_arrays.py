"""The arrays that a caller gives to a run: numpy's, or any object that exports DLPack.

In: the values of inputs, and the arrays that outputs are to be written into.  Out: numpy arrays
that share memory with them.  What always holds: an array that a run writes into is writable, its
elements are distinct, and two of them share no memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.exceptions import TooHardError
from numpy.typing import ArrayLike, NDArray

from graphflow.base.errors import InvalidModel
from graphflow.program import ProgramSpec, TensorSpec
from graphflow.runtime.aligned_memory import data_address, is_usable
from graphflow.runtime.small_floats import small_floats

_MOST_WORK = 10_000
"""The candidates that are tried to find out whether two strided arrays share an element."""

_DLPACK_ERRORS = (BufferError, RuntimeError, TypeError, ValueError)
"""What exporters and numpy raise for memory of another device, a dtype or a layout that numpy
lacks."""


def given_array(name: str, value: ArrayLike) -> NDArray[Any]:
    """The array of a run for an input; InvalidModel if the value is not an array.

    An object with `__dlpack__` is read in place.  A masked array is refused if it masks an element:
    a run has no masks.
    """
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            masked = np.ma.getmaskarray(value).sum()
            raise InvalidModel(
                f"input {name!r} is a masked array that masks {masked} of its {value.size} "
                "elements; a run has no masks, so give `array.filled(value)`"
            )
        return np.asarray(value)
    try:
        if hasattr(value, "__dlpack__"):
            return _exported(value)
        return np.asarray(value)
    except _DLPACK_ERRORS as error:
        raise InvalidModel(f"input {name!r} is no array: {error}") from error


class OutputPlaces:
    """The outputs that a run can write into arrays of a caller, prepared for a question in each
    run."""

    __slots__ = ("_by_name", "_may_write", "_objects")

    def __init__(self, spec: ProgramSpec) -> None:
        trimmed = {trim.output for trim in spec.trimmed}
        self._by_name = {
            tensor.name: _Place(number, tensor, np.dtype(tensor.dtype), number in trimmed)
            for number, tensor in enumerate(spec.results)
        }
        # An object may hold an array that a section reads.
        self._may_write = not spec.objects_in
        self._objects = frozenset(known.name for known in spec.objects_out)

    def take(self, given: Mapping[str, Any], read: Collection[NDArray[Any]]) -> WrittenArrays:
        """The arrays that a run writes outputs into; `read` are those that it reads in place.

        Raises InvalidModel for a name that is no output, and for an array that does not fit: its
        dtype, or a shape that no run can give; an array that is read-only or shares memory with
        another one.  TypeError if `given` is not a mapping.
        """
        if not isinstance(given, Mapping):
            raise TypeError(
                f"out is a mapping from names of outputs to arrays, not {type(given).__name__}"
            )
        # Without `dict[...]()`, which takes longer than all else here.
        direct: dict[int, NDArray[Any]] = {}
        late: dict[int, NDArray[Any]] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for name, value in given.items():
            place = self._by_name.get(name)
            if place is None:
                raise self._unknown(name)
            array = arrays[name] = place.array(value)
            may_write = self._may_write and not place.is_trimmed and is_usable(array)
            for other in read if may_write else ():
                if np.may_share_memory(array, other):
                    may_write = False
            (direct if may_write else late)[place.number] = array
        if len(arrays) > 1:
            _require_apart(arrays)
        return WrittenArrays(direct, late)

    def _unknown(self, name: str) -> InvalidModel:
        if name in self._objects:
            return InvalidModel(
                f"out names {name!r}, which is no tensor but what onnxruntime makes; leave it out"
            )
        listed = ", ".join(str(place.tensor) for place in self._by_name.values()) or "none"
        return InvalidModel(
            f"there is no output {name!r} that out could name; the outputs: {listed}"
        )


class WrittenArrays(Struct, frozen=True):
    """The arrays that a caller gave for outputs, by the numbers of outputs.

    Kernels write into those in `direct`.  The results of those in `late` are copied behind the run:
    an array is strided, not native, or read by the same run, or the extents of the output are known
    only then.
    """

    direct: Mapping[int, NDArray[Any]]
    late: Mapping[int, NDArray[Any]]

    def copied(self, numbers: Collection[int]) -> WrittenArrays:
        """The same, but the outputs of these numbers are copied behind the run."""
        moved = {number: array for number, array in self.direct.items() if number in numbers}
        if not moved:
            return self
        direct = {number: self.direct[number] for number in self.direct.keys() - moved.keys()}
        return WrittenArrays(direct, {**self.late, **moved})

    def with_states(
        self, spec: ProgramSpec, arrays: Mapping[int, NDArray[Any]]
    ) -> WrittenArrays | None:
        """The same for a run in which all states of a program stay where they are.

        None unless the output of each has the memory of its input, and its room: `arrays` are the
        inputs by number, of which no other one shares memory with it.
        """
        moved: dict[int, NDArray[Any]] = {}
        for state in spec.states:
            given, array = self.late.get(state.output), arrays[state.input]
            if given is None or not (is_usable(given) and is_usable(array)):
                return None
            if not given.shape == array.shape == spec.outputs[state.output].shape:
                return None
            others = (other for number, other in arrays.items() if number != state.input)
            is_same = data_address(given) == data_address(array)
            if not is_same or any(np.may_share_memory(given, other) for other in others):
                return None
            moved[state.output] = given
        late = {number: array for number, array in self.late.items() if number not in moved}
        return WrittenArrays({**self.direct, **moved}, late) if moved else None

    def copy_results(self, results: Mapping[str, NDArray[Any]]) -> None:
        """Copy the results, in the order of outputs, into the arrays of `late`.

        Raises InvalidModel, before any is copied, for an array of another shape.
        """
        if not self.late:
            return
        found = list(results.items())
        for number, array in self.late.items():
            name, result = found[number]
            if array.shape != result.shape:
                raise InvalidModel(
                    f"out gives {list(array.shape)} for the output {name!r}, and this run computes "
                    f"{list(result.shape)}; give an array of that shape, or leave it out"
                )
        for number, array in self.late.items():
            np.copyto(array, found[number][1])


class _Place(Struct, frozen=True):
    """An output, whose number is that of the program; a trimmed one has its largest shape."""

    number: int
    tensor: TensorSpec
    dtype: np.dtype[Any]
    is_trimmed: bool

    def array(self, value: Any) -> NDArray[Any]:
        """The array that the output is written into; InvalidModel if it does not fit."""
        name, shape = self.tensor.name, self.tensor.shape
        array = value if type(value) is np.ndarray else _target(name, value)
        if (array.dtype is not self.dtype and array.dtype.newbyteorder("=") != self.dtype) or not (
            _has_room(shape, array.shape) if self.is_trimmed else array.shape == shape
        ):
            most = "at most " if self.is_trimmed else ""
            raise InvalidModel(
                f"out gives {array.dtype}{list(array.shape)} for the output {name!r}, which is "
                f"{most}{self.tensor.dtype}{list(shape)}"
            )
        if not array.flags.writeable:
            raise InvalidModel(
                f"out gives a read-only array for the output {name!r}; give one that can be written"
            )
        if 0 in array.strides and _has_shared_places(array):
            raise InvalidModel(
                f"out gives an array for the output {name!r} in which several elements have one "
                "place; give one with a place for each"
            )
        return array


def _require_apart(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise InvalidModel if two of the arrays for outputs share an element."""
    for (name, a), (other, b) in combinations(arrays.items(), 2):
        if np.may_share_memory(a, b) and _shares_memory(a, b):
            raise InvalidModel(
                f"out gives arrays for {name!r} and {other!r} that share memory; give other ones"
            )


def _target(name: str, value: Any) -> NDArray[Any]:
    """The array of an object that is to be written into."""
    if not isinstance(value, np.ndarray) and not hasattr(value, "__dlpack__"):
        raise InvalidModel(
            f"out gives {type(value).__name__} for the output {name!r}; give a numpy array or an "
            "object with __dlpack__"
        )
    try:
        return np.asarray(value) if isinstance(value, np.ndarray) else _exported(value)
    except _DLPACK_ERRORS as error:
        raise InvalidModel(f"out gives no array for {name!r}: {error}") from error


def _has_shared_places(array: NDArray[Any]) -> bool:
    shape, strides = array.shape, array.strides
    return array.size > 0 and any(n > 1 and not s for n, s in zip(shape, strides, strict=True))


def _exported(value: Any) -> NDArray[Any]:
    """The array that an object exports by DLPack, or if it cannot, by `__array__`.

    Errors are the exporter's and numpy's.
    """
    try:
        return np.from_dlpack(value)
    except _DLPACK_ERRORS as refusal:
        try:
            found = small_floats(value)
        except _DLPACK_ERRORS:
            found = None
        if found is not None:
            return found
        if not hasattr(value, "__array__"):
            raise refusal from None
        return np.asarray(value)


def _has_room(most: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(shape) == len(most) and all(n <= m for n, m in zip(shape, most, strict=True))


def _shares_memory(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays share an element, or finding that out takes long."""
    try:
        # numpy's annotations know only two of the numbers that it takes.
        return np.shares_memory(one, other, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except TooHardError:
        return True


MOST_SHOWN = 64
"""The most elements of a value that a message prints."""


def require_value(name: str, expected: ArrayLike, given: ArrayLike) -> None:
    """Raise InvalidModel unless an input has, bit by bit, the value that a program was compiled
    for."""
    wanted, found = np.asarray(expected), np.asarray(given)
    if value_key(wanted) != value_key(found):
        raise InvalidModel(
            f"input {name!r} is {_value_text(found)}, and the program was compiled for "
            f"{_value_text(wanted)}; give that, or compile for the other value"
        )


def _value_text(array: NDArray[Any]) -> str:
    elements = "" if array.size > MOST_SHOWN else f" {array.tolist()}"
    return f"{array.dtype}{list(array.shape)}{elements}"


def value_key(array: NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    """A key that is the same for equal values: dtype, shape, and bytes in native order."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return native.dtype.name, native.shape, native.tobytes()
