"""Tests of the measurements: blocks, the error metric, the floor, and the fields of a result.

Nothing here asserts a time; clocks are replaced where the protocol itself is tested.
"""

import json
import time
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto

import graphflow as gf
import graphflow.baselines.uniform as uniform
from graphflow.base.errors import GraphflowError
from graphflow.base.target import Target
from graphflow.baselines import inner_values, uniform_pins
from graphflow.bench import (
    Machine,
    PeerFailure,
    Protocol,
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
from graphflow.bench.peers import PEERS
from graphflow.cli.comparison import compare
from graphflow.codegen import host_target
from graphflow.flow import NodeVariants, variants_of
from graphflow.frontends import OnnxModel
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import memory_key
from graphflow.layout import Family, families
from graphflow.models import ModelBuilder

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
    build = ModelBuilder()
    x = build.input("x", (1, 8))
    scores = build.node("Mul", [x, build.constant(np.float32([1e5]))])
    build.output(build.node("Softmax", [scores], axis=1))
    found = compare(gf.compile(build.model(), threads=1), build.model(), protocol=QUICK)
    assert found["max_rel_error"] == 0.0 and found["check_is_weak"]
    assert "hardly vary" in str(bench_table([found]).caption)


def convolution() -> gf.Executable:
    build = ModelBuilder()
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
    build = ModelBuilder(name="tiny")
    x = build.input("x", (1, 3, 8, 8))
    build.output(build.relu(build.conv(x, 6, 3)))
    found = compare(gf.compile(build.model(), threads=1), build.model(), protocol=QUICK)
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
    with pytest.raises(GraphflowError, match="the peers are onnxruntime, openvino"):
        load_peer("tensorflow", b"", 1)


class Loading:
    """A peer that cannot load a model."""

    load_seconds = 0.0

    def __init__(self, model: OnnxModel, threads: int, flush_denormals: bool) -> None:
        raise RuntimeError("Exception from src/core.cpp:92:\n\nno [conversion] for Sigmoid\n")

    def run(self, inputs: Any) -> dict[str, NDArray[Any]]:
        return {}


class Running(Loading):
    """A peer that loads a model, and cannot run it."""

    def __init__(self, model: OnnxModel, threads: int, flush_denormals: bool) -> None: ...

    def run(self, inputs: Any) -> dict[str, NDArray[Any]]:
        raise ValueError("no [conversion] for Sigmoid")


@pytest.mark.parametrize("peer", [Loading, Running])
@pytest.mark.parametrize("name", ["openvino", "onnxruntime"])
def test_a_peer_that_cannot_take_a_model_is_named_and_the_others_are_timed(
    name: str, peer: type[Loading], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, name, peer)
    build = ModelBuilder(name="tiny")
    build.output(build.relu(build.input("x", (2, 3))))
    others = [other for other in ("onnxruntime",) if other != name]
    exe = gf.compile(build.model(), threads=1)
    found = compare(exe, build.model(), against=[*others, name], protocol=QUICK)
    assert f"{name} cannot" in found["failures"][name]
    assert "no [conversion] for Sigmoid" in found["failures"][name]
    assert [f"{other}_ms" in found for other in ("graphflow", *others, name)] == [
        *(True for _ in ("graphflow", *others)),
        False,
    ]
    assert (found["speedup"] is None) == (found["max_rel_error"] is None) == (not others)
    table = bench_table([found])
    assert "no \\[conversion] for Sigmoid" in str(table.caption) and table.row_count == 1


def test_a_peer_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphflow.bench.peers.openvino", None)
    with pytest.raises(GraphflowError, match="openvino is not installed") as caught:
        load_peer("openvino", b"", 1)
    assert not isinstance(caught.value, PeerFailure)


def test_the_time_of_a_compilation_is_that_of_the_executable_itself() -> None:
    build = ModelBuilder(name="tiny")
    build.output(build.relu(build.input("x", (2, 3))))
    exe = gf.compile(build.model(), threads=1)
    assert compare(exe, build.model(), protocol=QUICK)["compile_s"] == exe.compiled.seconds


FAMILIES = families(4, host_target().lanes("float32"))


def three_convolutions() -> ModelProto:
    """Between them 12 channels, which the second convolution's sum reads again, then 20."""
    build = ModelBuilder(name="plain")
    y = build.relu(build.conv(build.input("x", (1, 3, 6, 6)), 12, 3))
    z = build.relu(build.conv(build.add(y, build.conv(y, 12, 1)), 20, 1))
    build.output(build.conv(z, 5, 1))
    return build.model()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_uniform_pins_are_taken_together_and_spare_inputs_and_outputs(family: Family) -> None:
    model = three_convolutions()
    free = gf.compile(model, threads=1).compiled
    pins = uniform_pins(free.graph, free.target, family)
    assert tuple(pins) == inner_values(free.graph, 4) and len(pins) == 3
    edges = gf.compile(model, threads=1, layouts=pins).compiled.plan.edges
    for value, layout in pins.items():
        assert layout == family.instantiate(free.graph.values[value].shape)
        assert memory_key(edges[value].edge_type.layout) == memory_key(layout)


@pytest.mark.parametrize("family", FAMILIES[1:], ids=lambda family: family.name)
def test_a_node_without_a_variant_for_all_pins_keeps_those_of_most_elements(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = gf.compile(three_convolutions(), threads=1).compiled
    small, summed, large = inner_values(compiled.graph, 4)
    node = compiled.graph.producer(large)
    assert node is not None
    source, result = node.func.inputs[0].name, node.func.outputs[0].name
    assert node.inputs[0] == summed

    def either(graph: OperatorGraph, target: Target) -> NodeVariants:
        """All variants, but of one node those that have exactly one of two tensors in the
        family."""
        found = dict(variants_of(graph, target).of_node)
        wanted = {
            name: memory_key(pinned)
            for name, value in ((source, summed), (result, large))
            if (pinned := family.instantiate(graph.values[value].shape)) is not None
        }
        found[node.name] = tuple(
            variant
            for variant in found[node.name]
            if sum(memory_key(variant.layouts[name]) == key for name, key in wanted.items()) == 1
        )
        return NodeVariants(found)

    monkeypatch.setattr(uniform, "variants_of", either)
    assert tuple(uniform_pins(compiled.graph, compiled.target, family)) == (small, large)
