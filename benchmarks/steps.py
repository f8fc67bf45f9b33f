"""The time of each step of a run, beside the estimate of the cost model.

    python benchmarks/steps.py MODEL [--threads N] [--top 15]

MODEL is a path, `light:NAME` (with seeded weights) or `zoo:NAME`.  The time of a step is that of
the program up to and including it, minus that of the program before it, so that caches are as full
as in a run.  Programs are timed one after another, because the threads of each spin while they wait
for its next run; the shortest of several runs counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow.bench.samples import random_inputs
from graphflow.models import named
from graphflow.physical import PhysicalCall
from graphflow.pipeline.compiler import Compiled
from graphflow.runtime import Program, default_threads

RUNS = 30
"""How often each length of the program is timed."""


@dataclass(frozen=True)
class StepTime:
    """One step: measured and estimated microseconds."""

    call: PhysicalCall
    measured: float
    estimated: float


def step_times(compiled: Compiled, threads: int) -> list[StepTime]:
    """The times of all steps of a run, in order."""
    spec = compiled.spec
    calls = [call for call, _ in compiled.lowered.calls if not call.prepare]
    inputs = random_inputs(spec.inputs)
    best = [
        _shortest(Program(replace(spec, run=spec.run[:length]), threads), inputs)
        for length in range(len(spec.run) + 1)
    ]
    return [
        StepTime(call, best[k + 1] - best[k], _estimate(compiled, call))
        for k, call in enumerate(calls)
    ]


def _shortest(program: Program, inputs: Mapping[str, NDArray[Any]]) -> float:
    """Microseconds of the shortest run."""
    bound = program.bind(inputs)
    bound.run()
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        bound.run()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best


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
        caption=f"{len(times)} steps take {total:.0f} µs, {expected:.0f} expected",
    )
    for column in ("step", "variant"):
        table.add_column(column, overflow="fold")
    for column in ("µs", "expected", "ratio", "share"):
        table.add_column(column, justify="right")
    for step in sorted(times, key=lambda step: -step.measured)[:top]:
        variant = "moves elements" if step.call.variant is None else step.call.variant.name
        ratio = step.measured / step.estimated if step.estimated else 0.0
        table.add_row(
            step.call.name,
            variant,
            f"{step.measured:.1f}",
            f"{step.estimated:.1f}",
            f"{ratio:.2f}",
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
    exe = gf.compile(named(given.model, 0) or given.model, threads=given.threads)
    Console().print(steps_table(step_times(exe.compiled, given.threads), given.top))


if __name__ == "__main__":
    main()
