"""`Binding`: runs of an executable, one after the other, whose states stay in its memory.

In: an executable.  Out: for each run its outputs; those that an input of the next run repeats are
`StateTensor`s, which are given back without a copy.  What always holds: the results are those of
`Executable.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import nan
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from graphflow.base.errors import GraphflowError
from graphflow.runtime import OneAtATime, Program, StateMemory, StateRun, StateTensor

Chooses: TypeAlias = "Callable[[Mapping[str, ArrayLike], float], tuple[Program, Mapping[str, Any]]]"
"""The program for the inputs of a run, and these with what the caller does not give."""


AtHand: TypeAlias = "Callable[[Mapping[str, Any]], Program | None]"
"""The program of the run before, if it serves the inputs of a run too and needs nothing else."""


class Binding:
    """Runs of one sequence after the other, whose growing tensors stay in place.

    `run` takes and gives what `Executable.run` does, but an output that a program can keep in the
    memory of an input, such as the keys and values of a decoder, is a `StateTensor`.  The run that
    gets it back for that input copies nothing, and writes new rows behind it.  With `keep`, a run
    that is about to write over a `StateTensor` that is still referred to, copies it first, so that
    all of them stay what they were.

    One thread at a time may run it; a second one gets a GraphflowError.
    """

    def __init__(self, chooses: Chooses, at_hand: AtHand, *, keep: bool = False) -> None:
        self._chooses = chooses
        self._at_hand = at_hand
        self._keep = keep
        self._turns = OneAtATime("this binding")
        self._memories: dict[str, StateMemory] = {}
        self._runs: dict[int, tuple[Program, StateRun]] = {}
        self._copied = 0

    @property
    def copied(self) -> int:
        """The number of bytes of states that the last run copied."""
        return self._copied

    def run(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        out: Mapping[str, Any] | None = None,
        poison: float = nan,
    ) -> dict[str, Any]:
        """Run the model, as `Executable.run`.  A state that `out` names is copied into its array.

        Raises GraphflowError for a `StateTensor` that another run has written over.
        """
        try:
            return self._turns.do(partial(self._run, inputs, out, poison))
        except MemoryError as error:
            raise GraphflowError(f"memory ran out in a run: {error}") from error

    def _run(
        self, inputs: Mapping[str, ArrayLike], out: Mapping[str, Any] | None, poison: float
    ) -> dict[str, Any]:
        # Bindings of sessions name no outputs in a mapping.
        if not out and (found := self._run_plainly(inputs)) is not None:
            return found
        given, in_place = dict(inputs), set[str]()
        for name, value in inputs.items():
            if isinstance(value, StateTensor):
                own = self._memories.get(name)
                if own is not None and value.memory is own:
                    in_place.add(name)
                # What is in memory of others may change during the run.
                has_own = name in in_place or value.memory is None
                given[name] = value.view() if has_own else np.asarray(value)
        program, known = self._chooses(given, poison)
        # What is kept of a state without rows is copied before each run, as by an ordinary one.
        stays = [s for s in program.spec.states if s.axis is not None or not self._keep]
        names = {program.spec.outputs[state.output].name for state in stays}
        if names <= set(out or ()):
            self._copied = 0
            return program.run(known, out)
        run = self._run_of(program, in_place)
        results = run.run(known, in_place, out)
        self._copied = run.copied
        return self._kept(results)

    def _run_plainly(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a run gives that `StateRun.run_plainly` serves; None for another one."""
        known = self._runs.get(id(self._at_hand(inputs)))
        results = None if known is None else known[1].run_plainly(inputs)
        if results is None:
            return None
        self._copied = 0
        return self._kept(results)

    def _kept(self, results: dict[str, Any]) -> dict[str, Any]:
        """The results of a run, of which states are kept if the caller wants that."""
        for result in results.values() if self._keep else ():
            if isinstance(result, StateTensor) and result.memory is not None:
                result.memory.keep(result)
        return results

    def _run_of(self, program: Program, in_place: set[str]) -> StateRun:
        """The runs of a program; its states lie in the memory that others have, if that fits."""
        known = self._runs.get(id(program))
        if known is not None:
            return known[1]
        spec = program.spec
        memories: dict[int, StateMemory] = {}
        for state in spec.states:
            name, room = spec.inputs[state.input].name, spec.outputs[state.output]
            memory = self._memories.get(name)
            if memory is None or not memory.fits(room):
                in_place.discard(name)
                memory = self._memories[name] = StateMemory(room)
                self._runs.clear()  # those of other programs are in the memory before
            memories[state.input] = memory
        run = StateRun(program, memories)
        self._runs[id(program)] = program, run
        return run
