"""Measuring: the protocol of blocks, the error metric, floors, and the shape of the result.

Nothing here asserts a time; clocks are replaced where the protocol itself is tested.
"""

from __future__ import annotations

import json
import time
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import graphflow as gf
from graphflow.bench import (
    Machine,
    Protocol,
    bench,
    bench_table,
    floor_seconds,
    gflop,
    hardly_varies,
    largest_error,
    load_peer,
    measure,
    measure_machine,
    relative_error,
)
from graphflow.codegen import host_target
from graphflow.errors import GraphflowError
from graphflow.models import Builder

QUICK = Protocol(blocks=2, idle=0.0, discarded=0.0, measured=0.001)


class Clock:
    """Time that passes only while sleeping or running; keeps a log of both."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.log: list[str] = []
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.log.append("idle")
        self.now += seconds

    def run(self, name: str, seconds: float) -> None:
        self.log.append(name)
        self.now += seconds


def test_blocks_alternate_and_each_begins_idle_and_with_discarded_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    found = measure(
        {"a": lambda: clock.run("a", 0.015), "b": lambda: clock.run("b", 0.03)},
        Protocol(blocks=3, idle=0.1, discarded=0.03, measured=0.05),
    )
    # a: 2 discarded runs and 4 measured ones; b: 1 and 2.
    block = ["idle", *"aaaaaa", "idle", *"bbb"]
    assert clock.log == block * 3
    assert found["a"].median_ms == pytest.approx(15)
    assert found["b"].median_ms == pytest.approx(30)
    assert len(found["a"].blocks) == 3 and found["a"].iqr_ms == pytest.approx(0)


def test_a_disturbed_block_moves_the_spread_and_not_the_median(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    times = iter([0.01, 0.01, 0.01, 0.01, 0.05, 0.05, 0.01, 0.01])
    found = measure(
        {"a": lambda: clock.run("a", next(times))},
        Protocol(blocks=4, idle=0.1, discarded=0.001, measured=0.001),
    )
    assert found["a"].median_ms == pytest.approx(10)
    assert found["a"].iqr_ms == pytest.approx(10)


def test_the_protocol_is_as_documented() -> None:
    assert Protocol() == Protocol(blocks=8, idle=0.1, discarded=0.03, measured=0.05)


def floats(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        (floats(3, 4), floats(3, 4), 0.0),
        (floats(3, 4.5), floats(3, 4), 0.1),
        (floats(nan, inf, 1), floats(nan, inf, 1), 0.0),
        (floats(nan, 1), floats(1, nan), inf),
        (floats(inf, 1), floats(-inf, 1), inf),
        (floats(nan, 1), floats(inf, 1), inf),
        (floats(0, 0), floats(0, 0), 0.0),
        (floats(0, 1e-9), floats(0, 0), inf),
        (floats(), floats(), 0.0),
        (floats(1), floats(1, 1), inf),
        (floats(1).astype(np.float64), floats(1), inf),
        (np.array([1, 2]), np.array([1, 2]), 0.0),
        (np.array([1, 2]), np.array([1, 3]), inf),
        (np.array([True]), np.array([False]), inf),
    ],
)
def test_the_relative_error(found: Any, expected: Any, error: float) -> None:
    assert relative_error(found, expected) == pytest.approx(error)


def test_the_error_of_several_outputs_is_the_largest() -> None:
    expected = {"a": floats(1, 0), "b": floats(4, 3)}
    assert largest_error({"a": floats(1, 0), "b": floats(4, 3.5)}, expected) == pytest.approx(0.1)
    assert largest_error({"a": floats(1, 0)}, expected) == inf


@pytest.mark.parametrize(
    ("output", "weak"),
    [
        (floats(0, 0, 1, 0), True),
        (floats(nan, nan, nan, nan), True),
        (floats(7, 7, 7), True),
        (floats(0.1, 0.2, 0.7), False),
        (floats(0.5), False),
        (np.array([0, 0, 1, 0]), False),
    ],
)
def test_outputs_that_hardly_vary_make_a_weak_check(output: Any, weak: bool) -> None:
    assert hardly_varies({"fine": floats(1, 2, 3), "y": output}) is weak


def test_a_saturated_softmax_is_reported_as_a_weak_check() -> None:
    build = Builder()
    x = build.input("x", (1, 8))
    scores = build.node("Mul", [x, build.constant(np.float32([1e5]))])
    build.output(build.node("Softmax", [scores], axis=1))
    found = bench(build.model(), threads=1, protocol=QUICK)
    assert found["max_rel_error"] == 0.0 and found["check_is_weak"]
    assert "show" in str(bench_table([found]).caption)


def convolution() -> gf.Executable:
    build = Builder()
    x = build.input("x", (1, 16, 8, 8))
    build.output(build.relu(build.conv(x, 32, 1, bias=False)))
    return gf.compile(build.model(), threads=1)


def test_the_floor_is_the_larger_of_compute_and_traffic() -> None:
    compiled = convolution().compiled
    flops = 2 * 16 * 32 * 64
    moved = 4 * (16 * 64 + 32 * 64 + 16 * 32)
    assert gflop(compiled) == pytest.approx(flops / 1e9)
    slow_compute = Machine(gflops=1e-3, cache_gbps=1e6, memory_gbps=1e6)
    assert floor_seconds(compiled, slow_compute) == pytest.approx(flops / 1e6)
    slow_cache = Machine(gflops=1e9, cache_gbps=1e-3, memory_gbps=1e-9)
    assert floor_seconds(compiled, slow_cache) == pytest.approx(moved / 1e6)


def test_the_machine_is_measured_with_our_own_kernels() -> None:
    machine = measure_machine(host_target(), 1)
    assert machine.gflops > 1 and machine.cache_gbps > 1 and machine.memory_gbps > 0.1


def test_a_bench_has_the_documented_fields_and_the_programs_agree() -> None:
    build = Builder(name="tiny")
    x = build.input("x", (1, 3, 8, 8))
    build.output(build.relu(build.conv(x, 6, 3)))
    found = bench(build.model(), threads=1, protocol=QUICK)
    assert {
        "model", "threads", "graphflow_ms", "onnxruntime_ms", "speedup", "max_rel_error",
        "compile_s", "onnxruntime_load_s", "floor_ms", "gflop",
    } <= set(found)  # fmt: skip
    assert found["model"] == "tiny" and found["threads"] == 1
    assert found["max_rel_error"] < 1e-6 and not found["check_is_weak"]
    assert found["speedup"] == pytest.approx(found["onnxruntime_ms"] / found["graphflow_ms"])
    assert json.loads(json.dumps(found)) == found
    assert bench_table([found, found]).row_count == 2


def test_a_peer_that_does_not_exist_is_refused() -> None:
    with pytest.raises(GraphflowError, match="there are onnxruntime, openvino"):
        load_peer("tensorflow", b"", 1)
