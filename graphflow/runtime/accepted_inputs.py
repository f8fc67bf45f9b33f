"""Inputs of runs, checked before anything runs.

In: a `ProgramSpec` and what a caller gives for its inputs.  Out: arrays by the numbers of inputs,
and what their shapes decide.  What always holds: nothing is cast; an input that is missing, not
known, of another type or shape, or of another value than the program was made for raises
InvalidModel, which says what the program expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.base.errors import InvalidModel
from graphflow.program import ProgramSpec, TensorSpec
from graphflow.runtime.given_arrays import given_array, require_value
from graphflow.runtime.run_sizes import (
    DecidedShapes,
    RunShapes,
    misfit,
    values_of_sizes,
    with_size_names,
)


class AcceptedInputs:
    """Decides which inputs a program takes; `values` are those by name that it was made for.

    given: number, tensor and type of each input that a run is given.
    shapes: what the shapes of a run decide.
    """

    __slots__ = ("_given_names", "_names", "_spec", "given", "shapes", "values")

    def __init__(self, spec: ProgramSpec, values: Mapping[str, NDArray[Any]]) -> None:
        # Without the rest of the spec, which has the model's weights until these are released.
        self._spec = ProgramSpec(
            objects=(), prepare=(), run=(), constants=(), constant_bytes=0, arena_bytes=0,
            inputs=spec.inputs, outputs=(), objects_in=spec.objects_in, sizes=spec.sizes,
            relations=spec.relations, computed=spec.computed,
        )  # fmt: skip
        self.values = dict(values)
        self.given = [
            (number, tensor, np.dtype(tensor.dtype))
            for number, tensor in enumerate(spec.inputs)
            if number not in spec.held
        ]
        self.shapes = DecidedShapes(spec)
        self._given_names = tuple(tensor.name for _, tensor, _ in self.given)
        self._names = frozenset(spec.input_names)

    def takes(self, inputs: object) -> bool:
        """Whether `inputs` is a dict with exactly the names of this program's inputs."""
        return type(inputs) is dict and inputs.keys() == self._names

    def fits(self, inputs: object) -> bool:
        """Whether it `takes` these, and the program runs with inputs of their shapes."""
        if type(inputs) is not dict or inputs.keys() != self._names:
            return False
        try:
            arrays = [inputs[name] for name in self._given_names]
            shapes = tuple([array.shape for array in arrays])
            return self.shapes.decide(shapes, self.shapes.elements(arrays)) is not None
        except (AttributeError, TypeError, ValueError):  # no arrays, whatever their shapes are
            return False

    def accept(self, inputs: Mapping[str, ArrayLike]) -> tuple[dict[int, NDArray[Any]], RunShapes]:
        """The arrays of a run by the numbers of inputs, and what their shapes decide."""
        if inputs.keys() != self._names:
            self._refuse_names(inputs)
        arrays: dict[int, NDArray[Any]] = {}
        for number, tensor, dtype in self.given:
            array = inputs[tensor.name]
            if type(array) is not np.ndarray:
                array = given_array(tensor.name, array)
            if array.dtype is not dtype and array.dtype.newbyteorder("=") != dtype:
                raise self._misfit(tensor, array)
            arrays[number] = array
        of_run = [*arrays.values()]
        shapes = tuple([array.shape for array in of_run])
        decided = self.shapes.decide(shapes, self.shapes.elements(of_run))
        if decided is None:
            if (wrong := misfit(self._spec, arrays)) is not None:
                raise self._misfit(self._spec.inputs[wrong], arrays[wrong])
            values_of_sizes(self._spec, arrays)
            raise AssertionError("what no run takes has a reason")
        for number, tensor, _ in self.given if self.values else ():
            if tensor.name in self.values:
                require_value(tensor.name, self.values[tensor.name], arrays[number])
        return arrays, decided

    def _misfit(self, tensor: TensorSpec, array: NDArray[Any]) -> InvalidModel:
        cast = "" if array.dtype == tensor.dtype else "; a run casts nothing, so convert the array"
        extents = ", ".join(map(str, with_size_names(self._spec, tensor).shape or ()))
        return InvalidModel(
            f"input {tensor.name!r} is {array.dtype}{list(array.shape)}, the program "
            f"expects {tensor.dtype}[{extents}]{cast}; {self._expected()}"
        )

    def _refuse_names(self, inputs: Mapping[str, ArrayLike]) -> None:
        missing = [name for name in self._spec.input_names if name not in inputs]
        unknown = [name for name in inputs if name not in self._names]
        found = [f"input {name!r} is missing" for name in missing]
        found += [f"there is no input {name!r}" for name in unknown]
        raise InvalidModel(f"{', '.join(found)}; {self._expected()}")

    def _expected(self) -> str:
        tensors = [with_size_names(self._spec, tensor) for _, tensor, _ in self.given]
        listed = ", ".join(map(str, (*tensors, *self._spec.objects_in)))
        return f"the inputs are {listed}" if listed else "the program takes no inputs"
