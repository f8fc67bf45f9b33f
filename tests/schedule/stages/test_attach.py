"""Tests of `compute_at`: halos, bands of convolutions, refusals by clause, and traps."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    compute_at,
    divide_loop,
    parallelize_loop,
    reorder_loops,
    simplify,
)
from graphflow.tir import PrimFunc
from support.schedule_checks import kernel, same

BLUR = kernel(
    """
t = alloc(i32[32])
with block("p"):
    for a in serial(0, 32):
        t[a] = x[a] * i32(2)
with block("q"):
    for i in serial(0, 32):
        y[i] = t[i]
        if i > 0:
            y[i] += t[i - 1]
        if i < 31:
            y[i] += t[i + 1]
""",
    "x: i32[32], y: out[i32[32]]",
)

BLUR_2D = kernel(
    """
t = alloc(i32[10, 14])
with block("p"):
    for a in serial(0, 10):
        for b in serial(0, 14):
            t[a, b] = x[a, b] * i32(2)
with block("q"):
    for i in serial(0, 8):
        for j in serial(0, 12):
            y[i, j] = t[i, j] + t[i + 1, j + 1] + t[i + 2, j] + t[i, j + 2]
""",
    "x: i32[10, 14], y: out[i32[8, 12]]",
)

CONVOLUTIONS = kernel(
    """
t = alloc(i32[3, 10])
with block("first"):
    for c in serial(0, 3):
        for r in serial(0, 10):
            t[c, r] = i32(1)
            for ci in serial(0, 2):
                for k in serial(0, 3):
                    if r + k >= 1 and r + k <= 10:
                        t[c, r] += x[ci, r + k - 1] * f[c, ci, k]
with block("second"):
    for o in serial(0, 2):
        for q in serial(0, 10):
            y[o, q] = i32(0)
            for oi in serial(0, 3):
                for m in serial(0, 3):
                    if q + m >= 1 and q + m <= 10:
                        y[o, q] += t[oi, q + m - 1] * g[o, oi, m]
""",
    "x: i32[2, 10], f: i32[3, 2, 3], g: i32[2, 3, 3], y: out[i32[2, 10]]",
)


def test_a_blur_takes_its_neighbours_at_each_element() -> None:
    text = same(BLUR, compute_at(BLUR, "p", "i"))
    assert "t = alloc(i32[3], scratch)" in text
    assert "for a in serial(max(0, i - 1), min(31, i + 1) + 1)" in text


def test_a_blur_in_blocks_recomputes_the_borders() -> None:
    s = Schedule.of(BLUR).apply(divide_loop, "i", 8, ("o", "n")).apply(compute_at, "p", "o")
    text = same(BLUR, s)
    assert "t = alloc(i32[10], scratch)" in text
    assert "for a in serial(max(0, 8*o - 1), min(31, 8*o + 8) + 1)" in text
    same(BLUR, s.apply(parallelize_loop, "o"))


def test_a_tail_computes_no_more_than_the_extent_needs() -> None:
    s = Schedule.of(BLUR).apply(divide_loop, "i", 12, ("o", "n")).apply(compute_at, "p", "o")
    assert "for a in serial(max(0, 12*o - 1), min(12*o + 12, 31) + 1)" in same(BLUR, s)


def test_a_blur_of_two_dimensions_in_tiles() -> None:
    s = Schedule.of(BLUR_2D).apply(divide_loop, "i", 4, ("io", "ii"))
    s = s.apply(divide_loop, "j", 4, ("jo", "ji")).apply(reorder_loops, ("io", "jo", "ii", "ji"))
    s = s.apply(compute_at, "p", "jo")
    text = same(BLUR_2D, s)
    assert "t = alloc(i32[6, 6], scratch)" in text
    assert "for a in serial(4*io, 4*io + 6)" in text
    assert "for b in serial(4*jo, " in text  # the last columns of the last rows are not needed


def test_convolutions_in_bands_of_rows() -> None:
    s = Schedule.of(CONVOLUTIONS).apply(reorder_loops, ("q", "o"))
    s = s.apply(divide_loop, "q", 4, ("band", "row")).apply(compute_at, "first", "band")
    text = same(CONVOLUTIONS, s.apply(simplify))
    assert "t = alloc(i32[3, 6], scratch)" in text
    assert "for r in serial(max(0, 4*band - 1), min(4*band + 4, 9) + 1)" in text
    assert "for ci in serial(0, 2)" in text


def test_a_chain_moves_with_the_buffers_it_has_inside() -> None:
    func = kernel(
        """
