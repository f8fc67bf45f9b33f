"""The time of each step of a run, beside the estimate of the cost model.

    python benchmarks/steps.py MODEL [--threads N] [--top 15]

MODEL is a path, `light:NAME` (with seeded weights) or `zoo:NAME`.  The runtime pauses between the
steps of a run; the time of a step is that from pause to pause, the median of several runs, and
contains about a microsecond of the pause.  Caches are as full as in a run.  Several threads pause
only after a step that they all finish: the steps before it are timed with it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from graphflow.base.options import Options
from graphflow.models import named
from graphflow.physical import PhysicalCall
from graphflow.pipeline.compiler import Compiled, compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.program import ProgramSpec, random_inputs
from graphflow.runtime import Program, default_threads
from graphflow.runtime.driver import driver

RUNS = 30
"""How many runs are timed."""


@dataclass(frozen=True)
class StepTime:
    """The steps between two pauses: measured and estimated microseconds."""

    calls: tuple[PhysicalCall, ...]
    measured: float
    estimated: float


def step_times(compiled: Compiled, threads: int) -> list[StepTime]:
    """The times of all steps of a run, in order.

    Raises ValueError for a program with sections, of which only onnxruntime knows the steps.
    """
    spec = compiled.spec
    if spec.sections:
        raise ValueError("onnxruntime runs parts of this model as a whole")
    calls = [call for call, _ in compiled.lowered.calls if not call.prepare]
    return [
        StepTime(
            tuple(calls[first:after]),
            1e6 * statistics.median(seconds),
            sum(_estimate(compiled, call) for call in calls[first:after]),
        )
        for (first, after), seconds in sorted(_spans(spec, threads).items())
        if first < after  # a run that pauses after its last step is called once more
    ]


def _spans(spec: ProgramSpec, threads: int) -> dict[tuple[int, int], list[float]]:
    """The seconds of each call of native code: by its first step and the step after its last."""
    native, spans = driver(), defaultdict[tuple[int, int], list[float]](list)

    def timed(pool: int, job: int, first: int) -> int:
        start = time.perf_counter()
        given = native.run(pool, job, first)
        spans[first, given or len(spec.run)].append(time.perf_counter() - start)
        return given

    program = Program(spec, threads, native=replace(native, run=timed), patience_ns=0)
    bound = program.bind(random_inputs([t for t in spec.inputs if t.name in spec.input_names]))
    bound.run()
    spans.clear()
    for _ in range(RUNS):
        bound.run()
    return spans


def _estimate(compiled: Compiled, call: PhysicalCall) -> float:
    """The plan's estimate in microseconds."""
    choice = compiled.plan.choices.get(call.name)
    if choice is not None:
        return 1e6 * choice.seconds
    made = (c for c in compiled.plan.conversions if call.name == f"{c.kind} {c.value}")
    return 1e6 * sum(c.seconds for c in made)


def steps_table(times: list[StepTime], top: int) -> Table:
    """A table of the steps that take longest, and the sum of all."""
    total = sum(step.measured for step in times)
    expected = sum(step.estimated for step in times)
    table = Table(
        header_style="bold",
        caption=f"{sum(len(step.calls) for step in times)} steps take {total:.0f} µs, "
        f"{expected:.0f} expected",
    )
    for column in ("step", "variant"):
        table.add_column(column, overflow="fold")
    for column in ("µs", "expected", "ratio", "share"):
        table.add_column(column, justify="right")
    for step in sorted(times, key=lambda step: -step.measured)[:top]:
        names = (call.name for call in step.calls)
        variants = (v.name if (v := call.variant) else "moves elements" for call in step.calls)
        table.add_row(
            ", ".join(names),
            ", ".join(variants),
            f"{step.measured:.1f}",
            f"{step.estimated:.1f}",
            f"{step.measured / step.estimated:.2f}" if step.estimated else "",
            f"{100 * step.measured / total:.1f} %",
        )
    return table


def main() -> None:
    """Print the table of one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--top", type=int, default=15)
    given = parser.parse_args()
    options = Options(threads=given.threads)
    compiled = compile_graph(CompileRequest(named(given.model, 0) or given.model, options=options))
    Console().print(steps_table(step_times(compiled, given.threads), given.top))


if __name__ == "__main__":
    main()
