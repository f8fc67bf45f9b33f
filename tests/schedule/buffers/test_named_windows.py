"""Tests of named windows and of parameters that are windows."""

from textwrap import dedent

import numpy as np
import pytest

from graphflow.arith import Var
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.codegen import host_target
from graphflow.schedule import (
    Schedule,
    divide_dim,
    divide_loop,
    expand_dim,
    extract_subproc,
    inline_window,
    resize_dim,
    set_memory,
    set_window,
    simplify,
    unroll_loop,
)
from graphflow.tir import PrimFunc, interpret, parse, to_text, verify
from support.native import Native
from support.schedule_checks import inputs_of, kernel, same

ROWS = """
t = alloc(i32[4, 2, 8])
for i in serial(0, 4):
    with t[i, 0:2, 2:6] as w:
        for j in serial(0, 4):
            w[0, j] = x[4*i + j]
            w[1, j] = w[0, j] + i32(1)
            with w[1, 0:4] as v:
                y[4*i + j] = v[j] * t[i, 0, j + 2]
"""


def body(text: str) -> str:
    return dedent(text.split(":\n", 1)[1])


def test_a_window_is_a_name_for_elements_of_a_buffer() -> None:
    func = kernel(ROWS)
    verify(func, "definition")
    assert parse(to_text(func)) == func
    x = inputs_of(func)["x"]
    np.testing.assert_array_equal(interpret(func, {"x": x})["y"], (x + 1) * x)


def test_a_called_kernel_names_windows_in_the_memory_of_the_caller() -> None:
    func = kernel(ROWS.replace("8])\nfor", "8], register)\nfor"))
    done = extract_subproc(func, "w", "row")
    verify(done.func, "scheduled")
    same(func, done)


def test_inline_window() -> None:
    func = kernel(ROWS)
    done = inline_window(func, "w")
    assert done.places == {"w": ()}
    assert body(same(func, done)) == dedent("""
        t = alloc(i32[4, 2, 8])
        for i in serial(0, 4):
            for j in serial(0, 4):
                t[i, 0, j + 2] = x[4*i + j]
                t[i, 1, j + 2] = t[i, 0, j + 2] + i32(1)
                with t[i, 1, 2:6] as v:
                    y[4*i + j] = v[j] * t[i, 0, j + 2]
        """).lstrip("\n")
    again = inline_window(done.func, "v")
    assert "with" not in same(func, again)
    assert inline_window(inline_window(func, "v").func, "w").func == again.func


def test_windows_survive_other_steps() -> None:
    func = kernel(ROWS)
    schedule = Schedule.of(func)
    schedule = schedule.apply(divide_loop, "i", 2, ("a", "b"))
    schedule = schedule.apply(simplify)
    text = same(func, schedule)
    assert "with t[2*a + b, 0:2, 2:6] as w:" in text and "w[1, j] = w[0, j] + i32(1)" in text
    schedule = schedule.apply(set_memory, "t", "scratch").apply(unroll_loop, "a")
    text = same(func, schedule)
    assert text.count(", 0:2, 2:6] as ") == 2 and "t = alloc(i32[4, 2, 8], scratch)" in text
    got = Native(schedule.func, host_target())(inputs_of(func))
    np.testing.assert_array_equal(got["y"], interpret(func, inputs_of(func))["y"])


def test_a_layout_moves_a_window_or_puts_its_name_away() -> None:
    func = kernel("""
for k in serial(0, 2):
    t = alloc(i32[4, 4])
    with t[0:4, 1] as w:
        for i in serial(0, 4):
            w[i] = x[i + k]
        for j in serial(0, 4):
            y[4*k + j] = w[3 - j]
""")
    assert "with t[k, 0:4, 1] as w:" in same(func, expand_dim(func, "t", 2, Var("k")))
    split = same(func, divide_dim(func, "t", 0, 2))
    assert 'with block("w"):' in split and "t[i // 2, i % 2, 1]" in split


def test_a_window_that_is_longer_than_a_smaller_buffer_is_put_away() -> None:
    func = kernel("""
t = alloc(i32[8])
with t[0:8] as w:
    for i in serial(0, 4):
        w[i + 2] = x[i]
    for j in serial(0, 4):
        y[j] = w[j + 2]
""")
    text = same(func, resize_dim(func, "t", 0, 4, 2))
    assert "t = alloc(i32[4])" in text and 'with block("w"):' in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("with x[0:4] as w:\n    w[0] = i32(1)", "input w is written"),
        ("with y[0:4] as w:\n    pass\nw[0] = i32(1)", "buffer w is not allocated here"),
        ("with y[i:i + 4] as w:\n    pass", "no loop around the use binds i"),
        ("with y[0:17] as w:\n    pass", "w is longer than axis 0 of y"),
        ("with y[0:4] as w:\n    w[0, 0] = i32(1)", "w is accessed with 2 indices for 1 axes"),
    ],
)
def test_broken_windows(text: str, reason: str) -> None:
    with pytest.raises(VerifyError, match=reason):
        verify(kernel(text), "scheduled")


def test_an_access_outside_of_a_window_is_an_error_though_the_buffer_has_the_element() -> None:
    func = kernel("with y[2:6] as w:\n    for i in serial(0, 5):\n        w[i] = x[i]")
    with pytest.raises(VerifyError, match=r"window w\[i\] reaches index \[4\]"):
        interpret(func, inputs_of(func))


# -- parameters that are windows

CALLS = """
@instruction
def add4(a: ROLE, c: inout[f32[4]]):
    for e in serial(0, 4):
        c[e] += a[e]

@primfunc
def k(x: f32[4, 8], y: out[f32[8, 4]]):
    for i in serial(0, 8):
        for j in serial(0, 4):
            y[i, j] = f32(0.0)
        add4(x[0:4, i], y[i, 0:4])
"""


def calling(role: str) -> PrimFunc:
    return parse(CALLS.replace("ROLE", role))


def test_set_window_of_a_callee_permits_strides() -> None:
    func = calling("f32[4]")
    with pytest.raises(VerifyError, match="a of add4 is dense, and the elements of the window"):
        verify(func, "lowered")
    done = set_window(func, "add4.a")
    assert done.func == calling("window[f32[4]]")
    assert parse(to_text(done.func)) == done.func
    verify(done.func, "lowered")
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_array_equal(Native(done.func, host_target())({"x": x})["y"], x.T)
    assert set_window(done.func, "add4.a", strided=False).func == func


def test_set_window_of_a_kernel_that_nobody_calls_is_found_before_code_is_generated() -> None:
    func = kernel("for i in serial(0, 4):\n    y[i] = x[i]")
    done = set_window(func, "y")
    assert "y: out[window[i32[16]]]" in same(func, done)
    assert parse(to_text(done.func)) == done.func
    with pytest.raises(VerifyError, match="y is a window, whose strides only the callers"):
        verify(done.func, "lowered")


def test_set_window_refuses_what_is_no_parameter() -> None:
    func = calling("f32[4]")
    with pytest.raises(ScheduleError, match="parameter: k has no parameter t; it has x, y"):
        set_window(func, "t")
    with pytest.raises(ScheduleError, match="parameter: k calls no kernel mul4"):
        set_window(func, "mul4.a")
    with pytest.raises(ScheduleError, match="parameter: add4 has no parameter b"):
        set_window(func, "add4.b")


def test_a_window_of_another_shape_does_not_fit() -> None:
    with pytest.raises(Exception, match=r"the window does not fit a of \[4\], but \[3\]"):
        parse(CALLS.replace("ROLE", "f32[4]").replace("x[0:4, i]", "x[0:3, i]"))
