"""Tests of the primitives on single statements, and of addresses."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, commute_expr, name_statement, reorder_stmts, unroll_loop
from graphflow.tir import to_text
from support.schedule_checks import kernel, same

TWO = """
for i in serial(0, 16):
    y[i] = x[i]
    z[i] = y[(i + 1) % 16]
"""
PARAMS = "x: i32[16], y: out[i32[16]], z: out[i32[16]]"


# -- addresses


def test_addresses() -> None:
    func = kernel(
        "for i in serial(0, 16):\n    if i < 3:\n        y[i] = x[i]\n    else:\n"
        "        y[i] = x[0]\n        y[i] = x[1]"
    )
    for place, text in (
        ("i[0][0]", "y[i] = x[i]"),
        ("i[0].else[1]", "y[i] = x[1]"),
        ("[0][0].else[0]", "y[i] = x[0]"),
    ):
        named = to_text(name_statement(func, place, "b").func)
        assert text in named.split('block("b")')[1].splitlines()[1]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("i[1]", r"no statement i\[1\]: there are 1 in that body"),
        ("i[0][0][0]", "there are 0 in that body"),
        (".else[0]", "a kernel has no else branch"),
        ("q[0]", "no loop or block q"),
        ("i[0].else[0]", "there are 0 in that body"),
    ],
)
def test_addresses_that_do_not_exist(place: str, reason: str) -> None:
    func = kernel("for i in serial(0, 16):\n    if i < 3:\n        y[i] = x[i]")
    with pytest.raises(ScheduleError, match=reason):
        name_statement(func, place, "b")


# -- name_statement


def test_name_statement_lets_a_handle_follow() -> None:
    func = kernel("for i in serial(0, 3):\n    y[i] = x[i]\n    y[i + 3] = x[i]")
    s = Schedule.of(func).apply(name_statement, "i[1]", "behind")
    (place,) = s.made["block"]
    s = s.apply(reorder_stmts, "i[0]", "behind")
    assert s[place] == "behind"
    s = s.apply(unroll_loop, "i")
    assert s.names(s.forward(place)) == ("behind", "behind_1", "behind_2")
    same(func, s)


# -- reorder_stmts


def test_reorder_stmts() -> None:
    func = kernel("for i in serial(0, 8):\n    y[i] = x[i]\n    y[i + 8] = x[i]")
    assert same(func, reorder_stmts(func, "i[0]", "i[1]")) == to_text(
        kernel("for i in serial(0, 8):\n    y[i + 8] = x[i]\n    y[i] = x[i]")
    )
    reductions = kernel("y[0] = i32(0)\ny[0] += x[0]\ny[0] += x[1]")
    same(reductions, reorder_stmts(reductions, "[1]", "[2]"))


def test_reorder_stmts_asks_about_one_iteration() -> None:
    """z reads what the next iteration stores, which both orders leave for later."""
    func = kernel("for i in serial(0, 16):\n    z[i] = i32(0)\n    y[i] = x[i]", PARAMS)
    same(func, reorder_stmts(func, "i[0]", "i[1]"))


def test_reorder_stmts_refuses_what_does_not_commute() -> None:
    func = kernel(
        "for i in serial(0, 16):\n    y[i] = x[i]\n    for j in serial(0, 2):\n"
        "        z[i] = y[max(i - j, 0)]",
        PARAMS,
    )
    with pytest.raises(ScheduleError) as refused:
        reorder_stmts(func, "i[0]", "j")
    message = str(refused.value)
    assert "i[0] and j commute does not hold" in message
    assert "j'=0" in message, "the witness is an instance of both"


def test_reorder_stmts_refuses_strangers() -> None:
    func = kernel(TWO, PARAMS)
    for pair in (("i[1]", "i[0]"), ("i[0]", "i"), ("i[0]", "i[0]")):
        with pytest.raises(ScheduleError, match="does not follow"):
            reorder_stmts(func, *pair)


def test_reorder_stmts_keeps_an_allocation_in_front_of_its_uses() -> None:
    func = kernel("y[0] = x[0]\nt = alloc(i32[1])\nt[0] = x[1]\ny[1] = t[0]")
    with pytest.raises(ScheduleError, match=r"\[1\] allocates t, which \[2\] uses"):
        reorder_stmts(func, "[1]", "[2]")
    same(func, reorder_stmts(func, "[0]", "[1]"))


# -- commute_expr


def test_commute_expr() -> None:
    func = kernel("for i in serial(0, 16):\n    y[i] = x[i] + x[0]\n    y[i] = max(x[i], x[1])")
    assert "y[i] = x[0] + x[i]" in same(func, commute_expr(func, "i[0]", "x[i] + x[0]"))
    assert "y[i] = max(x[1], x[i])" in same(func, commute_expr(func, "i", "max(x[i], x[1])"))
