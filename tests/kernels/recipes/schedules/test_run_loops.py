"""The loops of kernels that walk memory in runs: the same elements in the same order."""

from __future__ import annotations

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.schedules.run_loops import in_runs
from graphflow.schedule import Schedule
from graphflow.tir import loops_of
from support.schedule_checks import kernel, same

CUBE = """
for i in serial(0, 2):
    for j in serial(0, 4):
        for k in serial(0, 2):
            y[8*i + 2*j + k] = x[8*i + 2*j + k]
"""


@pytest.mark.parametrize(
    ("run", "extents"),
    [(2, [2, 4, 2]), (1, [2, 4, 2, 1]), (4, [2, 2, 4]), (8, [2, 8]), (16, [16])],
)
def test_runs_join_as_few_loops_as_they_need(run: int, extents: list[int]) -> None:
    s = Schedule.of(func := kernel(CUBE))
    made, axes = in_runs(s, s.handles(loops_of(func.body)), run)
    same(func, made)
    left = [loop.extent for loop in loops_of(made.func.body)]
    assert left == [n for n in extents if n > 1]
    assert made.loop(made.present(axes)[-1]).extent == (run if run > 1 else 2)


def test_a_run_that_divides_nothing_is_refused() -> None:
    s = Schedule.of(func := kernel(CUBE))
    with pytest.raises(ScheduleError):
        in_runs(s, s.handles(loops_of(func.body)), 3)


def test_loops_with_something_between_are_refused() -> None:
    body = "for i in serial(0, 4):\n    y[4*i] = x[4*i]\n    for j in serial(1, 4):\n"
    s = Schedule.of(func := kernel(body + "        y[4*i + j] = x[4*i + j]"))
    with pytest.raises(ScheduleError):
        in_runs(s, s.handles(loops_of(func.body)), 4)
