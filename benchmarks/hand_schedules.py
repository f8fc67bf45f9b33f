"""The kernels of docs/schedules.md on one core, beside a loop of independent multiply-adds.

    python benchmarks/hand_schedules.py [--avx2] [--blocks N]

Runs the code blocks of the page, which schedule a matrix product, a blur and a pair of convolutions
by hand and compare each with numpy.  Then all kernels and the peak run in turns, in short blocks;
the shortest block of each counts, because other load can only slow a block down.  Inputs and
outputs are in the caches as far as they fit.  GFLOP/s count what the definition computes, without
padding and without what is computed twice.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow import codegen
from graphflow.base.target import Target
from graphflow.runtime import Program

PAGE = Path(__file__).parents[1] / "docs" / "schedules.md"
CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

BLOCK_SECONDS = 0.0005
"""A block is shorter than the time slices that other processes get between two of it."""

CHAINS = 12
"""Accumulators of the peak: at least the 4 cycles of a multiply-add times two of them a cycle, and
no more than 16 registers hold beside the operands."""

STEPS = 40_000

PEAK = """
    def peak(x: f32[1], w: f32[{lanes}], y: out[f32[{chains}, {lanes}]]):
        acc = alloc(f32[{chains}, {lanes}], register)
        for p0 in unrolled(0, {chains}):
            for l0 in vectorized(0, {lanes}):
                acc[p0, l0] = f32(0.0)
        for k in serial(0, {steps}):
            for p1 in unrolled(0, {chains}):
                for l1 in vectorized(0, {lanes}):
                    acc[p1, l1] += x[0] * w[l1]
        for p2 in unrolled(0, {chains}):
            for l2 in vectorized(0, {lanes}):
                y[p2, l2] = acc[p2, l2]
"""
"""A loop that loads nothing, unlike `graphflow.bench.peak_kernel`, whose loads cost up to 8 %."""

Measured = tuple[int, gf.Executable, Mapping[str, Any]]
"""The operations of a kernel, the kernel for one thread, and its inputs."""


def of_the_page(target: Target) -> dict[str, Measured]:
    """The kernels of the page, by title, made for a target."""
    names: dict[str, Any] = {"print": lambda *_, **__: None}
    with mock.patch.object(codegen, "host_target", lambda: target):
        for block in CODE.finditer(PAGE.read_text(encoding="utf-8")):
            exec(compile(block[1], str(PAGE), "exec", dont_inherit=True), names)
    return dict(names["measured"])


def peak(target: Target) -> Measured:
    """Multiply-adds that do not wait for each other, all of whose operands are in registers."""
    lanes = target.lanes("float32")
    text = PEAK.format(lanes=lanes, chains=CHAINS, steps=STEPS)
    inputs = {"x": np.ones(1, np.float32), "w": np.ones(lanes, np.float32)}
    return 2 * lanes * CHAINS * STEPS, gf.build(text, target=target, threads=1), inputs


def block_of(measured: Measured) -> tuple[int, Callable[[], None]]:
    """How often a block runs a kernel, so that it lasts `BLOCK_SECONDS`, and the block."""
    _, executable, inputs = measured
    spec = executable.compiled.spec

    def repeated(times: int) -> Callable[[], None]:
        return Program(replace(spec, run=spec.run * times), 1).bind(inputs).run

    once = repeated(1)
    times = max(1, round(BLOCK_SECONDS / min(seconds(once) for _ in range(5))))
    return times, repeated(times)


def seconds(run: Callable[[], None]) -> float:
    """The time of a run after one that is not measured."""
    run()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--avx2", action="store_true", help="force the AVX2 variant of the target")
    parser.add_argument("--blocks", type=int, default=200, help="blocks of each kernel")
    given = parser.parse_args()
    target = codegen.avx2_target() if given.avx2 else codegen.host_target()
    kernels = {"peak": peak(target), **of_the_page(target)}
    blocks = {title: block_of(measured) for title, measured in kernels.items()}
    best = dict.fromkeys(kernels, float("inf"))
    for _ in range(given.blocks):
        for title, (times, run) in blocks.items():
            best[title] = min(best[title], seconds(run) / times)
    speeds = {title: kernels[title][0] / best[title] / 1e9 for title in kernels}
    table = Table("kernel", title=f"{target.name}, one core")
    for name in ("µs", "GFLOP/s", "of peak"):
        table.add_column(name, justify="right")
    for title, speed in speeds.items():
        share = f"{speed / speeds['peak']:.1%}"
        table.add_row(title, f"{1e6 * best[title]:.1f}", f"{speed:.1f}", share)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
