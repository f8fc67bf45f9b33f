"""The stand on which kernels are timed: programs that run one over and over, as a network would.

In: subjects.  Out: seconds of one run of each, and what a reference took meanwhile.  What always
holds:

- Kernels are lowered, compiled and linked as those of a model are, and run by the same driver on
  the same threads, so that what a step costs besides its work is in the price.
- Before each run a kernel of ours writes the inputs, as another step of a network would have: they
  are in the caches of whoever wrote them.  What that takes is measured by a program that does only
  that, and taken off.  Constants are read from several copies in turn, which together exceed the
  second-level cache: in a network, the other kernels' constants have passed since the last run.
- Blocks of all programs of a batch alternate, those of the reference among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
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
"""Blocks are short, for there are many programs; nobody spins who is not one of ours."""

BATCH = 12
"""Subjects whose blocks alternate."""

BATCH_BYTES = 1 << 29
"""Memory that the programs of a batch may take together, if they are more than one."""

RUN_SECONDS = 300e-6
"""How long a run of a program should take at least, so that starting it hardly counts."""

MOST_REPEATS = 64
MOST_COPIES = 16
"""Copies of the constants of a subject."""

SHORTEST = 1e-8
"""Seconds of what cannot be told from nothing."""

ROW = 4096
MOST_ROWS = 1 << 18
REFERENCE_TILES = 512

_WRITE = """@primfunc
def write(row: f32[{steps}, {lanes}], x: out[f32[{rows}, {steps}, {lanes}]]):
    with block("write"):
        for r in parallel(0, {rows}):
            for k in serial(0, {steps}):
                for l in vectorized(0, {lanes}):
                    x[r, k, l] = row[k, l]
