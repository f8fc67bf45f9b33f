"""The timing harness: programs that run one kernel repeatedly, under the conditions of a network.

In: subjects.  Out: the seconds of one execution of each, with what a reference kernel took
meanwhile.  What always holds:

- Kernels are lowered, compiled and linked as those of a model are, and run by the same driver on
  the same threads, so the price contains what a step costs besides its work.
- Before each execution another kernel writes the inputs, as the previous step of a network would
  have; they are in the caches of the threads that wrote them. The time of that is measured by a
  program that does only that, and subtracted. Constants are read from several copies in turn, which
  together exceed the second-level cache: in a network, the constants of all other kernels pass
  between two runs.
- Blocks of all programs of a batch, and of the reference, alternate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.bench import Protocol, measure, peak_kernel
from graphflow.codegen import ObjectTask, compile_object, make_object
from graphflow.cost import Timing
from graphflow.kernels.lowering import KernelTask, LoweredKernel, make_kernel
from graphflow.lower import kernel_task
from graphflow.processes.workers import Workers
from graphflow.program import ALIGNMENT, BufferRef, ProgramSpec, ProgramStep, TensorSpec
from graphflow.runtime import Program
from graphflow.tir import DTYPES, Buffer, PrimFunc, parse
from graphflow.tuning.subjects import Subject

PROTOCOL = Protocol(blocks=15, idle=0.0, discarded=0.0005, measured=0.0015)
"""Short blocks, since there are many programs, and no idle time, since no peer's threads spin."""

BATCH = 12
"""The number of subjects whose blocks alternate."""

BATCH_BYTES = 1 << 29
"""The most memory that the programs of a batch take together, unless the batch is one program."""

RUN_SECONDS = 300e-6
"""The seconds that a run of a program should at least take, so that starting it hardly counts."""

MOST_REPEATS = 64
"""The most executions of a subject in one run of its program."""
MOST_COPIES = 16
"""The most copies of the constants of a subject."""

SHORTEST = 1e-8
"""The seconds filed for a subject whose time is not measurably above that of writing its inputs."""

ROW = 4096
"""Bytes of one row of the kernel that writes the inputs; one iteration of its parallel loop."""
MOST_ROWS = 1 << 18
"""The extent of that kernel's parallel loop; programs run as many iterations as they need (≤ 1
GiB).
"""
REFERENCE_TILES = 512
"""The iterations of the reference kernel's parallel loop."""

_WRITE = """@primfunc
def write(row: f32[{steps}, {lanes}], x: out[f32[{rows}, {steps}, {lanes}]]):
    with block("write"):
        for r in parallel(0, {rows}):
            for k in serial(0, {steps}):
                for l in vectorized(0, {lanes}):
                    x[r, k, l] = row[k, l]
"""

Kernels = Mapping[tuple[str, int], tuple[LoweredKernel, bytes]]
"""Kernels with their object code, by the key of the subject and the index of the call."""


