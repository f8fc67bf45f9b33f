"""Tests of the profile of a run: its steps are those of the program, its trace a Chrome trace."""

import json
from functools import cache

import pytest

import graphflow as gf
from graphflow.base.run_profile import RunProfile
from graphflow.bench import chrome_trace, peer_profile, profile_run
from graphflow.models import ModelBuilder, named
from graphflow.models.zoo import zoo_model
from graphflow.program import random_inputs
from support.control_flow import loop_of_onnxruntime

THREADS = 2


@cache
def executable() -> gf.Executable:
    options = gf.Options(threads=THREADS)
    return gf.compile(zoo_model("probe:concat:58", 0), options=options)


@cache
def profile() -> RunProfile:
    exe = executable()
    return profile_run(exe.compiled, exe.program, random_inputs(exe.inputs), runs=9)


def test_steps_are_those_of_the_program_with_the_prices_of_the_plan() -> None:
    compiled, found = executable().compiled, profile()
    calls = [pair for pair in compiled.lowered.calls if not pair[0].prepare]
    assert [(s.name, s.kernel) for s in found.steps] == [(c.name, s.symbol) for c, s in calls]
    assert sum(step.estimate or 0 for step in found.steps) == pytest.approx(compiled.plan.seconds)
    for step in found.steps:
        choice = compiled.plan.choices.get(step.name)
        if choice is not None:
            assert step.flops == choice.variant.work.flops and step.variant == choice.variant.name
            assert step.estimate == choice.seconds


def test_times_are_consistent() -> None:
    found = profile()
    assert (found.threads, found.runs) == (THREADS, 2)
    assert found.gflops > 0 and found.gbps > 0
    for step in found.steps:
        assert len(step.spans) == THREADS
        assert step.seconds > 0 and step.waiting >= 0 and 0 <= step.imbalance < 1
        for span in step.spans:
            assert span is None or 0 <= span[0] <= span[1]
    begins = [min(span[0] for span in s.spans if span is not None) for s in found.steps]
    assert begins == sorted(begins)
    times = found.operators()
    assert sum(time.seconds for time in times) == pytest.approx(found.step_seconds)
    assert sum(time.count for time in times) == len(found.steps)
    assert [t.seconds for t in times] == sorted((t.seconds for t in times), reverse=True)


def test_a_run_is_its_steps_and_what_passes_around_and_between_them() -> None:
    found = profile()
    parts = (found.before, found.step_seconds, found.between, found.after)
    assert sum(parts) == pytest.approx(found.seconds)
    assert found.before > 0 and found.after > 0
    # All threads meet behind each step of this program, so no step begins before the last ended.
    assert found.between >= 0
    assert all(any(step.spans) for step in found.steps)
    first = min(span[0] for span in found.steps[0].spans if span is not None)
    assert 0 < first < found.seconds


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, THREADS])
@pytest.mark.parametrize(("name", "share"), [("light:resnet50", 0.97), ("light:shufflenet", 0.9)])
def test_the_steps_take_almost_all_of_a_run(name: str, share: float, threads: int) -> None:
    """The best of some profiles counts: a thread that has to wait for a processor at a barrier
    makes the time between steps longer, and never shorter."""
    exe = gf.compile(named(name, 1), options=gf.Options(threads=threads))
    inputs = random_inputs(exe.inputs)
    shares = []
    while len(shares) < 8 and max(shares, default=0.0) < share:
        found = profile_run(exe.compiled, exe.program, inputs, runs=20)
        shares.append(found.step_seconds / found.seconds)
    assert max(shares) >= share


def test_the_trace_has_an_event_for_each_part_of_each_step() -> None:
    trace = chrome_trace(profile())
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names == ["caller", "thread 1"]
    parts = [span for step in profile().steps for span in step.spans if span is not None]
    assert len(events) == len(parts)
    for event, (begin, end) in zip(events, parts, strict=True):
        assert event["ts"] == pytest.approx(1e6 * begin)
        assert event["dur"] == pytest.approx(1e6 * (end - begin))
        assert isinstance(event["name"], str) and event["pid"] == 1
        assert event["tid"] in range(THREADS)


def test_the_trace_is_of_the_format_that_viewers_open() -> None:
    """What the Trace Event Format asks of a file with complete and metadata events."""
    trace = json.loads(json.dumps(chrome_trace(profile()), allow_nan=False))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    busy: dict[tuple[int, int], float] = {}
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ph"] in ("M", "X")
        if event["ph"] == "M":
            assert event["name"] == "thread_name" and isinstance(event["args"]["name"], str)
            continue
        assert isinstance(event["cat"], str)
        assert event["ts"] >= 0 and event["dur"] >= 0
        # Events of one thread lie behind each other; viewers show overlapping ones nested.
        thread = event["pid"], event["tid"]
        assert event["ts"] >= busy.get(thread, 0.0)
        busy[thread] = event["ts"] + event["dur"]


def test_a_section_is_a_step_of_the_caller() -> None:
    model = loop_of_onnxruntime()
    exe = gf.compile(model, options=gf.Options(threads=1))
    assert exe.compiled.spec.sections
    found = profile_run(exe.compiled, exe.program, random_inputs(exe.inputs), runs=3)
    symbols = {section.name for section in exe.compiled.spec.sections}
    sections = [step for step in found.steps if step.kernel in symbols]
    assert sections and all(step.seconds > 0 for step in sections)


def test_onnxruntime_says_which_operators_take_its_time() -> None:
    build = ModelBuilder(seed=1)
    build.output(build.node("Softmax", [build.input("x", (4, 64))], axis=1))
    model = build.model()
    inputs = random_inputs(gf.compile(model).inputs)
    found = peer_profile(model, 1, inputs, runs=3)
    assert [(time.operator, time.count) for time in found.operators] == [("Softmax", 1)]
    assert found.seconds == found.operators[0].seconds > 0
