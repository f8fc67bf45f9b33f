"""What was measured of the steps of a run, as plain values.

In: what `bench.step_times` measures.  Out: records for `graphflow profile`, its trace and the
page.  What always holds: all times are seconds; the steps are those of the program, in order.
"""

from __future__ import annotations

from msgspec import Struct

Span = tuple[float, float] | None
"""When a thread began and ended its part of a step, since the run began; None without a part."""


class StepProfile(Struct, frozen=True):
    """One step of a run: a kernel, a copy, or a section of onnxruntime.

    seconds: from the first thread's begin to the last one's end.
    estimate: the plan's price; None where it has none.  Kernels that share one share it evenly.
    waiting: of all threads together, from the end of each one's part to the end of the step.
    imbalance: 1 - mean / greatest of the times of the threads that have a part.
    flops, bytes: what the plan counts for it, a multiply-add as two; 0 if unknown.
    spans: of each thread in the run whose time is the median.  All else are means of the runs.
    """

    name: str
    operators: str
    variant: str | None
    kernel: str
    seconds: float
    estimate: float | None
    waiting: float
    imbalance: float
    flops: float
    bytes: int
    spans: tuple[Span, ...]


class OperatorTime(Struct, frozen=True):
    """The time of all nodes of one operator in a run, and their number."""

    operator: str
    seconds: float
    count: int


class PeerProfile(Struct, frozen=True):
    """What onnxruntime's own profiler says of the same model and inputs, by operator; `seconds` is
    the sum, the slowest operator is the first."""

    name: str
    seconds: float
    operators: tuple[OperatorTime, ...]


class RunProfile(Struct, frozen=True):
    """The steps of a run, measured on this machine with `threads` threads in `runs` runs: those
    that other load slowed down are not among them.  Times are means of these runs, so that the
    steps with what is around and between them add up to a run.

    seconds: of a run, with its inputs in place: no copy of an input is in it.
    before: until the first step begins: the call of the program, waking its threads.
    between: from the end of each step to the begin of the next: barriers.  Less than 0 where steps
    overlap.
    after: from the end of the last step on: the return, checks of guards, cutting of outputs.
    estimate: the plan's price of a run.
    gflops, gbps: the measured peaks of the machine; multiply-adds, and reads from the caches.
    """

    model: str
    target: str
    threads: int
    runs: int
    seconds: float
    before: float
    between: float
    after: float
    estimate: float
    gflops: float
    gbps: float
    steps: tuple[StepProfile, ...]
    peer: PeerProfile | None = None

    @property
    def step_seconds(self) -> float:
        """The sum of the steps; what a run takes beyond is before, between and after them."""
        return sum(step.seconds for step in self.steps)

    def operators(self) -> tuple[OperatorTime, ...]:
        """The time by operators of the steps, the slowest first."""
        found: dict[str, tuple[float, int]] = {}
        for step in self.steps:
            seconds, count = found.get(step.operators, (0.0, 0))
            found[step.operators] = (seconds + step.seconds, count + 1)
        times = (OperatorTime(name, seconds, count) for name, (seconds, count) in found.items())
        return tuple(sorted(times, key=lambda time: -time.seconds))
