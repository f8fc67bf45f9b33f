"""Tests of stages that meet at shared loops: which loops are shared, and where none is."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.kernels.definitions.reductions import normalization, reduction
from graphflow.kernels.recipes.analysis.shared_loops import joined_stages, rows_of_stages
from graphflow.tir import Block, to_text
from support.schedule_checks import kernel, same

TWO = "x: i32[4, 6], y: out[i32[4, 6]]"
COLUMNS = """
t = alloc(i32[6])
with block("sums"):
    for c in serial(0, 6):
        t[c] = i32(0)
        for r in serial(0, 4):
            t[c] += x[r, c]
with block("scaled"):
    for i in serial(0, 4):
        for j in serial(0, 6):
            y[i, j] = x[i, j] * t[j]
"""


def test_rows_of_a_softmax_are_shared() -> None:
    definition = reduction.softmax((3, 5, 7), (2,))
    s, shared = rows_of_stages(definition)
    assert len(shared) == 2
    assert sum(isinstance(stmt, Block) for stmt in s.func.body) == 1
    assert "powers = alloc(f32[7], scratch)" in to_text(s.func)


def test_loops_that_are_no_outermost_ones_change_places() -> None:
    func = kernel(COLUMNS, TWO)
    s, (column,) = joined_stages(func)
    assert s[column] == "c"
    same(func, s)


def test_an_output_that_a_later_stage_reads_is_between_stages() -> None:
    func = kernel(
        """
with block("twice"):
    for i in serial(0, 4):
        for j in serial(0, 6):
            y[i, j] = x[i, j] + x[i, j]
with block("sums"):
    for r in serial(0, 4):
        z[r] = i32(0)
        for c in serial(0, 6):
            z[r] += y[r, c]
""",
        "x: i32[4, 6], y: out[i32[4, 6]], z: out[i32[4]]",
    )
    s, (row,) = joined_stages(func)
    assert s.loop(row).extent == 4
    same(func, s)


def test_groups_are_a_loop_of_their_own() -> None:
    s, shared = joined_stages(normalization.group_normalization((2, 6, 3, 4), 3, 6))
    assert [s.loop(place).extent for place in shared] == [2, 3]


def test_all_stages_of_a_normalization_are_one_nest() -> None:
    s, (row,) = rows_of_stages(normalization.layer_normalization((5, 8), 1, (8,), (8,)))
    assert s.loop(row).extent == 5
    assert to_text(s.func).count("alloc(f32[()], register)") == 4


REDUCED = """
t = alloc(i32[4])
with block("sums"):
    for c in serial(0, 4):
        t[c] = i32(0)
        for r in serial(0, 6):
            t[c] += x[c, r]
u = alloc(i32[1])
with block("total"):
    u[0] = i32(0)
    for k in serial(0, 4):
        u[0] += t[k]
with block("scaled"):
    for i in serial(0, 4):
        for j in serial(0, 6):
            y[i, j] = x[i, j] * t[i] + u[0]
"""


def test_a_loop_that_some_stage_reduces_over_is_not_shared() -> None:
    func = kernel(REDUCED, TWO)
    s, shared = joined_stages(func)
    assert shared == ()
    same(func, s)


REFUSED = {
    "another iteration's element": (
        """
t = alloc(i32[4, 6])
with block("copy"):
    for c in serial(0, 4):
        for r in serial(0, 6):
            t[c, r] = x[c, r]
with block("turned"):
    for i in serial(0, 4):
        for j in serial(0, 6):
            y[i, j] = t[i, j] + t[3 - i, j]
""",
        "independent|needs a later one",
    ),
    "a statement beside a stage": (
        'y[0, 0] = i32(0)\nwith block("b"):\n    for i in serial(0, 4):\n'
        "        for j in serial(0, 6):\n            y[i, j] = x[i, j]",
        "outside of its stages",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_stages_that_cannot_meet_are_refused(name: str) -> None:
    body, reason = REFUSED[name]
    with pytest.raises(ScheduleError, match=reason):
        joined_stages(kernel(body, TWO))


def test_a_single_stage_shares_the_loops_that_it_does_not_reduce_over() -> None:
    for row, count in (("i", 1), ("0", 0)):
        body = f"""
with block("b"):
    for i in serial(0, 4):
        for j in serial(0, 6):
            y[{row}, 0] += x[i, j]
"""
        _, shared = joined_stages(kernel(body, TWO))
        assert len(shared) == count
