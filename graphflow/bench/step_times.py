"""Measure the steps of a run, thread by thread.

In: a compiled model and its program on this machine.  Out: a `RunProfile`.  What always holds: the
times are those of ordinary runs, in which the driver notes when each thread begins and ends each
step; that takes less than 1 % of a run.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnxruntime
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from graphflow.base.run_profile import (
    OperatorTime,
    PeerProfile,
    RunProfile,
    Span,
    StepProfile,
)
from graphflow.bench.machine_limits import measure_machine
from graphflow.bench.peers import model_source
from graphflow.frontends import OnnxModel
from graphflow.physical import PhysicalCall
from graphflow.pipeline.compiler import Compiled
from graphflow.runtime import Program, StampedRun

RUNS = 60
"""How many runs are measured, after some that are not."""

WARMING = 5
"""Runs before the first that is measured."""

COUNTED = 6
"""One of so many runs counts, the fastest ones: other load of the machine only slows a run down."""


def profile_run(
    compiled: Compiled, program: Program, inputs: Mapping[str, NDArray[Any]], runs: int = RUNS
) -> RunProfile:
    """The profile of `program`, which is that of `compiled`, on these inputs.

    Times are means of the fastest sixth of the runs, as means add up; the spans are those of the
    run among these whose time is the median.
    """
    measured = _fastest_runs(program, inputs, runs)
    machine = measure_machine(compiled.target, program.threads)
    planned = planned_steps(compiled)
    steps = tuple(_step(step, number, measured) for number, step in enumerate(planned))
    seconds = _mean(run.end - run.begin for run in measured) / 1e9
    before = _mean(_first(run) - run.begin for run in measured) / 1e9
    after = _mean(run.end - _last(run) for run in measured) / 1e9
    return RunProfile(
        model=compiled.name,
        target=compiled.target.name,
        threads=program.threads,
        runs=len(measured),
        seconds=seconds,
        before=before,
        between=seconds - before - after - sum(step.seconds for step in steps),
        after=after,
        estimate=compiled.plan.seconds,
        gflops=machine.gflops,
        gbps=machine.cache_gbps,
        steps=steps,
    )


def step_seconds(
    program: Program, inputs: Mapping[str, NDArray[Any]], runs: int = RUNS
) -> list[float]:
    """The seconds of each step of a program, as in `profile_run`, without what depends on the peaks
    of the machine, whose measurement takes longer; the program may have been loaded."""
    measured = _fastest_runs(program, inputs, runs)
    return [_seconds(measured, number) for number in range(len(measured[0].steps))]


def _fastest_runs(
    program: Program, inputs: Mapping[str, NDArray[Any]], runs: int
) -> list[StampedRun]:
    """The fastest sixth of so many runs."""
    bound = program.bind(inputs)
    bound.stamped_runs(WARMING)
    measured = sorted(bound.stamped_runs(runs), key=lambda run: run.end - run.begin)
    return measured[: -(-runs // COUNTED)]


class PlannedStep(Struct, frozen=True):
    """What the plan says of a step: the fields are as in `StepProfile`."""

    name: str
    operators: str
    variant: str | None
    kernel: str
    estimate: float | None
    flops: float
    bytes: int


def planned_steps(compiled: Compiled) -> list[PlannedStep]:
    """The steps of the program of `compiled`, in order; calls of one name share evenly what the
    plan says of them all."""
    calls = [pair for pair in compiled.lowered.calls if not pair[0].prepare]
    works = _works(compiled, [call for call, _ in calls])
    return [
        PlannedStep(
            call.name,
            works[call.name].operators,
            None if call.variant is None else call.variant.name,
            step.symbol,
            works[call.name].seconds,
            works[call.name].flops,
            works[call.name].bytes,
        )
        for call, step in calls
    ]


class _Work(Struct, frozen=True):
    """What the plan says of a call."""

    operators: str
    seconds: float | None
    flops: float
    bytes: int


def _works(compiled: Compiled, calls: Iterable[PhysicalCall]) -> dict[str, _Work]:
    """By the name of a call; the calls of one name share what the plan says of them all."""
    counts = Counter(call.name for call in calls)
    works = {name: _Work(name.split(" ")[0], None, 0, 0) for name in counts}
    for node in compiled.graph.nodes:
        if node.name in counts:
            choice = compiled.plan.choices[node.name]
            work = choice.variant.work
            moved = work.read + work.written
            works[node.name] = _Work(node.op, choice.seconds, work.flops, moved)
    for name, count in counts.items():
        made = [c for c in compiled.plan.conversions if f"{c.kind} {c.value}" == name]
        if made:
            seconds, moved = sum(c.seconds for c in made), sum(c.bytes for c in made)
            works[name] = _Work(str(made[0].kind), seconds / count, 0, moved // count)
    return works


def _step(step: PlannedStep, number: int, measured: list[StampedRun]) -> StepProfile:
    parts = _parts(measured, number)
    typical = measured[len(measured) // 2]
    return StepProfile(
        **asdict(step),
        seconds=_seconds(measured, number),
        waiting=_mean(map(_waiting, parts)) / 1e9,
        imbalance=_mean(map(_imbalance, parts)),
        spans=tuple(_since(span, typical.begin) for span in typical.steps[number]),
    )


def _parts(measured: list[StampedRun], number: int) -> list[list[tuple[int, int]]]:
    """When the threads that have a part in a step began and ended it, in each run."""
    return [[span for span in run.steps[number] if span is not None] for run in measured]


def _seconds(measured: list[StampedRun], number: int) -> float:
    """The mean time of a step."""
    return _mean(map(_length, _parts(measured, number))) / 1e9


def _mean(values: Iterable[float]) -> float:
    return float(statistics.fmean(values))


def _first(run: StampedRun) -> int:
    """When the first step began; the end of the run if it has none."""
    return min((span[0] for span in _spans(run)), default=run.end)


def _last(run: StampedRun) -> int:
    """When the last step ended."""
    return max((span[1] for span in _spans(run)), default=run.end)


def _spans(run: StampedRun) -> Iterator[tuple[int, int]]:
    """The parts of all threads in all steps."""
    return (span for step in run.steps for span in step if span is not None)


def _length(spans: list[tuple[int, int]]) -> int:
    """From the first begin to the last end; 0 for a step of no iterations."""
    return max(e for _, e in spans) - min(b for b, _ in spans) if spans else 0


def _waiting(spans: list[tuple[int, int]]) -> int:
    last = max((end for _, end in spans), default=0)
    return sum(last - end for _, end in spans)


def _imbalance(spans: list[tuple[int, int]]) -> float:
    lengths = [end - begin for begin, end in spans]
    greatest = max(lengths, default=0)
    return 1 - sum(lengths) / len(lengths) / greatest if greatest else 0.0


def _since(span: tuple[int, int] | None, begin: int) -> Span:
    return None if span is None else ((span[0] - begin) / 1e9, (span[1] - begin) / 1e9)


def peer_profile(
    model: OnnxModel, threads: int, inputs: Mapping[str, NDArray[Any]], runs: int = RUNS
) -> PeerProfile:
    """The time of each operator by onnxruntime's own profiler, in the mean of these runs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "run")
        session = onnxruntime.InferenceSession(
            model_source(model), options, providers=["CPUExecutionProvider"]
        )
        for _ in range(runs):
            session.run(None, dict(inputs))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    found: dict[str, tuple[float, int]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            seconds, count = found.get(event["args"]["op_name"], (0.0, 0))
            found[event["args"]["op_name"]] = (seconds + event["dur"] / 1e6, count + 1)
    times = sorted(
        (OperatorTime(name, s / runs, round(n / runs)) for name, (s, n) in found.items()),
        key=lambda time: -time.seconds,
    )
    return PeerProfile("onnxruntime", sum(time.seconds for time in times), tuple(times))


def chrome_trace(profile: RunProfile) -> dict[str, Any]:
    """The run whose time is the median in the Chrome trace format, which Perfetto opens.

    Times are microseconds since the run began; each thread of the run is a thread of the trace.
    """
    names = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": {"name": name}}
        for thread in range(profile.threads)
        for name in [f"thread {thread}" if thread else "caller"]
    ]
    events = [
        {
            "ph": "X",
            "name": step.name,
            "cat": step.operators,
            "pid": 1,
            "tid": thread,
            "ts": 1e6 * span[0],
            "dur": 1e6 * (span[1] - span[0]),
            "args": {"kernel": step.kernel, "variant": step.variant or "moves elements"},
        }
        for step in profile.steps
        for thread, span in enumerate(step.spans)
        if span is not None
    ]
    return {"displayTimeUnit": "ns", "traceEvents": [*names, *events]}
