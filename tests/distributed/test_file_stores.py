"""Tests of files in stores that fsspec knows, and of runs over them."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import fsspec
import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError
from graphflow.distributed import map_manifest, portable_model
from graphflow.distributed.file_map import map_files
from graphflow.distributed.file_stores import found_files, in_folder, put_file, read_file
from graphflow.distributed.map_manifest import open_manifest, read_manifest
from graphflow.distributed.mapped_file import FileRecord
from graphflow.models import ModelBuilder

STORE = "memory://graphflow-test"


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    yield
    memory = fsspec.filesystem("memory")
    if memory.exists("/graphflow-test"):
        memory.rm("/graphflow-test", recursive=True)


@pytest.fixture
def client() -> Iterator[Any]:
    """Workers in this process: no other one sees what it has in memory."""
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as found:
        yield found


def npy(array: Any) -> bytes:
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


def test_a_run_over_a_store_and_another_one(client: Any, tmp_path: Path) -> None:
    build = ModelBuilder(seed=2)
    x = build.input("x", ("batch", 6))
    build.output(build.node("MatMul", [x, build.weight(6, 3)], ["y"]))
    exe = gf.compile(
        build.model(), sizes={"batch": (1, 4)}, options=gf.Options(threads=1, workers=0)
    )
    exe.save(tmp_path / "net.gfx")
    model = portable_model(tmp_path / "net.gfx")
    for k in range(6):
        put_file(f"{STORE}/in/{k}.npy", npy(np.full((2, 6), k, np.float32)))
    inputs = found_files(f"{STORE}/in/*.npy")
    assert [name.rpartition("/")[2] for name in inputs] == [f"{k}.npy" for k in range(6)]
    assert map_files(client, model, inputs[:4], f"{STORE}/out").done == 4
    put_file(f"{STORE}/out/1.npz", b"damaged")
    put_file(inputs[5], b"no array")
    outcome = map_files(client, model, inputs, f"{STORE}/out")
    assert (outcome.done, outcome.before) == (2, 3)
    assert [record.input for record in outcome.failed] == inputs[5:]
    records = read_manifest(f"{STORE}/out")
    assert sorted(records) == sorted(inputs)
    for k, name in enumerate(inputs[:5]):
        with np.load(io.BytesIO(read_file(records[name].output))) as found:
            np.testing.assert_array_equal(found["y"], exe(np.full((2, 6), k, np.float32)))


def test_the_manifest_of_a_store_is_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_manifest, "PART_INTERVAL", 0.0)
    for text in ("", "it failed"):
        with open_manifest(STORE) as manifest:
            manifest.add(FileRecord("a", "A", "m", error=text))
            manifest.add(FileRecord("b", "B", "m"))
    assert len(found_files(f"{STORE}/manifest-*.jsonl")) == 4
    found = read_manifest(STORE)
    assert (found["a"].error, found["b"].error) == ("it failed", "")
    with pytest.raises(RuntimeError), open_manifest(STORE) as manifest:
        manifest.add(FileRecord("c", "C", "m"))
        raise RuntimeError
    assert "c" in read_manifest(STORE)
    assert read_manifest(f"{STORE}/other") == {}


def test_a_manifest_on_a_disk_goes_on_behind_a_line_that_was_cut_off(tmp_path: Path) -> None:
    with open_manifest(str(tmp_path)) as manifest:
        manifest.add(FileRecord("a", "A", "m"))
        assert "a" in read_manifest(str(tmp_path))
    path = tmp_path / map_manifest.MANIFEST
    path.write_bytes(path.read_bytes() + b'{"input": "of a killed pro')
    with open_manifest(str(tmp_path)) as manifest:
        manifest.add(FileRecord("b", "B", "m"))
    assert sorted(read_manifest(str(tmp_path))) == ["a", "b"]


def test_a_url_of_a_disk_is_a_path(tmp_path: Path) -> None:
    put_file(f"file://{tmp_path}/new/a.npy", b"content")
    assert found_files(f"file://{tmp_path}/new/*") == [f"{tmp_path}/new/a.npy"]
    assert in_folder(f"file://{tmp_path}/new", "a.npy") == f"{tmp_path}/new/a.npy"
    assert read_file(f"{tmp_path}/new/a.npy") == b"content"


def test_stores_that_are_not_there() -> None:
    with pytest.raises(GraphflowError, match="cannot reach nowhere"):
        found_files("nowhere://bucket/*.npy")
    with pytest.raises(GraphflowError, match="no file is named as memory"):
        found_files(f"{STORE}/none/*.npy")
