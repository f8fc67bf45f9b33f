"""Tests of buffers that each iteration has to itself: where they apply, refusals, and traps."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import parallelize_loop, sink_alloc, vectorize_loop
from graphflow.tir import verify
from support.primitives.primitive_cases import means_the_same
from support.schedule_checks import kernel, same

ROWS = """
t = alloc(i32[4, 4])
for i in serial(0, 4):
    for j in serial(0, 4):
        t[i, j] = x[4*i + j] * i32(2)
    for k in serial(0, 4):
        y[4*i + k] = t[i, 3 - k]
"""


def test_a_row_becomes_private_to_its_iteration() -> None:
    text = same(func := kernel(ROWS), sink_alloc(func, "t", "i"))
    assert "t = alloc(i32[4], scratch)" in text
    assert "t[j] = x[4*i + j]" in text
    assert "y[4*i + k] = t[-k + 3]" in text


def test_threads_may_share_the_loop_then() -> None:
    func = kernel(ROWS)
    done = parallelize_loop(sink_alloc(func, "t", "i").func, "i")
    same(func, done)


def test_one_element_has_no_axis() -> None:
    func = kernel("t = alloc(i32[16])\nfor i in serial(0, 16):\n    t[i] = x[i]\n    y[i] = t[i]")
    text = same(func, sink_alloc(func, "t", "i", "register"))
    assert "t = alloc(i32[()], register)" in text


def test_a_buffer_that_is_as_small_already_moves_in() -> None:
    """The new buffer equals the old one then."""
    func = kernel(
        """
for i in serial(0, 4):
    t = alloc(i32[4], scratch)
    for j in serial(0, 4):
        for k in serial(0, 4):
            t[k] = x[4*i + k]
        y[4*i + j] = t[3 - j]
"""
    )
    done = sink_alloc(func, "t", "j")
    verify(done.func, "scheduled")
    text = same(func, done)
    assert text.index("for j") < text.index("t = alloc(i32[4], scratch)")


def test_the_box_is_what_an_iteration_uses() -> None:
    func = kernel(
        """
t = alloc(i32[16])
for i in serial(0, 3):
    for j in serial(0, 6):
        t[5*i + j] = x[5*i + j]
    y[i] = t[5*i + 2] + t[5*i + 5]
for z in serial(3, 16):
    y[z] = i32(0)
"""
    )
    assert "t = alloc(i32[6], scratch)" in same(func, sink_alloc(func, "t", "i"))


def test_an_axis_that_accesses_use_differently_keeps_its_extent() -> None:
    func = kernel(
        """
t = alloc(i32[16])
for i in serial(0, 4):
    for j in serial(0, 16):
        t[j] = x[j] + x[i]
    y[4*i] = t[i] + t[2*i + 1]
    y[4*i + 1] = t[i]
    y[4*i + 2] = t[i]
    y[4*i + 3] = t[i]
"""
    )
    assert "t = alloc(i32[16], scratch)" in same(func, sink_alloc(func, "t", "i"))


REFUSED = {
    "an element of another iteration": (
        """
t = alloc(i32[17])
t[0] = i32(0)
for i in serial(0, 16):
    t[i + 1] = x[i]
    y[i] = t[i]
""",
        "is not touched in i alone",
    ),
    "carried from the iteration before": (
        """
t = alloc(i32[16])
for i in serial(0, 16):
    if i == 0:
        t[0] = x[0]
    if i > 0:
        t[0] += x[i]
    y[i] = t[0]
""",
        "stores the elements of t before it reads them",
    ),
    "read before it is stored": (
        """
t = alloc(i32[16])
for i in serial(0, 16):
    if i > 0:
        y[i] = t[i - 1]
    if i < 1:
        y[i] = x[i]
    t[i] = x[i]
""",
        "stores the elements of t before it reads them",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_iteration_does_not_store_itself_is_refused(name: str) -> None:
    body, reason = REFUSED[name]
    with pytest.raises(ScheduleError, match=reason):
        sink_alloc(kernel(body), "t", "i")


UNDEFINED = {
    "only part of the row is stored": """
t = alloc(i32[4, 4])
for i in serial(0, 4):
    for j in serial(0, 3):
        t[i, j] = x[4*i + j]
    for k in serial(0, 4):
        y[4*i + k] = t[i, k]
""",
    "stored under a condition on data": """
t = alloc(i32[16])
for i in serial(0, 16):
    if data(x[i] > i32(0)):
        t[i] = x[i]
    y[i] = t[i]
""",
    "a later iteration of an inner loop": """
t = alloc(i32[4, 4])
for i in serial(0, 4):
    for j in serial(0, 4):
        t[i, j] = x[4*i + j]
        y[4*i + j] = t[i, 3 - j]
""",
}
"""Kernels that read elements which nothing stored before."""


@pytest.mark.parametrize("name", UNDEFINED)
def test_what_nothing_stored_before_is_undefined_in_both_kernels(name: str) -> None:
    """No iteration reads what another one stored, so what it did read it still reads."""
    func = kernel(UNDEFINED[name])
    done = sink_alloc(func, "t", "i")
    assert all(proof.proven for proof in done.proofs)
    assert means_the_same(func, done.func)


def test_a_refusal_shows_the_iterations_between_which_a_value_is_carried() -> None:
    func = kernel(REFUSED["read before it is stored"][0])
    reason = r"carried: .*t\[i - 1\] at i'=(\d+) would not see what t\[i\] at i=\d+ stores"
    with pytest.raises(ScheduleError, match=reason):
        sink_alloc(func, "t", "i")


def test_parameters_and_lanes_are_refused() -> None:
    func = kernel(ROWS)
    with pytest.raises(ScheduleError, match="y is a parameter"):
        sink_alloc(func, "y", "i")
    lanes = kernel("t = alloc(i32[16])\nfor i in serial(0, 16):\n    t[i] = x[i]\n    y[i] = t[i]")
    with pytest.raises(ScheduleError, match="are lanes"):
        sink_alloc(vectorize_loop(lanes, "i").func, "t", "i")
    with pytest.raises(ScheduleError, match="is allocated inside i already"):
        sink_alloc(sink_alloc(func, "t", "i").func, "t", "i")
    with pytest.raises(ScheduleError, match="not touched in j alone"):
        sink_alloc(func, "t", "j")
