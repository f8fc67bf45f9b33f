"""The native step tables that the driver executes, and the memory of one run.

A `StepTable` is made once for each native phase of a program and shared by all runs.  It holds the
steps, the pointers of their buffers as far as they are known, and where the others are to be
written.  An `Arena` belongs to a single run at a time: intermediate memory, staging copies of
inputs, its own copy of the pointers, and native jobs.  What always holds: a table and an arena keep
alive everything that their addresses point to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.program import (
    ALIGNMENT,
    LEAST_BYTES,
    BufferRef,
    Portion,
    ProgramSpec,
    ProgramStep,
    SharingPrices,
    Signature,
    concurrent_steps,
)
from graphflow.runtime.aligned_memory import (
    Recycled,
    copy_to_front,
    data_address,
    is_usable,
    zeroed_block,
)
from graphflow.runtime.driver import FLUSH_DENORMALS, JOB, JOB_FREE, JOB_PAUSED, LEVEL, PATCH, STEP

PATIENCE_NS = 100_000_000
"""How long native code keeps signals waiting, if no step takes longer."""

MOST_CHUNKS = 16
"""The most chunks of a thread's share of a step."""

_STEP, _LEVEL, _PATCH, _JOB = STEP.dtype, LEVEL.dtype, PATCH.dtype, JOB.ctype


class StepTable(Struct, frozen=True):
    """Steps in the form that the driver reads.

    steps, patches, levels: tables of the driver's structs STEP, PATCH and LEVEL; the `source` of a
        patch counts the graph's inputs, then its outputs.
    pointers: the address of each parameter of each step; but at `arena_slots` its offset in the
        arena, and 0 where a patch belongs.
    parallel: whether any step has several threads.
    """

    steps: NDArray[np.void]
    pointers: NDArray[np.int64]
    arena_slots: NDArray[np.int64]
    patches: NDArray[np.void]
    levels: NDArray[np.void]
    parallel: bool


def step_table(
    steps: tuple[ProgramStep, ...],
    addresses: dict[str, int],
    constants: NDArray[np.uint8],
    inputs: int,
    threads: int,
    apart: Mapping[int, int] = MappingProxyType({}),
    signatures: Mapping[str, Signature] = MappingProxyType({}),
) -> StepTable:
    """The table of one native phase for that many threads and graph inputs; empty steps are
    omitted.

    `apart` has the addresses of constants that do not lie in the block, by their positions there.
    `signatures` are those of kernels whose steps may run concurrently, or in fewer chunks.
    """
    # Where each step stands once the empty ones are left out; behind the last one too.
    places = np.cumsum([0, *(step.extent > 0 for step in steps)])
    jumps = [
        (step.jump, places[number + step.jump.distance] if step.jump is not None else 0)
        for number, step in enumerate(steps)
        if step.extent
    ]
    steps = tuple(step for step in steps if step.extent)
    rows = np.zeros(len(steps), _STEP)
    base, pointers, arena_slots, patches = data_address(constants), list[int](), [], []
    levels: list[tuple[int, ...]] = []
    for row, step, (jump, target) in zip(rows, steps, jumps, strict=True):
        row["kernel"], row["first_pointer"] = addresses[step.symbol], len(pointers)
        row["extent"] = row["row"] = step.extent
        row["first_level"] = len(levels)
        refs = step.buffers
        if step.portion is not None:
            holders = _holders(step.portion)
            numbers = {ref: len(pointers) + len(refs) + k for k, ref in enumerate(holders)}
            own, row["rounds"] = _levels(step.portion, numbers)
            row["level_count"], row["late"] = len(own), bool(holders)
            levels += own
            refs = (*refs, *holders)
        row["within"] = len(step.within)
        levels += [(size.input, size.most, 1, 1, 1, 0, 0) for size in step.within]
        row["threads"] = row["team"] = step.workers(threads)
        row["whole"], row["saved"], row["meets"] = step.extent, step.saved, step.meets
        row["chunks"] = _chunks(signatures.get(step.symbol), threads)
        if jump is not None:
            row["jump"], row["target"] = 2 if jump.when else 1, target
            row["flag"] = len(pointers) + len(refs)
            refs = (*refs, jump.flag)
        for ref in refs:
            slot, value = len(pointers), 0
            match ref.space:
                case "constant":
                    value = apart.get(ref.position, base + ref.position) + ref.offset
                case "arena":
                    value = ref.position + ref.offset
                    arena_slots.append(slot)
                case "input":
                    patches.append((slot, ref.position, ref.offset))
                case "output":
                    patches.append((slot, inputs + ref.position, ref.offset))
            pointers.append(value)
    together = [*concurrent_steps(steps, signatures)] if threads > 1 else []
    for group in together:
        rows["threads"][group] = rows["team"][group] = threads
    shared = rows["threads"] > 1
    # Steps of the caller alone follow each other without meeting the workers, except for a jump.
    rows["barrier"][:-1] = shared[:-1] | shared[1:]
    rows["barrier"] |= (rows["jump"] > 0) & shared.any()
    for group in together:
        rows["barrier"][group[:-1]] = False
        rows["concurrent"][group[:-1]] = True
    return StepTable(
        steps=rows,
        pointers=np.array(pointers, np.int64),
        arena_slots=np.array(arena_slots, np.int64),
        patches=np.array(patches, _PATCH),
        levels=np.array(levels, _LEVEL),
        parallel=bool(shared.any()),
    )


