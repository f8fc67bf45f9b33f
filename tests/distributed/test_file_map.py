"""Tests of files through a model on a real cluster: results, failures, runs that go on, and workers
and schedulers that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace
from graphflow.cli import main
from graphflow.distributed import file_map
from graphflow.distributed.file_map import map_files, mapped_names
from graphflow.distributed.file_stores import found_files
from graphflow.distributed.map_manifest import MANIFEST, read_manifest
from graphflow.distributed.mapped_file import FileTask, MappedFile, map_file
from graphflow.distributed.portable_model import PortableModel, portable_model
from support.serving.saved_models import saved_product

COUNT = 24


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_product(tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def model(saved: Path) -> PortableModel:
    return portable_model(saved)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, distributed.Client(cluster) as found:
        yield found


def write_inputs(folder: Path, count: int = COUNT) -> list[str]:
    folder.mkdir()
    for k in range(count):
        rng = np.random.default_rng(k)
        np.save(folder / f"{k:04}.npy", rng.standard_normal((1 + k % 7, 6)).astype(np.float32))
    return found_files(f"{folder}/*.npy")


def require_all(saved: Path, inputs: list[str], folder: Path) -> None:
    """Every output is there once, whole, and equal to a serial run."""
    exe, records = gf.load(saved), read_manifest(str(folder))
    assert sorted(os.listdir(folder)) == sorted(
        [MANIFEST, *(f"{Path(path).stem}.npz" for path in inputs)]
    )
    for path in inputs:
        record = records[path]
        assert not record.error
        with np.load(record.output) as found:
            serial = [exe.run({"x": row[None]})["y"] for row in np.load(path)]
            np.testing.assert_allclose(found["y"], np.concatenate(serial), rtol=1e-5, atol=1e-6)


def test_a_run_and_another_one(
    client: Any, model: PortableModel, saved: Path, tmp_path: Path
) -> None:
    inputs, out = write_inputs(tmp_path / "in"), tmp_path / "out"
    counted: list[tuple[int, int]] = []
    outcome = map_files(client, model, inputs[:10], str(out), counting=lambda *n: counted.append(n))
    assert (outcome.done, outcome.before, outcome.failed) == (10, 0, [])
    assert counted[-1] == (10, 10)
    (out / "0003.npz").unlink()
    (out / "0004.npz").write_bytes(b"damaged")
    np.save(inputs[5], np.ones((2, 6), np.float32))  # another input under the name
    with open(out / MANIFEST, "a", encoding="utf-8") as manifest:
        manifest.write('{"input": "of a killed pro')
    outcome = map_files(client, model, inputs, str(out))
    assert (outcome.done, outcome.before) == (COUNT - 7, 7)
    require_all(saved, inputs, out)
    assert map_files(client, model, inputs, str(out)).done == 0


def test_inputs_that_fail_stop_nothing(client: Any, model: PortableModel, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "in", 5)
    np.save(inputs[1], np.ones((2, 7), np.float32))
    Path(inputs[2]).write_bytes(b"no array")
    np.save(inputs[3], np.array([{}]), allow_pickle=True)
    outcome = map_files(client, model, inputs, str(tmp_path / "out"))
    assert outcome.done == 2
    assert {record.input for record in outcome.failed} == set(inputs[1:4])
    assert all(record.error for record in outcome.failed)
    np.save(inputs[1], np.ones((2, 6), np.float32))
    outcome = map_files(client, model, inputs, str(tmp_path / "out"))
    assert (outcome.done, outcome.before, len(outcome.failed)) == (1, 2, 2)


@pytest.mark.slow
def test_a_worker_that_is_killed(
    client: Any, model: PortableModel, saved: Path, tmp_path: Path
) -> None:
    inputs, out = write_inputs(tmp_path / "in", 60), tmp_path / "out"
    victim = next(iter(client.run(os.getpid).values()))

    def kill(done: int, _: int) -> None:
        if done == 15:
            os.kill(victim, signal.SIGKILL)

    assert map_files(client, model, inputs, str(out), counting=kill).done == 60
    require_all(saved, inputs, out)


@pytest.mark.slow
def test_a_file_that_workers_die_of(
    model: PortableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed when all others are done, also those that died with it."""
    inputs, poison = write_inputs(tmp_path / "in", 12), "0004"

    def deadly(model: PortableModel, task: FileTask) -> MappedFile:
        if poison in task.input:
            os._exit(1)
        return map_file(model, task)

    monkeypatch.setattr(file_map, "map_file", deadly)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        outcome = map_files(client, model, inputs, str(tmp_path / "out"))
    (failed,) = outcome.failed
    assert (outcome.done, failed.input) == (11, inputs[4])
    assert "workers died again and again" in failed.error


