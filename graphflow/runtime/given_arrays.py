"""The arrays that a caller gives to a run: numpy's, or any object that exports DLPack.

In: the values of inputs, and the arrays that outputs are to be written into.  Out: numpy arrays
that share memory with them.  What always holds: an array that a run writes into is writable, its
elements are distinct, and two of them share no memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.exceptions import TooHardError
from numpy.typing import ArrayLike, NDArray

from graphflow.base.errors import InvalidModel
from graphflow.program import ProgramSpec, TensorSpec
from graphflow.runtime.aligned_memory import is_usable
from graphflow.runtime.small_floats import small_floats

_MOST_WORK = 10_000
"""The candidates that are tried to find out whether two strided arrays share an element."""

_DLPACK_ERRORS = (BufferError, RuntimeError, TypeError, ValueError)
"""What exporters and numpy raise for memory of another device, a dtype or a layout that numpy
lacks."""


def given_array(name: str, value: ArrayLike) -> NDArray[Any]:
    """The array of a run for an input; InvalidModel if the value is not an array.

    An object with `__dlpack__` is read in place.
    """
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    try:
        if hasattr(value, "__dlpack__"):
            return _exported(value)
        return np.asarray(value)
    except _DLPACK_ERRORS as error:
        raise InvalidModel(f"input {name!r} is no array: {error}") from error


def written_arrays(
    spec: ProgramSpec, given: Mapping[str, Any], read: Collection[NDArray[Any]]
) -> WrittenArrays:
    """The arrays that a run writes outputs into; `read` are those that it reads in place.

    Raises InvalidModel for a name that is no output, and for an array that does not fit: its dtype,
    or a shape that no run can give; an array that is read-only or shares memory with another one.
    TypeError if `given` is not a mapping.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"out is a mapping from names of outputs to arrays, not {type(given).__name__}"
        )
    numbers = {tensor.name: number for number, tensor in enumerate(spec.results)}
    trimmed = {trim.output for trim in spec.trimmed}
    arrays: dict[int, NDArray[Any]] = {}
    for name, value in given.items():
        if name not in numbers:
            raise _unknown(spec, name)
        number = numbers[name]
        arrays[number] = _written(spec.outputs[number], value, number in trimmed)
    for (one, a), (other, b) in combinations(arrays.items(), 2):
        if _shares_memory(a, b):
            names = f"{spec.outputs[one].name!r} and {spec.outputs[other].name!r}"
            raise InvalidModel(f"out gives arrays for {names} that share memory; give other ones")
    direct = {
        number: array
        for number, array in arrays.items()
        if number not in trimmed
        and not spec.objects_in  # an object may hold an array that a section reads
        and is_usable(array)
        and not any(np.may_share_memory(array, other) for other in read)
    }
    return WrittenArrays(arrays, direct)


class WrittenArrays:
    """The arrays that a caller gave for outputs, by the numbers of outputs.

    `direct` has those that kernels write into; the results of the others are copied behind the run:
    where an array is strided, not native, or read by the same run, and where the extents of the
    output are known only then.
    """

    __slots__ = ("_arrays", "direct")

    def __init__(
        self, arrays: Mapping[int, NDArray[Any]], direct: Mapping[int, NDArray[Any]]
    ) -> None:
        self._arrays, self.direct = arrays, direct

    def copy_results(self, results: Sequence[tuple[str, NDArray[Any]]]) -> None:
        """Copy the results, in the order of outputs, into the arrays that are not written yet.

        Raises InvalidModel, before any is copied, for an array of another shape.
        """
        late = [(n, array) for n, array in self._arrays.items() if n not in self.direct]
        for number, array in late:
            name, result = results[number]
            if array.shape != result.shape:
                raise InvalidModel(
                    f"out gives {list(array.shape)} for the output {name!r}, and this run computes "
                    f"{list(result.shape)}; give an array of that shape, or leave it out"
                )
        for number, array in late:
            np.copyto(array, results[number][1])


def _written(tensor: TensorSpec, value: Any, is_trimmed: bool) -> NDArray[Any]:
    """The array that an output is written into, checked against the output's dtype and shape."""
    if not isinstance(value, np.ndarray) and not hasattr(value, "__dlpack__"):
        raise InvalidModel(
            f"out gives {type(value).__name__} for the output {tensor.name!r}; give a numpy array "
            "or an object with __dlpack__"
        )
    try:
        array = np.asarray(value) if isinstance(value, np.ndarray) else _exported(value)
    except _DLPACK_ERRORS as error:
        raise InvalidModel(f"out gives no array for {tensor.name!r}: {error}") from error
    if array.dtype.newbyteorder("=") != np.dtype(tensor.dtype) or not (
        _has_room(tensor.shape, array.shape) if is_trimmed else array.shape == tensor.shape
    ):
        most = "at most " if is_trimmed else ""
        raise InvalidModel(
            f"out gives {array.dtype}{list(array.shape)} for the output {tensor.name!r}, which is "
            f"{most}{tensor.dtype}{list(tensor.shape)}"
        )
    if not array.flags.writeable:
        raise InvalidModel(
            f"out gives a read-only array for the output {tensor.name!r}; give one that can be "
            "written"
        )
    if any(n > 1 and stride == 0 for n, stride in zip(array.shape, array.strides, strict=True)):
        raise InvalidModel(
            f"out gives an array for the output {tensor.name!r} in which several elements have one "
            "place; give one with a place for each"
        )
    return array


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


def _unknown(spec: ProgramSpec, name: str) -> InvalidModel:
    if name in {known.name for known in spec.objects_out}:
        return InvalidModel(
            f"out names {name!r}, which is no tensor but what onnxruntime makes; leave it out"
        )
    listed = ", ".join(map(str, spec.results)) or "none"
    return InvalidModel(f"there is no output {name!r} that out could name; the outputs: {listed}")
