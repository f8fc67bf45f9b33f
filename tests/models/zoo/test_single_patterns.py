"""Tests of the probes: no conversion inside the graph, and vectorized kernels.

Plans are made for a processor of each width; `-m slow` plans for all processors, and compiles the
probes that the ordinary run leaves out, also for vectors of the other width.
"""

import json
from functools import cache

import pytest

from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.baselines import inner_values, plan_groups
from graphflow.cli import main
from graphflow.codegen import named_target
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, fuse_groups
from graphflow.models.zoo import zoo_model
from graphflow.models.zoo.single_patterns import PATTERNS
from support.kernels.planned_only import code_left_out
from support.targets import processors_in_turn

CHANNELS = (8, 9, 15, 16, 17, 18, 20, 24, 30, 32, 58)
PROBES = [
    f"zoo:probe:{pattern}:{channels}"
    for pattern, (_, divisor) in PATTERNS.items()
    for channels in CHANNELS
    if channels % divisor == 0
]
COMPILED = (17, 24)
"""Numbers of channels whose probes the ordinary run compiles: with a tail in vectors of any width,
and without one."""

BETWEEN = (15, 18, 30)
"""Numbers of channels whose vectors and tails are like those of others, which the ordinary run
plans: one less than vectors have, two more, and two less."""

TIES = {"zoo:probe:concat:9": 1, "zoo:probe:squeeze_excite:8": 1}
"""Where plans with one conversion and without any have the same price, to half a hundredth: a
conversion of a few kilobytes, which takes a quarter of a microsecond."""

NARROW_TIES = TIES | {
    f"zoo:probe:squeeze_excite:{channels}": 1 for channels in (9, 15, 16, 17, 18, 20)
}
"""The same with AVX2, where pooling a row-major image gains what its conversion costs: the best
plan without one takes 0.1 to 0.2 of 23 to 40 microseconds more."""

GAINED_ON = {
    ("zoo:probe:concat:8", "cascadelake-server"): ("NCHW", 1.02),
    ("zoo:probe:concat:17", "cascadelake-server"): ("NHWC", 1.07),
    ("zoo:probe:concat:18", "cascadelake-server"): ("NHWC", 1.07),
    ("zoo:probe:concat:20", "cascadelake-server"): ("NHWC", 1.01),
    ("zoo:probe:grouped4:32", "cascadelake-server"): ("NHWC", 1.09),
}
"""Where one conversion costs less than it gains on a processor; the layout of all images inside in
the best plan without one, and how many times as much that takes at least, by prices.

A Cascade Lake loads and multiplies 64 bytes at two units, with which the 3×3 convolutions of 17 and
more channels take 0.73 to 0.91 of the time in row-major images, and the 1×1 convolutions before
them more.  On one thread plans without a conversion take 1.02 to 1.12.  What threads wait for data
of each other has no price there, as it was not measured: with 0.3 for `exchange_awaited` no
conversion gains more than 0.002."""

VECTOR_SHARE = 0.9
"""Of the multiply-adds; all of these numbers of channels are at least half a vector."""

LESS_ON = {
    (f"zoo:probe:squeeze_excite:{channels}", name): 0.88
    for channels in (8, 9)
    for name in ("sapphirerapids", "graniterapids")
}
"""The share where the last convolution of 1×1 has its lanes along rows of the image, which takes
0.97 to 1.00 of the time of lanes along channels on a Granite Rapids.  A Sapphire Rapids has the
prices of that core: on either, the best plans with lanes along channels there cost 1.18 (8
channels) and 1.08 (9) times as much."""


def ties(target: Target) -> dict[str, int]:
    return NARROW_TIES if target.vector_bytes == 32 else TIES


@pytest.mark.parametrize("target", ["host", pytest.param("avx2", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "probe",
    [
        pytest.param(probe, marks=[pytest.mark.slow] * (int(probe.split(":")[-1]) not in COMPILED))
        for probe in PROBES
    ],
)
def test_the_report_of_a_probe(probe: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    with code_left_out():
        assert main(["inspect", probe, "--json", "--threads", "2", "--target", target]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["inner_conversions"] <= ties(named_target(target)).get(probe, 0)
    assert summary["vectorized_share"] >= VECTOR_SHARE


@cache
def fused(probe: str) -> OperatorGraph:
    return fuse_groups(canonicalize(import_model(zoo_model(probe.removeprefix("zoo:")))))


@pytest.mark.decisions
@processors_in_turn(
    "probe",
    [
        pytest.param(probe, marks=[pytest.mark.slow] * (int(probe.split(":")[-1]) in BETWEEN))
        for probe in PROBES
    ],
)
def test_nothing_moves_inside(probe: str, target: Target) -> None:
    graph, plan, _ = plan_groups(fused(probe), target, 2)
    inside = [c for c in plan.conversions if c.value not in {*graph.inputs, *graph.outputs}]
    gained = (probe, target.name) in GAINED_ON
    assert len(inside) + len(plan.moves) <= ties(target).get(probe, 0) + gained
    work = [choice.variant for choice in plan.choices.values()]
    in_lanes = sum(variant.work.flops for variant in work if variant.vectorized)
    share = LESS_ON.get((probe, target.name), VECTOR_SHARE)
    assert in_lanes >= share * sum(variant.work.flops for variant in work)


@pytest.mark.slow
@pytest.mark.parametrize(("probe", "name"), GAINED_ON)
def test_a_conversion_gains(probe: str, name: str) -> None:
    layout, factor = GAINED_ON[probe, name]
    graph, best, _ = plan_groups(fused(probe), PROCESSORS[name], 2)
    pins = dict.fromkeys(inner_values(fused(probe), 4), layout)
    _, uniform, _ = plan_groups(fused(probe), PROCESSORS[name], 2, pins)
    assert {c.value for c in uniform.conversions} <= {*graph.inputs, *graph.outputs}
    assert uniform.seconds > factor * best.seconds
