"""A roofline model of seconds: the longer of computing and moving data, and a constant start-up.

In: work as data, the target, and the number of threads.  Out: seconds.  Overcompute is counted in
the work's cycles already.  The bandwidth is that of the smallest cache that holds all data touched;
cores share DRAM, so its bandwidth grows only up to the few threads that saturate it.
"""

from __future__ import annotations

from math import ceil

from graphflow.base.target import Target, element_bytes
from graphflow.cost.cycles import conversion_cycles
from graphflow.cost.work import ConversionWork, Work

START_UP = 0.15e-6
"""Seconds to begin a kernel: a call, a barrier, the first cache misses.  Measured on a Zen 4 in 31
networks: 0.02 to 0.04 µs for kernels of a few elements, and some 0.1 more for those of 1 µs."""

COPY_START_UP = 0.3e-6
"""The same of a copy, more than it takes: with 0.2 the plan of a probe of 16 channels had a copy
that no kernel needed."""

WAKING = 3.2e-6
"""Seconds by which a run is longer that wakes other threads and waits for them at its end: of runs
that follow each other.  Measured on a Zen 4 as 1.6 µs, by `FARTHER`; threads sleep some 40 µs after
a run, and then it takes some 20."""

UNHIDDEN = 0.02
"""The share of the shorter of computing and moving data that the longer one does not hide."""

LINES_AT_ONCE = 8
"""How many lines a core has under way from another core: one of many takes 6.2 ns on a Zen 4."""

FARTHER = 2
"""The factor on the time until a core has a line of another one, between kernels, as the system may
run the threads on cores further apart.  Measured on a virtual machine with two cores of a Zen 4: a
meeting takes 0.15 µs and a line 6.2 ns, and for minutes 0.6 µs and 20 ns; half-way by factors."""


def kernel_seconds(work: Work, target: Target, threads: int, constants: int = 0) -> float:
    """Seconds of one run of a kernel on `threads` cores; 0 for one without work.

    `constants` are the bytes of all constants that a run of the network reads.  Those in
    `work.awaited`, of transformed tiles, are awaited once, by what is known of these.
    """
    if not work.cycles and not work.written:
        return 0.0
    sharing = ceil(work.rows / threads) / work.rows if work.rows else 1.0
    shared = (work.cycles - work.repeated) * max(sharing, 1 / threads)
    compute = (shared + work.repeated) / _clock(target)
    # What one core computes alone, it also moves alone.
    cores = min(threads, work.rows or 1)
    compute += work.meetings * meeting_seconds(target, cores)
    moved = work.read + work.written - work.constants
    data = _memory_seconds(moved, target, cores)
    constants = max(constants, work.constants)
    read = constant_seconds(work.constants, constants, target, cores)
    memory = data + read
    share = target.streams_awaited if work.streams else 0.0
    share = max(UNHIDDEN, share, target.short_runs_awaited if work.short_runs else 0.0)
    unhidden = share * min(compute, memory)
    awaited = _arriving_seconds(work.awaited, constants, target, cores)
    others = constant_seconds(max(0, work.constants - work.awaited), constants, target, cores)
    awaited += _constants_awaited(constants, target) * others
    # A tile that is the first to meet its constants computes as they arrive; it awaits its data.
    awaited = min(compute * (1 - work.first_share), awaited)
    awaited += _awaited_seconds(moved, data, target, cores)
    seconds = max(compute, memory) + max(unhidden, min(compute, awaited)) + START_UP
    if work.constants and _constants_are_far(constants, target):
        seconds += target.constants_latency / _clock(target)
    return seconds + target.exchange_awaited * exchange_seconds(work.exchanged, target, cores)


def _awaited_seconds(moved: int, seconds: float, target: Target, threads: int) -> float:
    """How many of the `seconds` in which data is moved computing does not hide: the share of the
    bytes that the second-level caches do not hold, as far as the target waits for these."""
    if target.l2_keeps_part:
        far = _far_share(moved / threads, target) * moved / _far_rate(moved, 2, target, threads)
        return target.lines_awaited * far
    share = 1 - target.l2_bytes * threads / moved if moved else 0.0
    return max(0.0, share) * target.lines_awaited * seconds


def _constants_awaited(constants: int, target: Target) -> float:
    """The share of the time to read constants that computing does not hide: 0 where a network has
    so few that the second-level cache holds them."""
    return target.constants_awaited if constants > _l2_kept(target) else 0.0


