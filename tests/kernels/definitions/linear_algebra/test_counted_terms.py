"""Tests of sums of products that end at a count: what is rewritten, and that it gives the same."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.kernels.definitions.linear_algebra.counted_terms import with_counted_terms

SUMS = """
@primfunc
def sums(e: f32[3, 5], count: i64[()], v: f32[5, 4], y: out[f32[3, 4]]):
    p = alloc(f32[3, 5])
    with block("weights"):
        for a in serial(0, 3):
            for b in serial(0, 5):
                p[a, b] = select(data(index(b, i64) < count[()]), exp(e[a, b]), f32(0.0))
    with block("sums"):
        for i in serial(0, 3):
            for c in serial(0, 4):
                y[i, c] = f32(0.0)
                for j in serial(0, 5):
                    y[i, c] += p[i, j] * v[j, c]
"""

NOT_ZERO = SUMS.replace("exp(e[a, b]), f32(0.0))", "exp(e[a, b]), f32(1.0))")
ANOTHER_AXIS = SUMS.replace("index(b, i64)", "index(a, i64)")
READ_TWICE = SUMS.replace("p[i, j] * v[j, c]", "p[i, j] * v[j, c] + v[j, c]")


def changed(text: str) -> tir.PrimFunc | None:
    func = tir.parse(text.strip())
    _, count, v = func.inputs
    return with_counted_terms(func, v, 0, count)


def test_the_sum_does_not_read_what_stands_behind_the_count() -> None:
    made = changed(SUMS)
    assert made is not None
    rng = np.random.default_rng(0)
    e, v = (rng.standard_normal(s).astype(np.float32) for s in ((3, 5), (5, 4)))
    for count in range(1, 6):
        behind = v.copy()
        behind[count:] = np.nan
        zeroed = np.nan_to_num(behind)
        given = {"e": e, "count": np.array(count, np.int64)}
        expected = tir.interpret(tir.parse(SUMS.strip()), {**given, "v": zeroed})["y"]
        np.testing.assert_array_equal(tir.interpret(made, {**given, "v": behind})["y"], expected)


@pytest.mark.parametrize("text", [NOT_ZERO, ANOTHER_AXIS, READ_TWICE])
def test_other_sums_are_left(text: str) -> None:
    assert changed(text) is None


GIVEN = """
@primfunc
def sums(p: f32[3, 5], v: f32[5, 4], count: i64[()], y: out[f32[3, 4]]):
    with block("sums"):
        for i in serial(0, 3):
            for c in serial(0, 4):
                y[i, c] = f32(0.0)
                for j in serial(0, 5):
                    y[i, c] += p[i, j] * v[j, c]
"""


def test_a_factor_is_an_input_that_is_known_to_be_zero_there() -> None:
    func = tir.parse(GIVEN.strip())
    p, v, count = func.inputs
    assert with_counted_terms(func, v, 0, count) is None
    assert with_counted_terms(func, v, 0, count, {p: (0,)}) is None
    made = with_counted_terms(func, v, 0, count, {p: (1,)})
    assert made is not None
    both = with_counted_terms(made, p, 1, count)
    assert both is made
    assert with_counted_terms(made, p, 0, count) is None
    nan = {"p": np.full((3, 5), np.nan, np.float32), "v": np.full((5, 4), np.nan, np.float32)}
    nan["p"][:, :2], nan["v"][:2] = 2, 3
    found = tir.interpret(made, {**nan, "count": np.array(2, np.int64)})["y"]
    np.testing.assert_array_equal(found, np.full((3, 4), 12, np.float32))
