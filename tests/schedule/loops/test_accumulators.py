"""Tests of reductions with several accumulators: where they apply, refusals, and traps."""

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    divide_loop,
    parallelize_loop,
    rfactor,
    simplify,
    vectorize_loop,
)
from graphflow.tir import interpret
from support.schedule_checks import kernel, same

SUM = "y[0] = i32(5)\nfor r in serial(0, 14):\n    y[0] += x[r]"
ONE = "x: i32[16], y: out[i32[1]]"
FLOATS = "x: f32[16], y: out[f32[1]]"


@pytest.mark.parametrize("op", ["y[0] += x[r]", "y[0] *= x[r]", "reduce_max(y[0], x[r])",
                                "reduce_min(y[0], x[r])"])  # fmt: skip
@pytest.mark.parametrize("count", [1, 4, 5, 20])
def test_each_accumulator_takes_some_of_the_terms(op: str, count: int) -> None:
    func = kernel(f"y[0] = i32(5)\nfor r in serial(0, 14):\n    {op}", ONE)
    same(func, rfactor(func, "r", "r", "y", count, "p"))


def test_the_loop_divides_into_vectors_of_accumulators() -> None:
    func = kernel(SUM, ONE)
    s = Schedule.of(func).apply(rfactor, "r", "r", "y", 4, "p")
    s = s.apply(divide_loop, "r", 4, ("ro", "ri"), "cut_and_guard").apply(simplify)
    assert "p[ri] += x[4*ro + ri]" in same(func, s.apply(vectorize_loop, "ri"))


def test_accumulators_outlive_the_outer_loops_of_the_reduction() -> None:
    body = "y[0] = i32(5)\nfor q in serial(0, 3):\n    for r in serial(0, 5):\n"
    func = kernel(body + "        y[0] += x[5*q + r]", ONE)
    text = same(func, rfactor(func, "q", "r", "y", 4, "p"))
    assert text.index("alloc") < text.index("for q")


def test_a_sum_of_nothing_and_of_negative_zeros_keeps_its_sign() -> None:
    func = kernel("y[0] = f32(-0.0)\nfor r in serial(0, 14):\n    y[0] += x[r]", FLOATS)
    done = rfactor(func, "r", "r", "y", 4, "p")
    (got,) = interpret(done.func, {"x": np.full(16, -0.0, np.float32)})["y"]
    assert got == 0
    assert np.signbit(got)


def test_nan_and_infinity_stay() -> None:
    for special in (np.nan, np.inf, -np.inf):
        x = np.arange(16, dtype=np.float32)
        x[9] = special
        for op in ("y[0] += x[r]", "reduce_max(y[0], x[r])"):
            func = kernel(f"y[0] = f32(-inf)\nfor r in serial(0, 14):\n    {op}", FLOATS)
            done = rfactor(func, "r", "r", "y", 4, "p")
            want = interpret(func, {"x": x})["y"]
            np.testing.assert_array_equal(interpret(done.func, {"x": x})["y"], want)


REFUSED = {
    "the element moves": ("for r in serial(0, 14):\n    y[r] += x[r]", "changes the element"),
    "it is stored there too": (
        "for r in serial(0, 14):\n    y[0] = i32(1)\n    y[0] += x[r]", "only reduce into"),
    "it is read there too": (
        "for r in serial(0, 14):\n    y[0] += x[r]\n    y[1] = y[0]", "only reduce into"),
    "two reductions": (
        "for r in serial(0, 14):\n    y[0] += x[r]\n    y[0] *= x[r]", "only reduce into"),
    "a store": ("for r in serial(0, 14):\n    y[0] = x[r]", "only reduce into"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_single_reduction_into_one_element_is_refused(name: str) -> None:
    body, reason = REFUSED[name]
    first = "for z in serial(0, 16):\n    y[z] = i32(0)\n"
    with pytest.raises(ScheduleError, match=reason):
        rfactor(kernel(first + body), "r", "r", "y", 4, "p")


GUARDED = """
for i in serial(0, {rows}):
    for r in serial(0, {terms}):
        if {condition}:
            y[{element}] += x[r]
"""

NOT_TOUCHED = {
    "elements outside the buffer": (20, 4, "i < 16", "i"),
    "iterations without a term": (16, 4, "i != 3", "i"),
    "no iterations": (16, "i", "r >= 0", "i"),
    "the element of another iteration": (16, 4, "i == 3", "0"),
}


@pytest.mark.parametrize("name", NOT_TOUCHED)
def test_an_element_that_the_loop_may_leave_alone_is_refused(name: str) -> None:
    """Adding up has no condition around it, and would touch the element in any case."""
    rows, terms, condition, element = NOT_TOUCHED[name]
    body = GUARDED.format(rows=rows, terms=terms, condition=condition, element=element)
    with pytest.raises(ScheduleError, match="reduces into its element of y wherever it begins"):
        rfactor(kernel(body), "r", "r", "y", 4, "p")


def test_conditions_that_some_iteration_meets_are_harmless() -> None:
    """Also around the loop, and on data: the element may be touched in any case."""
    for condition in ("r >= i - 12", "r % 2 == 1", "data(x[r] > i32(2))"):
        func = kernel(GUARDED.format(rows=16, terms=4, condition=condition, element="i"))
        same(func, rfactor(func, "r", "r", "y", 3, "p"))
    around = "for i in serial(0, 20):\n    if i < 16:\n        for r in serial(0, 4):\n"
    func = kernel(around + "            y[i] += x[r]")
    same(func, rfactor(func, "r", "r", "y", 3, "p"))


def test_threads_add_up_into_elements_of_their_own() -> None:
    """One thread alone meets the condition; all would write the element."""
    body = GUARDED.format(rows=16, terms=4, condition="i == 3", element="0")
    func = parallelize_loop(kernel(body), "i").func
    with pytest.raises(ScheduleError, match="wherever it begins"):
        rfactor(func, "r", "r", "y", 4, "p")


def test_lanes_and_strange_loops_are_refused() -> None:
    func = kernel(SUM, ONE)
    with pytest.raises(ScheduleError, match="run at once"):
        rfactor(vectorize_loop(func, "r").func, "r", "r", "y", 4, "p")
    with pytest.raises(ScheduleError, match="q is not r or a loop in it"):
        rfactor(func, "r", "q", "y", 4, "p")
    with pytest.raises(ScheduleError, match="at least one accumulator"):
        rfactor(func, "r", "r", "y", 0, "p")
    beside = "y[0] = i32(0)\nfor r in serial(0, 4):\n    y[0] += x[r]\n    for q in serial(0, 2):\n"
    func = kernel(beside + "        z[q] = x[q]", ONE + ", z: out[i32[2]]")
    with pytest.raises(ScheduleError, match="q is not around the reduction"):
        rfactor(func, "r", "q", "y", 4, "p")
