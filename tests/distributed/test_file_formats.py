"""Tests of what a model takes from files of arrays and tables, and of what it writes."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.distributed import portable_model
from graphflow.distributed.file_formats import mapped_content
from graphflow.distributed.portable_model import PortableModel
from graphflow.models import ModelBuilder

IMAGES = np.random.default_rng(1).standard_normal((11, 2, 3)).astype(np.float32)
FLAT = IMAGES.reshape(11, 6)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PortableModel:
    build = ModelBuilder(seed=2)
    x = build.input("x", ("batch", 2, 3))
    y = build.node("MatMul", [x, build.weight(3, 5)], ["y"])
    build.output(y, build.node("ReduceMax", [y], ["top"], keepdims=0, axes=[1, 2]))
    path = tmp_path_factory.mktemp("saved") / "net.gfx"
    options = gf.Options(threads=1, workers=0)
    gf.compile(build.model(), sizes={"batch": (1, 4)}, options=options).save(path)
    return portable_model(path)


def arrays_of(model: PortableModel) -> dict[str, Any]:
    written = io.BytesIO()
    np.save(written, IMAGES)
    with np.load(io.BytesIO(mapped_content(model, ".npy", written.getvalue(), None))) as found:
        return dict(found)


def table_of(columns: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written, row_group_size=4)
    return written.getvalue()


COLUMNS = {
    "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(IMAGES),
    "fixed lists": pa.FixedSizeListArray.from_arrays(pa.array(FLAT.reshape(-1)), 6),
    "lists": pa.array(list(FLAT)),
    "lists of doubles": pa.array([row.tolist() for row in FLAT]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_table_of_rows(kind: str, model: PortableModel) -> None:
    names = [f"{k}.png" for k in range(11)]
    content = mapped_content(model, ".parquet", table_of({"x": COLUMNS[kind], "name": names}), None)
    found, expected = pq.read_table(io.BytesIO(content)), arrays_of(model)
    assert found.column_names == ["name", "y", "top"] and found["name"].to_pylist() == names
    y = found["y"].combine_chunks().to_numpy_ndarray()
    assert y.shape == (11, 2, 5)
    np.testing.assert_allclose(y, expected["y"], rtol=1e-6)
    np.testing.assert_allclose(found["top"].to_numpy(), expected["top"], rtol=1e-6)


def test_a_table_of_numbers_and_one_without_rows(model: PortableModel) -> None:
    numbers = {f"c{k}": FLAT[:, k].astype(np.float64) for k in range(6)}
    content = mapped_content(model, ".parquet", table_of({"id": range(11), **numbers}), [*numbers])
    found = pq.read_table(io.BytesIO(content))
    assert found.column_names == ["id", "y", "top"]
    y = found["y"].combine_chunks().to_numpy_ndarray()
    np.testing.assert_allclose(y, arrays_of(model)["y"], rtol=1e-6)
    empty = table_of({"x": COLUMNS["tensors"][:0]})
    found = pq.read_table(io.BytesIO(mapped_content(model, ".parquet", empty, None)))
    assert (found.column_names, found.num_rows) == (["y", "top"], 0)


def test_files_that_do_not_fit(model: PortableModel) -> None:
    missing = pa.array([[1.0] * 6, None])
    wrong: list[tuple[str, bytes, list[str] | None, type[Exception], str]] = [
        (".parquet", table_of({"x": missing}), None, InvalidModel, "x has 1 missing values"),
        (".parquet", table_of({"x": [[1.0], [1.0, 2.0]]}), None, InvalidModel, "1 to 2 numbers"),
        (".parquet", table_of({"x": ["a"] * 2}), None, InvalidModel, "x"),
        (".parquet", table_of({"a": [1.0], "b": [1.0]}), None, InvalidModel, "no column is named"),
        (".parquet", b"no table", None, ValueError, "Parquet"),
        (".npy", b"no array", None, ValueError, "pickled"),
        (".npy", b"no array", ["x"], InvalidModel, "a file .npy has no columns"),
        (".png", b"no array", None, InvalidModel, "it is no array; give files .npy"),
    ]
    for suffix, content, columns, error, message in wrong:
        with pytest.raises(error, match=message):
            mapped_content(model, suffix, content, columns)
