"""The estimate of each step beside its measured time: how many are within 20 %, and which are not.

    python benchmarks/prices.py [MODEL…] [--threads 1] [--target avx2] [--top 12]

A model is a name as `graphflow bench` takes it; the default are the networks that the onnx
package ships, and the zoo.  A step's time is the mean of the fastest runs (`graphflow profile`).
The speed of a shared machine changes from one minute to the next, so a second count divides all
times of a network by one factor, the median of measured over estimated time; it shows what the
estimates say of one step beside another, which is all that a plan depends on.  Then: the same for
each kind of kernel, and the steps whose estimate is wrong by most seconds.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compare import loaded, networks
from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow.bench import profile_run
from graphflow.codegen import named_target

WITHIN = 0.2
"""The share by which a time may differ from its estimate."""

LEAST = 1e-6
"""Shorter steps are not counted: the clock and the start of a step are a good part of them."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A step with its seconds, and `scale`, the median of measured over estimated time of its
    network."""

    model: str
    name: str
    kind: str
    seconds: float
    estimate: float
    scale: float

    @property
    def ratio(self) -> float:
        """Measured over estimated time."""
        return self.seconds / self.estimate

    @property
    def scaled(self) -> float:
        """The ratio over that of the median step of the network."""
        return self.ratio / self.scale


def priced_steps(name: str, threads: int, target: gf.Target) -> list[Priced]:
    """The steps of a network that have an estimate."""
    model, inputs = loaded(name)
    shapes = {key: array.shape for key, array in inputs.items()}
    options = gf.Options(threads=threads)
    exe = gf.compile(model, input_shapes=shapes, target=target, options=options)
    profile = profile_run(exe.compiled, exe.program, inputs)
    steps = [s for s in profile.steps if s.estimate and s.seconds >= LEAST]
    if not steps:
        return []
    scale = statistics.median(step.seconds / step.estimate for step in steps if step.estimate)
    return [
        Priced(name, s.name, s.operators, s.seconds, s.estimate, scale) for s in steps if s.estimate
    ]


def share(ratios: Iterable[float]) -> float:
    """The share of ratios that are within the bounds."""
    found = [1 / (1 + WITHIN) <= ratio <= 1 + WITHIN for ratio in ratios]
    return sum(found) / len(found)


def kinds(steps: Sequence[Priced]) -> Table:
    """One row for each kind of kernel, those with most time first."""
    by_kind: dict[str, list[Priced]] = defaultdict(list)
    for step in steps:
        by_kind[step.kind].append(step)
    total = sum(step.seconds for step in steps)
    table = Table(header_style="bold")
    for column in ("kernel", "steps", "time", "within 20 %", "scaled", "median", "scaled"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for kind, found in sorted(by_kind.items(), key=lambda one: -sum(s.seconds for s in one[1])):
        table.add_row(
            kind,
            str(len(found)),
            f"{sum(step.seconds for step in found) / total:.1%}",
            f"{share(step.ratio for step in found):.0%}",
            f"{share(step.scaled for step in found):.0%}",
            f"{statistics.median(step.ratio for step in found):.2f}",
            f"{statistics.median(step.scaled for step in found):.2f}",
        )
    return table


def worst(steps: Sequence[Priced], most: int) -> Table:
    """The steps whose scaled time differs by most seconds from its estimate."""
    table = Table(header_style="bold")
    for column in ("model", "step", "kernel", "µs", "estimate", "scaled ratio"):
        table.add_column(
            column, justify="left" if column in ("model", "step", "kernel") else "right"
        )
    error = {id(step): abs(step.seconds - step.estimate * step.scale) for step in steps}
    for step in sorted(steps, key=lambda step: -error[id(step)])[:most]:
        times = (f"{1e6 * step.seconds:.1f}", f"{1e6 * step.estimate:.1f}", f"{step.scaled:.2f}")
        table.add_row(step.model, step.name, step.kind, *times)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=networks())
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", choices=("host", "avx2"), default="host")
    parser.add_argument("--top", type=int, default=12)
    wanted = parser.parse_args()
    steps: list[Priced] = []
    for name in wanted.models:
        found = priced_steps(name, wanted.threads, named_target(wanted.target))
        if found:
            steps += found
            shares = share(s.ratio for s in found), share(s.scaled for s in found)
            listed = f"{shares[0]:.0%} within, {shares[1]:.0%} scaled by {found[0].scale:.2f}"
            print(f"{name:28} {len(found):4} steps  {listed}", flush=True)
    console = Console(width=140)
    console.print(kinds(steps))
    console.print(worst(steps, wanted.top))
    shares = share(s.ratio for s in steps), share(s.scaled for s in steps)
    print(
        f"{len(steps)} steps: {shares[0]:.1%} within 20 % of the estimate, {shares[1]:.1%} scaled"
    )


if __name__ == "__main__":
    main()
