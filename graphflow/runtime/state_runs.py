"""Runs whose states stay where they are: an output that the next run takes as an input.

In: a program with states, and memory for each of these.  Out: the outputs of a run, of which states
are `StateTensor`s: what the memory holds, to be given back or to be turned into an array.  What
always holds: a `StateTensor` gives what the run computed, or raises an error if a later run has
written over that; one that is kept is copied before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import Any
from weakref import ref

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from graphflow.base.errors import GraphflowError
from graphflow.program import ProgramSpec, StateSpec, TensorSpec
from graphflow.runtime.aligned_memory import copy_to_front, data_address, zeroed_block
from graphflow.runtime.executor import Program
from graphflow.runtime.results import leading_part
from graphflow.runtime.run_sizes import RunShapes


class StateMemory:
    """Room for a state: an output of one run, and an input of the next.

    Tensors in it are made of rows, which are counted along the axis of the `StateSpec`; where that
    has none, the whole is one row.
    """

    __slots__ = ("_kept", "_written", "array", "moment")

    def __init__(self, tensor: TensorSpec) -> None:
        dtype = np.dtype(tensor.dtype)
        self.array: NDArray[Any] = zeroed_block(tensor.nbytes).view(dtype).reshape(tensor.shape)
        self.moment = 0
        """How often rows have been written."""
        self._written: list[tuple[int, int]] = []
        """(first row, moment) of writes, ascending in both: what later writes cover is left out."""
        self._kept: list[ref[StateTensor]] = []

    def fits(self, tensor: TensorSpec) -> bool:
        """Whether it is memory for a tensor of this dtype and shape."""
        return (self.array.dtype.name, self.array.shape) == (tensor.dtype, tensor.shape)

    def keep(self, tensor: StateTensor) -> None:
        """Copy a tensor in this memory before it is written over, if anything refers to it then."""
        self._kept = [kept for kept in self._kept if kept() is not None]
        self._kept.append(ref(tensor))

    def write(self, first: int) -> None:
        """Note that rows from `first` on are about to be written."""
        for kept in self._kept:
            if (tensor := kept()) is not None:
                tensor.leave(first)
        self.moment += 1
        # In one step: without an entry, another thread took what had been written over for there.
        self._written[bisect_left(self._written, (first, 0)) :] = [(first, self.moment)]

    def keeps(self, rows: int, moment: int) -> bool:
        """Whether the first `rows` rows are as they were at a moment."""
        last = bisect_left(self._written, (rows, 0)) - 1
        try:
            return last < 0 or self._written[last][1] <= moment
        except IndexError:  # another thread has just noted a write of rows before that
            return False


class StateTensor:
    """An output of a run that is in the program's memory, until another run writes over it.

    A run that takes it back as the input it belongs to, copies nothing.  `numpy.asarray`, other
    functions of numpy and DLPack get a copy, which no run changes.  Raises GraphflowError, from
    then on, once a run has written over one of its elements.  One that is kept moves out of that
    memory before, and stays what it was.
    """

    __slots__ = ("__weakref__", "_moment", "_name", "_rows", "_whole", "memory", "shape")

    def __init__(self, name: str, memory: StateMemory, shape: tuple[int, ...], rows: int) -> None:
        self._name = name
        self.shape = shape
        """The extents of its axes."""
        self._rows = rows
        self._moment = memory.moment
        self._whole: NDArray[Any] = memory.array
        self.memory: StateMemory | None = memory
        """The memory that it is in; None if it has moved to an array of its own."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements."""
        return self._whole.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def is_there(self) -> bool:
        """Whether no run has written over it."""
        memory = self.memory
        if memory is not None and memory.moment == self._moment:
            return True
        # Another thread may move it between the two questions about its memory.
        return memory is None or memory.keeps(self._rows, self._moment) or self.memory is None

    def leave(self, first: int) -> None:
        """Move to an array of its own, if rows from `first` on are among its rows."""
        if self._rows > first and self.is_there:
            self._whole = np.array(self._whole[tuple(map(slice, self.shape))])
            self.memory = None

    def view(self) -> NDArray[Any]:
        """The elements in place: for the run that takes them back.  Other runs change them."""
        if not self.is_there:
            raise GraphflowError(
                f"the output {self._name}{list(self.shape)} of an earlier run is no more: another "
                "run has written over it; take it as an array first (numpy.array), or bind once "
                "for each sequence"
            )
        whole = self._whole
        return whole if whole.shape == self.shape else whole[tuple(map(slice, self.shape))]

    def copy(self, dtype: Any = None) -> NDArray[Any]:
        """The elements in a new array, also while another thread's run writes over them."""
        while True:
            whole = self._whole
            copied = np.array(self.view(), dtype)
            # Runs note what they are about to write: until then the copy was right.
            if whole is self._whole and self.is_there:
                return copied

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError(f"the output {self._name} is in memory of the program; copy it")
        return self.copy(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        if options.get("copy") is False:
            raise BufferError(f"the output {self._name} is in memory of the program; copy it")
        return self.copy().__dlpack__(
            **{key: value for key, value in options.items() if key != "copy"}
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.empty(0).__dlpack_device__()

    def __repr__(self) -> str:
        gone = "" if self.is_there else ", overwritten"
        return f"<StateTensor {self._name}: {self.dtype}{list(self.shape)}{gone}>"


class StateRun:
    """A program whose states lie in memory of their own; one thread at a time may run it.

    `copied` is the number of bytes that the last run copied into that memory.
    """

    __slots__ = (
        "_arena", "_inputs", "_others", "_outputs", "_phases", "_placed", "_plain", "_program",
        "_read", "_states", "_viewed", "copied",
    )  # fmt: skip

    def __init__(self, program: Program, memories: Mapping[int, StateMemory]) -> None:
        """`memories` are those of the program's states, by the numbers of their inputs."""
        self._program = program
        self._arena, self._phases = program.keeping_states()
        self._plain = program.as_plain(self._phases)
        given = program.inputs.given
        self._inputs = [(t.name, dtype, memories.get(number)) for number, t, dtype in given]
        self._read = [number for number, *_ in given if number not in memories]
        self._states = [_State.of(state, program.spec, memories) for state in program.spec.states]
        self.copied = 0
        first = len(program.spec.inputs)
        self._viewed = [state.result for state in self._states]
        self._outputs = {state.spec.output: state.memory.array for state in self._states}
        places = {number: position for position, (number, *_) in enumerate(given)}
        self._placed = [
            (state.memory, places[state.spec.input], state.spec.axis) for state in self._states
        ]
        self._others = [
            (number, tensor.name, memory)
            for number, (tensor, memory) in enumerate(
                zip(program.spec.results, self._arena.outputs, strict=True)
            )
            if number not in self._outputs
        ]
        for state in self._states:
            self._arena.addresses[first + state.spec.output] = data_address(state.memory.array)

    def run(
        self,
        inputs: Mapping[str, ArrayLike],
        in_place: Collection[str],
        out: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Run once, as `Program.run`; outputs that are states are `StateTensor`s, but those that
        `out` names are copied into its arrays.

        `in_place` names the inputs that are views of the beginning of their memory.
        """
        program, arena = self._program, self._arena
        arrays, decided = program.inputs.accept(inputs)
        written = program.places.take(out or {}, arrays.values()).copied(self._outputs)
        objects = program.objects_given(inputs)
        self.copied = 0
        for state in self._states:
            self.copied += state.take(arrays.pop(state.spec.input), state.given in in_place)
        for number, array in arrays.items():
            arena.read(number, array)
        arena.hold(decided.sizes)
        outputs = program.place_outputs(arena, {**self._outputs, **written.direct})
        program.execute(arena, objects, self._phases)
        results = program.results.checked(outputs, decided.sizes, [*self._viewed, *(out or ())])
        written.copy_results(results)
        for state in self._states:
            results[state.result] = state.tensor(results[state.result].shape)
        results.update(out or {})
        return program.results.with_objects(results, objects)

    def run_plainly(self, inputs: object) -> dict[str, Any] | None:
        """What `run` gives, in half of its time around the kernels; None where that does not do.

        It does for inputs as `Program.run_plainly` takes them, of which all states are in place.
        Nothing has run where it gives None.
        """
        plain, arena = self._plain, self._arena
        given = None if plain is None else self._given_plainly(inputs)
        if plain is None or given is None:
            return None
        arrays, decided = given
        for number, array in zip(self._read, arrays, strict=True):
            arena.read(number, array)
        arena.hold(decided.sizes)
        results: dict[str, Any] = dict(plain.in_order)
        first = len(arena.staging)
        for number, name, buffer in self._others:
            results[name] = buffer.array()
            arena.addresses[first + number] = buffer.address
        for memory, position, axis in self._placed:
            memory.write(0 if axis is None else decided.shapes[position][axis])
        self.copied = 0
        self._program.execute(arena, {}, self._phases)
        if plain.has_guards:
            buffers = {**results, **{state.result: state.memory.array for state in self._states}}
            self._program.results.require_guards([*buffers.values(), *arena.hidden])
        trimmed = self._program.results.known_shapes(decided.sizes)
        for number, name, _ in self._others:
            if number in trimmed:
                results[name] = leading_part(results[name], trimmed[number])
        for state in self._states:
            output = state.spec.output
            results[state.result] = state.tensor(trimmed.get(output, self._outputs[output].shape))
        return results

    def _given_plainly(self, inputs: object) -> tuple[list[NDArray[Any]], RunShapes] | None:
        """The inputs that are no states, and what the shapes of all decide; None for inputs that
        `run_plainly` does not take."""
        if type(inputs) is not dict or len(inputs) != len(self._inputs):
            return None
        arrays: list[NDArray[Any]] = []
        values = []
        for name, dtype, memory in self._inputs:
            value = inputs.get(name)
            if memory is None:
                if type(value) is not np.ndarray or value.dtype is not dtype:
                    return None
                arrays.append(value)
            elif type(value) is not StateTensor or value.memory is not memory or not value.is_there:
                return None
            values.append(value)
        known = self._program.inputs.shapes
        decided = known.decide(tuple([v.shape for v in values]), known.elements(values))
        return None if decided is None else (arrays, decided)


class _State(Struct, frozen=True):
    """A state of a program, the names of its input and its output, and its memory."""

    spec: StateSpec
    given: str
    result: str
    memory: StateMemory

    @staticmethod
    def of(state: StateSpec, spec: ProgramSpec, memories: Mapping[int, StateMemory]) -> _State:
        """A state of the program `spec`; `memories` are those of its inputs."""
        given, result = spec.inputs[state.input], spec.outputs[state.output]
        return _State(state, given.name, result.name, memories[state.input])

    def take(self, array: NDArray[Any], is_in_place: bool) -> int:
        """Take an array for the next run; returns the number of bytes that are copied."""
        if is_in_place:
            self.memory.write(0 if self.spec.axis is None else array.shape[self.spec.axis])
            return 0
        self.memory.write(0)
        copy_to_front(self.memory.array, array)
        return array.nbytes

    def tensor(self, shape: tuple[int, ...]) -> StateTensor:
        """What the memory holds behind a run that computes a state of this shape."""
        rows = 1 if self.spec.axis is None else shape[self.spec.axis]
        return StateTensor(self.result, self.memory, shape, rows)
