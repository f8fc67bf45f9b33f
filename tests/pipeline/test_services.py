"""Tests of what serves the stages: when worker processes start, and where errors at the end of a
stage are told."""

from pathlib import Path

import pytest

from graphflow.base.errors import MemoryLimitExceeded
from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups
from graphflow.models import ModelBuilder
from graphflow.pipeline import services
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.pipeline.services import promised_kernels, worker_count
from graphflow.processes.workers import Workers


def test_few_kernels_few_threads_or_a_wish_mean_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "default_threads", lambda: 8)
    assert worker_count(1000, Options()) == 7  # and this process
    assert worker_count(1000, Options(threads=3)) == 2
    assert worker_count(1000, Options(threads=64)) == 7
    assert worker_count(40, Options()) == 1
    assert worker_count(20, Options()) == 0
    assert worker_count(1000, Options(), apart=True) == 8  # and not this process
    assert worker_count(1, Options(), apart=True) == 1
    assert worker_count(1000, Options(threads=1)) == 0
    assert worker_count(1000, Options(workers=0)) == 0
    assert worker_count(1, Options(workers=5)) == 5


def test_equal_definitions_and_movement_promise_no_kernels() -> None:
    """Many groups are no reason to start workers, but many kernels."""
    build = ModelBuilder(seed=1, name="alike")
    x = build.input("x", (1, 64, 5, 5))
    parts = [build.relu(build.slice_channels(x, k, k + 2)) for k in range(0, 64, 2)]
    build.output(build.node("Concat", parts, axis=1))
    assert promised_kernels(fuse_groups(canonicalize(import_model(build.model())))) == 1
    build = ModelBuilder(seed=1, name="various")
    y = build.input("x", (1, 3, 19, 19))
    for channels in range(4, 9):  # each packs its weights
        y = build.conv(y, channels, 3)
    build.output(y)
    assert promised_kernels(fuse_groups(canonicalize(import_model(build.model())))) == 10


@pytest.mark.parametrize(
    ("limit", "stage"), [(3_999, "fuse"), (7_999, "lower")], ids=["one tensor", "all of them"]
)
def test_what_needs_too_much_memory_ends_the_stage_that_knows_it(limit: int, stage: str) -> None:
    build = ModelBuilder(seed=1, name="large")
    build.output(build.relu(build.input("x", (1000,))))
    options = Options(memory_limit=limit, workers=0, cache="off")
    stages: list[str] = []
    with pytest.raises(MemoryLimitExceeded) as caught:
        compile_graph(CompileRequest(build.model(), options=options, progress=stages.append))
    assert caught.value.__notes__ == [f"in stage {stage}"] and stages[-1] == stage


def test_a_model_of_many_weights_has_workers_before_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[str] = []
    started: list[str] = []

    def noted(self: Workers, count: int, trace: Trace, patience: float = 0.0) -> None:
        started.extend(begun[-1:] * count)

    monkeypatch.setattr(services, "default_threads", lambda: 2)
    monkeypatch.setattr(Workers, "start", noted)
    options = Options(threads=2, cache=str(tmp_path))
    for most, stages in ((4, []), (22, ["read"]), (22, [])):  # the last one is in the cache
        build = ModelBuilder(seed=1, name="various")
        x = build.input("x", (1, 3, 5, 5))
        for channels in range(3, most):
            x = build.conv(x, channels, 1, bias=False)
        build.output(x)
        started.clear()
        compile_graph(CompileRequest(build.model(), options=options, progress=begun.append))
        assert started[:1] == stages
