"""Models whose inputs are sequences or optionals of tensors: a program for each number of tensors.

In: a request, and lists of arrays in runs.  Out: an executable that compiles, for the numbers of
arrays of a run and their shapes, a model whose inputs are these arrays.  What always holds: equal
numbers, element types and shapes are served by one program while it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.api.executable import Executable
from graphflow.api.model import Models
from graphflow.base.declaration import Declaration
from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.base.fields import replace
from graphflow.frontends import ListedInput, ListedTypes, ReadModel, with_tensors
from graphflow.pipeline.request import CompileRequest
from graphflow.processes.once import Once
from graphflow.runtime import Program

Key: TypeAlias = "tuple[ListedTypes, ...]"


class ListedExecutable(Executable):
    """A model that takes a list of arrays for each sequence, and None for an empty optional.

    What is asked of it is answered by the program of the last run; it has none before the first.
    """

    def __init__(
        self,
        request: CompileRequest,
        opened: ReadModel,
        listed: Sequence[ListedInput],
        declared: Declaration,
        make: Callable[[CompileRequest], Executable],
    ) -> None:
        self.declaration = declared
        self._request, self._opened, self._listed, self._make = request, opened, listed, make
        self._programs: Once[Key, tuple[Executable, dict[str, tuple[str, ...]]]] = Once(
            request.options.programs
        )
        self._last: Executable | None = None
        self._file = None
        self._complete = None

    @property
    def _models(self) -> Models:  # type: ignore[override]
        if self._last is None:
            names = ", ".join(one.name for one in self._listed)
            raise InvalidModel(
                f"how many tensors {names} have is not known before the first run, and nothing is "
                "compiled yet"
            )
        return self._last._models

    def _at_hand(self, inputs: Mapping[str, ArrayLike]) -> None:
        """None: each run chooses a program by its lists."""

    def _chosen(
        self, inputs: Mapping[str, ArrayLike], poison: float
    ) -> tuple[Program, Mapping[str, Any]]:
        if not isinstance(inputs, Mapping):
            raise TypeError(f"inputs are given by name, not as {type(inputs).__name__}")
        given = dict(inputs)
        arrays: dict[str, list[NDArray[Any]] | None] = {}
        for one in self._listed:
            if one.name not in given:
                raise InvalidModel(f"input {one.name!r} is missing")
            arrays[one.name] = _arrays(one, given.pop(one.name))
        key = tuple(
            None if found is None else tuple((a.dtype.name, a.shape) for a in found)
            for found in arrays.values()
        )
        executable, names = self._programs.get(key, lambda: self._compiled(key))
        for name, found in arrays.items():
            given.update(zip(names[name], found or (), strict=True))
        self._last = executable
        return executable._chosen(given, poison)

    def save(self, path: Any) -> None:
        """GraphflowError: a file has no programs of several models."""
        raise GraphflowError(
            "a model with sequences or optionals as inputs cannot be saved; save each of the "
            "programs that a model with tensors as inputs has"
        )

    def __reduce__(self) -> Any:
        return self.save("")

    def _compiled(self, key: Key) -> tuple[Executable, dict[str, tuple[str, ...]]]:
        given = {one.name: types for one, types in zip(self._listed, key, strict=True)}
        proto, names = with_tensors(self._opened.proto, self._listed, given)
        model = ReadModel(proto, self._opened.contents, is_own=False)
        return self._make(replace(self._request, model=model, name=self._request.title)), names


def _arrays(one: ListedInput, value: Any) -> list[NDArray[Any]] | None:
    """The tensors that a run gives for an input; None for an empty optional."""
    if value is None:
        if not one.is_optional:
            raise InvalidModel(f"input {one.name!r} is None, and no optional")
        return None
    if one.is_sequence:
        if not isinstance(value, list | tuple):
            raise InvalidModel(f"input {one.name!r} is a sequence; give a list of arrays")
        return [np.asarray(array) for array in value]
    return [np.asarray(value)]
