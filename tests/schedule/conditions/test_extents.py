"""Row B5 of the RFC: conditions as bounds of loops, and loops without the parts that never run."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, lift_conditions, partition_loop, restrict_loop, simplify
from support.schedule_checks import kernel, same

START = "for z in serial(0, 16):\n    y[z] = x[z]\n"


def test_b5_an_equality_and_a_bound_become_one_loop_of_two() -> None:
    func = kernel(
        START + "for i in serial(0, 4):\n    for j in serial(0, 4):\n"
        "        if i == 0 and j < 2:\n            y[4*i + j] = i32(0)"
    )
    s = Schedule.of(func).apply(lift_conditions, "i")
    s = s.apply(restrict_loop, "i").apply(restrict_loop, "j").apply(simplify)
    assert "    for j in serial(0, 2):\n        y[j] = i32(0)" in same(func, s)
    assert "if" not in same(func, s)


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_b5_a_nest_is_partitioned_under_a_condition_on_both_loops(order: str) -> None:
    func = kernel(
        START + "for i in serial(0, 4):\n    for j in serial(0, 4):\n"
        "        if i == 0 and j < 2:\n            y[4*i + j] = i32(0)"
    )
    s = Schedule.of(func)
    for loop in order:
        s = s.partition_loop(loop)
    assert "    for j in serial(0, 2):\n        y[j] = i32(0)" in same(func, s.simplify())
    assert "if" not in same(func, s)


def test_b5_each_part_keeps_what_is_open_of_a_conjunction() -> None:
    func = kernel(
        START + "for i in serial(0, 4):\n    for j in serial(0, 4):\n"
        "        if i == 2 and j < 2 and i + j < 3:\n            y[4*i + j] = i32(0)\n"
        "        else:\n            y[4*i + j] += i32(1)"
    )
    text = same(func, s := Schedule.of(func).partition_loop("i"))
    assert s.names(s.made["parts"]) == ("i", "i_part", "i_part_part")
    assert text.count("if ") == 1 and "if j_part < 2 and i_part + j_part < 3:" in text


@pytest.mark.parametrize(
    "condition", ["3*i == 9", "3*i == 10", "2*j == i", "i == 20", "4 - i == j"]
)
def test_b5_equalities_are_exact(condition: str) -> None:
    func = kernel(
        START + f"for j in serial(0, 4):\n    for i in serial(1, 8):\n        if {condition}:\n"
        "            y[2*i] = x[j]"
    )
    text = same(func, restrict_loop(func, "i"))
    assert "if" not in text


def test_b5_a_loop_is_partitioned_where_conditions_change() -> None:
    func = kernel(
        START + "for i in serial(0, 16):\n    if i < 3:\n        y[i] = x[0]\n    else:\n"
        "        if i < 12:\n            y[i] = x[1]"
    )
    done = partition_loop(func, "i")
    text = same(func, done)
    assert "for i in serial(0, 3)" in text
    assert "for i_part in serial(3, 12)" in text
    assert "if" not in text
    assert done.made["parts"] == ("i", "i_part")


def test_b5_a_part_in_which_nothing_is_decided_keeps_its_condition() -> None:
    func = kernel(
        "for io in serial(0, 4):\n    for ii in serial(0, 4):\n        if 4*io + ii < 14:\n"
        "            y[4*io + ii] = x[4*io + ii]"
    )
    text = same(func, s := Schedule.of(func).partition_loop("io"))
    assert "for io in serial(0, 3):\n        for ii in serial(0, 4):\n            y[" in text
    assert "for io_part in serial(3, 4):" in text and text.count("if ") == 1
    assert s.names(s.made["parts"]) == ("io", "io_part")


def test_b5_a_loop_that_is_not_worth_it_is_refused() -> None:
    every_second = kernel(
        START + "for i in serial(0, 16):\n    if i % 2 == 0:\n        y[i] = x[0]"
    )
    with pytest.raises(ScheduleError, match="would fall into 16 parts, and 8 is most"):
        partition_loop(every_second, "i")
    with pytest.raises(ScheduleError, match="no condition on z is decided"):
        partition_loop(every_second, "z")
