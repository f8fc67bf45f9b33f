"""Tests of kernels of which an axis is two: what goes with it, and when it stays one."""

import numpy as np
import pytest

from graphflow.graph.repeats.split_axes import split_axis
from graphflow.kernels.definitions.linear_algebra.linear import matmul
from graphflow.tir import interpret, parse

KERNEL = """
@primfunc
def kernel(x: f32[6, 5], c: f32[5], y: out[f32[6, 5]]):
    largest = alloc(f32[6])
    for i in serial(0, 6):
        largest[i] = f32(-inf)
        for r in serial(0, 5):
            reduce_max(largest[i], x[i, r])
    for a in serial(0, 6):
        for b in serial(0, 5):
            y[a, b] = x[a, b] - largest[a] * c[b]
"""


def test_all_that_the_loops_index_is_split() -> None:
    func = parse(KERNEL)
    kernel = split_axis(func, func.param("x"), 0, 3)
    assert kernel is not None
    assert [b.shape for b in kernel.func.inputs] == [(2, 3, 5), (5,)]
    assert {b.name: axis for b, axis in kernel.axes.items()} == {"x": 0, "largest": 0, "y": 0}
    x, c = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32), np.ones(5, np.float32)
    want = interpret(func, {"x": x, "c": c})["y"]
    found = interpret(kernel.func, {"x": x.reshape(2, 3, 5), "c": c})["y"]
    np.testing.assert_array_equal(found.reshape(6, 5), want)


def test_a_reduced_axis_is_split_in_its_order() -> None:
    func = matmul((2, 6), (6, 4))
    kernel = split_axis(func, func.inputs[1], 0, 2)
    assert kernel is not None
    assert [b.shape for b in kernel.func.inputs] == [(2, 3, 2), (3, 2, 4)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[a, b] -", "x[5 - a, b] -"),
        ("x[a, b] -", "index(a, f32) * x[a, b] -"),
        ("for a in serial(0, 6)", "for a in serial(1, 6)"),
        ("x[a, b] -", "x[0, b] -"),
        ("largest[a] * c[b]", "select(a < 3, largest[a], c[b])"),
    ],
)
def test_an_axis_with_another_use_stays(old: str, new: str) -> None:
    assert old in KERNEL
    func = parse(KERNEL.replace(old, new))
    assert split_axis(func, func.param("x"), 0, 3) is None


def test_neighbours_have_to_divide_the_axis() -> None:
    func = parse(KERNEL)
    assert split_axis(func, func.param("x"), 0, 4) is None
