"""Tests of windows: what is copied in and out, refusals, and traps."""

from __future__ import annotations

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, parallelize_loop, stage_window, vectorize_loop
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