t = alloc(i32[20])
u = alloc(i32[18])
with block("a"):
    for ai in serial(0, 20):
        t[ai] = x[ai]
with block("b"):
    for bi in serial(0, 18):
        u[bi] = t[bi] + t[bi + 2]
with block("c"):
    for ci in serial(0, 16):
        y[ci] = u[ci] + u[ci + 2]
""",
        "x: i32[20], y: out[i32[16]]",
    )
    s = Schedule.of(func).apply(divide_loop, "ci", 4, ("o", "n"))
    inner_first = s.apply(compute_at, "a", "bi").apply(compute_at, "b", "o")
    outer_first = s.apply(compute_at, "b", "o").apply(compute_at, "a", "o")
    assert "t = alloc(i32[3], scratch)" in same(func, inner_first)
    text = same(func, outer_first)
    assert "u = alloc(i32[6], scratch)" in text
    assert "t = alloc(i32[8], scratch)" in text


def test_two_corners_are_two_nests() -> None:
    func = kernel(
        """
t = alloc(i32[4, 4])
with block("p"):
    for a in serial(0, 4):
        for b in serial(0, 4):
            t[a, b] = x[a, b]
with block("q"):
    for r in serial(0, 3):
        for i in serial(0, 2):
            for j in serial(0, 2):
                y[r, i, j] = t[i, j] + t[i + 2, j + 2]
""",
        "x: i32[4, 4], y: out[i32[3, 2, 2]]",
    )
    s = Schedule.of(func)
    first = s.handle("a")
    s = s.apply(compute_at, "p", "r")
    text = same(func, s)
    assert "for a in serial(0, 2)" in text
    assert "for a_2 in serial(2, 4)" in text
    assert [s[part] for part in s.forward(first)] == ["a", "a_2"]
    assert s.names(s.made["stages"]) == ("p", "p_2")


def test_a_stage_under_an_index_condition_keeps_it() -> None:
    func = kernel(
        """
for g in serial(0, 4):
    t = alloc(i32[4])
    if g < 3:
        for a in serial(0, 4):
            t[a] = x[4*g + a]
    for i in serial(0, 4):
        y[4*g + i] = i32(7)
        if g < 3:
            y[4*g + i] = t[3 - i]
