"""Tests of binding and rewriting expressions: text before and after, and a refusal by clause."""

from collections.abc import Callable
from typing import Any

import pytest

from graphflow.arith import Var, less_than
from graphflow.base.errors import ScheduleError
from graphflow.schedule import bind_expr, rewrite_expr
from graphflow.tir import Binary, Buffer, Comparison, Literal, Load, Select
from support.schedule_checks import kernel, same

Golden = Callable[[str, str], None]

I, J = Var("i"), Var("j")
X = Buffer("x", (16,), "int32")


def x(index: Any) -> Load:
    return Load(X, (index,))


def number(value: int) -> Literal:
    return Literal(value, "int32")


# -- bind_expr


def test_bind_expr(golden: Golden) -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[4*i + j] = x[2*i] * x[2*i]"
    )
    golden("bind_expr", same(func, bind_expr(func, "i", "x", "b")))


TWICE = """
for i in serial(0, 4):
    y[i] = x[i] * x[i + 1] + i32(1)
    for j in serial(0, 2):
        if data(x[i] * x[i + 1] < i32(9)):
            y[i + 4] = x[i] * x[i + 1]
"""


def test_bind_expr_of_all_equal_expressions() -> None:
    func = kernel(TWICE)
    text = same(func, bind_expr(func, "i", "x[i] * x[i + 1]", "b"))
    assert text.count("x[i] * x[i + 1]") == 1 and text.count("b[()]") == 4
    product = Binary("mul", x(I), x(I + 1))
    assert same(func, bind_expr(func, "i", product, "b")) == text


def test_bind_expr_of_the_first_use_alone() -> None:
    func = kernel(TWICE)
    text = same(func, bind_expr(func, "i", "x[i] * x[i + 1]", "b", cse=False))
    assert text.count("x[i] * x[i + 1]") == 3 and text.count("b[()]") == 2


def test_bind_expr_before_a_statement() -> None:
    func = kernel(TWICE)
    text = same(func, bind_expr(func, "j[0]", "x[i] * x[i + 1]", "b"))
    assert text.count("x[i] * x[i + 1]") == 2
    assert text.index("for j") < text.index("alloc")


def test_bind_expr_under_a_condition_loads_only_what_exists() -> None:
    func = kernel("for i in serial(0, 15):\n    y[i] = select(i < 3, x[i], i32(0))")
    assert "select(i < 3, b[()], i32(0))" in same(func, bind_expr(func, "i", "x", "b"))
    outside = kernel("for i in serial(0, 15):\n    y[i] = select(i < 3, x[i + 8], i32(0))")
    with pytest.raises(ScheduleError, match=r"memory: x\[i \+ 8\] .* does not hold.*i=(8|9|1\d)"):
        bind_expr(outside, "i", "x", "b")


def test_bind_expr_refuses_what_is_written_before_its_last_use() -> None:
    func = kernel("for i in serial(0, 16):\n    y[i] = x[i]\n    y[i] += y[i]")
    with pytest.raises(ScheduleError, match=r"unchanged: y\[i\] is the same .* fails at i=\d+"):
        bind_expr(func, "i", "y", "b")
    same(func, bind_expr(func, "i[1]", "y", "b"))


# -- rewrite_expr


