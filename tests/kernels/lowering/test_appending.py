"""Tests of kernels for an input and an output that are one memory."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.kernels.definitions.data_dependent.compaction import joined_slices
from graphflow.kernels.lowering import Repeated, appending, repeats, writes_behind

XY = Repeated("x", "y")


def kernel(*body: str) -> tir.PrimFunc:
    lines = "".join(f"    {line}\n" for line in body)
    text = f"@primfunc\ndef f(x: f32[6, 4], z: f32[6, 4], y: out[f32[6, 4]]):\n{lines}"
    return tir.parse(text)


COPY = ("for i in serial(0, 6):", "    for j in serial(0, 4):", "        y[i, j] = x[i, j]")
ROW = ("for k in serial(0, 4):", "    y[5, k] = z[0, k]")


def run(func: tir.PrimFunc, one_memory: bool) -> np.ndarray:
    """y after the kernel; in one memory with x, it holds x before."""
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((6, 4)).astype(np.float32) for _ in range(2))
    if not one_memory:
        return tir.interpret(func, {"x": x, "z": z})["y"]
    roles = {"y": tir.Role.INOUT}
    params = tuple(replace(p, role=roles.get(p.buffer.name, p.role)) for p in func.params)
    return tir.interpret(replace(func, params=params), {"x": x, "z": z, "y": x.copy()})["y"]


def test_what_repeats_the_input_is_left_out() -> None:
    func = kernel(*COPY, *ROW)
    made = appending(func, XY)
    assert not any(load.buffer.name == "x" for load in tir.loads_in(made.body))
    assert len(list(tir.loops_of(made.body))) == 1
    np.testing.assert_array_equal(run(made, one_memory=True), run(func, one_memory=False))


def test_a_kernel_repeats_what_it_stores_at_its_own_indices() -> None:
    assert repeats(kernel(*COPY, *ROW), XY)
    assert not repeats(kernel(*ROW), XY)
    assert not repeats(kernel("y[0, 0] = x[1, 0]"), XY)


def test_parallel_iterations_are_looked_at_alone() -> None:
    func = kernel(
        "for i in parallel(0, 6):",
        "    for j in serial(0, 4):",
        "        y[i, j] = x[i, j]",
        "    y[i, 0] = z[i, 0]",
    )
    np.testing.assert_array_equal(
        run(appending(func, XY), one_memory=True), run(func, one_memory=False)
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ((*ROW, *COPY), "may write y before it repeats x"),
        (
            ("for i in serial(0, 6):", "    y[5 - i, 0] = z[i, 0]", "    y[i, 0] = x[i, 0]"),
            "may write y before it repeats x",
        ),
        ((*COPY, "y[0, 0] = x[1, 0] + z[0, 0]"), "does not only repeat elements of x"),
        ((*COPY, "y[0, 0] = x[1, 0]"), "does not only repeat elements of x"),
        ((*COPY, "y[0, 0] = y[1, 0]"), "reads y besides writing it"),
    ],
)
def test_a_kernel_that_may_differ_is_refused(body: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        appending(kernel(*body), XY)


def test_joined_rows_stand_behind_those_that_are_there() -> None:
    func, first = joined_slices([(2, 6, 4), (2, 3, 4)], 1, 9), Repeated("x0", "y")
    made = appending(func, first)
    assert writes_behind(made, first, 1, "count0", ["count0"])
    assert not writes_behind(func, first, 1, "count0", ["count0"])  # it repeats rows from 0 on
    assert not writes_behind(made, first, 0, "count0", ["count0"])
    assert not writes_behind(made, first, 1, "other", ["other"])


def test_rows_behind_two_tensors_are_behind_the_first_if_sizes_are_not_negative() -> None:
    func, first = joined_slices([(9, 4), (3, 4), (2, 4)], 0, 9), Repeated("x0", "y")
    made = appending(func, first)
    assert writes_behind(made, first, 0, "count0", ["count0", "count1"])
    assert not writes_behind(made, first, 0, "count0", ["count0"])
