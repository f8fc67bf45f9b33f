"""Tests of merging writes and inlining assignments: the four cases, and a refusal by clause."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, delete_buffer, inline_assign, merge_writes
from support.schedule_checks import kernel, same

PAIR = """
for z in serial(0, 16):
    y[z] = i32(7)
for i in serial(0, 4):
    {first}
    {second}
"""


# -- merge_writes


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ("y[i] = x[i]", "y[i] = x[i + 1]", "y[i] = x[i + 1]"),
        ("y[i] += x[i]", "y[i] = x[i + 1]", "y[i] = x[i + 1]"),
        ("y[i] = x[i]", "y[i] += x[i + 1]", "y[i] = x[i] + x[i + 1]"),
        ("y[i] += x[i]", "y[i] += x[i + 1]", "y[i] += x[i] + x[i + 1]"),
        ("y[i] = y[i + 4]", "y[i] *= y[i + 1]", "y[i] = y[i + 4] * y[i + 1]"),
        ("y[i] = x[i]", "y[(i + 4) - 4] = x[2]", "y[i] = x[2]"),
    ],
)
def test_merge_writes(first: str, second: str, merged: str) -> None:
    func = kernel(PAIR.format(first=first, second=second))
    text = same(func, merge_writes(func, "i[0]", "i[1]"))
    assert text.splitlines()[-1].strip() == merged


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("y[i] = x[i]", "y[i + 1] = x[i]", r"destination: .* are one does not hold.*at i=\d"),
        ("y[i] = x[i]", "y[2*i] = x[i]", r"destination: .* are one does not hold.*at i=[123]"),
        ("y[i] += x[i]", "y[i] *= x[i]", "operator: add and mul are two"),
        ("y[i] = x[i]", "y[i] = y[4 - i]", r"reads: .* does not hold.*i=\d"),
        ("y[i] = x[i]", "y[i] = max(y[i], x[i])", r"reads: .*y\[i\] does not hold.*i=\d"),
    ],
)
def test_merge_writes_refuses(first: str, second: str, reason: str) -> None:
    func = kernel(PAIR.format(first=first, second=second))
    with pytest.raises(ScheduleError, match=reason):
        merge_writes(func, "i[0]", "i[1]")


# -- inline_assign

ASSIGNED = """
t = alloc(i32[4])
for i in serial(0, 4):
    t[i] = x[i] * x[i + 1]
    for j in serial(0, 2):
        y[4*i + j] = t[i] + x[j]
    {last}
"""


def test_inline_assign() -> None:
    func = kernel(ASSIGNED.format(last="y[4*i + 2] = t[i]"))
    s = Schedule.of(func).apply(inline_assign, "i[0]")
    assert "y[4*i + j] = x[i] * x[i + 1] + x[j]" in same(func, s)
    assert "alloc" not in same(func, s.apply(delete_buffer, "t"))


def test_inline_assign_up_to_a_later_write() -> None:
    func = kernel(ASSIGNED.format(last="t[i] = x[3]\n    y[4*i + 3] = x[i]"))
    assert "t[i] = x[3]" in same(func, inline_assign(func, "i[0]"))


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ("y[4*i + 3] = t[2]", r"element: t\[2\] is t\[i\] at some points alone.*i=\d"),
        ("t[i] = x[1]\n    y[4*i + 3] = t[i]", r"written: t\[i\] .* fails at i=\d"),
        ("t[i] += x[1]\n    y[4*i + 3] = t[i]", r"written: t\[i\] .* fails at i=\d"),
        (
            "y[4*i + 2] = x[i]\nfor k in serial(0, 4):\n    y[4*k + 3] = t[k]",
            r"unread: t\[i\] does not hold.* is read by t\[k\] at k'=\d",
        ),
    ],
)
def test_inline_assign_refuses(last: str, reason: str) -> None:
    func = kernel(ASSIGNED.format(last=last))
    with pytest.raises(ScheduleError, match=reason):
        inline_assign(func, "i[0]")


def test_inline_assign_refuses_operands_that_change() -> None:
    func = kernel(
        "t = alloc(i32[1])\nfor i in serial(0, 8):\n    y[i] = x[i]\n    t[0] = y[i]\n"
        "    y[i] = x[i + 1]\n    y[i + 8] = t[0]"
    )
    with pytest.raises(ScheduleError, match=r"unchanged: the value of t\[0\] .* fails at i=\d"):
        inline_assign(func, "i[1]")


def test_inline_assign_refuses_values_that_are_read_elsewhere() -> None:
    func = kernel(ASSIGNED.format(last="y[4*i + 3] = x[i]") + "y[3] = t[1]\n")
    reason = r"unread: t\[i\] does not hold.*t\[i\] at i=1 is read by t\[1\] at \(\)"
    with pytest.raises(ScheduleError, match=reason):
        inline_assign(func, "i[0]")
