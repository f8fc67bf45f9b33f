"""Tests of the primitives that add and remove loops of idempotent statements."""

import pytest

from graphflow.arith import Var
from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, add_loop, remove_loop
from graphflow.tir import to_text
from support.schedule_checks import kernel, same

REPEATED = """
for i in serial(0, 16):
    for r in serial(0, 3):
        with block("b"):
            y[i] = x[i]
"""


# -- remove_loop


def test_remove_loop() -> None:
    func = kernel(REPEATED)
    done = remove_loop(func, "r")
    assert same(func, done) == to_text(
        kernel('for i in serial(0, 16):\n    with block("b"):\n        y[i] = x[i]')
    )
    assert done.places == {"r": ()}
    s = Schedule.of(func)
    block = s.handle("b")
    assert s.apply(remove_loop, "r")[block] == "b"


def test_remove_loop_of_what_starts_over() -> None:
    """The sum reads what an earlier one left, but only what this iteration stored."""
    func = kernel(
        "for r in serial(0, 3):\n    t = alloc(i32[4])\n    for i in serial(0, 16):\n"
        "        y[i] = i32(0)\n        for k in serial(0, 4):\n            t[k] = x[k]\n"
        "            y[i] += t[k]"
    )
    same(func, remove_loop(func, "r"))


def test_remove_loop_refuses_what_reads_earlier_iterations() -> None:
    """Trap: a reduction depends on no loop variable, and yet each iteration adds again."""
    func = kernel("y[0] = i32(0)\nfor r in serial(0, 3):\n    y[0] += x[5]")
    with pytest.raises(ScheduleError) as refused:
        remove_loop(func, "r")
    assert "the body of r is idempotent does not hold" in str(refused.value)
    assert "what y[0] at r=0 holds is read by y[0] at r'=1" in str(refused.value)


def test_remove_loop_refuses_where_data_decide() -> None:
    func = kernel(
        "y[0] = i32(0)\ny[1] = i32(0)\nfor r in serial(0, 3):\n"
        "    if data(x[0] < i32(3)):\n        y[0] = y[1] + i32(1)\n    y[1] = y[0]"
    )
    with pytest.raises(ScheduleError, match=r"idempotent is not proven: .*where data decide"):
        remove_loop(func, "r")


# -- add_loop


@pytest.mark.parametrize("guard", [False, True])
def test_add_loop(guard: bool) -> None:
    func = kernel("for i in serial(0, 16):\n    y[i] = x[i]")
    text = same(func, add_loop(func, "i[0]", "r", Var("i") + 1, guard=guard))
    inside = "if r == 0:\n                y[i] = x[i]" if guard else "y[i] = x[i]"
    assert f"for r in serial(0, i + 1):\n            {inside}" in text
    assert add_loop(func, "i", "r", 2, guard).made == {"loop": ("r",)}


def test_add_loop_refuses_what_is_not_idempotent_without_a_guard() -> None:
    func = kernel("y[0] = i32(0)\nfor i in serial(0, 16):\n    y[0] += x[i]")
    with pytest.raises(ScheduleError) as refused:
        add_loop(func, "i", "r", 2)
    assert "the body of r is idempotent does not hold" in str(refused.value)
    assert "r=0" in str(refused.value) and "r'=1" in str(refused.value)
    same(func, add_loop(func, "i", "r", 2, guard=True))


def test_add_loop_refuses_extents_that_are_not_positive() -> None:
    func = kernel("for i in serial(0, 16):\n    y[i] = x[i]")
    with pytest.raises(ScheduleError, match="0 is positive does not hold"):
        add_loop(func, "i", "r", 0)
    with pytest.raises(ScheduleError) as refused:
        add_loop(func, "i[0]", "r", Var("i"))
    assert "i is positive does not hold" in str(refused.value) and "i=0" in str(refused.value)
    with pytest.raises(ScheduleError, match="no loop around the place binds it"):
        add_loop(func, "i", "r", Var("i"))