def _constants_are_far(constants: int, target: Target) -> bool:
    """Whether a run reads so many bytes of constants from memory."""
    return constants > max(_l2_kept(target), target.l3_bytes // target.constants_kept)


def _arriving_seconds(awaited: int, constants: int, target: Target, threads: int) -> float:
    """Seconds in which computing waits for so many bytes of constants, of those of the network: as
    threads share the bandwidth of memory, several hide less than one."""
    arriving = awaited / (target.arriving_bytes_per_cycle * _clock(target) * threads)
    read = constant_seconds(awaited, constants, target, threads)
    return target.transformed_awaited * max(arriving, read)


def meeting_seconds(target: Target, threads: int) -> float:
    """Seconds of a meeting of so many threads within a kernel: each takes the line of the counter
    from the one before, then all take the line that lets them go on."""
    if threads == 1:
        return 0.0
    return (threads + 1) * target.handover_cycles / _clock(target)


def step_meeting_seconds(target: Target, threads: int) -> float:
    """Seconds of a meeting of all threads between two kernels."""
    return FARTHER * meeting_seconds(target, threads)


def exchange_seconds(size: int, target: Target, threads: int) -> float:
    """Seconds in which threads wait for the part of a tensor of `size` bytes that others wrote."""
    return exchange_cycles(size, target) * (1 - 1 / threads) / _clock(target)


def exchange_cycles(size: int, target: Target) -> float:
    """Cycles until one core has so many bytes from another one."""
    lines = size / target.line_bytes
    return FARTHER * lines * target.handover_cycles / LINES_AT_ONCE


def conversion_seconds(work: ConversionWork, target: Target, threads: int) -> float:
    """Seconds to convert a tensor to another layout on `threads` cores."""
    compute = conversion_cycles(work, target) / _clock(target) / threads
    memory = _memory_seconds(work.moved_bytes, target, threads)
    awaited = min(compute, _awaited_seconds(work.moved_bytes, memory, target, threads))
    awaited += _lines_apart_seconds(work, target, threads)
    if not work.adjacent:  # threads share axes of the target, which has others outermost
        awaited += target.exchange_awaited * exchange_seconds(
            work.moved_bytes // 2, target, threads
        )
    return max(compute, memory) + awaited + COPY_START_UP


def _lines_apart_seconds(work: ConversionWork, target: Target, threads: int) -> float:
    """Seconds in which a conversion waits for lines that no prefetcher sees: those of one side,
    where the rows of a block are further apart on both sides than a line, as far as the
    second-level caches do not hold them."""
    item = element_bytes(work.dtype)
    if work.apart * item <= target.line_bytes:
        return 0.0
    lines = work.elements * item / target.line_bytes
    far = max(0.0, 1 - target.l2_bytes * threads / work.moved_bytes)
    return far * lines * target.cycles_per_far_line / _clock(target) / threads


def fill_seconds(written: int, target: Target, threads: int) -> float:
    """Seconds to write `written` bytes of padding on `threads` cores."""
    return _memory_seconds(written, target, threads) + COPY_START_UP


def handed_on_seconds(size: int, target: Target, threads: int) -> float:
    """Seconds that kernels take beyond their prices to store a tensor and to load it again.

    Prices hide that behind multiply-adds.  Scores of an attention of 3 to 54 MB were not hidden:
    they took the time of moving them at 17 to 33 GB/s, on one thread and on two, so the rate is
    that of memory.  0 for what the second-level caches hand on.
    """
    if 2 * size <= target.l2_bytes // 2 * threads:
        return 0.0
    return 2 * size / (target.dram_gbps * min(threads, target.dram_cores) * 1e9)


def _clock(target: Target) -> float:
    """Cycles in a second."""
    return target.clock_ghz * 1e9


def _memory_seconds(moved: int, target: Target, threads: int) -> float:
    """Seconds to move `moved` bytes; half of a cache is left for what other steps keep there."""
    held = moved / threads if target.l2_keeps_part else moved
    return moved / _rate(held, moved, 2, target, threads)


def constant_seconds(read: int, constants: int, target: Target, threads: int) -> float:
    """Seconds to read `read` bytes of the `constants` that each run reads once: the cache that
    holds all of these has them.

    Measured on a Zen 4, whose third-level cache has 32 MB: products of one row read their weights
    at 40 to 79 GB/s where a network has up to 10 MB of constants, and at 24 to 36 from 13 MB on.
    On a Cascade Lake with 36 MB, which other tenants use too, 5 MB come at the rate of memory.
    """
    return read / _rate(constants, constants, target.constants_kept, target, threads)


def _rate(near: float, held: int, share: int, target: Target, threads: int) -> float:
    """Bytes a second from the caches that hold `held` bytes, of which one core uses `near`: as many
    of these as are kept from the second-level cache, the others from further away."""
    far = _far_share(near, target)
    kept = target.l2_gbps * threads * 1e9
    if far in (0.0, 1.0):
        return _far_rate(held, share, target, threads) if far else kept
    return 1 / (far / _far_rate(held, share, target, threads) + (1 - far) / kept)


def _far_share(held: float, target: Target) -> float:
    """The share of `held` bytes that a second-level cache does not keep from step to step: all of
    what it has no room for, or, as cores do whose cache is not emptied in the order of use
    (`l2_keeps_part`), what is too much."""
    kept = _l2_kept(target)
    if held <= kept:
        return 0.0
    return 1 - kept / held if target.l2_keeps_part else 1.0


def _far_rate(held: int, share: int, target: Target, threads: int) -> float:
    """Bytes a second of `held` ones that no second-level cache has: from the third-level cache if
    they fit into the part of one in `share`, else from memory."""
    if held <= target.l3_bytes // share:
        return target.l3_gbps * threads * 1e9
    return target.dram_gbps * min(threads, target.dram_cores) * 1e9


def _l2_kept(target: Target) -> float:
    """Bytes in a second-level cache beside what other steps keep there."""
    return target.l2_bytes * target.l2_kept
