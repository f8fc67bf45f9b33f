"""The estimate of each step beside its measured time: how many are within 20 %, and which are not.

    python benchmarks/prices.py [MODEL…] [--threads 1] [--target avx2] [--top 12] [--rounds 3]
                                [--folder F [--compile-only]]

A model is a name as `graphflow bench` takes it; the default are the networks that the onnx
package ships, and the zoo.  A step's time is the mean of the fastest runs (`graphflow profile`),
the least of all rounds.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from compare import loaded, networks
from msgspec.structs import asdict
from rich.console import Console
from rich.table import Table
from saved_programs import add_arguments, compile_arguments, results

import graphflow as gf
from graphflow.bench import planned_steps, step_seconds

WITHIN = 0.2
"""The share by which a time may differ from its estimate."""

LEAST = 1e-6
"""Shorter steps are not counted: the clock and the start of a step are a good part of them."""


PROGRAM, INPUTS = "program.gf", "inputs.npz"


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


def compiled(given: argparse.Namespace, name: str, folder: Path) -> list[dict[str, Any]]:
    """What the plan says of each step of a network, whose program and inputs are saved."""
    model, inputs = loaded(name)
    shapes = {key: array.shape for key, array in inputs.items()}
    exe = gf.compile(model, input_shapes=shapes, **compile_arguments(given))
    exe.save(folder / PROGRAM)
    with (folder / INPUTS).open("wb") as file:
        np.savez(file, **inputs)  # type: ignore[arg-type]
    return [asdict(step) for step in planned_steps(exe.compiled)]


def timed(folder: Path, steps: list[dict[str, Any]]) -> list[float]:
    """The seconds of each of the steps.

    Constants are copied into memory of the process, as a compiled model has them: those that are
    mapped lie in the small pages of the system's file cache."""
    with np.load(folder / INPUTS) as inputs:
        return step_seconds(gf.load(folder / PROGRAM, mmap=False).program, dict(inputs))


def priced_steps(name: str, steps: list[dict[str, Any]], rounds: list[list[float]]) -> list[Priced]:
    """The steps of a network that have an estimate."""
    taken = zip(steps, map(min, zip(*rounds, strict=True)), strict=True)
    counted = [(step, least) for step, least in taken if step["estimate"] and least >= LEAST]
    if not counted:
        return []
    scale = statistics.median(seconds / step["estimate"] for step, seconds in counted)
    return [
        Priced(name, step["name"], step["operators"], seconds, step["estimate"], scale)
        for step, seconds in counted
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
    parser.add_argument("--top", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    add_arguments(parser, threads=1)
    given = parser.parse_args()
    steps: list[Priced] = []
    for name, found in results(
        given.models, given, partial(compiled, given), timed, given.rounds
    ).items():
        priced = priced_steps(name, found.values, found.rounds) if found.rounds else []
        if priced:
            steps += priced
            shares = share(s.ratio for s in priced), share(s.scaled for s in priced)
            listed = f"{shares[0]:.0%} within, {shares[1]:.0%} scaled by {priced[0].scale:.2f}"
            print(f"{name:28} {len(priced):4} steps  {listed}", flush=True)
    if not steps:
        return
    console = Console(width=140)
    console.print(kinds(steps))
    console.print(worst(steps, given.top))
    shares = share(s.ratio for s in steps), share(s.scaled for s in steps)
    print(
        f"{len(steps)} steps: {shares[0]:.1%} within 20 % of the estimate, {shares[1]:.1%} scaled"
    )


if __name__ == "__main__":
    main()
