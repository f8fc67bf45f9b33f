"""Tests of samples: what files and arrays are taken as, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from graphflow.base.errors import InvalidModel
from graphflow.program import OpenTensor
from graphflow.quantization import samples_of

IMAGE = OpenTensor("x", "float32", (2, 3, 4))
FREE = OpenTensor("x", "float32", ("batch", 3, "width"))
TEXT = (OpenTensor("ids", "int64", (1, "n")), OpenTensor("mask", "int64", (1, "n")))


def array(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_an_array_is_cut_into_the_runs_that_a_fixed_first_extent_makes(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", array(6, 3, 4))
    np.save(tmp_path / "a.npy", -array(2, 3, 4))
    (tmp_path / "notes.txt").write_text("no array")
    found = samples_of(tmp_path, [IMAGE], 100, 0)
    assert [sample["x"].shape for sample in found] == [(2, 3, 4)] * 4
    np.testing.assert_array_equal(found[0]["x"], -array(2, 3, 4))
    np.testing.assert_array_equal(found[2]["x"], array(6, 3, 4)[2:4])
    assert samples_of([tmp_path / "b.npy"], [FREE], 100, 0)[0]["x"].shape == (6, 3, 4)


def test_files_have_an_array_for_each_input(tmp_path: Path) -> None:
    for n in (5, 3):
        ids = np.ones((2, n), np.int64)
        np.savez(tmp_path / f"{n}.npz", ids=ids, mask=ids)
    found = samples_of(str(tmp_path), TEXT, 100, 0)
    assert [sample["ids"].shape for sample in found] == [(1, 3), (1, 3), (1, 5), (1, 5)]


def test_a_seed_chooses_samples_where_there_are_more() -> None:
    data = [{"x": array(2, 3, 4) + k} for k in range(20)]
    firsts = [
        [float(sample["x"].flat[0]) for sample in samples_of(data, [IMAGE], 4, seed)]
        for seed in (0, 0, 1)
    ]
    assert firsts[0] == firsts[1] != firsts[2] and len(firsts[0]) == 4
    whole = np.concatenate([sample["x"] for sample in data])
    of_one = [float(s["x"].flat[0]) for s in samples_of([{"x": whole}], [IMAGE], 4, 0)]
    assert of_one == firsts[0], "an array is chosen from all over, and not from its beginning"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": array(2, 3, 4)}, "has the arrays y, and the network takes x"),
        ({"x": array(2, 3, 4).astype(np.float64)}, "x as float64, and the network takes float32"),
        ({"x": array(2, 3, 5)}, r"the shape \[2, 3, 5\], which does not fit x: float32\[2, 3, 4\]"),
        ({"x": array(3, 3, 4)}, "does not fit"),
        ({"x": array(0, 3, 4)}, "does not fit"),
        ({"x": array(2, 3)}, "does not fit"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(given: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        samples_of([given], [IMAGE], 100, 0)


def test_files_that_are_no_samples_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array(2, 3, 4))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no archive")
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.csv").write_text("1,2")
    for path, inputs, message in (
        (tmp_path / "empty", [IMAGE], "has no file .npy or .npz"),
        (tmp_path / "broken.npz", [IMAGE], "cannot read .*broken.npz"),
        (tmp_path / "missing.npy", [IMAGE], "no file or folder .*missing.npy"),
        (tmp_path / "x.csv", [IMAGE], "x.csv is no array"),
        (tmp_path / "x.npy", TEXT, "has one array, and the network takes ids, mask"),
    ):
        with pytest.raises(InvalidModel, match=message):
            samples_of(path, inputs, 100, 0)
    with pytest.raises(InvalidModel, match="no samples"):
        samples_of([], [IMAGE], 100, 0)
    uneven = {"ids": np.ones((2, 3), np.int64), "mask": np.ones((3, 3), np.int64)}
    with pytest.raises(InvalidModel, match="different numbers of runs: ids for 2, mask for 3"):
        samples_of([uneven], TEXT, 100, 0)
