"""Tests of blocks that overlap: where iterations may run again, refusals by clause, and traps."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, divide_with_recompute
from support.schedule_checks import kernel, same

SUMS = kernel("for i in serial(0, 14):\n    y[i] = i32(0)\n    y[i] += x[i] + x[i + 2]\n"
              "for z in serial(14, 16):\n    y[z] = i32(0)")  # fmt: skip


def test_blocks_overlap_by_what_is_left() -> None:
    s = Schedule.of(SUMS).apply(divide_with_recompute, "i", 3, 4, ("o", "n"))
    text = same(SUMS, s)
    assert "for o in serial(0, 3)" in text
    assert "for n in serial(0, 6)" in text
    assert s.names(s.made["parts"]) == ("o", "n")


@pytest.mark.parametrize(("count", "step"), [(1, 1), (1, 14), (2, 7), (4, 3), (13, 1), (14, 1)])
def test_every_count_and_step_compute_the_same(count: int, step: int) -> None:
    same(SUMS, divide_with_recompute(SUMS, "i", count, step, ("o", "n")))


def test_a_division_without_rest_needs_no_second_run() -> None:
    """Then the iterations need not be idempotent."""
    func = kernel("for z in serial(0, 16):\n    y[z] = i32(0)\nfor i in serial(0, 16):\n"
                  "    y[i // 2] += x[i]")  # fmt: skip
    same(func, divide_with_recompute(func, "i", 4, 4, ("o", "n")))


REFUSED = {
    "a sum would be added to twice": (
        "for z in serial(0, 16):\n    y[z] = i32(0)\nfor i in serial(0, 16):\n    y[i] += x[i]",
        (3, 4),
        "stores the elements of y before it reads them",
    ),
    "iterations depend on one another": (
        "for z in serial(0, 16):\n    y[z] = x[z]\nfor i in serial(0, 15):\n    y[i] = y[i + 1]",
        (3, 4),
        "the iterations of i are independent does not hold",
    ),
    "the last iteration wins": (
        "for z in serial(0, 16):\n    y[z] = x[z]\nfor i in serial(0, 16):\n    y[0] = x[i]",
        (3, 4),
        "the iterations of i are independent does not hold",
    ),
    "too many blocks": (
        "for i in serial(0, 16):\n    y[i] = x[i]",
        (5, 4),
        "more than the 16 of i",
    ),
    "no block": ("for i in serial(0, 16):\n    y[i] = x[i]", (0, 4), "both must be at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    body, (count, step), reason = REFUSED[case]
    with pytest.raises(ScheduleError, match=reason):
        divide_with_recompute(kernel(body), "i", count, step, ("o", "n"))
