"""A roofline with overcompute: the larger of issue time and memory time, and a start-up.

In: the `Work` that a form claims, or the bytes that a conversion moves, and the target.  Out:
seconds.  Overcompute is in the work's cycles already.  Bandwidth is that of the smallest cache
which holds what is touched; DRAM is shared by all cores, so it does not grow with threads.
"""

from __future__ import annotations

from math import ceil

from graphflow.kernels.recipes import Work
from graphflow.target import Target

START_UP = 0.3e-6
"""Seconds to begin a kernel: a call, a barrier, the first misses."""

UNHIDDEN = 0.02
"""The share of the shorter of computing and moving that the longer does not hide."""

GATHERING = 2.5
"""How much slower a conversion moves bytes than a copy: it reads or writes in strides."""


def kernel_seconds(work: Work, target: Target, threads: int) -> float:
    """Seconds of one run of a form on `threads` cores; a form without work costs nothing."""
    if not work.cycles and not work.written:
        return 0.0
    clock = target.fma_gflops * 1e9 / (2 * target.lanes() * target.fmas_per_cycle)
    sharing = ceil(work.rows / threads) / work.rows if work.rows else 1.0
    compute = work.cycles / clock * max(sharing, 1 / threads)
    memory = _memory_seconds(work.read + work.written, target, threads)
    return max(compute, memory) + UNHIDDEN * min(compute, memory) + START_UP


def conversion_seconds(moved: int, target: Target, threads: int) -> float:
    """Seconds to rewrite `moved` bytes (read and written together) in another layout."""
    return GATHERING * _memory_seconds(moved, target, threads) + START_UP


def fill_seconds(written: int, target: Target, threads: int) -> float:
    """Seconds to write `written` bytes of padding."""
    return _memory_seconds(written, target, threads) + START_UP


def _memory_seconds(moved: int, target: Target, threads: int) -> float:
    if moved <= target.l2_bytes // 2:
        rate = target.l2_gbps * threads
    elif moved <= target.l3_bytes // 2:
        rate = target.l3_gbps * threads
    else:
        rate = target.dram_gbps * min(threads, 2)
    return moved / (rate * 1e9)
