"""Timing of several programs against each other on a machine with other load.

In: functions that run a model once.  Out: medians over blocks.  What always holds: each block of
one program begins with idle time and discarded runs, because threads of another runtime keep
spinning after its run and would slow down the next program; blocks of all programs alternate, so
that a disturbance of the machine affects all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

Run = Callable[[], object]


class Protocol(Struct, frozen=True):
    """How to measure: the number of `blocks` for each program, and the seconds that each idles,
    discards runs and measures."""

    blocks: int = 8
    idle: float = 0.1
    discarded: float = 0.03
    measured: float = 0.05


class BlockTimes(Struct, frozen=True):
    """Milliseconds of a run: the median of the blocks' medians, and their interquartile range."""

    median_ms: float
    iqr_ms: float
    blocks: tuple[float, ...]

    def ratio_to(self, other: BlockTimes) -> float:
        """How many times as long as another program this one takes: the median over consecutive
        blocks of both, which a disturbance affects alike."""
        pairs = zip(self.blocks, other.blocks, strict=True)
        return statistics.median(own / others for own, others in pairs)


def measure(runs: Mapping[str, Run], protocol: Protocol) -> dict[str, BlockTimes]:
    """The time of each of `runs`, measured in alternating blocks."""
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
    """The seconds of each run; runs are repeated until `seconds` have passed, at least once."""
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
