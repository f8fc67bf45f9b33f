"""Rows of docs/rfc77.md from the initial text to the finished kernel, interpreted and native."""

from typing import Any

import numpy as np
import pytest

from graphflow.arith import Var
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.kernels.lowering import remove_assume, remove_undef
from graphflow.layout import IndexMap, Layout, blocked
from graphflow.schedule import PadFunction, Schedule
from graphflow.tir import Buffer, Load, PrimFunc, interpret, parse, to_text, verify
from support.finished import Array, outputs

PACKED = blocked((14,), 0, 4)
X = np.array([3, -0.0, 1e30, 5, -2, 6, 7, 8, 9, 10, 11, 12, 13, 14], dtype="float32")

DOUBLE = """
    @primfunc
    def double(x: f32[14], y: out[f32[14]]):
        with block("compute"):
            for i in serial(0, 14):
                y[i] = f32(2.0) * x[i]
"""


def loops(func: PrimFunc) -> str:
    """The text of a kernel without its first lines."""
    return "\n".join(to_text(func).splitlines()[2:])


def boxed(values: Array, pads: tuple[float, float]) -> Array:
    return np.append(values, pads).astype(values.dtype).reshape(4, 4)


P, Q = Var("p"), Var("q")
WRAPPED = PadFunction((P, Q), Load(Buffer("y", (4, 4)), (P - P, (4 * P + Q - 14) % 4)))
"""The padding repeats the first elements."""


@pytest.mark.parametrize(
    ("pad", "written"),
    [(None, None), ("undef", None), (7.0, [7.0, 7.0]), (WRAPPED, [*(2 * X[:2])])],
    ids=["never accessed", "undefined", "a constant", "a function of the place"],
)
def test_a1_a_layout_with_each_kind_of_padding(pad: Any, written: list[float] | None) -> None:
    s = Schedule.of(parse(DOUBLE)).transform_layout("y", PACKED, pad)
    s = s.sequential_buffer_access("compute", "y", ("io", "ii"))
    assert "for io in serial(0, 4)" in loops(s.func) and "y[io, ii]" in loops(s.func)
    found = outputs(s.func, x=X)["y"].reshape(-1)
    np.testing.assert_array_equal(found[:14], 2 * X)
    if written is not None:
        assert list(found[14:]) == written


def test_a1_transformations_of_transformations_and_offsets() -> None:
    front = Layout.of(IndexMap.from_function(1, lambda i: [i + 2], (14,)), (14,), (16,))
    s = Schedule.of(parse(DOUBLE)).transform_layout("y", front, 1.0)
    s = s.transform_layout("y", blocked((16,), 0, 8), 3.0)
    found = outputs(s.func, x=X)["y"].reshape(-1)
    np.testing.assert_array_equal(found, [1.0, 1.0, *(2 * X)])


def test_a3_a_copy_changes_its_layout_and_the_interface_stays() -> None:
    s = Schedule.of(parse(DOUBLE)).cache_read("x", "xc").cache_write("y", "yc")
    s = s.transform_layout("xc", PACKED, 0.0).transform_layout("yc", PACKED, "undef")
    s = s.sequential_buffer_access("compute", "yc", ("io", "ii"))
    assert s.func.params == parse(DOUBLE).params
    assert "yc[io, ii] = f32(2.0) * xc[io, ii]" in loops(s.func)
    np.testing.assert_array_equal(outputs(s.func, x=X)["y"], 2 * X)


def test_a4_assumptions_and_undef_are_used_and_then_removed() -> None:
    func = parse("""
        @primfunc
        def sums(x: f32[4, 4], y: out[f32[1]], z: out[f32[4, 4]]):
            for a in serial(0, 4):
                for b in serial(0, 4):
                    assume(unless(4*a + b < 14), x[a, b] == f32(0.0))
            with block("sum"):
                y[0] = f32(0.0)
                for i in serial(0, 4):
                    for j in serial(0, 4):
                        if 4*i + j < 14:
                            y[0] += x[i, j]
            with block("fill"):
                for m in serial(0, 4):
                    for n in serial(0, 4):
                        z[m, n] = undef(f32)
    """)
    s = Schedule.of(func).remove_branching_through_overcompute("sum")
    assert "if" not in loops(s.func)
    with pytest.raises(VerifyError):
        verify(s.func, "lowered")
    done = remove_assume(remove_undef(s.func))
    assert "assume" not in to_text(done) and "undef" not in to_text(done)
    verify(done, "lowered")
    x = boxed(X, (0.0, 0.0))
    assert outputs(s.func, x=x)["y"] == interpret(func, {"x": x})["y"]


B6 = """
    @primfunc
    def twice(x: i32[9], y: out[i32[8]], z: out[i32[8]]):
        for i in serial(0, 8):
            y[i] = x[i] * i32(3)
        for j in serial(0, 8):
            {second}
"""


@pytest.mark.parametrize(
    ("second", "joined"),
    [("y[j] = x[j + 1]", True), ("z[j] = y[max(j - 1, 0)]", True),
     ("z[j] = y[min(j + 1, 7)]", False)],
    ids=["overwrites", "reads the element before", "reads the element behind"],
)  # fmt: skip
def test_b6_neighbouring_loops_become_one_where_no_dependence_forbids_it(
    second: str, joined: bool
) -> None:
    text = B6.format(second=second)
    if "z" not in second:
        text = text.replace(", z: out[i32[8]]", "")
    s = Schedule.of(parse(text))
    x = np.arange(9, dtype="int32")
    if not joined:
        with pytest.raises(ScheduleError, match=r"fails at i=6, i'=5"):
            s.fuse("i", "j")
        return
    s = s.fuse("i", "j")
    assert loops(s.func).count("for ") == 1
    wanted = interpret(parse(text), {"x": x})
    for name, found in outputs(s.func, x=x).items():
        np.testing.assert_array_equal(found, wanted[name])


def test_f_a_stage_is_computed_where_it_is_used_over_the_elements_that_are() -> None:
    func = parse("""
        @primfunc
        def blur(x: f32[68], y: out[f32[64]]):
            t = alloc(f32[66])
            for i in serial(0, 66):
                t[i] = x[i] + x[i + 1] + x[i + 2]
            for j in serial(0, 64):
                y[j] = t[j] + t[j + 1] + t[j + 2]
    """)
    s = Schedule.of(func).divide_loop("j", 16, ("jo", "ji"), "perfect")
    assert "t" in str(s.bounds({"t": "jo"}))
    s = s.compute_at("i", "jo")
    assert "alloc(f32[18]" in to_text(s.func)
    x = np.arange(68, dtype="float32")
    np.testing.assert_array_equal(outputs(s.func, x=x)["y"], interpret(func, {"x": x})["y"])
