"""A roofline with overcompute: the larger of issue time and memory time, and a start-up.

In: what has to be done, the target, and the number of threads.  Out: seconds.
Overcompute is in the work's cycles already.  Bandwidth is that of the smallest cache which holds
what is touched; DRAM is shared by all cores, so it grows with few threads only.
"""

from __future__ import annotations

from math import ceil

from graphflow.base.target import Target
from graphflow.cost.work import ConversionWork, Work

START_UP = 0.3e-6
"""Seconds to begin a kernel: a call, a barrier, the first misses."""

UNHIDDEN = 0.02
"""The share of the shorter of computing and moving that the longer does not hide."""

COPYING, GATHERING, SCALAR = 0.3, 0.75, 2.4
"""Cycles in which a conversion moves an element: in vectors that are next to each other on both
sides; in vectors gathered from places apart; and by itself, where a run leaves no whole vector."""

TRANSPOSING, IN_PART = 0.35, 0.7
"""The same where blocks are transposed in registers: in a block of whole vectors; and in one that
has fewer rows or columns, with elements missing from its loads or its stores."""


def kernel_seconds(work: Work, target: Target, threads: int) -> float:
    """Seconds of one run of a kernel on `threads` cores; one without work costs nothing."""
    if not work.cycles and not work.written:
        return 0.0
    sharing = ceil(work.rows / threads) / work.rows if work.rows else 1.0
    compute = work.cycles / _clock(target) * max(sharing, 1 / threads)
    memory = _memory_seconds(work.read + work.written, target, threads)
    return max(compute, memory) + UNHIDDEN * min(compute, memory) + START_UP


def conversion_seconds(rewriting: ConversionWork, target: Target, threads: int) -> float:
    """Seconds to rewrite a tensor in another layout."""
    cycles = rewriting.elements * _cycles(rewriting, target)
    memory = _memory_seconds(rewriting.moved_bytes, target, threads)
    return max(cycles / _clock(target) / threads, memory) + START_UP


def fill_seconds(written: int, target: Target, threads: int) -> float:
    """Seconds to write `written` bytes of padding."""
    return _memory_seconds(written, target, threads) + START_UP


def _cycles(rewriting: ConversionWork, target: Target) -> float:
    """Cycles in which a conversion moves an element, in the mean."""
    lanes = target.lanes(rewriting.dtype)
    whole = _in_whole_vectors(rewriting.count, lanes)
    if rewriting.across:
        whole *= _in_whole_vectors(rewriting.across, lanes)
        return TRANSPOSING * whole + IN_PART * (1 - whole)
    return (COPYING if rewriting.adjacent else GATHERING) * whole + SCALAR * (1 - whole)


def _in_whole_vectors(count: int, lanes: int) -> float:
    """The share of so many elements in a row that fills vectors."""
    return count // lanes * lanes / count


def _clock(target: Target) -> float:
    """Cycles in a second."""
    return target.clock_ghz * 1e9


def _memory_seconds(moved: int, target: Target, threads: int) -> float:
    if moved <= target.l2_bytes // 2:
        rate = target.l2_gbps * threads
    elif moved <= target.l3_bytes // 2:
        rate = target.l3_gbps * threads
    else:
        rate = target.dram_gbps * min(threads, target.dram_cores)
    return moved / (rate * 1e9)
