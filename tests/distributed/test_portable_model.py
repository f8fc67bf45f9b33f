"""Tests of models as they travel: which program a worker takes, and that it makes it once."""

from __future__ import annotations

import pickle
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import CodegenError, GraphflowError, InvalidModel
from graphflow.distributed.portable_model import portable_model, worker_model
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
