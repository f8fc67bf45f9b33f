"""Running a program: numpy arrays in, numpy arrays out.

In: a `ProgramSpec` and a number of threads.  What always holds: inputs are checked before anything
runs; concurrent runs have separate arenas; a program may be run from any Python thread and in
forked children, and gives the same bits for any number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from graphflow.base.errors import GraphflowError, VerifyError
from graphflow.base.fields import replace
from graphflow.foreign import RunnableSection, Section, open_section
from graphflow.program import ProgramSpec, ProgramStep
from graphflow.runtime.accepted_inputs import AcceptedInputs
from graphflow.runtime.aligned_memory import data_address
from graphflow.runtime.constant_block import (
    NOTHING_BORROWED,
    Borrowed,
    ConstantBlock,
    Initial,
    prepare_constants,
    prepared_before,
)
from graphflow.runtime.cpus import default_threads
from graphflow.runtime.driver import Driver
from graphflow.runtime.given_arrays import OutputPlaces
from graphflow.runtime.native_code import NativeCode
from graphflow.runtime.one_at_a_time import OneAtATime
from graphflow.runtime.phases import ForeignPhase, NativePhase, Phase, native_steps, phases_of
from graphflow.runtime.results import Results
from graphflow.runtime.run_places import GivenInput, RunPlaces
from graphflow.runtime.run_sizes import RunShapes
from graphflow.runtime.step_table import PATIENCE_NS, Arena, StepTable

_KEPT_ARENAS = 4
"""The most arenas that are kept for later runs; concurrent runs may use more."""


class PlainProgram(Struct, frozen=True):
    """A program of one native phase whose runs differ in nothing but addresses and sizes.

    inputs: those that a run is given; in_order: results by name, in the model's order, to be
    replaced by those of a run.
    """

    inputs: tuple[GivenInput, ...]
    in_order: Mapping[str, NDArray[Any]]
    has_guards: bool


class Program:
    """A linked `ProgramSpec` with its constants prepared, ready for any number of runs.

    spec: what to run.
    threads: how many threads a run uses; by default the processors this process may use.
    flush_denormals: whether every thread treats denormals as zero while it runs kernels.
    prepared: the constant block of a program without `prepare`; it may be read-only memory.
    values: inputs by name that the program was made for; runs with other values are refused.
    watch: called before each run; raises where `prepared` cannot be relied on any more.
    alike: a program of this process that prepares the same constants; the two share the block.
    borrowed: constants that are there already, in blocks of other programs; not beside sections.
    initial: the contents of `spec.constants`, by their positions, if these have none, or what reads
        them; each is taken out when it is packed.
    opens: gives a session for a section and a number of threads.
    native: the native code that walks the steps; by default the one of this process.
    patience_ns: how long native code keeps signals waiting, if no step takes longer.

    Raises CodegenError for unusable object code, GraphflowError if the threads cannot be started or
    memory runs out, VerifyError for a block that does not fit.
    """

    def __init__(
        self,
        spec: ProgramSpec,
        threads: int | None = None,
        flush_denormals: bool = False,
        prepared: NDArray[np.uint8] | None = None,
        values: Mapping[str, NDArray[Any]] = MappingProxyType({}),
        watch: Callable[[], None] | None = None,
        alike: Program | None = None,
        borrowed: Borrowed = NOTHING_BORROWED,
        initial: Initial | None = None,
        opens: Callable[[Section, int], RunnableSection] = open_section,
        native: Driver | None = None,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        self.spec = spec
        self._watch = watch
        self._code = NativeCode(spec, threads, flush_denormals, native, patience_ns)
        self.threads = self._code.threads
        # More threads than processors would take turns in a session, and onnxruntime waits for
        # ever where the system refuses it one.
        most = min(self.threads, default_threads())
        sessions = {s.name: opens(s.section, most) for s in spec.sections}
        try:
            self.constants: ConstantBlock
            if alike is not None:
                self.constants = alike.constants.shared_with(spec, alike.spec)
            elif prepared is not None:
                self.constants = prepared_before(spec, prepared, borrowed)
            else:
                given: Initial = {**dict(spec.constants)} if initial is None else initial
                self.constants = prepare_constants(spec, self._code, borrowed, given)
            if spec.sections and self.constants.borrowed.parts:
                raise VerifyError("sections read the constant block itself, and borrow nothing")
            self._tables = self._tables_of(spec)
            # Pop and append are atomic, so no lock can be held by another thread during a fork.
            self._idle = [self._new_arena()]
            self._idle_states: list[tuple[Arena, tuple[Phase, ...]]] = []
        except MemoryError as error:
            raise GraphflowError(
                f"memory ran out for a program with {spec.constant_bytes} bytes of constants and "
                f"{spec.arena_bytes} bytes of intermediate results ({error}); it needs a machine "
                "with more, or smaller input_shapes"
            ) from error
        self._sessions = sessions
        self._phases = tuple(phases_of(spec, sessions))
        self.inputs = AcceptedInputs(spec, values)
        self.results = Results(spec)
        self.places = OutputPlaces(spec)
        self._plain = self.as_plain(self._phases)

    def run(
        self, inputs: Mapping[str, ArrayLike], out: Mapping[str, Any] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Run once: inputs by name, of any strides and byte order, never cast.

        Outputs are new arrays in the model's order, also if they are trimmed, and share memory with
        nothing that is still referred to; those of `spec.objects_out` are what onnxruntime gives.
        Those that `out` names are written into its arrays, which the result has in their place;
        where these have the memory of the inputs that states repeat, only other elements are
        written, also in a run that raises RunError.  Raises InvalidModel, before anything runs,
        if the inputs are not exactly those of `spec.inputs` and `spec.objects_in` or the arrays of
        `out` do not fit, and RunError, after the run, if a guard does not hold.
        """
        if out is None and (found := self.run_plainly(inputs)) is not None:
            return found
        arrays, decided = self.inputs.accept(inputs)
        written = None if out is None else self.places.take(out, arrays.values())
        objects = self.objects_given(inputs)
        stay = None if written is None else written.with_states(self.spec, arrays)
        if stay is None:
            arena, phases = self._arena(), self._phases
        else:
            written = stay
            arena, phases = self._arena_with_states()
            for state in self.spec.states:
                del arrays[state.input]  # what no step reads
        for number, array in arrays.items():
            arena.read(number, array)
        arena.hold(decided.sizes)
        outputs = self.place_outputs(arena, {} if written is None else written.direct)
        self.execute(arena, objects, phases)
        # Behind the run: an arena whose run an exception ended may not be free.
        try:
            results = self.results.checked(outputs, decided.sizes, out or ())
        finally:
            if stay is None:
                self._give_back(arena)
            elif len(self._idle_states) < _KEPT_ARENAS:
                self._idle_states.append((arena, phases))
        if written is not None and out is not None:
            written.copy_results(results)
            results.update(out)
        return self.results.with_objects(results, objects)

    def run_plainly(self, inputs: object) -> dict[str, NDArray[Any]] | None:
        """What `run` gives, in half of its time around the kernels; None where that does not do.

        It does for a program of kernels whose runs differ in nothing but addresses and sizes, and
        inputs that are a dict of arrays which kernels can read in place, or of which there are
        fewer elements than room; with sizes if an earlier run had these shapes.  Nothing has run
        where it gives None.  RunError if a guard does not hold.
        """
        plain = self._plain
        if plain is None or type(inputs) is not dict or len(inputs) != len(plain.inputs):
            return None
        arena = self._arena()
        # Those of the run before, most often; looking for others first takes as long as all else.
        places: RunPlaces | None = arena.places
        arrays = None if places is None else places.take(inputs)
        if arrays is None:
            places = self._place(arena, plain, inputs)
            arrays = None if places is None else places.take(inputs)
        if places is None or arrays is None:
            self._give_back(arena)
            return None
        results = places.results()
        if self._watch is not None:
            self._watch()
        self._code.walk(arena, 0)
        try:
            if plain.has_guards:
                self.results.require_guards([*results.values(), *arena.hidden])
            for name, _, _, part in places.copied:
                results[name] = part.copy()
        finally:
            self._give_back(arena)
        return results

    def _place(
        self, arena: Arena, plain: PlainProgram, inputs: Mapping[str, Any]
    ) -> RunPlaces | None:
        """The places of an arena for runs of these shapes, whose sizes it then holds; None if it
        has them, if the program takes no arrays of these shapes, or an input is no array."""
        arrays: list[Any] = [inputs.get(name) for _, name, _ in plain.inputs]
        if not all(type(array) is np.ndarray for array in arrays):
            return None
        known_shapes = self.inputs.shapes
        shapes = tuple([array.shape for array in arrays])
        decided = known_shapes.decide(shapes, known_shapes.elements(arrays))
        known: RunPlaces | None = arena.places
        if decided is None or (known is not None and known.decided is decided):
            return None
        arena.hold(decided.sizes)
        trimmed = self.results.known_shapes(decided.sizes)
        places = arena.places = RunPlaces(arena, decided, plain.inputs, [*plain.in_order], trimmed)
        return places

    def as_plain(self, phases: Sequence[Phase]) -> PlainProgram | None:
        """These phases of the program as `run_plainly` knows them, if runs of them differ in
        nothing but addresses and sizes."""
        spec = self.spec
        if len(phases) != 1 or not isinstance(phases[0], NativePhase):
            return None
        if self.inputs.values or not self.results.are_plain:
            return None
        return PlainProgram(
            tuple((number, tensor.name, dtype) for number, tensor, dtype in self.inputs.given),
            dict.fromkeys((tensor.name for tensor in spec.results), np.empty(0)),
            bool(spec.guards),
        )

    def bind(self, inputs: Mapping[str, ArrayLike]) -> BoundRun:
        """Copy the inputs once, for many runs with little Python overhead; same errors as `run`."""
        return BoundRun(self, *self.inputs.accept(inputs), inputs)

    def execute(
        self, arena: Arena, objects: dict[str, Any], phases: Sequence[Phase] | None = None
    ) -> None:
        """Run all phases, or `phases` of this program, on an arena; `objects` holds the incoming
        objects and receives all others."""
        if self._watch is not None:
            self._watch()
        for phase in self._phases if phases is None else phases:
            match phase:
                case NativePhase():
                    self._code.walk(arena, phase.job)
                case ForeignPhase():
                    begin = time.monotonic_ns()
                    phase.run(arena, data_address(self.constants.memory), objects)
                    if arena.section_stamps is not None:
                        arena.section_stamps.append((begin, time.monotonic_ns()))

    def keeping_states(self) -> tuple[Arena, tuple[Phase, ...]]:
        """An arena, and the phases of runs whose outputs hold what they repeat of inputs."""
        spec, run = self.spec, list(self.spec.run)
        for state in spec.states:
            run[state.step] = state.instead
        exchanged = replace(spec, run=tuple(run))
        tables = self._tables_of(exchanged)
        return self._code.arena(spec, tables), tuple(phases_of(exchanged, self._sessions))

    def spans(
        self, tables: list[NDArray[np.int64]], sections: list[tuple[int, int]]
    ) -> tuple[tuple[tuple[int, int] | None, ...], ...]:
        """The stamps of a run by the steps of `spec.run`; a step of no iterations has none."""
        native = iter([step for table in tables for step in table.tolist()])
        foreign = iter(sections)
        known = {section.name for section in self.spec.sections}
        nobody = (None,) * self.threads

        def span(step: ProgramStep) -> tuple[tuple[int, int] | None, ...]:
            if step.symbol in known:
                return (next(foreign), *nobody[1:])
            if not step.extent:
                return nobody
            return tuple((begin, end) if end else None for begin, end in next(native))

        return tuple(map(span, self.spec.run))

    @property
    def flush_denormals(self) -> bool:
        """Whether denormals count as zero."""
        return self._code.flush_denormals

    @property
    def prepared(self) -> NDArray[np.uint8]:
        """The constants that runs read, as `prepare` left them; read-only.

        A copy, where some of them are borrowed.
        """
        return self.constants.read_by_runs(self.spec.run_constant_bytes)

    def _tables_of(self, spec: ProgramSpec) -> list[StepTable]:
        """The tables of the native phases of `spec`, which has this program's code and
        constants."""
        block, apart = self.constants.memory, self.constants.borrowed.places
        table, known = self._code.table, spec.signatures
        return [table(steps, block, apart, known) for steps in native_steps(spec)]

    def _arena(self) -> Arena:
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_arena()

    def _arena_with_states(self) -> tuple[Arena, tuple[Phase, ...]]:
        try:
            return self._idle_states.pop()
        except IndexError:
            return self.keeping_states()

    def _give_back(self, arena: Arena) -> None:
        """Keep an arena whose run has ended for a later one."""
        if len(self._idle) < _KEPT_ARENAS:
            self._idle.append(arena)

    def _new_arena(self) -> Arena:
        return self._code.arena(self.spec, self._tables)

    def objects_given(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Any]:
        """The inputs that only sections take, as they were given."""
        return {known.name: inputs[known.name] for known in self.spec.objects_in}

    def place_outputs(
        self, arena: Arena, given: Mapping[int, NDArray[Any]] = MappingProxyType({})
    ) -> list[NDArray[Any]]:
        """The arrays of a run's outputs, whose addresses the arena gets; `given` has some of them,
        by the numbers of outputs."""
        outputs, inputs = [], len(self.spec.inputs)
        for number, memory in enumerate(arena.outputs):
            if number in given:
                outputs.append(given[number])
                arena.addresses[inputs + number] = data_address(given[number])
            else:
                outputs.append(memory.array())
                arena.addresses[inputs + number] = memory.address
        return outputs + arena.hidden