"""
    )
    text = same(func, compute_at(func, "a", "i"))
    assert "for a in serial(-i + 3, -i + 4)" in text


# Refusals, one for each clause --------------------------------------------------------------------

PAIR = """
t = alloc(i32[16])
{before}
with block("p"):
    for a in serial(0, 16):
        {store}
{between}
with block("q"):
    for i in serial(0, 16):
        {read}
{behind}
"""
REFUSED = {
    "two buffers": (
        {"store": "t[a] = x[a]\n        y[a] = x[a]", "read": "z[i] = t[i]"},
        "stores t and y; a stage that moves stores one buffer",
    ),
    "a parameter": (
        {"store": "y[a] = x[a]", "read": "t[i] = y[i]\n        z[i] = t[i]"},
        "y is a parameter, which others see",
    ),
    "another stage stores it": (
        {"before": "t[3] = i32(0)", "read": "y[i] = t[i]"},
        r"t is stored outside p too, as t\[3\]",
    ),
    "another stage reads it": (
        {"read": "y[i] = t[i]", "behind": "for z0 in serial(0, 16):\n    z[z0] = t[z0]"},
        r"t is read outside i too, as t\[z0\]",
    ),
    "the loop does not read it": ({"read": "y[i] = x[i]"}, "i does not read t"),
    "its input changes in between": (
        {
            "before": "u = alloc(i32[16])\nfor u0 in serial(0, 16):\n    u[u0] = x[u0]",
            "store": "t[a] = u[a]",
            "between": "for u1 in serial(2, 3):\n    u[u1] = i32(1)",
            "read": "y[i] = t[i]",
        },
        "what p reads stays the same until the loop ends does not hold.*a=2",
    ),
    "its input changes in the loop": (
        {
            "before": "u = alloc(i32[16])\nfor u0 in serial(0, 16):\n    u[u0] = x[u0]",
            "store": "t[a] = u[a]",
            "read": "y[i] = t[i]\n        u[15 - i] = i32(1)",
        },
        "what p reads stays the same until the loop ends does not hold",
    ),
    "it reads more of itself": (
        {
            "store": "t[a] = x[a]\n        if a > 0:\n            t[a] = x[a] + t[a - 1]",
            "read": "y[i] = t[i]",
        },
        r"reads t\[a - 1\] of its own buffer, of which i does not need all",
    ),
}


def pair(parts: dict[str, str]) -> PrimFunc:
    """A kernel of two stages; parts that are not given are the usual ones."""
    usual = {"before": "", "between": "", "behind": "", "store": "t[a] = x[a]"}
    text = PAIR.format(**(usual | parts))
    params = "x: i32[16], y: out[i32[16]], z: out[i32[16]]"
    if "z[" not in text:
        text += "\nfor zz in serial(0, 16):\n    z[zz] = x[zz]"
    if "y[" not in text:
        text += "\nfor yy in serial(0, 16):\n    y[yy] = x[yy]"
    return kernel(text, params)


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    parts, reason = REFUSED[case]
    with pytest.raises(ScheduleError, match=reason):
        compute_at(pair(parts), "p", "i")


def test_a_stage_must_come_before_the_loop_and_in_its_loops() -> None:
    with pytest.raises(ScheduleError, match="q does not come before a"):
        compute_at(BLUR, "q", "a")
    with pytest.raises(ScheduleError, match="p does not come before a"):
        compute_at(BLUR, "p", "a")
    func = kernel(
        "t = alloc(i32[16])\nfor g in serial(0, 1):\n    for a in serial(0, 16):\n"
        "        t[a] = x[a]\nfor i in serial(0, 16):\n    y[i] = t[i]"
    )
    with pytest.raises(ScheduleError, match="a is in a loop that is not around i"):
        compute_at(func, "a", "i")


def test_a_stage_under_a_condition_on_data_stays() -> None:
    func = kernel(
        "t = alloc(i32[16])\nif data(x[0] > i32(0)):\n    for a in serial(0, 16):\n"
        "        t[a] = x[a]\nfor i in serial(0, 16):\n    y[i] = t[i]"
    )
    with pytest.raises(ScheduleError, match="a is under a condition on data"):
        compute_at(func, "a", "i")


# Traps --------------------------------------------------------------------------------------------


def test_what_is_read_after_it_changes_elsewhere_may_move() -> None:
    """The input changes only where the stage does not read it."""
    parts = {
        "before": "u = alloc(i32[32])\nfor u0 in serial(0, 16):\n    u[u0] = x[u0]",
        "store": "t[a] = u[a]",
        "between": "for u1 in serial(16, 32):\n    u[u1] = i32(1)",
        "read": "y[i] = t[i] + u[i + 16]",
    }
    func = pair(parts)
    same(func, compute_at(func, "p", "i"))


def test_a_sum_begins_anew_when_it_is_computed_again() -> None:
    func = kernel(
        """
t = alloc(i32[6])
with block("p"):
    for a in serial(0, 6):
        t[a] = i32(0)
    for b in serial(0, 6):
        for k in serial(0, 3):
            t[b] += x[b + k]
with block("q"):
    for i in serial(0, 4):
        y[i] = t[i] + t[i + 1] + t[i + 2]
""",
        "x: i32[8], y: out[i32[4]]",
    )
    text = same(func, compute_at(func, "p", "i"))
    assert "for a in serial(i, i + 3)" in text
    assert "for k in serial(0, 3)" in text


@pytest.mark.parametrize(
    ("doubled", "summed"),
    [
        (
            "with let(x[i] * i32(2)) as d:\n            t[i] = d[()] + x[i]",
            "with let(t[j] + t[j + 1]) as a:\n            y[j] = a[()] + t[j + 2]",
        ),
        (
            "with t[i:i + 1] as e:\n            e[0] = x[i] * i32(3)",
            "with t[j:j + 3] as a:\n            y[j] = a[0] + a[1] + a[2]",
        ),
    ],
)
def test_stages_with_lets_and_windows_are_attached(doubled: str, summed: str) -> None:
    func = kernel(
        f"""
t = alloc(i32[16])
with block("double"):
    for i in serial(0, 16):
        {doubled}
with block("sum"):
    for j in serial(0, 14):
        {summed}
""",
        "x: i32[16], y: out[i32[14]]",
    )
    text = same(func, compute_at(func, "double", "j"))
    assert "t = alloc(i32[3], scratch)" in text and text.count("with ") == 4
