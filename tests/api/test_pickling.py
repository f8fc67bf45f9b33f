"""Tests of pickles of executables: of files, of bytes, across processes, and refusals."""

import copy
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.models import ModelBuilder

X = {"x": np.arange(12, dtype=np.float32).reshape(3, 4) - 5}


def network(rows: int | str = 3) -> onnx.ModelProto:
    build = ModelBuilder(seed=2, name="small")
    x = build.input("x", (rows, 4))
    build.output(build.relu(build.node("MatMul", [x, build.weight(4, 64)])))
    return build.model()


def compiled(rows: int | str = 3) -> gf.Executable:
    return gf.compile(network(rows), options=gf.Options(threads=1, workers=0))


def again(exe: gf.Executable) -> gf.Executable:
    return pickle.loads(pickle.dumps(exe))


def assert_equal_runs(one: gf.Executable, other: gf.Executable) -> None:
    (expected,), (found,) = one.run(X).values(), other.run(X).values()
    np.testing.assert_array_equal(found, expected)


def test_a_compiled_executable_comes_back_as_a_loaded_one() -> None:
    exe = compiled()
    found = again(exe)
    assert_equal_runs(exe, found)
    assert found.report() == exe.report() and found.threads == 1
    with pytest.raises(GraphflowError, match="not the results"):
        _ = found.compiled
    assert_equal_runs(exe, again(found))
    assert_equal_runs(exe, copy.deepcopy(exe))


def test_a_loaded_executable_is_its_path_and_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe, path = compiled(), tmp_path / "small.gfx"
    exe.save(path)
    monkeypatch.chdir(tmp_path)
    loaded = gf.load("small.gfx", threads=1)
    data = pickle.dumps(loaded)
    assert len(data) < 1000 and str(path).encode() in data
    other = tmp_path / "elsewhere"
    other.mkdir()
    monkeypatch.chdir(other)
    assert_equal_runs(exe, pickle.loads(data))
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).threads)"
    done = subprocess.run([sys.executable, "-P", "-c", code], input=data, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"1\n"), done.stderr


def test_another_file_under_the_path_is_refused(tmp_path: Path) -> None:
    path, copied = tmp_path / "small.gfx", tmp_path / "copy.gfx"
    compiled().save(path)
    shutil.copy(path, copied)
    loaded = gf.load(path, threads=1)
    data = pickle.dumps(loaded)
    compiled(rows=7).save(path)
    with pytest.raises(InvalidModel, match="another file than the one that is wanted"):
        pickle.loads(data)
    with pytest.raises(InvalidModel, match="was written to since"):
        pickle.dumps(loaded)
    os.replace(copied, path)
    assert_equal_runs(loaded, pickle.loads(data))  # equal bytes are the same model
    path.unlink()
    with pytest.raises(InvalidModel, match="cannot be read"):
        pickle.dumps(loaded)
    with pytest.raises(InvalidModel, match=r"small\.gfx"):
        pickle.loads(data)


def test_programs_for_several_shapes_are_kept(tmp_path: Path) -> None:
    exe = compiled(rows="n")
    with pytest.raises(InvalidModel, match="nothing has been compiled"):
        pickle.dumps(exe)
    exe.precompile([{"x": (3, 4)}, {"x": (5, 4)}])
    found = again(exe)
    assert [one.inputs for one in found.specializations] == [
        one.inputs for one in exe.specializations
    ]
    assert_equal_runs(exe, found)
    exe.save(tmp_path / "open.gfx")
    _, one = gf.load(tmp_path / "open.gfx").specializations  # the latest run had three rows
    assert_equal_runs(exe, again(one))
