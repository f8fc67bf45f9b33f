"""Where kernels and programs are timed: on this machine, or wherever a `TimingSite` takes them.

In: subjects with their kernels, or programs.  Out: their timings, in any order.  What always holds:
all timings of a site are of one kind of processor, and of one number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from graphflow import bench
from graphflow.base.trace import Trace
from graphflow.cost import Timing, TimingTable
from graphflow.program import ProgramSpec
from graphflow.runtime import check_host, processor_of
from graphflow.tuning.end_to_end_timing import end_to_end_blocks
from graphflow.tuning.harness import Harness, Kernels
from graphflow.tuning.subjects import Subject


class TimingSite(Protocol):
    """Times what a tuner wants to know."""

    def times(self, found: Sequence[Subject], kernels: Kernels) -> Iterator[tuple[Timing, ...]]:
        """The timings of subjects, some at a time, as soon as they are measured."""

    def end_to_end(
        self, programs: Mapping[str, ProgramSpec]
    ) -> Iterator[Mapping[str, tuple[float, ...]]]:
        """The milliseconds of the blocks of each program and of the reference, by key, measured
        side by side; again and again."""


@dataclass(frozen=True)
class ThisMachine:
    """The machine of this process.  Raises CodegenError if it cannot run code for the target."""

    harness: Harness
    protocol: bench.Protocol

    def __post_init__(self) -> None:
        target = self.harness.target
        check_host(processor_of(target.cpu, target.features), "what is to be timed")

    def times(self, found: Sequence[Subject], kernels: Kernels) -> Iterator[tuple[Timing, ...]]:
        """The timings of each batch of subjects."""
        return self.harness.times(found, kernels)

    def end_to_end(
        self, programs: Mapping[str, ProgramSpec]
    ) -> Iterator[Mapping[str, tuple[float, ...]]]:
        """The blocks of each program, linked anew for each repetition."""
        return end_to_end_blocks(programs, self.harness, self.protocol)


SiteOf: TypeAlias = Callable[[Harness, bench.Protocol], TimingSite]
"""Makes a site of what it times kernels with, and of the protocol of end-to-end times."""


def time_into(
    table: TimingTable,
    site: TimingSite,
    found: Sequence[Subject],
    kernels: Kernels,
    trace: Trace,
) -> None:
    """Add the timings of subjects to a table as they are measured, and count them."""
    done = 0
    for batch in site.times(found, kernels):
        table.add(batch)
        done += len(batch)
        trace.count(done, len(found))
