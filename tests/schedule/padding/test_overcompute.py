"""Row B7 of the RFC: branching removed through overcompute, and overcompute through branching."""

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    remove_branching_through_overcompute,
    remove_overcompute_through_branching,
)
from graphflow.schedule.places.obligations import Unproven
from graphflow.tir import PrimFunc, interpret, parse, to_text, verify
from support.schedule_checks import kernel, same

GUARDED = (
    'with block("compute"):\n    for i in serial(0, 16):\n        if i < 14:\n            {body}\n'
)


def into_temporary(body: str, dtype: str = "i32") -> PrimFunc:
    """A guarded store to a buffer of which the part under the guard is copied to the output."""
    stages = GUARDED.format(body=body) + "for j in serial(0, 14):\n    y[j] = t[j]\n"
    return kernel(f"t = alloc({dtype}[16])\n{stages}", f"x: {dtype}[16], y: out[{dtype}[14]]")


def free(func: PrimFunc, place: str = "compute") -> str:
    return same(func, remove_branching_through_overcompute(func, place))


def test_b7_overwritten_later_by_any_statement() -> None:
    later = "for j in serial(0, 16):\n    if {condition}:\n        y[j] = i32(0)\n"
    body = GUARDED.format(body="y[i] = x[i]")
    assert "i < 14" not in free(kernel(body + later.format(condition="j // 2 == 7")))
    with pytest.raises(Unproven, match=r"y\[i\] at i=14 is left in the output") as refused:
        free(kernel(body + later.format(condition="j == 15")))
    assert ("i", 14) in refused.value.proof.witness


def test_b7_overwritten_in_a_later_iteration() -> None:
    text = """
for r in serial(0, 2):
    with block("compute"):
        for i in serial(0, 16):
            if i < {bound}:
                t[i] = x[i]
    for j in serial(0, 16):
        t[j] = x[15 - j]
    for k in serial(0, 16):
        y[k] = t[k]
"""
    func = kernel("t = alloc(i32[16])" + text.format(bound=14))
    assert "i < 14" not in free(func)


def test_b7_freed_unread() -> None:
    func = kernel(
        """
for r in serial(0, 2):
    t = alloc(i32[8])
    with block("compute"):
        for i in serial(0, 8):
            if i < 7:
                t[i] = x[8*r + i]
    for j in serial(0, 7):
        y[8*r + j] = t[j]
    y[8*r + 7] = x[8*r]
"""
    )
    assert "i < 7" not in free(func)
    read = to_text(func).replace("t[j]", "t[j + 1]").replace("serial(0, 7)", "serial(0, 6)")
    free(parse(read.replace("t[j + 1]", "t[j]")))
    with pytest.raises(ScheduleError, match="is never read does not hold"):
        free(parse(to_text(func).replace("t[j]", "t[j + 1]")))


def test_b7_the_same_value() -> None:
    start = "for z in serial(0, 16):\n    y[z] = {value}\n"
    body = GUARDED.format(body="y[i] = x[i]")
    assert "i < 14" not in free(kernel(start.format(value="x[z]") + body))
    with pytest.raises(ScheduleError, match="is never read does not hold"):
        free(kernel(start.format(value="x[0]") + body))


def test_b7_a_temporary_and_the_sum_that_reads_it() -> None:
    func = kernel(
        """
y[0] = i32(0)
t = alloc(i32[16])
with block("x_padding", padding_of="x", padding="value"):
    for a in serial(14, 16):
        assume(unless(False), x[a] == i32(0))
with block("compute"):
    for i in serial(0, 16):
        if i < 14:
            t[i] = x[i]
            y[0] += x[i]
""",
        "x: i32[16], y: out[i32[1]]",
    )
    done = remove_branching_through_overcompute(func, "compute")
    assert "i < 14" not in to_text(done.func)
    x = np.append(np.arange(14), [0, 0]).astype("int32")
    assert interpret(done.func, {"x": x})["y"] == x.sum()


def test_b7_an_index_that_would_leave_the_buffer_is_reduced() -> None:
    func = into_temporary("t[i] = x[i + 2]")
    with pytest.raises(ScheduleError, match=r"access x\[i \+ 2\] stays in bounds does not hold"):
        free(func)
    done = remove_branching_through_overcompute(func, "compute", wrap=True)
    assert "t[i] = x[(i + 2) % 16]" in same(func, done)


