"""Row B1 of the RFC: the elements that a kernel touches, and the condition under which it does."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.effects import domain_touched
from graphflow.schedule import Schedule
from support.schedule_checks import kernel

FUNC = kernel(
    """
t = alloc(i32[16])
with block("compute"):
    for i in serial(0, 4):
        for j in serial(0, 4):
            if 4*i + j < 14:
                t[4*i + j] = x[4*i + j]
                if data(x[0] < i32(0)):
                    y[4*i + j] = t[4*i + j]
"""
)


def test_b1_the_predicate_is_part_of_the_answer() -> None:
    touched = Schedule.of(FUNC).domain_touched("t")
    assert touched.written.box == ((0, 14),)
    assert touched.written.count == touched.must_write.count == 14
    assert str(touched).splitlines() == [
        "t int32[16]",
        "  read: [0:14], 14 elements: { [i0] : 0 <= i0 <= 13 }",
        "    [4*i + j] in compute for 0 <= i < 4, 0 <= j < 4, 4*i + j < 14, if x[0] < i32(0)",
        "  written: [0:14], 14 elements: { [i0] : 0 <= i0 <= 13 }",
        "    [4*i + j] in compute for 0 <= i < 4, 0 <= j < 4, 4*i + j < 14",
    ]


def test_b1_what_data_decide_may_be_written_and_need_not() -> None:
    touched = domain_touched(FUNC, FUNC.param("y"))
    assert touched.written.count == 14
    assert touched.must_write.count == 0
    assert touched.read.text == "nothing"
    assert "written for all data: nothing" in str(touched)


def test_b1_refuses_a_buffer_that_is_not_there() -> None:
    with pytest.raises(ScheduleError, match="k has no buffer q"):
        Schedule.of(FUNC).domain_touched("q")
