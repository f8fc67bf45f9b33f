"""Running a program: numpy arrays in, numpy arrays out.

In: a `ProgramSpec` and a number of threads.  What always holds: inputs are checked before anything
runs; concurrent runs have separate arenas; a program may be run from any Python thread and in
forked children, and gives the same bits for any number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.base.errors import GraphflowError, InvalidModel, VerifyError
from graphflow.foreign import RunnableSection, Section, open_section
from graphflow.program import ALIGNMENT, ProgramSpec, ProgramStep, Signature, TensorSpec
from graphflow.runtime.aligned_memory import (
    data_address,
    is_usable,
    release,
    store,
    zeroed_block,
)
from graphflow.runtime.cpus import default_threads
from graphflow.runtime.driver import ORPHANED, Driver, driver
from graphflow.runtime.given_arrays import OutputPlaces, given_array, require_value
from graphflow.runtime.linking import link
from graphflow.runtime.one_at_a_time import OneAtATime
from graphflow.runtime.phases import ForeignPhase, NativePhase, Phase, native_steps, phases_of
from graphflow.runtime.pool import POOLS
from graphflow.runtime.results import Results
from graphflow.runtime.run_places import RunPlaces
from graphflow.runtime.run_sizes import AdmittedShapes, RunShapes, SeenShapes
from graphflow.runtime.step_table import PATIENCE_NS, Arena, StepTable, step_table

_KEPT_ARENAS = 4
"""The most arenas that are kept for later runs; concurrent runs may use more."""

_MOST_THREADS = 1024
"""A larger number of threads is taken for a mistake."""


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Constants of a program that lie in blocks of others: `parts` their bytes by position, `steps`
    the numbers of the steps of `prepare` that would make some of them."""

    parts: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict)
    steps: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _PlainProgram:
    """A program of one native phase whose runs differ in nothing but addresses and sizes.

    inputs: name and type of each that a run is given; numbers: their numbers; in_order: results by
    name, in the model's order, to be replaced by those of a run.
    """

    inputs: tuple[tuple[str, np.dtype[Any]], ...]
    numbers: tuple[int, ...]
    in_order: Mapping[str, NDArray[Any]]
    has_guards: bool
    table: StepTable


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
        borrowed: Borrowed | None = None,
        opens: Callable[[Section, int], RunnableSection] = open_section,
        native: Driver | None = None,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        self.spec = spec
        self._values = dict(values)
        self.threads = default_threads() if threads is None else threads
        if not 1 <= self.threads <= _MOST_THREADS:
            raise GraphflowError(f"threads is {threads}, must be from 1 to {_MOST_THREADS}")
        self._flush_denormals = flush_denormals
        self._watch = watch
        self._run = (driver() if native is None else native).run
        self._patience_ns = patience_ns
        self._code = link(spec.objects)
        own = Borrowed() if borrowed is None else borrowed
        self._borrowed: Borrowed = own if alike is None else alike._borrowed
        if spec.sections and self._borrowed.parts:
            raise VerifyError("sections read the constant block itself, and borrow nothing")
        # More threads than processors would take turns in a session, and onnxruntime waits for
        # ever where the system refuses it one.
        most = min(self.threads, default_threads())
        sessions = {s.name: opens(s.section, most) for s in spec.sections}
        try:
            if alike is not None:
                self._constants = _shared(spec, alike)
            else:
                self._constants = self._prepare() if prepared is None else _fitting(spec, prepared)
            self._tables = [self._step_table(part, self._constants) for part in native_steps(spec)]
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
        self._phases = tuple(phases_of(spec, self._tables, sessions))
        self._inputs = [
            (number, tensor, np.dtype(tensor.dtype))
            for number, tensor in enumerate(spec.inputs)
            if number not in spec.held
        ]
        self._given = tuple(tensor.name for _, tensor, _ in self._inputs)
        self._seen = SeenShapes(spec)
        self.shapes = AdmittedShapes(spec)
        self._names = frozenset(spec.input_names)
        self.results = Results(spec)
        self.places = OutputPlaces(spec)
        self._plain = self._as_plain()

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
        arrays, decided = self.accept(inputs)
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
            arena.read(number, array, decided.parts.get(number))
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
        arrays, shapes = [], []
        for name, dtype in plain.inputs:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype:
                return None
            arrays.append(array)  # another thread may take it out of the dict meanwhile
            shapes.append(array.shape)
        decided = self._seen.known(tuple(shapes))
        if decided is None:
            return None
        arena = self._arena()
        places = arena.places
        if places is None or places.decided is not decided:
            places = self._place(arena, decided)
        addresses = arena.addresses
        for number, array, part in zip(plain.numbers, arrays, places.parts, strict=True):
            if part is not None:
                np.copyto(part, array)
                addresses[number] = arena.staged[number]
            elif is_usable(array):
                addresses[number] = data_address(array)
            else:
                self._give_back(arena)
                return None
        results: dict[str, NDArray[Any]] = dict(plain.in_order)
        for name, position, memory, shape in places.own:
            results[name] = memory.array(shape)
            addresses[position] = memory.address
        for _, position, address, _ in places.copied:
            addresses[position] = address
        if self._watch is not None:
            self._watch()
        self._walk(arena, plain.table, arena.jobs[0])
        try:
            if plain.has_guards:
                self.results.require_guards([*results.values(), *arena.hidden])
            for name, _, _, part in places.copied:
                results[name] = part.copy()
        finally:
            self._give_back(arena)
        return results

    def _place(self, arena: Arena, decided: RunShapes) -> RunPlaces:
        """The places of an arena for runs of known shapes, whose sizes it then holds."""
        assert self._plain is not None
        arena.hold(decided.sizes)
        shapes = self.results.known_shapes(decided.sizes)
        plain = self._plain
        places = arena.places = RunPlaces(arena, decided, plain.numbers, [*plain.in_order], shapes)
        return places

    def _as_plain(self) -> _PlainProgram | None:
        """The program as `run_plainly` knows it, if its runs differ in nothing but addresses and
        sizes."""
        spec, phases = self.spec, self._phases
        if len(phases) != 1 or not isinstance(phase := phases[0], NativePhase):
            return None
        if self._values or not self.results.are_plain:
            return None
        return _PlainProgram(
            tuple((tensor.name, dtype) for _, tensor, dtype in self._inputs),
            tuple(number for number, *_ in self._inputs),
            dict.fromkeys((tensor.name for tensor in spec.results), np.empty(0)),
            bool(spec.guards),
            phase.table,
        )

    def takes(self, inputs: object) -> bool:
        """Whether `inputs` is a dict with exactly the names of this program's inputs."""
        return type(inputs) is dict and inputs.keys() == self._names

    def takes_as_before(self, inputs: object) -> bool:
        """Whether it `takes` these, and an earlier run had inputs of the same shapes."""
        if type(inputs) is not dict or inputs.keys() != self._names:
            return False
        try:
            shapes = tuple([inputs[name].shape for name in self._given])
        except AttributeError:  # no arrays
            return False
        return self._seen.known(shapes) is not None

    def bind(self, inputs: Mapping[str, ArrayLike]) -> BoundRun:
        """Copy the inputs once, for many runs with little Python overhead; same errors as `run`."""
        return BoundRun(self, *self.accept(inputs), inputs)

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
                    self._walk(arena, phase.table, arena.jobs[phase.job])
                case ForeignPhase():
                    begin = time.monotonic_ns()
                    phase.run(arena, data_address(self._constants), objects)
                    if arena.section_stamps is not None:
                        arena.section_stamps.append((begin, time.monotonic_ns()))

    def _walk(self, arena: Arena, table: StepTable, job: int) -> None:
        """Execute a table natively, without the interpreter lock.

        Long runs pause between steps, so that a signal handler can end them by an exception.
        """
        step = 0
        try:
            # The pool is asked for each time: a signal handler may have forked, between two calls
            # or just before one, which then has the address of a pool of the parent.
            while (given := self._run(self._pool(table), job, step)) > 0 or given == ORPHANED:
                step = step if given == ORPHANED else given  # a jump may lead back
        except BaseException:
            arena.abandon()
            raise
        assert given == 0, "an arena serves one run at a time"

    def keeping_states(self) -> tuple[Arena, tuple[Phase, ...]]:
        """An arena, and the phases of runs whose outputs hold what they repeat of inputs."""
        spec, run = self.spec, list(self.spec.run)
        for state in spec.states:
            run[state.step] = state.instead
        exchanged = replace(spec, run=tuple(run))
        tables = [self._step_table(part, self._constants) for part in native_steps(exchanged)]
        arena = Arena(spec, tables, self._flush_denormals, self._patience_ns)
        return arena, tuple(phases_of(exchanged, tables, self._sessions))

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
        return self._flush_denormals

    @property
    def prepared(self) -> NDArray[np.uint8]:
        """The constants that runs read, as `prepare` left them; read-only.

        A copy, where some of them are borrowed.
        """
        view = self._constants[: self.spec.run_constant_bytes]
        if self._borrowed.parts:
            view = view.copy()
            for position, part in self._borrowed.parts.items():
                view[position : position + len(part)] = part
        view.flags.writeable = False
        return view

    def constant(self, position: int, nbytes: int) -> NDArray[np.uint8]:
        """The bytes of one of the constants that runs read, in place."""
        part = self._borrowed.parts.get(position)
        return self._constants[position : position + nbytes] if part is None else part

    def _prepare(self) -> NDArray[np.uint8]:
        """The constant block after `prepare`, without the part that only `prepare` needs.

        Constants of that part are read where they are, if kernels can: nothing writes into them.
        """
        spec = self.spec
        constants = zeroed_block(spec.constant_bytes)
        apart: dict[int, int] = {}
        for offset, array in spec.constants:
            if offset in self._borrowed.parts:
                continue
            if offset >= spec.run_constant_bytes and is_usable(array):
                apart[offset] = data_address(array)
            else:
                store(constants, offset, array)
        steps = tuple(s for k, s in enumerate(spec.prepare) if k not in self._borrowed.steps)
        if steps:
            table = self._step_table(steps, constants, apart, {})
            # Its own arena, dropped afterwards: those of the runs start out as zeros.
            arena = Arena(spec, [table], self._flush_denormals, self._patience_ns)
            self._walk(arena, table, arena.jobs[0])
        release(constants, spec.run_constant_bytes)
        return constants

    def _pool(self, table: StepTable) -> int:
        return POOLS.address(self.threads) if table.parallel else 0

    def _step_table(
        self,
        steps: tuple[ProgramStep, ...],
        constants: NDArray[np.uint8],
        apart: Mapping[int, int] = MappingProxyType({}),
        signatures: Mapping[str, Signature] | None = None,
    ) -> StepTable:
        """The table of native steps; `signatures`, by default all, are those of `step_table`."""
        known = self.spec.signatures if signatures is None else signatures
        places = {k: data_address(part) for k, part in self._borrowed.parts.items()}
        places.update(apart)
        inputs = len(self.spec.inputs)
        return step_table(
            steps, self._code.addresses, constants, inputs, self.threads, places, known
        )

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
        return Arena(self.spec, self._tables, self._flush_denormals, self._patience_ns)

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

    def accept(self, inputs: Mapping[str, ArrayLike]) -> tuple[dict[int, NDArray[Any]], RunShapes]:
        """The arrays of a run by the numbers of inputs, and what their shapes decide."""
        if inputs.keys() != self._names:
            self._refuse_names(inputs)
        arrays: dict[int, NDArray[Any]] = {}
        for number, tensor, dtype in self._inputs:
            array = inputs[tensor.name]
            if type(array) is not np.ndarray:
                array = given_array(tensor.name, array)
            if array.dtype is not dtype and array.dtype.newbyteorder("=") != dtype:
                raise self._misfit(tensor, array)
            arrays[number] = array
        shapes = tuple([array.shape for array in arrays.values()])
        decided = self._seen.known(shapes)
        if decided is None:
            if (wrong := self._seen.misfit(arrays)) is not None:
                raise self._misfit(self.spec.inputs[wrong], arrays[wrong])
            decided = self._seen.decide(self.spec, shapes, arrays)
        for number, tensor, _ in self._inputs if self._values else ():
            if tensor.name in self._values:
                require_value(tensor.name, self._values[tensor.name], arrays[number])
        return arrays, decided

    def _misfit(self, tensor: TensorSpec, array: NDArray[Any]) -> InvalidModel:
        cast = "" if array.dtype == tensor.dtype else "; a run casts nothing, so convert the array"
        return InvalidModel(
            f"input {tensor.name!r} is {array.dtype}{list(array.shape)}, the program "
            f"expects {tensor.dtype}{list(tensor.shape)}{cast}; {self._expected()}"
        )

    def _refuse_names(self, inputs: Mapping[str, ArrayLike]) -> None:
        missing = [name for name in self.spec.input_names if name not in inputs]
        unknown = [name for name in inputs if name not in self._names]
        found = [f"input {name!r} is missing" for name in missing]
        found += [f"there is no input {name!r}" for name in unknown]
        raise InvalidModel(f"{', '.join(found)}; {self._expected()}")

    def _expected(self) -> str:
        listed = ", ".join(map(str, (*self.spec.inputs, *self.spec.objects_in)))
        return f"the inputs are {listed}" if listed else "the program takes no inputs"


@dataclass(frozen=True, slots=True)
class StampedRun:
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
            self._arena.copy_in(number, array, decided.parts.get(number))
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


def _fitting(spec: ProgramSpec, prepared: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if spec.prepare or spec.constants or len(prepared) != spec.constant_bytes:
        raise VerifyError(
            f"{len(prepared)} bytes of prepared constants do not fit a program with "
            f"{spec.constant_bytes} bytes, {len(spec.constants)} initial constants and "
            f"{len(spec.prepare)} steps that prepare them"
        )
    if len(prepared) and data_address(prepared) % ALIGNMENT:
        raise VerifyError(f"prepared constants must begin at a multiple of {ALIGNMENT} bytes")
    return prepared


def _shared(spec: ProgramSpec, alike: Program) -> NDArray[np.uint8]:
    """The constant block of another program; runs only read it."""
    other = alike.spec
    sizes = (other.constant_bytes, other.run_constant_bytes)
    if sizes != (spec.constant_bytes, spec.run_constant_bytes):
        raise VerifyError(
            f"a program with {spec.constant_bytes} bytes of constants, of which runs read "
            f"{spec.run_constant_bytes}, cannot share those of one with {sizes[0]} and {sizes[1]}"
        )
    return alike._constants
