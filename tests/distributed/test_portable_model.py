"""Tests of models as they travel: which program a worker takes, that it makes it once, and that
workers of different processors agree."""

import logging
import pickle
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import CodegenError, GraphflowError, InvalidModel
from graphflow.base.fields import replace
from graphflow.codegen import avx2_target, host_target
from graphflow.distributed.file_map import map_files
from graphflow.distributed.file_stores import found_files
from graphflow.distributed.map_manifest import read_manifest
from graphflow.distributed.portable_model import PortableModel, portable_model, worker_model
from graphflow.models import ModelBuilder

SIZES = {"batch": (1, 4)}
X = np.arange(12, dtype=np.float32).reshape(2, 6) - 5


def network() -> onnx.ModelProto:
    build = ModelBuilder(seed=2)
    build.output(build.node("MatMul", [build.input("x", ("batch", 6)), build.weight(6, 3)], ["y"]))
    return build.model()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The saved model and the ONNX model."""
    folder = tmp_path_factory.mktemp("models")
    onnx.save(network(), folder / "net.onnx")
    exe = gf.compile(network(), sizes=SIZES, options=gf.Options(threads=1, workers=0))
    exe.save(folder / "net.gfx")
    return folder / "net.gfx", folder / "net.onnx"


def test_a_worker_makes_a_model_once(files: tuple[Path, Path]) -> None:
    model = portable_model(files[0])
    known = worker_model(model)
    assert worker_model(pickle.loads(pickle.dumps(model))) is known
    assert (known.rows.most, known.exe.threads) == (4, 1)
    np.testing.assert_array_equal(known.exe(X), gf.load(files[0])(X))


def test_a_worker_compiles_where_no_program_fits(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CodegenError("this processor has no amx")

    expected = gf.load(files[0])(X)
    module = import_module("graphflow.distributed.portable_model")  # its function has its name
    monkeypatch.setattr(module, "load", refuse)
    known = worker_model(portable_model(*files, sizes=SIZES))
    assert known.rows.most == 4
    np.testing.assert_allclose(known.exe(X), expected, rtol=1e-6)
    with pytest.raises(CodegenError, match=r"no amx; give the ONNX model"):
        worker_model(replace(portable_model(files[0]), digest="another"))


def test_the_digest_is_that_of_all(files: tuple[Path, Path]) -> None:
    digests = {
        portable_model(*given, sizes=sizes).digest
        for given in (files[:1], files[1:], files)
        for sizes in (None, SIZES)
    }
    assert len(digests) == 6


def test_files_that_are_refused(files: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidModel, match="cannot read the model none"):
        portable_model("none")
    with pytest.raises(GraphflowError, match="2 ONNX models"):
        portable_model(files[1], files[1])
    with pytest.raises(GraphflowError, match="0 ONNX models are given, and 0 saved"):
        portable_model()


def test_models_that_are_not_in_use_are_let_go(files: tuple[Path, Path]) -> None:
    model = portable_model(files[0])
    first = worker_model(model)
    assert worker_model(replace(model, threads=2)) is not first  # of other threads, another one
    for number in range(4):
        worker_model(replace(model, digest=f"another {number}"))
    assert worker_model(model) is not first


# Mixed processors ---------------------------------------------------------------------------------

OTHER = "broadwell-guest"
"""A processor without AVX-512, with caches of its own."""


@pytest.fixture(scope="module")
def mixed() -> Iterator[Any]:
    """A cluster of a worker of this processor, and one that takes it for another one."""
    workers = {
        number: {
            "cls": distributed.Nanny,
            "options": {"nthreads": 1, "env": environment, "silence_logs": logging.ERROR},
        }
        for number, environment in enumerate([{"GRAPHFLOW_HOST": ""}, {"GRAPHFLOW_HOST": OTHER}])
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": ":0"}}
    cluster = distributed.SpecCluster(
        workers=workers, scheduler=scheduler, silence_logs=logging.ERROR
    )
    with cluster, distributed.Client(cluster) as found:
        yield found


def deep_network() -> onnx.ModelProto:
    """Convolutions and long sums, of which each processor has its own order."""
    build = ModelBuilder(seed=5)
    x = build.relu(build.conv(build.input("x", ("batch", 7, 12, 12)), 24, 3, pads=[1, 1, 1, 1]))
    x = build.node("Flatten", [build.relu(build.conv(x, 16, 3))])
    build.output(build.node("MatMul", [x, build.weight(1600, 9, scale=0.02)], ["y"]))
    return build.model()


def require_agreement(
    client: Any, model: PortableModel, folder: Path, described: Callable[[], str]
) -> None:
    """Each worker has a program of its own, both do files, and all agree with one executable."""
    (folder / "in").mkdir()
    rng = np.random.default_rng(7)
    for k in range(24):
        images = rng.standard_normal((3, 7, 12, 12)).astype(np.float32)
        np.save(folder / "in" / f"{k:02}.npy", images)
    inputs = found_files(f"{folder}/in/*.npy")
    assert map_files(client, model, inputs, str(folder / "out")).done == 24
    assert len(set(client.run(described).values())) == 2
    exe, records = gf.compile(deep_network(), sizes=SIZES), read_manifest(str(folder / "out"))
    for name in inputs:
        expected = exe.run({"x": np.load(name)})["y"]
        for arrays in (np.load(records[name].output), *both(client, model, name)):
            # The tolerance that docs/distribute.md states.
            assert np.abs(arrays["y"] - expected).max() <= 1e-5 * np.abs(expected).max()


def both(client: Any, model: PortableModel, name: str) -> list[dict[str, Any]]:
    """The outputs of both workers for one file."""

    def outputs() -> dict[str, Any]:
        return {"y": worker_model(model).exe.run({"x": np.load(name)})["y"]}

    return [*client.run(outputs).values()] if name.endswith("00.npy") else []


@pytest.mark.slow
def test_workers_compile_for_their_own_processors(mixed: Any, tmp_path: Path) -> None:
    onnx.save(deep_network(), tmp_path / "net.onnx")
    model = portable_model(tmp_path / "net.onnx", sizes=SIZES)

    def target() -> str:
        return str(worker_model(model).exe.specializations[0].report()["target"])

    require_agreement(mixed, model, tmp_path, target)


@pytest.mark.slow
def test_workers_take_the_program_that_fits(mixed: Any, tmp_path: Path) -> None:
    if host_target().name.endswith("avx2"):
        pytest.skip("this processor is the lesser one")
    paths = []
    for target in (host_target(), avx2_target()):
        paths.append(tmp_path / f"{target.name}.gfx")
        gf.compile(deep_network(), sizes=SIZES, target=target).save(paths[-1])
    model = portable_model(*paths)

    def lose_avx512() -> None:
        module = import_module("graphflow.runtime.processor")
        features = frozenset(name for name in module.host_features() if "512" not in name)
        module.host_features = lambda: features

    def target() -> str:
        return str(worker_model(model).exe.specializations[0].report()["target"])

    mixed.run(lose_avx512, workers=[sorted(mixed.nthreads())[0]])
    require_agreement(mixed, model, tmp_path, target)
