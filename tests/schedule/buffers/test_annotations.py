"""Tests of memory and precision of buffers: text before and after, and a refusal by clause."""

from typing import Any

import pytest

from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.schedule import set_memory, set_precision
from graphflow.tir import verify
from support.schedule_checks import kernel, same

COPY = """
for i in {kind}(0, 16):
    t = alloc(i32[2])
    t[0] = x[i]
    t[1] = t[0] * t[0]
    y[i] = t[1]
"""


def test_set_memory() -> None:
    func = kernel(COPY.format(kind="serial"))
    text = same(func, set_memory(func, "t", "register"))
    assert "alloc(i32[2], register)" in text
    verify(set_memory(func, "t", "register").func, "lowered")
    assert set_memory(func, "t", "global").func is func


def test_what_a_memory_cannot_do_is_found_before_code_is_generated() -> None:
    func = kernel("t = alloc(i32[16])\nfor i in serial(0, 16):\n    t[i] = x[i]\n    y[i] = t[i]")
    annotated = set_memory(func, "t", "register").func
    with pytest.raises(VerifyError, match="t is in registers, but its index i depends on i"):
        verify(annotated, "lowered")
    with pytest.raises(VerifyError, match="t is not allocated in"):
        verify(func, "lowered")


def test_set_memory_refuses_by_memory_and_threads() -> None:
    func = kernel(COPY.format(kind="parallel"))
    unknown: Any = "disk"
    with pytest.raises(ScheduleError, match="memory: 'disk' is none of global, scratch, register"):
        set_memory(func, "t", unknown)
    same(func, set_memory(func, "t", "register"))
    shared = kernel("t = alloc(i32[1])\nt[0] = x[3]\nfor i in parallel(0, 16):\n    y[i] = t[0]")
    with pytest.raises(ScheduleError, match=r"threads: the iterations of i share t at t\[0\]"):
        set_memory(shared, "t", "register")
    with pytest.raises(ScheduleError, match="x is a parameter"):
        set_memory(func, "x", "scratch")


def test_set_precision_to_a_type_that_holds_every_value() -> None:
    func = kernel(COPY.format(kind="serial"))
    text = same(func, set_precision(func, "t", "float64"))
    assert "t = alloc(f64[2])" in text and "y[i] = " in text
    assert set_precision(func, "t", "int32").func is func


def test_set_precision_rounds_only_where_it_may() -> None:
    func = kernel(COPY.format(kind="serial"))
    with pytest.raises(
        ScheduleError, match="exact: int8 does not hold every int32, such as 2147483647"
    ):
        set_precision(func, "t", "int8")
    done = set_precision(func, "t", "int8", exact=False)
    assert done.proofs[0].claim == "t may be rounded to int8"
    verify(done.func, "scheduled")


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("i64", "float64", "9223372036854775807"),
        ("u64", "float64", "18446744073709551615"),
        ("i32", "float32", "2147483647"),
        ("u8", "int8", "255"),
        ("i8", "uint64", "-128"),
        ("f32", "int64", "0.5"),
        ("f64", "float32", "5e-324"),
        ("i16", "float32", ""),
        ("u32", "float64", ""),
        ("u8", "int16", ""),
        ("f32", "float64", ""),
    ],
)
def test_set_precision_shows_a_value_that_is_lost(old: str, new: str, lost: str) -> None:
    """The largest int64 in a float64 is one more, which wraps around to the smallest."""
    func = kernel(
        COPY.format(kind="serial").replace("i32", old), f"x: {old}[16], y: out[{old}[16]]"
    )
    if lost:
        with pytest.raises(ScheduleError, match=f"exact: .* such as {lost}$"):
            set_precision(func, "t", new)
    else:
        same(func, set_precision(func, "t", new))


def test_set_precision_refuses_types_and_reductions() -> None:
    func = kernel("t = alloc(i32[1])\nt[0] = x[0]\nt[0] += x[1]\ny[0] = t[0]")
    with pytest.raises(ScheduleError, match="type: int7 is none of"):
        set_precision(func, "t", "int7")
    with pytest.raises(ScheduleError, match="type: t is int32, not to be kept as bfloat16"):
        set_precision(func, "t", "bfloat16")
    with pytest.raises(ScheduleError, match=r"reduction: t\[0\] reduces by add in int32"):
        set_precision(func, "t", "float64")
    same(func, set_precision(func, "t", "int64"))
