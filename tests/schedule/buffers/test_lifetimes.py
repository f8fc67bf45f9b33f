"""Tests of deleting and reusing buffers: text before and after, and a refusal by clause."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, delete_buffer, reuse_buffer
from support.schedule_checks import kernel, same

DEAD = """
t = alloc(i32[4])
for i in serial(0, 4):
    t[i] = x[i]
for j in serial(0, 4):
    y[j] = x[j]
"""

CHAIN = """
a = alloc(i32[4])
for i in serial(0, 4):
    a[i] = x[i]
for j in serial(0, 4):
    y[j] = a[j]
b = alloc(i32[4])
for k in serial(0, 4):
    b[k] = x[k + 4]
for m in serial(0, 4):
    y[m + 4] = b[m]
"""


def test_delete_buffer_with_the_stores_to_it() -> None:
    func = kernel(DEAD)
    s = Schedule.of(func)
    handles = [s.handle(name) for name in ("t", "i", "j")]
    s = s.apply(delete_buffer, "t")
    assert "alloc" not in same(func, s)
    assert [len(s.forward(handle)) for handle in handles] == [0, 0, 1]


def test_delete_buffer_refuses_what_is_read() -> None:
    func = kernel(DEAD + "y[5] = t[1]\n")
    with pytest.raises(ScheduleError, match=r"dead: nothing reads t does not hold: t\[1\] is no"):
        delete_buffer(func, "t")
    inside = kernel("t = alloc(i32[4])\nfor i in serial(1, 4):\n    t[i] += x[i]\n    y[i] = t[i]")
    with pytest.raises(ScheduleError, match=r"dead: .*t\[i\] is no read.*at i=\d"):
        delete_buffer(inside, "t")
    with pytest.raises(ScheduleError, match="y is a parameter"):
        delete_buffer(func, "y")


def test_reuse_buffer_of_a_buffer_that_is_not_needed_any_more() -> None:
    func = kernel(CHAIN)
    s = Schedule.of(func)
    b = s.handle("b")
    s = s.apply(reuse_buffer, "a", "b")
    text = same(func, s)
    assert "a[k] = x[k + 4]" in text and text.count("alloc") == 1
    assert s[b] == "a"


def test_reuse_buffer_refuses_a_buffer_that_is_read_later() -> None:
    func = kernel(CHAIN + "y[9] = a[2]\n")
    reason = (
        r"dead: a is not needed where b is .*a\[2\] at \(\) would see what b\[k\] at k=2 stores"
    )
    with pytest.raises(ScheduleError, match=reason):
        reuse_buffer(func, "a", "b")


def test_reuse_buffer_element_by_element() -> None:
    """An element may take the place of one that the same statement reads for the last time."""
    body = """
a = alloc(i32[4])
for i in serial(0, 4):
    a[i] = x[i]
b = alloc(i32[4])
for j in serial(0, 4):
    b[j] = a[{index}]
for k in serial(0, 4):
    y[k] = b[k]
"""
    func = kernel(body.format(index="j"))
    assert "a[j] = a[j]" in same(func, reuse_buffer(func, "a", "b"))
    with pytest.raises(ScheduleError, match=r"a\[-j \+ 3\] at j'=(2|3) would see"):
        reuse_buffer(kernel(body.format(index="3 - j")), "a", "b")


def test_reuse_buffer_refuses_other_types_and_scopes() -> None:
    func = kernel(CHAIN.replace("b = alloc(i32[4])", "b = alloc(i32[5])"))
    with pytest.raises(ScheduleError, match=r"type: a: int32\[4\] .* is not b: int32\[5\]"):
        reuse_buffer(func, "a", "b")
    with pytest.raises(ScheduleError, match="scope: b is not allocated around a and before it"):
        reuse_buffer(kernel(CHAIN), "b", "a")
    inner = kernel(
        "for i in serial(0, 4):\n    a = alloc(i32[1])\n    a[0] = x[i]\n    y[i] = a[0]\n"
        "b = alloc(i32[1])\nb[0] = x[4]\ny[4] = b[0]"
    )
    with pytest.raises(ScheduleError, match="scope: a is not allocated around b"):
        reuse_buffer(inner, "a", "b")
    with pytest.raises(ScheduleError, match="type: a is one buffer, and two are needed"):
        reuse_buffer(inner, "a", "a")


def test_reuse_buffer_between_threads_refuses() -> None:
    func = kernel(
        "a = alloc(i32[1])\na[0] = x[0]\ny[9] = a[0]\nfor i in parallel(0, 4):\n"
        "    b = alloc(i32[1])\n    b[0] = x[i]\n    y[i] = b[0]"
    )
    with pytest.raises(ScheduleError, match="the iterations of i are independent does not hold"):
        reuse_buffer(func, "a", "b")