def _chunks(signature: Signature | None, threads: int) -> int:
    """The most chunks that a share of a step is split into, of which other threads can take those
    not begun yet.

    To take one is to wait for all that the thread has written, 50 to 150 ns, so each chunk touches
    as many bytes as make a step worth running beside another one.
    """
    if signature is None:
        return MOST_CHUNKS
    return min(MOST_CHUNKS, max(1, sum(signature.sizes) // (LEAST_BYTES * threads)))


def _holders(part: Portion) -> tuple[BufferRef, ...]:
    """The memory of all sizes of a late step; none for those of which a run knows them before."""
    if not part.places:
        return ()
    return tuple(dict.fromkeys(holder for digit in part.digits if (holder := digit.holder)))


def _levels(part: Portion, numbers: Mapping[BufferRef, int]) -> tuple[list[tuple[int, ...]], int]:
    """The levels of a step in the form of LEVEL, and how often a run executes all of them.

    `numbers` are those of the pointers to the sizes of a late step.
    """
    found: list[tuple[int, ...]] = []
    unit = stride = 1
    for digit in reversed(part.digits):
        holder = digit.holder
        if holder is None:
            unit *= digit.count
        else:
            source = numbers.get(holder, holder.position)
            found.append((source, digit.most, digit.count, unit, stride, 0, 0))
            unit = 1
        stride *= digit.count
    return found, unit


class Arena:
    """The memory of one run at a time.

    `staging` has one aligned row-major array for each graph input, at `staged`.  `addresses` is to
    be filled with the addresses of the inputs, which are those of `staging` at first, then of the
    outputs, before a run.  `jobs` are the addresses
    of native jobs, one for each table; `outputs` give the arrays of the model's own outputs, and
    `hidden` are those of all others, which each run overwrites.
    """

    __slots__ = (
        "_base", "_inputs", "_jobs", "_keep", "_rooms", "addresses", "hidden", "jobs",
        "outputs", "places", "section_stamps", "staged", "staging",
    )  # fmt: skip

    def __init__(
        self,
        spec: ProgramSpec,
        tables: Sequence[StepTable],
        flush_denormals: bool,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        memory = zeroed_block(spec.arena_bytes)
        self._base, self._inputs = data_address(memory), len(spec.inputs)
        self.staging = _staging(spec)
        shown = len(spec.results)
        self.outputs = [Recycled(t.shape, np.dtype(t.dtype)) for t in spec.results]
        hidden = [Recycled(t.shape, np.dtype(t.dtype)) for t in spec.outputs[shown:]]
        self.hidden = [memory.array() for memory in hidden]
        self.addresses = (ctypes.c_int64 * (len(spec.inputs) + len(spec.outputs)))()
        self.staged = tuple(data_address(array) for array in self.staging)
        self.addresses[: self._inputs] = list(self.staged)
        self.addresses[self._inputs + shown :] = [memory.address for memory in hidden]
        made = [self._job(t, spec.sharing, flush_denormals, patience_ns) for t in tables]
        self._jobs = [job for job, *_ in made]
        self.jobs = [ctypes.addressof(job) for job in self._jobs]
        self._keep: tuple[object, ...] = (memory, made, tables)
        self._rooms: dict[int, NDArray[Any]] = {}
        self.places: Any = None
        """The `RunPlaces` of the last run, if the sizes of that are held."""
        self.section_stamps: list[tuple[int, int]] | None = None
        """When each section of a run began and ended; None if no stamps are taken."""

    def _job(
        self, table: StepTable, sharing: SharingPrices, flush_denormals: bool, patience_ns: int
    ) -> tuple[Any, NDArray[np.int64], NDArray[np.void], NDArray[np.void]]:
        """The job of a table, and the pointers, steps and levels to which it refers."""
        pointers, levels = table.pointers.copy(), table.levels.copy()
        steps = table.steps.copy() if len(levels) else table.steps
        pointers[table.arena_slots] += self._base
        job = _JOB(
            parallel=table.parallel,
            steps=data_address(steps),
            step_count=len(table.steps),
            pointers=data_address(pointers),
            patches=data_address(table.patches),
            patch_count=len(table.patches),
            addresses=ctypes.addressof(self.addresses),
            levels=data_address(levels),
            level_count=len(levels),
            has_late=int(table.steps["late"].any()),
            meeting=sharing.meeting,
            waking=sharing.waking,
            control_bits=FLUSH_DENORMALS if flush_denormals else 0,
            patience_ns=patience_ns,
        )
        return job, pointers, steps, levels

    def read(self, number: int, array: NDArray[Any]) -> None:
        """Let kernels read an input where it is, if they can, or else a copy of it."""
        if array.shape == self.staging[number].shape and is_usable(array):
            self.addresses[number] = data_address(array)
        else:
            self.copy_in(number, array)

    def copy_in(self, number: int, array: NDArray[Any]) -> None:
        """Copy the array for an input to its staging, which may have more room along axes."""
        copy_to_front(self.staging[number], array)
        self.addresses[number] = self.staged[number]

    def room(self, number: int) -> NDArray[Any]:
        """A buffer for an output of the model that stays with the arena."""
        if number not in self._rooms:
            self._rooms[number] = self.outputs[number].other().array()
        return self._rooms[number]

    def hold(self, sizes: Mapping[int, int]) -> None:
        """Write the sizes of a run into the staging of the inputs that hold them."""
        self.places = None
        for number, size in sizes.items():
            self.staging[number][()] = size

    def address(self, ref: BufferRef, constants: int) -> int:
        """The address of a buffer; `constants` is the address of the constant block."""
        match ref.space:
            case "constant":
                return constants + ref.position + ref.offset
            case "arena":
                return self._base + ref.position + ref.offset
            case "input":
                return self.addresses[ref.position] + ref.offset
            case "output":
                return self.addresses[self._inputs + ref.position] + ref.offset

    def stamp(self, threads: int) -> list[NDArray[np.int64]]:
        """From now on, note when each thread begins and ends each step.

        Out: for each table an array that runs fill: steps × threads × (begin, end), in nanoseconds
        of `time.monotonic_ns`; zeros where a thread has no part in a step.  A step of no iterations
        is in no table.
        """
        self.section_stamps = []
        stamps = [np.zeros((job.step_count, threads, 2), np.int64) for job in self._jobs]
        for job, array in zip(self._jobs, stamps, strict=True):
            job.stamps, job.stamped_threads = data_address(array), threads
        self._keep = (*self._keep, stamps)
        return stamps

    def share(self, job: int, pool: int) -> None:
        """Have the threads of a pool execute a job, given by its number."""
        self._jobs[job].pool = pool

    def abandon(self) -> None:
        """Give up a paused run, so that the next one may begin."""
        for job in self._jobs:
            if job.state == JOB_PAUSED:
                job.state = JOB_FREE


def _staging(spec: ProgramSpec) -> list[NDArray[Any]]:
    offsets, size = [], 0
    for tensor in spec.inputs:
        offsets.append(size)
        size += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    memory = zeroed_block(size)
    return [
        np.ndarray(tensor.shape, np.dtype(tensor.dtype), buffer=memory, offset=offset)
        for tensor, offset in zip(spec.inputs, offsets, strict=True)
    ]