def test_b7_a_load_that_would_leave_the_buffer_is_zero() -> None:
    func = into_temporary("t[i] = x[i + 2]")
    done = remove_branching_through_overcompute(func, "compute", fill=True)
    assert "t[i] = select(i < 14, x[i + 2], i32(0))" in same(func, done)
    inside = into_temporary("t[i] = x[i]")
    done = remove_branching_through_overcompute(inside, "compute", fill=True)
    assert "t[i] = x[i]" in same(inside, done)


def test_b7_what_is_zero_is_false_among_bools() -> None:
    func = into_temporary("t[i] = x[i + 2]", "bool")
    done = remove_branching_through_overcompute(func, "compute", fill=True)
    assert "t[i] = select(i < 14, x[i + 2], bool(False))" in same(func, done)
    verify(done.func, "scheduled")


def test_b7_what_is_zero_must_not_be_seen() -> None:
    func = kernel(
        "for z in serial(0, 16):\n    y[z] = i32(1)\n" + GUARDED.format(body="y[i] = x[i + 2]")
    )
    with pytest.raises(ScheduleError, match="is never read does not hold"):
        remove_branching_through_overcompute(func, "compute", fill=True)


def test_b7_a_store_is_not_wrapped() -> None:
    start = "for z in serial(0, 16):\n    y[z] = x[z]\n"
    func = kernel(start + GUARDED.format(body="y[i + 2] = x[i]"))
    with pytest.raises(ScheduleError, match=r"y\[i \+ 2\] stays in bounds does not hold"):
        remove_branching_through_overcompute(func, "compute", wrap=True)


SUM = """
with block("x_padding", padding_of="x", padding="value"):
    for a in serial(14, 16):
        assume(unless(False), x[a] == i32(0))
y[0] = i32(0)
with block("compute"):
    for i in serial(0, 16):
        y[0] += x[i]
"""


def test_b7_overcompute_removed_by_branching() -> None:
    func = kernel(SUM, "x: i32[16], y: out[i32[1]]")
    done = remove_overcompute_through_branching(func, "i", "i < 14")
    assert "if i < 14:" in to_text(done.func)
    back = remove_branching_through_overcompute(done.func, "compute")
    assert to_text(back.func) == to_text(func)
    x = np.append(np.arange(14), [0, 0]).astype("int32")
    assert interpret(done.func, {"x": x})["y"] == x.sum()


def test_b7_what_has_an_effect_is_not_excluded() -> None:
    func = kernel(SUM, "x: i32[16], y: out[i32[1]]")
    with pytest.raises(Unproven, match="is never read does not hold; and as a reduction"):
        remove_overcompute_through_branching(func, "i", "i < 13")
    with pytest.raises(ScheduleError, match="k in k < 13 is no loop around the body of i"):
        remove_overcompute_through_branching(func, "i", "k < 13")
    with pytest.raises(ScheduleError, match="i < 16 holds for every iteration of i"):
        remove_overcompute_through_branching(func, "i", "i < 16")


@pytest.mark.parametrize("body", ["y[i] = x[i]", "y[i] = x[i]\n    y[i] += x[0]"])
def test_what_a_call_writes_is_an_effect(body: str) -> None:
    """A call has no statements of its own, and what it performs is not lost."""
    func = kernel(f'for i in serial(0, 16):\n  with block("b"):\n    {body}')
    s = Schedule.of(func).extract_subproc("b", "part")
    with pytest.raises(ScheduleError, match=r"y\[i\] at i=\d+ is left in the output"):
        s.remove_overcompute_through_branching("i", "i < 5")
    inner = kernel('for i in serial(0, 16):\n  if i < 14:\n    with block("b"):\n      y[i] = x[i]')
    with pytest.raises(ScheduleError, match=r"at i=1[45] is left in the output"):
        Schedule.of(inner).extract_subproc("b", "part").remove_branching_through_overcompute("i")


def test_a_call_whose_writes_are_overwritten_has_no_effect() -> None:
    later = "for j in serial(0, 16):\n  y[j] = i32(0)"
    func = kernel(f'for i in serial(0, 16):\n  with block("b"):\n    y[i] = x[i]\n{later}')
    s = Schedule.of(func).extract_subproc("b", "part")
    assert "if i < 5" in same(func, s.remove_overcompute_through_branching("i", "i < 5"))
