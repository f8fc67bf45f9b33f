"""Tests of a model as a callable class over batches of columns, without any engine."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.distributed import BatchModel, portable_model
from graphflow.models import ModelBuilder

OPTIONS = gf.Options(threads=1, workers=0)
IMAGES = np.random.default_rng(1).standard_normal((11, 2, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of images with 2 to 4 rows in a run."""
    build = ModelBuilder(seed=2)
    x = build.input("x", ("batch", 2, 3))
    build.output(build.node("MatMul", [x, build.weight(3, 5)], ["y"]), build.relu(x))
    path = tmp_path_factory.mktemp("saved") / "net.gfx"
    gf.compile(build.model(), sizes={"batch": (2, 4)}, options=OPTIONS).save(path)
    return path


def expected(saved: Path, images: np.ndarray[Any, Any] = IMAGES) -> np.ndarray[Any, Any]:
    exe = gf.load(saved)
    return np.concatenate([exe.run({"x": np.stack([row, row])})["y"][:1] for row in images])


def as_lists(rows: Sequence[Any] | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows as cells of a column of objects."""
    found = np.empty(len(rows), dtype=object)
    found[:] = list(rows)
    return found


@pytest.mark.parametrize("count", [0, 1, 4, 9, 11])
def test_outputs_stand_beside_other_columns(count: int, saved: Path) -> None:
    names = np.array([f"{k}.png" for k in range(count)], dtype=object)
    found = BatchModel(saved)({"name": names, "x": IMAGES[:count]})
    assert list(found) == ["name", "y", "relu_1"] and found["name"] is names
    assert found["y"].shape == (count, 2, 5)
    if count:
        np.testing.assert_allclose(found["y"], expected(saved)[:count], rtol=1e-5, atol=1e-6)


def test_the_input_is_a_column_of_its_name_or_the_only_one_or_those_named(saved: Path) -> None:
    model, flat = portable_model(saved), IMAGES.reshape(11, 6)
    numbers = {f"c{k}": flat[:, k].astype(np.float64) for k in range(6)}
    for batch, columns in (
        ({"image": IMAGES}, None),
        ({"image": flat}, None),
        ({"image": as_lists(flat)}, None),
        ({"image": flat, "other": flat}, ["image"]),
        (numbers, [f"c{k}" for k in range(6)]),
    ):
        found = BatchModel(model, columns, output="y")(batch)
        assert set(found) == {"y"} | set(batch) - {"image", *numbers}
        np.testing.assert_allclose(found["y"], expected(saved), rtol=1e-5, atol=1e-6)


def test_batches_that_do_not_fit(saved: Path) -> None:
    wrong: list[tuple[dict[str, Any], list[str] | None, str]] = [
        ({"a": IMAGES, "b": IMAGES}, None, "no column is named as the input x; the columns are a"),
        ({"a": IMAGES}, ["z"], "no column 'z'; there are a"),
        ({"x": IMAGES, "y": IMAGES}, None, "the column y has the name of an output"),
        ({"x": IMAGES + 1j}, None, "input x is float32, and its columns are complex"),
        ({"a": IMAGES, "b": IMAGES}, ["a", "b"], "have one number in each row"),
        ({"x": IMAGES[:, :1]}, None, "x"),
        ({"x": as_lists([np.ones(3), np.ones(2)])}, None, "the cells of its column differ"),
    ]
    for batch, columns, message in wrong:
        with pytest.raises(InvalidModel, match=message):
            BatchModel(saved, columns)(batch)
    with pytest.raises(InvalidModel, match="no output 'z'; the outputs are y, relu_1"):
        BatchModel(saved, output="z")


def test_no_engine_is_imported(saved: Path) -> None:
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from graphflow.distributed import BatchModel\n"
        f"BatchModel({str(saved)!r})({{'x': np.ones((3, 2, 3), np.float32)}})\n"
        "print({'dask', 'distributed', 'fsspec', 'pandas', 'pyarrow', 'ray'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr
