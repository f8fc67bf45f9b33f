"""Loops that run through memory: which are contiguous, and pairs of them that are one loop."""

import pytest

from graphflow.arith import IndexExpr
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.contiguity import (
    as_one,
    inner_body,
    is_contiguous,
    nests_in,
    perfect_nest,
    run_on,
)
from graphflow.layout import channels_last
from graphflow.schedule import Schedule
from graphflow.tir import Access, For, PrimFunc, accesses, loops_of
from support.schedule_checks import kernel, same

COPY = "x: i32[4, 6], y: out[i32[4, 6]]"


def loop(func: PrimFunc, name: str) -> For:
    (found,) = (x for x in loops_of(func.body) if x.var.name == name)
    return found


@pytest.mark.parametrize(
    ("store", "contiguous"),
    [
        ("y[i, j] = x[i, j]", True),
        ("y[i, j] = x[i, 0]", True),  # one element for all lanes
        ("y[i, j] = x[i, 5 - j]", False),  # backwards
        ("y[i, j] = x[j % 4, i]", False),
        ("y[i, j] = x[i, j // 4]", True),  # the same in each vector of four
        ("y[i, j] = x[i, j // 3]", False),
        ("y[i, j] = x[i, j % 4]", True),
        ("y[i, j] = x[i, (j + 1) % 4]", False),  # goes back within a vector
        ("y[i, 0] = x[i, j]", False),  # lanes that store one element
        ("y[i, 0] += x[i, j]", True),  # which a reduction may
        ("y[i, j % 2] += x[i, j]", False),
    ],
)
def test_lanes_are_neighbours_or_one_element(store: str, contiguous: bool) -> None:
    func = kernel(f"for i in serial(0, 4):\n    for j in serial(0, 6):\n        {store}", COPY)
    row = loop(func, "j")
    assert is_contiguous(row, accesses(row.body), 4) is contiguous


def test_memory_may_be_that_of_layouts_which_are_not_applied_yet() -> None:
    layout = channels_last((1, 3, 2, 5))
    parameters = "x: i32[1, 3, 2, 5], y: out[i32[1, 3, 2, 5]]"
    body = (
        "for c in serial(0, 3):\n    for w in serial(0, 5):\n        y[0, c, 1, w] = x[0, c, 1, w]"
    )
    func = kernel(body, parameters)

    def place(access: Access) -> IndexExpr:
        inside = layout.physical_index(access.indices)
        return layout.buffer("b", "int32").flat_index(inside)

    for name, here, there in (("c", False, True), ("w", True, False)):
        touched = accesses(func.body)
        assert is_contiguous(loop(func, name), touched, 2) is here
        assert is_contiguous(loop(func, name), touched, 2, place) is there


def test_nests_are_seen_through_index_conditions_without_else() -> None:
    func = kernel(
        """
for i in serial(0, 4):
    if i < 3:
        for j in serial(0, 4):
            if data(x[j] > i32(0)):
                for k in serial(0, 4):
                    y[4*i + j] += x[k]
        for l in serial(0, 4):
            y[4*i + l] += x[l]
"""
    )
    outer = loop(func, "i")
    assert [nest.var.name for nest in nests_in(outer)] == ["j", "l"]
    assert perfect_nest(outer) == [outer]
    assert perfect_nest(loop(func, "j")) == [loop(func, "j")]
    assert inner_body(loop(func, "l").body) == loop(func, "l").body


@pytest.mark.parametrize(
    ("value", "runs_on"),
    [("x[i, j]", True), ("x[0, j]", False), ("x[i, 0]", False), ("x[0, 0]", True)],
)
def test_a_loop_runs_on_where_all_accesses_do(value: str, runs_on: bool) -> None:
    body = f"for i in serial(0, 4):\n    for j in serial(0, 6):\n        y[i, j] = {value}"
    func = kernel(body, COPY)
    assert run_on(loop(func, "i"), loop(func, "j")) is runs_on


def test_part_of_a_row_does_not_run_on() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 5):\n        y[i, j] = x[i, j]", COPY
    )
    assert not run_on(loop(func, "i"), loop(func, "j"))


def test_two_loops_become_one_with_the_axes_of_their_buffers() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 6):\n        y[i, j] = x[i, j]", COPY
    )
    s = Schedule.of(func)
    outer, inner = s.handles([loop(func, "i"), loop(func, "j")])
    joint_schedule, joint = as_one(s, outer, inner)
    one = joint_schedule.loop(joint)
    assert one.extent == 24
    assert is_contiguous(one, accesses(one.body), 8)
    assert all(len(param.buffer.shape) == 1 for param in joint_schedule.func.params)


def test_loops_with_something_between_stay_two() -> None:
    body = "for i in serial(0, 4):\n    y[i, 0] = x[i, 0]\n    for j in serial(1, 6):\n"
    s = Schedule.of(func := kernel(body + "        y[i, j] = x[i, j]", COPY))
    outer, inner = s.handles([loop(func, "i"), loop(func, "j")])
    with pytest.raises(ScheduleError):
        as_one(s, outer, inner)


def test_a_buffer_that_keeps_its_axes_holds_the_same() -> None:
    body = "for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[4*i + j] = x[4*i + j]"
    s = Schedule.of(func := kernel(body))
    outer, inner = s.handles([loop(func, "i"), loop(func, "j")])
    same(func, as_one(s, outer, inner)[0])