@pytest.mark.slow
def test_a_model_that_no_worker_can_load_ends_the_run(
    client: Any, model: PortableModel, tmp_path: Path
) -> None:
    wrong = replace(model, digest="another", saved=(b"no model",))
    inputs = write_inputs(tmp_path / "in", 5)
    with pytest.raises(GraphflowError):
        map_files(client, wrong, inputs, str(tmp_path / "out"))


def test_two_inputs_of_one_name() -> None:
    with pytest.raises(GraphflowError, match="would both be written to"):
        mapped_names(["/a/x.npy", "/b/x.npz"], "out")
    with pytest.raises(GraphflowError, match=r"would take the place of the input /a/w\.npz"):
        mapped_names(["/a/w.npz", "/a/x.npz"], "/a")
    with pytest.raises(GraphflowError, match="no file is named"):
        found_files("/nowhere/*.npy")


def test_the_command_line(saved: Path, tmp_path: Path, client: Any, capsys: Any) -> None:
    inputs = write_inputs(tmp_path / "in", 3)
    address = client.scheduler.address
    pattern, out = f"{tmp_path}/in/*.npy", str(tmp_path / "out")
    command = ["map", str(saved), "--input", pattern, "--output", out, "--dask", address]
    assert main(command) == 0
    assert capsys.readouterr().out == "3 files done, 0 before, 0 failed\n"
    Path(inputs[0]).write_bytes(b"no array")
    assert main(command) == 1
    captured = capsys.readouterr()
    assert captured.out == "0 files done, 2 before, 1 failed\n" and inputs[0] in captured.err
    assert main(["map", str(saved), "--input", "none", "--output", out]) == 1
    require = [json.loads(line) for line in (tmp_path / "out" / MANIFEST).open()]
    assert len(require) == 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_thousand_images_and_a_scheduler_that_is_killed(saved: Path, tmp_path: Path) -> None:
    """A worker is killed in the middle, then the scheduler; the run is started again."""
    inputs, out = write_inputs(tmp_path / "in", 5000), tmp_path / "out"
    pattern = f"{tmp_path}/in/*.npy"
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER, encoding="utf-8")

    def cluster() -> tuple[subprocess.Popen[str], str, list[int]]:
        process = subprocess.Popen(
            [sys.executable, "-P", str(script)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        address, *workers = process.stdout.readline().split()
        return process, address, [int(pid) for pid in workers]

    def run(address: str) -> subprocess.Popen[str]:
        command = ["map", str(saved), "--input", pattern, "--output", str(out), "--dask", address]
        return subprocess.Popen([sys.executable, "-P", "-m", "graphflow", *command], text=True)

    def done() -> int:
        path = out / MANIFEST
        return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0

    scheduler, address, workers = cluster()
    first = run(address)
    for limit, victim in ((800, workers[0]), (2000, scheduler.pid)):
        while done() < limit:
            assert first.poll() is None
            time.sleep(0.05)
        os.kill(victim, signal.SIGKILL)
    assert first.wait(120) != 0
    before = done()
    assert 2000 <= before < 5000
    scheduler, address, _ = cluster()
    assert run(address).wait(1800) == 0
    scheduler.terminate()
    require_all(saved, inputs, out)


CLUSTER = """
import os
import time

import distributed

if __name__ == "__main__":
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    client = distributed.Client(cluster)
    pids = client.run(os.getpid).values()
    print(cluster.scheduler_address, *pids, flush=True)
    time.sleep(7200)
"""