class Harness(Struct, frozen=True):
    """Times kernels for one target on a number of threads."""

    target: Target
    threads: int
    protocol: Protocol = PROTOCOL

    def compiled(self, found: Sequence[Subject], trace: Trace, workers: Workers) -> Kernels:
        """The kernels of all subjects with their object code, made in worker processes if there are
        any.
        """
        names = [(subject.key, k) for subject in found for k in range(len(subject.calls))]
        calls = [call for subject in found for call in subject.calls]
        symbols = [f"t{number}" for number in range(len(calls))]
        tasks: dict[str, KernelTask] = {
            symbol: kernel_task(call, self.target, symbol)
            for symbol, call in zip(symbols, calls, strict=True)
        }
        lowered = workers.map(make_kernel, tasks, trace, here=True)
        objects: dict[str, ObjectTask] = {s: (k.func, s, self.target) for s, k in lowered.items()}
        code = workers.map(make_object, objects, trace, here=True)
        return {n: (lowered[s], code[s]) for n, s in zip(names, symbols, strict=True)}

    def times(self, found: Sequence[Subject], kernels: Kernels) -> Iterator[tuple[Timing, ...]]:
        """The timings of each batch of subjects, as soon as it is measured."""
        for batch in _batches([_TimingProgram.of(subject, kernels, self) for subject in found]):
            yield self._batch(batch)

    def _batch(self, batch: Sequence[_TimingProgram]) -> tuple[Timing, ...]:
        runs: dict[str, Callable[[], object]] = {"reference": self.reference()}
        for plan in batch:
            runs[plan.subject.key] = plan.program(self, with_subject=True).bind({}).run
            if plan.writing not in runs:
                runs[plan.writing] = plan.program(self, with_subject=False).bind({}).run
        took = {name: _undisturbed(t.blocks) for name, t in measure(runs, self.protocol).items()}
        return tuple(
            Timing(
                plan.subject.key,
                max((took[plan.subject.key] - took[plan.writing]) / plan.repeats, SHORTEST),
                took["reference"],
                plan.subject.what,
            )
            for plan in batch
        )

    def reference(self) -> Callable[[], object]:
        """A run of the reference kernel: multiply-adds on all threads.

        Its time is filed with each timing, so that timings of different moments can be compared.
        """
        func, code = _reference_object(self.target)
        inputs = tuple(TensorSpec(b.name, b.dtype, b.shape) for b in func.inputs)
        outputs = tuple(TensorSpec(b.name, b.dtype, b.shape) for b in func.outputs)
        buffers = (*(BufferRef("input", k) for k in range(len(inputs))), BufferRef("output", 0))
        step = ProgramStep(func.name, buffers, REFERENCE_TILES)
        spec = ProgramSpec(((func.name, code),), (), (step,), (), 0, 0, inputs, outputs)
        ones = {t.name: np.ones(t.shape, np.float32) for t in inputs}
        return Program(spec, self.threads).bind(ones).run


def _undisturbed(blocks: Sequence[float]) -> float:
    """The lower quartile of blocks in milliseconds, as seconds: other processes can only delay a
    block.
    """
    return 1e-3 * float(np.quantile(blocks, 0.25))


@lru_cache(maxsize=4)
def _reference_object(target: Target) -> tuple[PrimFunc, bytes]:
    func = peak_kernel(target, REFERENCE_TILES)
    return func, compile_object(func, func.name, target)


