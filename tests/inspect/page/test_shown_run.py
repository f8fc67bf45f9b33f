"""Tests of the measured steps on the page: each leads to the node whose work it does."""

import pytest

import graphflow as gf
from graphflow.bench import Machine, profile_run, step_times
from graphflow.inspect.page import shown_model
from graphflow.models.zoo import zoo_model
from graphflow.program import random_inputs


def test_every_step_has_the_node_of_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the machine reaches takes a second to measure, and is not in question here.
    machine = Machine(gflops=1.0, cache_gbps=1.0, memory_gbps=1.0)
    monkeypatch.setattr(step_times, "measure_machine", lambda *_: machine)
    exe = gf.compile(zoo_model("probe:concat:58", 0), options=gf.Options(threads=1))
    profile = profile_run(exe.compiled, exe.program, random_inputs(exe.inputs), runs=3)
    model = shown_model(exe.compiled, profile)
    assert model.run is not None
    assert len(model.run.nodes) == len(profile.steps) == len(set(model.run.nodes))
    for step, place in zip(profile.steps, model.run.nodes, strict=True):
        assert place is not None
        node = model.program.nodes[place]
        assert (node.name, node.kernel) == (step.name, step.kernel)
        assert step.estimate == node.seconds
    assert model.run.step_seconds == profile.step_seconds
    assert model.run.operators == profile.operators()
