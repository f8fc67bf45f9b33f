"""Tests of windows: what is copied in and out, refusals, and traps."""

from typing import Any

import pytest

from graphflow.arith import Var
from graphflow.base.errors import ScheduleError
from graphflow.layout import blocked
from graphflow.schedule import (
    Schedule,
    parallelize_loop,
    stage_window,
    transform_layout,
    vectorize_loop,
)
from graphflow.tir import PrimFunc, to_text
from support.schedule_checks import kernel, same

STENCIL = kernel(
    """
for o in serial(0, 4):
    for n in serial(0, 4):
        y[4*o + n] = x[4*o + n]
        if 4*o + n > 0:
            y[4*o + n] += x[4*o + n - 1]
        if 4*o + n < 15:
            y[4*o + n] += x[4*o + n + 1]
"""
)


def test_a_window_has_the_neighbours_and_nothing_outside() -> None:
    s = Schedule.of(STENCIL).apply(stage_window, "o", "x", "t")
    text = same(STENCIL, s)
    assert "t = alloc(i32[6], scratch)" in text
    assert "for t_load_0 in serial(max(0, 4*o - 1), min(15, 4*o + 4) + 1)" in text
    assert (s.names(s.made["load"]), s.made["store"]) == (("t_load_0",), ())


def test_what_is_stored_first_is_not_copied_in() -> None:
    text = same(STENCIL, s := Schedule.of(STENCIL).apply(stage_window, "o", "y", "t"))
    assert s.made["load"] == ()
    assert "y[t_store_0] = t[-4*o + t_store_0]" in text
    same(STENCIL, s.apply(parallelize_loop, "o"))


def test_elements_with_gaps_are_copied_alone() -> None:
    func = kernel(
        """
for o in serial(0, 2):
    for n in serial(0, 4):
        y[8*o + 2*n] = x[8*o + 2*n]
        y[8*o + 2*n + 1] = x[14 - 8*o - 2*n]
"""
    )
    text = same(func, stage_window(func, "n", "x", "t"))
    assert "if " in text


def test_a_reduction_needs_what_was_there() -> None:
    func = kernel(
        "for i in serial(0, 16):\n    y[i] = i32(1)\n"
        "for j in serial(0, 14):\n    y[j] += x[j]\n    y[j + 2] += x[j]"
    )
    s = Schedule.of(func).apply(stage_window, "j", "y", "t")
    same(func, s)
    assert s.made["load"]


def test_a_store_under_a_condition_on_data_keeps_the_others() -> None:
    """A trap: only some elements are stored, and all that may be are copied back."""
    func = kernel(
        "for i in serial(0, 16):\n    y[i] = i32(1)\n"
        "for j in serial(0, 15):\n    if data(x[j] > i32(3)):\n        y[j] = x[j]\n"
        "        y[j + 1] = i32(2)"
    )
    s = Schedule.of(func).apply(stage_window, "j", "y", "t")
    same(func, s)
    assert s.made["load"]


def test_refusals() -> None:
    with pytest.raises(ScheduleError, match="o does not touch z"):
        func = kernel(
            "for o in serial(0, 16):\n    y[o] = x[o]\nfor q in serial(0, 16):\n    z[q] = x[q]",
            "x: i32[16], y: out[i32[16]], z: out[i32[16]]",
        )
        stage_window(func, "o", "z", "t")
    lanes = vectorize_loop(kernel("for o in serial(0, 16):\n    y[o] = x[o]"), "o").func
    with pytest.raises(ScheduleError, match="nothing is allocated in them"):
        stage_window(lanes, "o", "x", "t")
    outside = kernel(
        "for o in serial(0, 16):\n    if data(x[o] > i32(99)):\n        y[o] = x[o + 1]\n"
        "    if data(x[o] <= i32(99)):\n        y[o] = x[o]"
    )
    with pytest.raises(ScheduleError, match="what is copied of x lies inside it does not hold"):
        stage_window(outside, "o", "x", "t")


def staged(func: PrimFunc, *arguments: Any) -> str:
    return same(func, Schedule.of(func).apply(stage_window, *arguments))


o = Var("o")


def test_a_larger_window_is_stated() -> None:
    text = staged(STENCIL, "o", "x", "t", "scratch", [(4 * o - 2, 8)])
    assert "t = alloc(i32[8], scratch)" in text
    assert "for t_load_0 in serial(max(0, 4*o - 2), min(15, 4*o + 5) + 1)" in text, "all of it"
    assert "y[4*o + n] = t[n + 2]" in text
    text = staged(STENCIL, "o", "y", "t", "scratch", [(4 * o - 2, 8)])
    assert "for t_store_0 in serial(4*o, 4*o + 4)" in text, "what is stored alone"


def test_an_axis_of_one_index_is_none_of_the_copy() -> None:
    body = "for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[i, j] = x[i, j]"
    func = kernel(body, "x: i32[4, 4], y: out[i32[4, 4]]")
    assert "t = alloc(i32[4], register)" in staged(
        func, "i", "x", "t", "register", [Var("i"), (0, 4)]
    )
    assert "t = alloc(i32[1, 4], scratch)" in staged(
        func, "i", "x", "t", "scratch", [(Var("i"), 1), (0, 4)]
    )


def test_blocks_and_statements_without_a_name_are_staged() -> None:
    body = 'for i in serial(0, 3):\n    with block("b"):\n        y[i] = x[i]\n    y[i] += x[i + 1]'
    func = kernel(body)
    assert "t_load_0" in staged(func, "b", "x", "t")
    text = staged(func, "i[1]", "y", "t")
    assert text.index("y[i] = x[i]") < text.index("t = alloc(i32[()], scratch)")


def test_a_window_that_is_too_small_is_refused_with_an_index() -> None:
    with pytest.raises(ScheduleError, match=r"window: what o touches of x fits \[4\].*fails at"):
        stage_window(STENCIL, "o", "x", "t", window=[(4 * o, 4)])


def test_a_window_is_stated_over_the_loops_around() -> None:
    with pytest.raises(ScheduleError, match="scope: n is no loop around o"):
        stage_window(STENCIL, "o", "x", "t", window=[(4 * o + Var("n"), 4)])
    with pytest.raises(ScheduleError, match="window: x has 1 axes, the window 2"):
        stage_window(STENCIL, "o", "x", "t", window=[(4 * o, 4), 0])
    with pytest.raises(ScheduleError, match="window: an axis of 0 elements holds nothing"):
        stage_window(STENCIL, "o", "x", "t", window=[(4 * o, 0)])


def test_a_stated_window_does_not_copy_padding_that_nothing_may_touch() -> None:
    """A trap: the window has elements that the statements do not touch."""
    short = kernel("for i in serial(0, 14):\n    y[i] = x[i]", "x: i32[14], y: out[i32[14]]")
    func = Schedule.of(short).apply(transform_layout, "x", blocked((14,), 0, 4), None).func
    at = Var("i") // 4
    with pytest.raises(ScheduleError, match="stays away from forbidden padding does not hold"):
        stage_window(func, "i", "x", "t", window=[at, (0, 4)])
    assert "alloc" in to_text(stage_window(func, "i", "x", "t").func)
