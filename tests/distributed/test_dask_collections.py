"""Tests of models over Dask's arrays, bags and data frames: equal to serial runs, whatever the
blocks are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array
import dask.bag
import dask.dataframe
import numpy as np
import pandas as pd
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.distributed import map_batches, portable_model
from graphflow.models import ModelBuilder

OPTIONS = gf.Options(threads=1, workers=0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = ModelBuilder(seed=2)
    x = build.input("x", ("batch", 6))
    build.output(build.node("MatMul", [x, build.weight(6, 3)], ["y"]), build.relu(x))
    path = tmp_path_factory.mktemp("saved") / "net.gfx"
    gf.compile(build.model(), sizes={"batch": (1, 4)}, options=OPTIONS).save(path)
    return path


@pytest.fixture(autouse=True)
def in_this_process() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


ROWS = np.random.default_rng(1).standard_normal((11, 6)).astype(np.float32)


def expected(saved: Path, output: str = "y") -> np.ndarray[Any, Any]:
    exe = gf.load(saved)
    return np.concatenate([exe.run({"x": row[None]})[output] for row in ROWS])


@pytest.mark.parametrize("chunks", [(11, 6), (3, 2), (1, 6), ((5, 0, 6), 6)])
def test_an_array(chunks: Any, saved: Path) -> None:
    found = map_batches(dask.array.from_array(ROWS, chunks), saved)
    assert (found.shape, found.dtype) == ((11, 3), np.float32)
    np.testing.assert_allclose(found.compute(), expected(saved), rtol=1e-5, atol=1e-6)


def test_a_bag(saved: Path) -> None:
    for items in (list(ROWS), [{"x": row} for row in ROWS]):
        found = map_batches(dask.bag.from_sequence(items, npartitions=3), saved)
        np.testing.assert_allclose(np.stack(found.compute()), expected(saved), rtol=1e-5, atol=1e-6)
    assert map_batches(dask.bag.from_sequence([], npartitions=1), saved).compute() == []


def test_a_data_frame_from_parquet_to_parquet(saved: Path, tmp_path: Path) -> None:
    names = list("abcdef")
    frame = pd.DataFrame(ROWS.astype(np.float64), columns=names)
    frame["other"] = "text"
    dask.dataframe.from_pandas(frame, npartitions=3).to_parquet(tmp_path / "in")
    read = dask.dataframe.read_parquet(tmp_path / "in")
    map_batches(read, saved, columns=names).to_parquet(tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out")
    assert list(found.columns) == ["y_0", "y_1", "y_2"] and list(found.index) == list(range(11))
    np.testing.assert_allclose(found.to_numpy(), expected(saved), rtol=1e-5, atol=1e-6)


def test_another_output(saved: Path) -> None:
    array = dask.array.from_array(ROWS, (4, 6))
    found = map_batches(array, portable_model(saved), output="relu_1").compute()
    np.testing.assert_array_equal(found, np.maximum(ROWS, 0))
    with pytest.raises(InvalidModel, match="no output 'z'; the outputs are y, relu_1"):
        map_batches(array, saved, output="z")


def test_what_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not list"):
        map_batches([1], saved)
    build = ModelBuilder(seed=2)
    build.output(build.node("Softmax", [build.input("x", ("batch", 6))], axis=0))
    path = tmp_path / "together.gfx"
    gf.compile(build.model(), sizes={"batch": (1, 4)}, options=OPTIONS).save(path)
    with pytest.raises(InvalidModel, match="cannot be divided among runs: along batch"):
        map_batches(dask.array.from_array(ROWS, (4, 6)), path)
