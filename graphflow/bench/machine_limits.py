"""The peaks of this machine, measured with graphflow's own kernels.

In: a target and a number of threads.  Out: multiply-adds and bytes a second.  What always holds:
the kernels are written in the text form and compiled like those of a model; the best of several
runs counts, because other load can only slow a run down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from msgspec import Struct

from graphflow.base.target import Target
from graphflow.codegen import compile_object
from graphflow.program import BufferRef, ProgramSpec, ProgramStep, TensorSpec
from graphflow.runtime import Program
from graphflow.tir import PrimFunc, parse

SECONDS = 0.3
"""How long each kernel is repeated; on a busy machine an undisturbed run is rare."""

STEPS = 128
"""Consecutive multiply-adds in each accumulator of the peak kernel; its operands stay in the
cache."""

TILES = 512
IN_CACHE_BYTES = 4 * 1024 * 1024
IN_MEMORY_BYTES = 192 * 1024 * 1024
REPEATED_BYTES = 64 * 1024 * 1024
ROW_BYTES = 32 * 1024

_PEAK = """@primfunc
def peak(x: f32[{steps}, {pixels}], w: f32[{steps}, {n}], y: out[f32[{tiles}, {pixels}, {n}]]):
    with block("peak"):
        for t in parallel(0, {tiles}):
            acc = alloc(f32[{pixels}, 2, {lanes}], register)
            for p0 in unrolled(0, {pixels}):
                for v0 in unrolled(0, 2):
                    for l0 in vectorized(0, {lanes}):
                        acc[p0, v0, l0] = f32(0.0)
            for k in serial(0, {steps}):
                for p1 in unrolled(0, {pixels}):
                    for v1 in unrolled(0, 2):
                        for l1 in vectorized(0, {lanes}):
                            acc[p1, v1, l1] += x[k, p1] * w[k, {lanes}*v1 + l1]
            for p2 in unrolled(0, {pixels}):
                for v2 in unrolled(0, 2):
                    for l2 in vectorized(0, {lanes}):
                        y[t, p2, {lanes}*v2 + l2] = acc[p2, v2, l2]
"""

_READ = """@primfunc
def read(x: f32[{parts}, {steps}, 8, {lanes}], y: out[f32[{rows}, 8, {lanes}]]):
    with block("read"):
        for r in parallel(0, {rows}):
            acc = alloc(f32[8, {lanes}], register)
            for u0 in unrolled(0, 8):
                for l0 in vectorized(0, {lanes}):
                    acc[u0, l0] = f32(0.0)
            for k in serial(0, {steps}):
                for u1 in unrolled(0, 8):
                    for l1 in vectorized(0, {lanes}):
                        acc[u1, l1] += x[{part}, k, u1, l1]
            for u2 in unrolled(0, 8):
                for l2 in vectorized(0, {lanes}):
                    y[r, u2, l2] = acc[u2, l2]
"""


class Machine(Struct, frozen=True):
    """Peaks of all threads together: GFLOP/s of multiply-adds (two operations each), and GB/s of
    reads from the caches and from memory."""

    gflops: float
    cache_gbps: float
    memory_gbps: float


@lru_cache(maxsize=8)
def measure_machine(target: Target, threads: int) -> Machine:
    """The peaks, measured once in a process; takes about a second."""
    return Machine(
        gflops=peak_gflops(target, threads),
        cache_gbps=read_bandwidth(IN_CACHE_BYTES, target, threads),
        memory_gbps=read_bandwidth(IN_MEMORY_BYTES, target, threads),
    )


def peak_gflops(target: Target, threads: int) -> float:
    """10⁹ float32 operations a second of multiply-adds, which are two operations each."""
    peak = peak_kernel(target, TILES)
    return 2e-9 * STEPS * peak.outputs[0].size / _best_seconds(peak, target, threads)


def peak_kernel(target: Target, tiles: int) -> PrimFunc:
    """A kernel that does nothing but multiply-adds, in a parallel loop over `tiles`."""
    pixels = 8 if target.vector_registers >= 32 else 5
    lanes = target.lanes("float32")
    return parse(_PEAK.format(steps=STEPS, pixels=pixels, n=2 * lanes, lanes=lanes, tiles=tiles))


def read_bandwidth(nbytes: int, target: Target, threads: int) -> float:
    """10⁹ bytes a second, where threads share the `nbytes` that are read once a run."""
    return nbytes / _best_seconds(read_kernel(target, nbytes), target, threads) / 1e9


def repeated_bandwidth(nbytes: int, target: Target) -> float:
    """10⁹ bytes a second of one thread that reads the same `nbytes` again and again."""
    times = max(1, REPEATED_BYTES // nbytes)
    kernel = repeated_kernel(target, nbytes, times)
    return times * nbytes / _best_seconds(kernel, target, 1) / 1e9


def repeated_kernel(target: Target, nbytes: int, times: int) -> PrimFunc:
    """A kernel that reads `nbytes`, in whole steps of 8 vectors, so many times; its parallel loop
    is over these."""
    steps = nbytes // (8 * target.vector_bytes)
    return _reading(target, steps, rows=times, parts=1, part="0")


def read_kernel(target: Target, nbytes: int) -> PrimFunc:
    """A kernel that reads `nbytes`, rounded up to whole rows of `ROW_BYTES`, from front to back.

    Its parallel loop is over the rows.
    """
    rows = -(-nbytes // ROW_BYTES)
    steps = ROW_BYTES // (8 * target.vector_bytes)
    return _reading(target, steps, rows=rows, parts=rows, part="r")


def _reading(target: Target, steps: int, *, rows: int, parts: int, part: str) -> PrimFunc:
    """A kernel of which iteration `r` of so many rows reads one part of the input, `steps` times 8
    vectors: the part of the index `part`."""
    lanes = target.lanes("float32")
    return parse(_READ.format(rows=rows, parts=parts, part=part, steps=steps, lanes=lanes))


def kernel_run(func: PrimFunc, target: Target, threads: int) -> Callable[[], object]:
    """A function that runs a kernel once, on inputs of ones.

    The kernel has one parallel loop, over its output's first axis.
    """
    inputs = tuple(TensorSpec(b.name, b.dtype, b.shape) for b in func.inputs)
    outputs = tuple(TensorSpec(b.name, b.dtype, b.shape) for b in func.outputs)
    buffers = tuple(BufferRef("input", k) for k in range(len(inputs)))
    step = ProgramStep(func.name, (*buffers, BufferRef("output", 0)), func.outputs[0].shape[0])
    code = compile_object(func, func.name, target)
    spec = ProgramSpec(((func.name, code),), (), (step,), (), 0, 0, inputs, outputs)
    ones = {t.name: np.ones(t.shape, np.float32) for t in inputs}
    return Program(spec, threads).bind(ones).run


def _best_seconds(func: PrimFunc, target: Target, threads: int) -> float:
    """The shortest run of a kernel with one parallel loop over its output's first axis."""
    run = kernel_run(func, target, threads)
    best, end = float("inf"), time.perf_counter() + SECONDS
    while (start := time.perf_counter()) < end:
        run()
        best = min(best, time.perf_counter() - start)
    return best