def test_rewrite_expr_of_an_index_a_bound_and_a_condition() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 4):\n        if 4*i + j < 14:\n"
        "            y[4*i + j] = x[(4*i + j) // 4]"
    )
    text = same(func, rewrite_expr(func, "j[0][0]", (4 * I + J) // 4, I))
    assert "y[4*i + j] = x[i]" in text
    under = rewrite_expr(func, "j[0]", less_than(4 * I + J, 14), less_than(8 * I + 2 * J, 28))
    same(func, under)
    with pytest.raises(ScheduleError, match=r"equal: .* does not hold.*fails at i=\d, j=\d"):
        rewrite_expr(func, "j[0]", less_than(4 * I + J, 14), less_than(4 * I + J, 13))
    with pytest.raises(ScheduleError, match=r"equal: 4\*i \+ j and i .* at i=\d, j=\d"):
        rewrite_expr(func, "j[0][0]", 4 * I + J, I)


def test_rewrite_expr_knows_the_context() -> None:
    """Under `i < 4` a loop bound of min(i, 4) is i."""
    func = kernel(
        "for i in serial(0, 8):\n    if i < 4:\n        for j in serial(0, min(i, 4)):\n"
        "            y[i + j] = x[j]"
    )
    bound = func.body[0].body[0].then[0].stop  # type: ignore[union-attr]
    with pytest.raises(ScheduleError, match=r"found: .* does not stand in i as a whole"):
        rewrite_expr(func, "i", bound, bound + 0)
    same(func, rewrite_expr(func, "j", bound, I))


def test_rewrite_expr_to_what_is_known_to_be_there() -> None:
    func = kernel(
        "t = alloc(i32[4])\nfor i in serial(0, 4):\n    t[i] = i32(3)\n"
        "for j in serial(0, 4):\n    y[j] = t[3 - j] * x[j]"
    )
    text = same(func, rewrite_expr(func, "j[0]", "t[-j + 3]", number(3)))
    assert "y[j] = i32(3) * x[j]" in text
    with pytest.raises(ScheduleError, match=r"equal: .* does not hold.*3 is not 4 at"):
        rewrite_expr(func, "j[0]", "t[-j + 3]", number(4))


def test_rewrite_expr_up_to_order_constants_and_decided_selects() -> None:
    func = kernel("for i in serial(0, 4):\n    y[i] = x[i] * x[i + 1] + i32(5)")
    old = "x[i] * x[i + 1] + i32(5)"
    product = Binary("mul", x(I + 1), x(I))
    five = Binary("add", number(2), number(3))
    same(func, rewrite_expr(func, "i[0]", old, Binary("add", five, product)))
    always = Select(less_than(I, 4), product, number(0))
    same(func, rewrite_expr(func, "i[0]", old, Binary("add", always, number(5))))
    with pytest.raises(ScheduleError, match=r"equal: .* does not hold.*at i=0"):
        rewrite_expr(func, "i[0]", old, Binary("add", product, x(I)))


def test_rewrite_expr_refuses_other_types_and_places() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    assume(unless(False), x[i] == i32(0))\n    y[i] = x[i]"
    )
    with pytest.raises(ScheduleError, match=r"found: i.0. is an assumption"):
        rewrite_expr(func, "i[0]", "x[i]", number(0))
    with pytest.raises(ScheduleError, match=r"found: x\[3\] does not stand in i\[1\]"):
        rewrite_expr(func, "i[1]", "x[3]", number(0))
    with pytest.raises(ScheduleError, match=r"type: .* is int32, the other int64"):
        rewrite_expr(func, "i[1]", "x[i]", Literal(0, "int64"))
    with pytest.raises(ScheduleError, match=r"type: an index is no scalar expression"):
        rewrite_expr(func, "i[1]", "x[i]", I)
    with pytest.raises(ScheduleError, match=r"type: .* are of different kinds"):
        rewrite_expr(func, "i[1]", I, less_than(I, 3))
    mixed = Select(Comparison("lt", number(0), Literal(0, "int64")), x(I), x(I))
    with pytest.raises(ScheduleError, match=r"type: lt of int32 and int64|is not proven"):
        rewrite_expr(func, "i[1]", "x[i]", mixed)


def test_rewrite_expr_refuses_loads_that_leave_the_buffer() -> None:
    func = kernel("t = alloc(i32[4])\nfor i in serial(0, 4):\n    t[i] = i32(3)\n    y[i] = i32(3)")
    t = Buffer("t", (4,), "int32")
    same(func, rewrite_expr(func, "i[1]", number(3), Load(t, (I,))))
    never = Select(less_than(I, 4), number(3), Load(t, (I + 1,)))
    same(func, rewrite_expr(func, "i[1]", number(3), never))
    with pytest.raises(ScheduleError, match=r"equal: .* does not hold.*t may hold anything at i="):
        rewrite_expr(func, "i[1]", number(3), Load(t, (I + 1,)))
