"""Tests of the primitives on axes of buffers: text before and after, and a refusal by clause."""

from typing import Any

import pytest

from graphflow.arith import Var
from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    divide_dim,
    expand_dim,
    inline,
    mult_dim,
    rearrange_dim,
    replace,
    resize_dim,
    unroll_buffer,
)
from graphflow.tir import parse
from support.schedule_checks import kernel, same

LAGGING = """
t = alloc(i32[16])
for i in serial(0, 16):
    t[i] = x[i]
    if i >= 2:
        y[i] = t[i] + t[i - 2]
"""

SQUARE = """
t = alloc(i32[4, 8])
for i in serial(0, 4):
    for j in serial(0, 4):
        t[i, j] = x[4*i + j]
        y[4*i + j] = t[i, j]
"""

PRIVATE = """
for i in serial(0, 16):
    t = alloc(i32[1])
    t[0] = x[i]
    y[i] = t[0]
"""


def refused(func: Any, reason: str, primitive: Any, *arguments: Any) -> None:
    """The primitive refuses with a message that matches."""
    with pytest.raises(ScheduleError, match=reason):
        primitive(func, *arguments)


# -- resize_dim


def test_resize_dim_folds_a_line_into_a_circular_buffer() -> None:
    func = kernel(LAGGING)
    text = same(func, resize_dim(func, "t", 0, 3, 0, True))
    assert "t = alloc(i32[3])" in text
    assert "y[i] = t[i % 3] + t[(i + 1) % 3]" in text


def test_resize_dim_refuses_a_window_that_is_too_small() -> None:
    reason = r"window: 2 elements .* t\[i - 2\] at i'=(\d+) would see what t\[i\] at i=\1 stores"
    refused(kernel(LAGGING), reason, resize_dim, "t", 0, 2, 0, True)


def test_resize_dim_does_not_fold_what_is_read_after_the_loop() -> None:
    func = kernel(
        "t = alloc(i32[4])\nfor i in serial(0, 4):\n    t[i] = x[i]\n    y[i] = t[i]\ny[8] = t[0]"
    )
    reason = r"t\[0\] at \(\) would see what t\[i\] at i=\d stores"
    refused(func, reason, resize_dim, "t", 0, 2, 0, True)
    same(func, resize_dim(func, "t", 0, 5, 0, True))


def test_resize_dim_drops_elements_that_nothing_accesses() -> None:
    func = kernel("t = alloc(i32[16])\nfor i in serial(2, 6):\n    t[i] = x[i]\n    y[i] = t[i]")
    text = same(func, resize_dim(func, "t", 0, 4, 2))
    assert "t = alloc(i32[4])" in text and "y[i] = t[i - 2]" in text
    refused(
        func, r"range: .* lie in \[2, 5\) does not hold.*fails at i=5", resize_dim, "t", 0, 3, 2
    )


def test_resize_dim_offset_uses_loops_around_the_allocation_alone() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    t = alloc(i32[16])\n    for j in serial(0, 4):\n"
        "        t[4*i + j] = x[j]\n        y[4*i + j] = t[4*i + j]"
    )
    text = same(func, resize_dim(func, "t", 0, 4, 4 * Var("i")))
    assert "t[j] = x[j]" in text
    refused(func, "scope: j is no loop around the allocation", resize_dim, "t", 0, 4, Var("j"))


def test_resize_dim_needs_a_size_an_axis_and_a_private_buffer() -> None:
    func = kernel(LAGGING)
    refused(func, "size: an axis of 0 elements", resize_dim, "t", 0, 0)
    refused(func, "t has 1 axes, and none is 1", resize_dim, "t", 1, 4)
    refused(func, "x is a parameter", resize_dim, "x", 0, 16)


# -- expand_dim


def test_expand_dim_gives_each_iteration_its_own() -> None:
    func = kernel(PRIVATE)
    text = same(func, expand_dim(func, "t", 16, Var("i")))
    assert "t = alloc(i32[16, 1])" in text and "y[i] = t[i, 0]" in text


def test_expand_dim_refuses_by_size_scope_range_and_values() -> None:
    func = kernel(PRIVATE)
    refused(func, "size: an axis of 0", expand_dim, "t", 0, 0)
    refused(func, "scope: j is no loop around the access", expand_dim, "t", 4, Var("j"))
    refused(func, r"range: i lies in \[0, 15\) does not hold.*i=15", expand_dim, "t", 15, Var("i"))
    carried = kernel(LAGGING)
    reason = r"values: .*t\[i - 2\] at i'=(\d+) would not see what t\[i\] at i=\d+ stores"
    refused(carried, reason, expand_dim, "t", 16, Var("i"))
    same(carried, expand_dim(carried, "t", 2, 1))


# -- rearrange_dim, divide_dim, mult_dim