"""

Kernels = Mapping[tuple[str, int], tuple[LoweredKernel, bytes]]
"""Kernels with their object code, by the key of the subject and the number of the call."""


@dataclass(frozen=True)
class Harness:
    """A place to time kernels for one target with a number of threads."""

    target: Target
    threads: int
    protocol: Protocol = PROTOCOL

    def compiled(self, found: Sequence[Subject], trace: Trace, workers: Workers) -> Kernels:
        """The kernels of all subjects, made in worker processes where there are some."""
        names = [(subject.key, k) for subject in found for k in range(len(subject.calls))]
        calls = [call for subject in found for call in subject.calls]
        symbols = [f"t{number}" for number in range(len(calls))]
        tasks: dict[str, KernelTask] = {
            symbol: kernel_task(call, self.target, symbol)
            for symbol, call in zip(symbols, calls, strict=True)
        }
        lowered = workers.map(make_kernel, tasks, trace)
        objects: dict[str, ObjectTask] = {s: (k.func, s, self.target) for s, k in lowered.items()}
        code = workers.map(make_object, objects, trace)
        return {n: (lowered[s], code[s]) for n, s in zip(names, symbols, strict=True)}

    def times(self, found: Sequence[Subject], kernels: Kernels) -> Iterator[tuple[Timing, ...]]:
        """The timings of each batch of subjects, as soon as it is done."""
        for batch in _batches([_Plan.of(subject, kernels, self) for subject in found]):
            yield self._batch(batch)

    def _batch(self, batch: Sequence[_Plan]) -> tuple[Timing, ...]:
        runs: dict[str, Callable[[], object]] = {"reference": self.reference()}
        for plan in batch:
            runs[plan.subject.key] = plan.program(self, whole=True).bind({}).run
            if plan.writing not in runs:
                runs[plan.writing] = plan.program(self, whole=False).bind({}).run
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
        """Multiply-adds on all threads."""
        func, code = _reference_object(self.target)
        inputs = tuple(TensorSpec(b.name, b.dtype, b.shape) for b in func.inputs)
        outputs = tuple(TensorSpec(b.name, b.dtype, b.shape) for b in func.outputs)
        buffers = (*(BufferRef("input", k) for k in range(len(inputs))), BufferRef("output", 0))
        step = ProgramStep(func.name, buffers, REFERENCE_TILES)
        spec = ProgramSpec(((func.name, code),), (), (step,), (), 0, 0, inputs, outputs)
        ones = {t.name: np.ones(t.shape, np.float32) for t in inputs}
        return Program(spec, self.threads).bind(ones).run


def _undisturbed(blocks: Sequence[float]) -> float:
    """Seconds: the lower quartile of blocks in milliseconds, for other processes only delay."""
    return 1e-3 * float(np.quantile(blocks, 0.25))


@lru_cache(maxsize=4)
def _reference_object(target: Target) -> tuple[PrimFunc, bytes]:
    func = peak_kernel(target, REFERENCE_TILES)
    return func, compile_object(func, func.name, target)


@lru_cache(maxsize=4)
def _write_object(target: Target) -> bytes:
    """A kernel that writes one row over and over, in as many rows as its caller wants."""
    lanes = target.lanes("float32")
    text = _WRITE.format(steps=ROW // target.vector_bytes, lanes=lanes, rows=MOST_ROWS)
    return compile_object(parse(text), "write", target)


@dataclass(frozen=True)
class _Plan:
    """How a subject is run: `repeats` times in one program, with its `copies` of the constants in
    turn.  What is given lies first in the arena, in whole `rows`."""

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
    def of(cls, subject: Subject, kernels: Kernels, stand: Harness) -> _Plan:
        """Places the buffers of a subject."""
        made = tuple(kernels[subject.key, k] for k in range(len(subject.calls)))
        sizes = _sizes(subject, made)
        arena, given_bytes = _packed({n: s for n, s in sizes.items() if n in subject.given}, 0)
        rows = -(-given_bytes // ROW)
        rest = {n: s for n, s in sizes.items() if n not in subject.given | subject.constants}
        others, arena_bytes = _packed(rest, rows * ROW)
        constants, constant_bytes = _packed({n: sizes[n] for n in sorted(subject.constants)}, 0)
        expected = max(subject.estimated, SHORTEST)
        repeats = 1
        while repeats < MOST_REPEATS and repeats * expected < RUN_SECONDS:
            repeats *= 2
        spread = 2 * stand.target.l2_bytes
        copies = -(-spread // constant_bytes) if constant_bytes else 1
        return cls(
            subject=subject,
            kernels=made,
            repeats=repeats,
            copies=min(copies, repeats, MOST_COPIES),
            arena={**arena, **others},
            rows=rows,
            arena_bytes=arena_bytes,
            constants=constants,
            constant_bytes=constant_bytes,
        )

    @property
    def bytes(self) -> int:
        """Memory that its program takes."""
        return self.arena_bytes + self.copies * self.constant_bytes

    @property
    def writing(self) -> str:
        """The name of what its program does besides; equal names stand for the same."""
        return f"write {self.rows} rows {self.repeats} times"

    def program(self, stand: Harness, whole: bool) -> Program:
        """The program that writes what is given and runs the subject, or only the former."""
        steps: list[ProgramStep] = []
        row_place = self.copies * self.constant_bytes
        writing = (BufferRef("constant", row_place), BufferRef("arena", 0))
        for repeat in range(self.repeats):
            steps.append(ProgramStep("write", writing, self.rows))
            if whole:
                base = repeat % self.copies * self.constant_bytes
                steps += self._steps(base)
        contents = _contents(self.subject, row_place)
        spec = ProgramSpec(
            objects=(
                ("write", _write_object(stand.target)),
                *((kernel.symbol, code) for kernel, code in self.kernels if whole),
            ),
            prepare=(),
            run=tuple(steps),
            constants=((0, contents), (row_place, _row(self.subject))),
            constant_bytes=row_place + ROW,
            arena_bytes=self.arena_bytes,
            inputs=(),
            outputs=(),
        )
        return Program(spec, stand.threads)

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
            yield ProgramStep(kernel.symbol, refs, kernel.extent)


def _batches(plans: Sequence[_Plan]) -> Iterator[list[_Plan]]:
    batch: list[_Plan] = []
    for plan in plans:
        full = len(batch) == BATCH or sum(p.bytes for p in (*batch, plan)) > BATCH_BYTES
        if batch and full:
            yield batch
            batch = []
        batch.append(plan)
    if batch:
        yield batch


def _sizes(subject: Subject, kernels: Sequence[tuple[LoweredKernel, bytes]]) -> dict[str, int]:
    """Bytes of each storage, and of what the kernels need besides."""
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
    """Places one behind the other, and the end of the last."""
    places: dict[str, int] = {}
    for name, size in sizes.items():
        places[name] = begin
        begin += -(-size // ALIGNMENT) * ALIGNMENT
    return places, begin


def _contents(subject: Subject, size: int) -> NDArray[np.generic]:
    return np.resize(_row(subject), size // 4)


def _row(subject: Subject) -> NDArray[np.generic]:
    """What is written to all that a subject reads: ordinary numbers, zeros for other dtypes."""
    reads = (b.dtype for call in subject.calls for b in call.definition.inputs)
    floats = all(DTYPES[dtype].kind == "f" for dtype in reads)
    random = np.random.default_rng(0).uniform(0.5, 1.5, ROW // 4)
    return np.asarray(random if floats else 0 * random, np.float32)
