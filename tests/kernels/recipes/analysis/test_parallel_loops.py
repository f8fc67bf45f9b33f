"""Tests of the iterations that threads could share of a definition."""

import pytest

from graphflow.kernels.recipes.analysis.parallel_loops import shareable_iterations
from graphflow.tir import PrimFunc, parse

ROWS = """
@primfunc
def kernel(x: f32[6, 8], y: out[f32[6, 8]]):
    for i in serial(0, 6):
        for j in serial(0, 8):
            y[i, j] = x[i, j]
"""


def kernel(*replaced: tuple[str, str]) -> PrimFunc:
    """`ROWS` with these replacements."""
    text = ROWS
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def test_the_iterations_of_the_outermost_loop_are_shared() -> None:
    assert shareable_iterations(kernel()) == 6
    one_plane = ("for i in serial(0, 6):", "for i in serial(0, 1):")
    assert shareable_iterations(kernel(one_plane)) == 8


@pytest.mark.parametrize(
    "replaced",
    [
        ("y[i, j] = x[i, j]", "y[0, j] = x[i, j]"),
        (
            "        for j in serial(0, 8):\n            y[i, j] = x[i, j]",
            "        if data(index(i, i64) == i64(3)):\n            y[0, 0] = x[i, 0]",
        ),
        ("    for i in", "    y[0, 0] = f32(0.0)\n    for i in"),
    ],
    ids=["one row is written", "a matched loop", "another statement"],
)
def test_one_thread_runs_what_is_no_single_independent_nest(replaced: tuple[str, str]) -> None:
    assert shareable_iterations(kernel(replaced)) == 1
