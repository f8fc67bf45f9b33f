"""Tests of conditions around what makes elements that a run does not read."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.kernels.lowering.sized_rows import BoxAxis
from graphflow.kernels.lowering.unread_rows import reads_below, with_conditions_on_unread

STAGES = """
@primfunc
def stages(x: f32[24, 16], size: i64[()], y: out[f32[24, 16]]):
    for p in parallel(0, 2):
        s = alloc(f32[192], scratch)
        for t in serial(0, 3):
            for a in serial(0, 4):
                for c in vectorized(0, 16):
                    s[64*t + 16*a + c] = x[12*p + 4*t + a, c] * f32(2.0)
        for t_1 in serial(0, 3):
            if data(index(12*p + 4*t_1, i64) < size[()]):
                for a_1 in unrolled(0, 4):
                    for c_1 in vectorized(0, 16):
                        y[12*p + 4*t_1 + a_1, c_1] = s[64*t_1 + 16*a_1 + c_1]
"""


def conditions(func: tir.PrimFunc, buffer: str) -> list[str]:
    """The indices that are below counts around the stores to a buffer."""
    return [
        str(guard.left.index)
        for site in tir.sites(func.body)
        if isinstance(site.stmt, tir.Store) and site.stmt.buffer.name == buffer
        for guard in site.guards
        if isinstance(guard, tir.Comparison) and isinstance(guard.left, tir.IndexValue)
    ]


@pytest.mark.parametrize("size", [0, 1, 4, 5, 13, 24])
def test_what_is_not_read_is_not_computed(size: int) -> None:
    func = tir.parse(STAGES.strip())
    made = with_conditions_on_unread(func)
    tir.verify(made, "lowered")
    assert conditions(made, "s") == ["12*p + 4*t"]
    x = np.random.default_rng(size).standard_normal((24, 16)).astype(np.float32)
    given = {"x": x, "size": np.array(size, np.int64)}
    got, want = (tir.interpret(f, given)["y"][:size] for f in (made, func))
    np.testing.assert_array_equal(got, want)


def test_stages_before_it_follow() -> None:
    text = STAGES.replace(
        "        for t in serial",
        "        r = alloc(f32[3, 4, 16], scratch)\n"
        "        for t_0 in serial(0, 3):\n"
        "            for a_0 in serial(0, 4):\n"
        "                for c_0 in vectorized(0, 16):\n"
        "                    r[t_0, a_0, c_0] = x[12*p + 4*t_0 + a_0, c_0]\n"
        "        for t in serial",
    ).replace("= x[12*p + 4*t + a, c] *", "= r[t, a, c] *")
    made = with_conditions_on_unread(tir.parse(text.strip()))
    assert conditions(made, "s") == ["12*p + 4*t"]
    assert conditions(made, "r") == ["12*p + 4*t_0"]


def test_rows_are_those_of_single_elements_where_all_are_read_below_them() -> None:
    """Each quarter of a tile has a condition of its own, so what makes it may have that too."""
    text = STAGES.replace("a_1 in unrolled", "a_1 in serial").replace(
        "                    for c_1 in vectorized(0, 16):\n                        y[",
        "                    if data(index(12*p + 4*t_1 + a_1, i64) < size[()]):\n"
        "                        for c_1 in vectorized(0, 16):\n                            y[",
    )
    made = with_conditions_on_unread(tir.parse(text.strip()))
    tir.verify(made, "lowered")
    assert conditions(made, "s") == ["12*p + 4*t"]  # a vector is too little for a condition


def test_loops_may_begin_at_variables_outside() -> None:
    """As channels of a group do, which the number of the iteration names."""
    text = STAGES.replace("t_1 in serial(0, 3)", "t_1 in serial(3*p, 3*p + 3)")
    text = text.replace("12*p + 4*t_1", "4*t_1").replace("s[64*t_1 +", "s[-192*p + 64*t_1 +")
    text = text.replace("c_1 in vectorized(0, 16)", "c_1 in vectorized(16*p, 16*p + 16)")
    text = text.replace("+ c_1]", "- 16*p + c_1]").replace("a_1, c_1] =", "a_1, -16*p + c_1] =")
    made = with_conditions_on_unread(tir.parse(text.strip()))
    assert conditions(made, "s") == ["12*p + 4*t"]


READ_WITHOUT = "                        y[12*p + 4*t_1 + a_1, c_1] = s[64*t_1 + 16*a_1 + c_1]"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            READ_WITHOUT,
            READ_WITHOUT + "\n            else:\n                y[12*p + 4*t_1, 0] = s[64*t_1]",
        ),
        (READ_WITHOUT, READ_WITHOUT + "\n            y[12*p + 4*t_1, 1] = s[64*t_1 + 1]"),
        ("= s[64*t_1 +", "= s[-64*t_1 + 128 +"),
        ("= s[64*t_1 + 16*a_1", "= s[16*t_1 + 48*a_1"),
        ("index(12*p + 4*t_1, i64)", "index(12*p + 8, i64)"),
    ],
    ids=["else", "beside", "backwards", "interleaved", "whole"],
)
def test_what_is_read_elsewhere_is_computed(old: str, new: str) -> None:
    assert old in STAGES
    func = tir.parse(STAGES.replace(old, new).strip())
    made = with_conditions_on_unread(func)
    size = 6
    x = np.random.default_rng(0).standard_normal((24, 16)).astype(np.float32)
    given = {"x": x, "size": np.array(size, np.int64)}
    got, want = (tir.interpret(f, given)["y"] for f in (made, func))
    np.testing.assert_array_equal(got, want)
    if "interleaved" not in new and "else" in new:
        assert conditions(made, "s") == []


PANELS = """
@instruction
def fma(c: inout[f32[4]], b: f32[4]):
    for lane in vectorized(0, 4):
        c[lane] += b[lane]

