"""Timing of several programs against each other on a machine with other load.

In: functions that run a model once.  Out: medians over blocks.  What always holds: a block of one
program is preceded by idle time and by discarded runs, because the peer's threads go on spinning
after a run and would take the processors from whoever comes next; blocks of all programs alternate,
so that a disturbance of the machine meets all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How to measure: `blocks` for each program, seconds of idling, of discarded runs, of runs."""

    blocks: int = 8
    idle: float = 0.1
    discarded: float = 0.03
    measured: float = 0.05


@dataclass(frozen=True, slots=True)
class BlockTimes:
    """Milliseconds a run: the median of the blocks' medians, and their interquartile range."""

    median_ms: float
    iqr_ms: float
    blocks: tuple[float, ...]


def measure(runs: Mapping[str, Run], protocol: Protocol) -> dict[str, BlockTimes]:
    """Time each of `runs` in alternating blocks."""
    medians: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(protocol.blocks):
        for name, run in runs.items():
            medians[name].append(1e3 * _block(run, protocol))
    return {name: _summary(found) for name, found in medians.items()}


def _block(run: Run, protocol: Protocol) -> float:
    time.sleep(protocol.idle)
    _repeat(run, protocol.discarded)
    return statistics.median(_repeat(run, protocol.measured))


def _repeat(run: Run, seconds: float) -> list[float]:
    """Seconds of each run; at least one, then until `seconds` have passed."""
    taken: list[float] = []
    start = now = time.perf_counter()
    while not taken or now - start < seconds:
        before = now
        run()
        now = time.perf_counter()
        taken.append(now - before)
    return taken


def _summary(found: list[float]) -> BlockTimes:
    spread = 0.0
    if len(found) > 1:
        low, _, high = statistics.quantiles(found, n=4, method="inclusive")
        spread = high - low
    return BlockTimes(statistics.median(found), spread, tuple(found))
