"""Tests of runs whose shapes are known: where arrays are copied to and results taken from."""

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import RunError
from support.models.sized_runs import OPTIONS, parsed_model

DOUBLED = """
doubled (float[b, n] x, float[4] z) => (float[b, n] y, float[4] t) {
    y = Add(x, x)
    t = Add(z, z)
}
"""

PICKED = """
picked (float[n, 3] x, int64[k] i) => (float[k, 3] y) { y = Gather <axis = 0> (x, i) }
"""


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def compiled(text: str, **sizes: tuple[int, int]) -> gf.Executable:
    return gf.compile(parsed_model(text), sizes=sizes, options=OPTIONS)


def test_results_of_known_shapes_are_arrays_of_their_own() -> None:
    """Parts of the room, its beginning, and all of it, in any order; none changes later."""
    exe = compiled(DOUBLED, b=(1, 4), n=(0, 8))
    program = exe.specializations[0].program
    assert [t.name for t in program.spec.outputs] == ["y", "t"], "no run copies a size"
    z, kept = rows(4), []
    for shape in ((4, 8), (2, 8), (3, 8), (2, 5), (4, 0), (2, 5), (4, 8), (1, 1)) * 3:
        x = rows(*shape)
        found = exe.run({"x": x, "z": z})
        assert found["y"].shape == shape and list(found) == ["y", "t"]
        kept.append((found, x))
        plain = program.run_plainly({"x": x, "z": z})
        assert plain is not None, "an earlier run had these shapes"
        kept.append((plain, x))
    for found, x in kept:
        np.testing.assert_array_equal(found["y"], 2 * x)
        np.testing.assert_array_equal(found["t"], 2 * z)


def test_small_results_keep_no_room_alive() -> None:
    exe = compiled(DOUBLED, b=(1, 4), n=(1, 8))
    for shape, is_whole in (((4, 8), True), ((2, 8), True), ((1, 8), False), ((4, 4), False)):
        for _ in range(3):
            y = exe.run({"x": rows(*shape), "z": rows(4)})["y"]
            assert (y.base is not None) == is_whole and y.flags.c_contiguous


def test_arrays_that_kernels_cannot_read_are_left_to_run() -> None:
    exe = compiled(DOUBLED, b=(1, 4), n=(1, 8))
    whole, z = rows(4, 16), rows(4)
    for x in (whole[:, ::2], whole[:2, 3:8], rows(8, 4).T, whole[:, :8].astype(">f4")):
        for _ in range(2):
            np.testing.assert_array_equal(exe.run({"x": x, "z": z})["y"], 2 * x)


def test_a_guard_of_a_run_of_known_shapes() -> None:
    exe = compiled(PICKED, n=(1, 6), k=(1, 4))
    x, i = rows(5, 3), np.array([4, 0])
    for _ in range(3):
        np.testing.assert_array_equal(exe.run({"x": x, "i": i})["y"], x[i])
        with pytest.raises(RunError, match="largest index"):
            exe.run({"x": x, "i": i + 1})
