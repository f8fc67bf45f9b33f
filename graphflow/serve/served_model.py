"""A loaded model as the server sees it: its interface, which requests may share a run, and runs.

In: an `Executable`, and the inputs of requests.  Out: what metadata says of it, and for each
request its outputs.  What always holds: requests share a run only along a size of the program of
which it is proven that each row of the outputs is computed from the same row of the inputs; a
request that makes a shared run fail is the only one to get the error.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.errors import FileOverwritten, GraphflowError, InvalidModel, RunError
from graphflow.serve.refused import RefusedRequest, malformed, unavailable
from graphflow.serve.tensor_types import protocol_type

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

ANY = -1
"""The extent of an axis that requests decide."""


class ServedTensor(Struct, frozen=True):
    """An input or output: `shape` is None if its rank is not known, and has `ANY` where requests
    or data decide an extent; `bounds` are those of such axes that have some."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    bounds: Mapping[int, tuple[int, int]]

    def metadata(self) -> dict[str, Any]:
        """The tensor as the protocol describes it."""
        shape = [ANY] if self.shape is None else list(self.shape)
        return {"name": self.name, "datatype": protocol_type(self.dtype), "shape": shape}

    def require(self, array: NDArray[Any]) -> None:
        """Raise RefusedRequest for an array that is no value of this input."""
        known = self.shape is None or len(array.shape) == len(self.shape)
        if array.dtype.name != self.dtype or not known:
            raise self._misfit(array)
        for axis, extent in enumerate(self.shape or ()):
            lo, hi = self.bounds.get(axis, (0, array.shape[axis]))
            if extent == ANY:
                if not lo <= array.shape[axis] <= hi:
                    raise self._misfit(array)
            elif array.shape[axis] != extent:
                raise self._misfit(array)

    def _misfit(self, array: NDArray[Any]) -> RefusedRequest:
        extents = [
            (f"{self.bounds[axis][0]}…{self.bounds[axis][1]}" if axis in self.bounds else "any")
            if extent == ANY
            else str(extent)
            for axis, extent in enumerate(self.shape or ())
        ]
        given = protocol_type(array.dtype.name)
        return malformed(
            f"input {self.name!r} is {given}{list(array.shape)}, and the model takes "
            f"{protocol_type(self.dtype)}[{', '.join(extents)}]"
        )


class ModelInterface(Struct, frozen=True):
    """What requests have to know of a model: its tensors, and the inputs that they have to give.

    `most_rows` is how many rows a run may have that several requests share, 1 where `alone` says
    why none do.
    """

    inputs: tuple[ServedTensor, ...]
    outputs: tuple[ServedTensor, ...]
    required: frozenset[str]
    most_rows: int = 1
    alone: str = ""

    def require(self, arrays: Arrays) -> None:
        """Raise RefusedRequest for inputs that do not fit the model.

        A run would refuse them too, but by then other requests share it.
        """
        known = {tensor.name: tensor for tensor in self.inputs}
        wrong = [f"there is no input {name!r}" for name in arrays if name not in known]
        wrong += [f"input {name!r} is missing" for name in self.required if name not in arrays]
        if wrong:
            listed = ", ".join(known) or "none"
            raise malformed(f"{', '.join(sorted(wrong))}; the inputs are {listed}")
        for name, array in arrays.items():
            known[name].require(array)
        if self.most_rows > 1 and len({len(array) for array in arrays.values()}) != 1:
            shown = ", ".join(f"{name}: {len(array)}" for name, array in arrays.items())
            raise malformed(f"the inputs have different numbers of rows: {shown}")

    def rows(self, arrays: Arrays) -> int:
        """The rows of a request in a run that others share."""
        return len(next(iter(arrays.values()))) if self.most_rows > 1 else 1

    def key(self, arrays: Arrays) -> Hashable:
        """What is equal for requests that may share a run."""
        return tuple(sorted((name, array.shape[1:]) for name, array in arrays.items()))


class Runnable(Protocol):
    """What runs a model: an `Executable`, or what a test or benchmark puts in its place."""

    def run(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """New arrays by output name.  Several threads may call it."""


class ServedModel(Struct, frozen=True):
    """A model that is loaded: `digest` is the SHA-256 of its file."""

    interface: ModelInterface
    program: Runnable
    digest: str
    platform: str

    def run(self, requests: Sequence[Arrays]) -> list[dict[str, NDArray[Any]] | Exception]:
        """Serve the requests in one run, or, if that fails, in a run for each.

        Call it in a thread that may take its time.
        """
        if len(requests) == 1:
            return [self._alone(requests[0])]
        try:
            return [*self._together(requests)]
        except GraphflowError:
            return [self._alone(arrays) for arrays in requests]

    def _alone(self, arrays: Arrays) -> dict[str, NDArray[Any]] | Exception:
        try:
            return self.program.run(dict(arrays))
        except GraphflowError as error:
            return refusal_of_a_run(error)

    def _together(self, requests: Sequence[Arrays]) -> list[dict[str, NDArray[Any]]]:
        names = requests[0]
        stacked = {name: np.concatenate([arrays[name] for arrays in requests]) for name in names}
        results = self.program.run(stacked)
        ends = np.cumsum([self.interface.rows(arrays) for arrays in requests]).tolist()
        return [
            {name: array[begin:end] for name, array in results.items()}
            for begin, end in zip((0, *ends), ends, strict=False)
        ]


def refusal_of_a_run(error: GraphflowError) -> RefusedRequest:
    """What a client is told of a run that failed."""
    match error:
        case RunError():
            return RefusedRequest(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), "run_error")
        case InvalidModel() if not isinstance(error, FileOverwritten):
            return malformed(str(error))
    return unavailable(f"the run failed: {error}", "run_failed")
