"""Tests of timing on the machines of a cluster: kinds of machines, one timing at a time on each,
and machines that are lost."""

import logging
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import distributed
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError
from graphflow.base.target import Target
from graphflow.bench import Protocol
from graphflow.cli import main
from graphflow.codegen import host_target
from graphflow.cost import CostModel, Timings, TimingTable
from graphflow.distributed import cluster_timing
from graphflow.distributed.cluster_timing import ClusterSite, MachineKind, machine_kinds
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups
from graphflow.models import ModelBuilder
from graphflow.tuning import tune, tuner
from graphflow.tuning.end_to_end_timing import compared_plans
from graphflow.tuning.harness import Harness

QUICK = Protocol(blocks=2, idle=0.0, discarded=0.0, measured=1e-5)
OTHER = "broadwell-guest"
"""A processor whose instructions are fewer than those of hosts with AVX-512, and whose caches
differ from those of all others."""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers that are this machine, and one that takes it for another."""
    environments: list[dict[str, str]] = [{}, {}, {"GRAPHFLOW_HOST": OTHER}]
    workers = {
        number: {
            "cls": distributed.Nanny,
            "options": {"nthreads": 1, "env": environment, "silence_logs": logging.ERROR},
        }
        for number, environment in enumerate(environments)
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": ":0"}}
    cluster = distributed.SpecCluster(
        workers=workers, scheduler=scheduler, silence_logs=logging.ERROR
    )
    with cluster, distributed.Client(cluster) as found:
        yield found


@pytest.fixture
def threads() -> Iterator[Any]:
    """Two workers in this process."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


def require_apart(site: ClusterSite) -> int:
    """Jobs of a site never overlap; returns how many workers did them."""

    def job(number: int) -> tuple[float, float, str]:
        with cluster_timing.alone_on_machine():
            began = time.monotonic()
            time.sleep(0.02)
            return began, time.monotonic(), distributed.get_worker().address

    times = sorted(site.results([cluster_timing.Job(job, (k,)) for k in range(8)]))
    assert len(times) == 8
    assert all(end <= begin for (_, end, _), (begin, *_) in pairwise(times))
    return len({address for *_, address in times})


def site_of(client: Any, machines: dict[str, list[str]]) -> ClusterSite:
    return ClusterSite(Harness(host_target(), 1, QUICK), QUICK, client, machines)


def test_a_machine_times_one_thing_at_a_time(threads: Any) -> None:
    """Whether its workers are known to be of one machine, or two clients believe otherwise."""
    one, other = sorted(threads.nthreads())
    require_apart(site_of(threads, {"machine": [one, other]}))
    assert require_apart(site_of(threads, {"machine": [one], "another": [other]})) == 2


def test_the_command_tunes_on_a_cluster(
    threads: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(tuner, "PROTOCOL", QUICK)
    build = ModelBuilder(seed=3)
    build.output(build.relu(build.input("x", (1, 10, 9, 9))))
    onnx.save(build.model(), tmp_path / "net.onnx")
    path = str(tmp_path / "timings.jsonl")
    command = ["tune", str(tmp_path / "net.onnx"), "--threads", "1", "--timings", path]
    assert main([*command, "--dask", threads.scheduler.address]) == 0
    said = capsys.readouterr().out
    assert f"{host_target().name} with 1 threads, machines: 1: " in said and " timings in " in said
    assert TimingTable(path, host_target(), 1).known
    with dask.config.set({"distributed.comm.timeouts.connect": "0.1s"}):
        assert main([*command, "--dask", "tcp://127.0.0.1:1"]) == 1
    assert "there is no scheduler at tcp://127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.slow
def test_tables_of_all_kinds_of_machines_are_merged(client: Any, tmp_path: Path) -> None:
    kinds = machine_kinds(client, "host", 1)
    own = MachineKind(host_target(), 1)
    (addresses,) = kinds[own].values()  # two workers of one machine
    assert len(addresses) == 2 and len(kinds) == 2
    require_apart(site_of(client, kinds[own]))
    build = ModelBuilder(seed=3)
    x = build.relu(build.conv(build.input("x", (1, 10, 9, 9)), 13, 3))
    build.output(build.conv(build.node("MaxPool", [x], kernel_shape=[2, 2]), 10, 1))
    path = tmp_path / "timings.jsonl"
    for kind, machines in kinds.items():
        options = gf.Options(threads=1, workers=0, timings=str(path))
        site = partial(ClusterSite, client=client, machines=machines)
        found = tune(build.model(), target=kind.target, options=options, protocol=QUICK, site=site)
        assert found.timed > 0
        table = TimingTable(path, kind.target, 1)
        assert table.known.keys() >= {*end_to_end(build.model(), kind.target, table)}


def end_to_end(model: onnx.ModelProto, target: Target, table: TimingTable) -> Iterator[str]:
    """The keys of the end-to-end times of a tuned model."""
    graph = fuse_groups(canonicalize(import_model(model)))
    cost = CostModel(target, 1, Timings(table.known))
    yield from compared_plans(graph, cost)


@pytest.mark.slow
def test_a_machine_that_is_lost(threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_timing, "LOOK_INTERVAL", 0.5)

    def job(number: int, seconds: float) -> int:
        time.sleep(seconds)
        return number

    one, other = sorted(threads.nthreads())
    site = site_of(threads, {"one": [one], "other": [other]})
    results = site.results([cluster_timing.Job(job, (k, 0.3)) for k in range(10)])
    found = [next(results)]
    threads.retire_workers([one], close_workers=True)
    found += results
    assert sorted(found) == list(range(10))
    threads.cluster.scale(0)
    while threads.nthreads():
        time.sleep(0.01)
    with pytest.raises(GraphflowError, match="all machines of this kind are lost"):
        list(site.results([cluster_timing.Job(job, (0, 0.0))]))