class StampedRun(Struct, frozen=True):
    """When a run began and ended, and each thread its part of each step of `spec.run`, in
    nanoseconds of `time.monotonic_ns`.

    `steps` has (begin, end) of each thread, None for threads without a part of the step.  What a
    section of onnxruntime takes is counted as the caller's.
    """

    begin: int
    end: int
    steps: tuple[tuple[tuple[int, int] | None, ...], ...]


class BoundRun:
    """A program with its inputs in place: `run()` overwrites `outputs` and allocates nothing.

    Outputs that are trimmed are views of their buffers, made anew by each run.  It is meant for
    measuring and for tight loops.  Only one thread at a time may run it: a second one gets a
    GraphflowError, whether the first is executing kernels or a section.
    """

    __slots__ = ("_arena", "_buffers", "_objects", "_program", "_sizes", "_turns", "outputs")

    def __init__(
        self,
        program: Program,
        arrays: Mapping[int, NDArray[Any]],
        decided: RunShapes,
        inputs: Mapping[str, Any],
    ) -> None:
        self._program = program
        self._objects = program.objects_given(inputs)
        self._arena = program._new_arena()
        for number, array in arrays.items():
            self._arena.copy_in(number, array)
        self._arena.hold(decided.sizes)
        self._sizes = decided.sizes
        self._buffers = program.place_outputs(self._arena)
        self.outputs = program.results.named(self._buffers)
        self._turns = OneAtATime("this bound run")

    def run(self) -> None:
        """Run once more on the bound inputs.

        GraphflowError if another thread is in the middle of a run, RunError if a guard of the
        program does not hold.
        """
        self._turns.do(self._execute)

    def stamped_runs(self, count: int) -> list[StampedRun]:
        """Run so many times, and note when each thread began and ended each step.

        The runs follow each other at once, so that no thread sleeps meanwhile.
        """
        tables = self._arena.stamp(self._program.threads)
        noted = []
        for _ in range(count):
            self._arena.section_stamps = []
            for table in tables:
                table.fill(0)  # a run may leave out steps
            begin = time.monotonic_ns()
            self.run()
            end = time.monotonic_ns()
            noted.append((begin, end, [t.copy() for t in tables], self._arena.section_stamps))
        return [
            StampedRun(begin, end, self._program.spans(stamps, sections))
            for begin, end, stamps, sections in noted
        ]

    @property
    def running(self) -> bool:
        """Whether some thread is in the middle of a run."""
        return self._turns.is_busy

    def _execute(self) -> None:
        self._program.execute(self._arena, self._objects)
        self._program.results.require_guards(self._buffers)
        self.outputs.update(self._program.results.trimmed(self._buffers, self._sizes))