@lru_cache(maxsize=4)
def _write_object(target: Target) -> bytes:
    """The object code of a kernel that writes one row to each of its iterations' rows."""
    lanes = target.lanes("float32")
    text = _WRITE.format(steps=ROW // target.vector_bytes, lanes=lanes, rows=MOST_ROWS)
    return compile_object(parse(text), "write", target)


class _TimingProgram(Struct, frozen=True):
    """The program that times a subject.

    It runs the subject `repeats` times, with `copies` copies of its constants in turn.  The buffers
    that are written before each execution come first in the arena, in `rows` whole rows; `arena`
    and `constants` are byte offsets.
    """

    subject: Subject
    kernels: tuple[tuple[LoweredKernel, bytes], ...]
    repeats: int
    copies: int
    arena: Mapping[str, int]
    rows: int
    arena_bytes: int
    constants: Mapping[str, int]
    constant_bytes: int

    @classmethod
    def of(cls, subject: Subject, kernels: Kernels, harness: Harness) -> _TimingProgram:
        """Place the buffers of a subject, and choose how often it runs."""
        made = tuple(kernels[subject.key, k] for k in range(len(subject.calls)))
        sizes = _sizes(subject, made)
        arena, written_bytes = _packed({n: s for n, s in sizes.items() if n in subject.written}, 0)
        rows = -(-written_bytes // ROW)
        others = {n: s for n, s in sizes.items() if n not in subject.written | subject.constants}
        scratch, arena_bytes = _packed(others, rows * ROW)
        constants, constant_bytes = _packed({n: sizes[n] for n in sorted(subject.constants)}, 0)
        expected = max(subject.estimated, SHORTEST)
        repeats = 1
        while repeats < MOST_REPEATS and repeats * expected < RUN_SECONDS:
            repeats *= 2
        spread = 2 * harness.target.l2_bytes
        copies = -(-spread // constant_bytes) if constant_bytes else 1
        return cls(
            subject=subject,
            kernels=made,
            repeats=repeats,
            copies=min(copies, repeats, MOST_COPIES),
            arena={**arena, **scratch},
            rows=rows,
            arena_bytes=arena_bytes,
            constants=constants,
            constant_bytes=constant_bytes,
        )

    @property
    def bytes(self) -> int:
        """The memory that the program takes."""
        return self.arena_bytes + self.copies * self.constant_bytes

    @property
    def writing(self) -> str:
        """The name of the program without the subject; subjects with equal names share it."""
        return f"write {self.rows} rows {self.repeats} times"

    def program(self, harness: Harness, with_subject: bool) -> Program:
        """The program that writes the inputs and runs the subject, or only writes the inputs."""
        steps: list[ProgramStep] = []
        row_place = self.copies * self.constant_bytes
        writing = (BufferRef("constant", row_place), BufferRef("arena", 0))
        for repeat in range(self.repeats):
            steps.append(ProgramStep("write", writing, self.rows))
            if with_subject:
                base = repeat % self.copies * self.constant_bytes
                steps += self._steps(base)
        constants = (0, _contents(self.subject, row_place)), (row_place, _row(self.subject))
        spec = ProgramSpec(
            objects=(
                ("write", _write_object(harness.target)),
                *((kernel.symbol, code) for kernel, code in self.kernels if with_subject),
            ),
            prepare=(),
            run=tuple(steps),
            constants=tuple((place, array) for place, array in constants if array.size),
            constant_bytes=row_place + ROW,
            arena_bytes=self.arena_bytes,
            inputs=(),
            outputs=(),
        )
        return Program(spec, harness.threads)

    def _steps(self, base: int) -> Iterator[ProgramStep]:
        for call, (kernel, _) in zip(self.subject.calls, self.kernels, strict=True):
            names = [call.placements[p.buffer.name].storage for p in call.definition.params]
            names += [_workspace(kernel, buffer) for buffer in kernel.workspace]
            refs = tuple(
                BufferRef("constant", base + self.constants[name])
                if name in self.constants
                else BufferRef("arena", self.arena[name])
                for name in names
            )
            yield ProgramStep(kernel.symbol, refs, kernel.extent, meets=kernel.in_phases)


def _batches(plans: Sequence[_TimingProgram]) -> Iterator[list[_TimingProgram]]:
    batch: list[_TimingProgram] = []
    for plan in plans:
        full = len(batch) == BATCH or sum(p.bytes for p in (*batch, plan)) > BATCH_BYTES
        if batch and full:
            yield batch
            batch = []
        batch.append(plan)
    if batch:
        yield batch


def _sizes(subject: Subject, kernels: Sequence[tuple[LoweredKernel, bytes]]) -> dict[str, int]:
    """The bytes of each storage, and of the workspaces of the kernels."""
    sizes: dict[str, int] = {}
    for call, (kernel, _) in zip(subject.calls, kernels, strict=True):
        for param in call.definition.params:
            place = call.placements[param.buffer.name]
            size = place.layout.bytes(param.buffer.dtype)
            sizes[place.storage] = max(size, sizes.get(place.storage, 0))
        sizes |= {_workspace(kernel, buffer): buffer.bytes for buffer in kernel.workspace}
    return sizes


def _workspace(kernel: LoweredKernel, buffer: Buffer) -> str:
    return f"{kernel.symbol}:{buffer.name}"


def _packed(sizes: Mapping[str, int], begin: int) -> tuple[dict[str, int], int]:
    """Aligned offsets one behind the other from `begin` on, and the end of the last."""
    places: dict[str, int] = {}
    for name, size in sizes.items():
        places[name] = begin
        begin += -(-size // ALIGNMENT) * ALIGNMENT
    return places, begin


def _contents(subject: Subject, size: int) -> NDArray[np.generic]:
    return np.resize(_row(subject), size // 4)


def _row(subject: Subject) -> NDArray[np.generic]:
    """The contents of all that a subject reads: ordinary numbers; zeros if any dtype is no float.

    Zeros are valid indices.
    """
    reads = (b.dtype for call in subject.calls for b in call.definition.inputs)
    floats = all(DTYPES[dtype].kind == "f" for dtype in reads)
    random = np.random.default_rng(0).uniform(0.5, 1.5, ROW // 4)
    return np.asarray(random if floats else 0 * random, np.float32)