def test_rearrange_dim() -> None:
    func = kernel(SQUARE)
    text = same(func, rearrange_dim(func, "t", (1, 0)))
    assert "t = alloc(i32[8, 4])" in text and "t[j, i] = x[4*i + j]" in text
    refused(
        func, r"order: \[1, 1\] is no order of the axes of \[4, 8\]", rearrange_dim, "t", (1, 1)
    )


def test_divide_dim() -> None:
    func = kernel(SQUARE)
    text = same(func, divide_dim(func, "t", 1, 4))
    assert "t = alloc(i32[4, 2, 4])" in text and "t[i, j // 4, j % 4]" in text
    refused(func, "divisible: 3 does not divide axis 1 of t with extent 8", divide_dim, "t", 1, 3)


def test_mult_dim() -> None:
    func = kernel(SQUARE)
    text = same(func, mult_dim(func, "t", 1, 0))
    assert "t = alloc(i32[32])" in text and "t[4*j + i] = x[4*i + j]" in text
    refused(func, "axes: 1 is one axis of t", mult_dim, "t", 1, 1)


def test_mult_dim_refuses_elements_that_would_meet() -> None:
    func = kernel(
        "t = alloc(i32[4, 2])\nfor i in serial(0, 4):\n    t[0, i] = x[i]\n    y[i] = x[i]"
    )
    refused(func, r"range: .* lie in \[0, 2\) does not hold.*i=[23]", mult_dim, "t", 0, 1)


ROW_COPY = parse("""
@primfunc
def copy(c: out[i32[4]], a: i32[4]):
    for l in serial(0, 4):
        c[l] = a[l]
""")
BLOCK_COPY = parse("""
@primfunc
def block_copy(c: out[i32[2, 4]], a: i32[2, 4]):
    for k in serial(0, 2):
        for l in serial(0, 4):
            c[k, l] = a[k, l]
""")
COPIED = """
t = alloc(i32[4, 4])
for i in serial(0, 4):
    for j in serial(0, 4):
        t[i, j] = x[i, j]
for m in serial(0, 2):
    for n in serial(0, 2):
        for o in serial(0, 4):
            y[2*m + n, o] = t[2*m + n, o]
"""
SQUARES = "x: i32[4, 4], y: out[i32[4, 4]]"


def test_a_call_with_a_window_along_one_axis_follows() -> None:
    func = replace(kernel(COPIED, SQUARES), "o", ROW_COPY).func
    text = same(func, rearrange_dim(func, "t", (1, 0)))
    assert "copy(y[2*m + n, 0:4], t[0:4, 2*m + n])" in text
    text = same(func, mult_dim(func, "t", 0, 1))
    assert "copy(y[2*m + n, 0:4], t[8*m + 4*n:8*m + 4*n + 4])" in text


def test_a_call_with_a_window_along_both_axes_is_refused() -> None:
    func = replace(kernel(COPIED, SQUARES), "n", BLOCK_COPY).func
    other = "calls: block_copy would be no call of block_copy any more: .*inline it first"
    refused(func, other, rearrange_dim, "t", (1, 0))
    refused(func, other, mult_dim, "t", 0, 1)
    same(func, rearrange_dim(inline(func, "block_copy").func, "t", (1, 0)))


def test_a_call_whose_elements_would_be_apart_is_refused() -> None:
    func = replace(kernel(COPIED, SQUARES), "o", ROW_COPY).func
    refused(func, "calls: copy would be no call of copy any more", mult_dim, "t", 1, 0)


def test_axes_with_separators_stay() -> None:
    func = kernel("t = alloc(i32[4, 4], sep=(1,))\nt[0, 0] = x[0]\ny[0] = t[0, 0]")
    refused(func, "t has separators between its axes", divide_dim, "t", 0, 2)


# -- unroll_buffer


def test_unroll_buffer_makes_a_buffer_of_each_position() -> None:
    func = kernel(
        "t = alloc(i32[2, 4])\nfor i in serial(0, 4):\n    t[0, i] = x[i]\n    t[1, i] = x[i + 4]\n"
        "    y[i] = t[0, i] * t[1, i]"
    )
    text = same(func, unroll_buffer(func, "t", 0))
    assert "y[i] = t_0[i] * t_1[i]" in text
    refused(func, r"constant: t\[0, i\] uses axis 1 of t at i", unroll_buffer, "t", 1)
    s = Schedule.of(func)
    t = s.handle("t")
    s = s.apply(unroll_buffer, "t", 0)
    assert s.names(s.forward(t)) == s.names(s.made["buffers"]) == ("t_0", "t_1")


def test_unroll_buffer_refuses_a_position_outside() -> None:
    func = kernel("t = alloc(i32[2])\nif data(x[0] < i32(-99)):\n    t[2] = x[0]\ny[0] = x[0]")
    refused(func, r"range: t\[2\] is outside the extent 2", unroll_buffer, "t", 0)