@primfunc
def panels(x: f32[16, 8], size: i64[()], y: out[f32[16]]):
    for p in parallel(0, 1):
        s = alloc(f32[8, 16], scratch)
        for t in serial(0, 4):
            for k in serial(0, 8):
                for a in vectorized(0, 4):
                    s[k, 4*t + a] = x[4*t + a, k]
        for t_1 in serial(0, 2):
            if data(index(8*t_1, i64) < size[()]):
                for u in unrolled(0, 2):
                    total = alloc(f32[4], register)
                    for c in vectorized(0, 4):
                        total[c] = f32(0.0)
                    for k_1 in serial(0, 8):
                        fma(total[0:4], s[k_1, 8*t_1 + 4*u:8*t_1 + 4*u + 4])
                    for c_1 in vectorized(0, 4):
                        y[8*t_1 + 4*u + c_1] = total[c_1]
"""


def test_instructions_read_panels_that_are_made_as_far_as_they_do() -> None:
    """Two panels of four columns are read under one condition."""
    func = tir.parse(PANELS.strip())
    made = with_conditions_on_unread(func)
    tir.verify(made, "lowered")
    assert conditions(made, "s") == ["8*(t // 2)"]
    x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    for size in (0, 1, 8, 9, 16):
        given = {"x": x, "size": np.array(size, np.int64)}
        got, want = (tir.interpret(f, given)["y"][:size] for f in (made, func))
        np.testing.assert_array_equal(got, want)


PRODUCT = """
@primfunc
def product(a: f32[16], size: i64[()], y: out[f32[()]]):
    y[()] = f32(0.0)
    for k in serial(0, 16):
        if data(index(k, i64) < size[()]):
            y[()] += a[k]
"""


@pytest.mark.parametrize(
    ("old", "new", "ends"),
    [
        ("a[k]", "a[k]", True),
        ("a[k]", "a[k] * a[k // 2]", True),
        ("a[k]", "a[15 - k]", False),
        ("a[k]", "a[(k + 1) % 16]", False),
        ("    y[()] = f32(0.0)", "    y[()] = a[15]", False),
    ],
)
def test_a_kernel_reads_an_input_only_below_a_count(old: str, new: str, ends: bool) -> None:
    func = tir.parse(PRODUCT.replace(old, new).strip())
    place = BoxAxis("a", (16,), 0)
    assert reads_below(func, place, func.param("size")) is ends
