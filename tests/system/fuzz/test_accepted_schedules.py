"""Schedules that build: calls, names with dots, stages that stay, assumptions, undefined values."""

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError, InvalidModel, ScheduleError
from graphflow.codegen import instruction
from graphflow.layout import IndexMap, Layout
from graphflow.schedule import Schedule, transform_layout
from graphflow.tir import PrimFunc, Undef, calls_in, interpret, parse

OPTIONS = gf.Options(cache="off", check_assumes=True)

SUMS = """
    def f(x: i32[17], y: out[i32[17]]):
        t = alloc(i32[17])
        with block("b"):
            for i in serial(0, 17):
                t[i] = i32(3)
                for k in serial(0, 3):
                    if i + k < 10:
                        reduce_max(t[i], x[16 - i])
        for j in serial(0, 17):
            y[j] = t[j] + i32(2)
"""


def built(s: Schedule, **given: Any) -> dict[str, Any]:
    assume = {"x": "finite"} if "x_finite" in str(s.steps) + str(s.func) else None
    return gf.build(s, threads=1, assume=assume, options=OPTIONS).run(given)


def same(s: Schedule, **given: Any) -> None:
    """The program computes what the definition does in the interpreter."""
    want = interpret(s.definition, given)
    for name, array in built(s, **given).items():
        np.testing.assert_array_equal(array, want[name])


def numbers(*shape: int, dtype: str = "int32") -> Any:
    return (np.arange(np.prod(shape)) * 7 % 31 - 9).reshape(shape).astype(dtype)


def test_calls_of_extracted_kernels() -> None:
    """The loops in them have names with dots, under which the compiler finds them."""
    s = Schedule.of(gf.kernel(SUMS))
    for scheduled in (
        s.extract_subproc("b", "g"),
        s.partition_loop("i", "_p").extract_subproc("b", "g"),
        s.extract_subproc("k", "g").extract_subproc("i", "h"),
        s.extract_subproc("b", "g").vectorize_loop("j"),
    ):
        assert list(calls_in(scheduled.func.body))
        same(scheduled, x=numbers(17))


def test_loops_of_inlined_kernels_are_places() -> None:
    s = Schedule.of(gf.kernel(SUMS)).extract_subproc("b", "g").inline("g")
    same(s.divide_loop("g.i", 4, ("g.io", "g.ii"), "cut").vectorize_loop("g.k"), x=numbers(17))


def test_buffers_with_dots_in_their_names() -> None:
    """Kernels take intermediates as parameters, which have plain names of their own."""
    s = Schedule.of(gf.kernel(SUMS))
    s = s.extract_subproc("b", "g").inline("g").cache_read("x", "a.b").cache_read("x", "a_b")
    same(s.cut_loop("a.b_copy_0", 3, "_t").cut_loop("a_b_copy_0", 3, "_t"), x=numbers(17))


def test_calls_of_elements_that_do_not_follow_one_another() -> None:
    """Where an instruction takes none, its statements are what is computed."""
    func = gf.kernel(
        """
        def f(x: f32[4, 8], y: inout[f32[4, 8]]):
            for i in serial(0, 4):
                for l in vectorized(0, 8):
                    y[i, l] += x[i, 0] * x[i, l]
        """
    )
    s = Schedule.of(func).replace("l", instruction("fma8"))
    given = {"x": numbers(4, 8, dtype="float32"), "y": numbers(4, 8, dtype="float32")}
    same(s, **given)
    columns = Layout.of(IndexMap.permute((1, 0)), (4, 8))
    moved = s.apply(transform_layout, "x", columns, None)
    want = interpret(func, given)["y"]
    np.testing.assert_array_equal(built(moved, x=given["x"].T.copy(), y=given["y"])["y"], want)


def test_registers_of_called_kernels() -> None:
    func = gf.kernel(
        """
        def f(x: i32[3, 4], y: out[i32[3, 4]]):
            for i in serial(0, 3):
                for j in serial(0, 4):
                    y[i, j] = x[i, j] + i32(1)
        """
    )
    s = Schedule.of(func).stage_mem("i", "y", "n", ("j",), "register").extract_subproc("i", "g")
    same(s, x=numbers(3, 4))


def test_an_allocation_is_no_kernel() -> None:
    with pytest.raises(ScheduleError, match=r"\[0\] allocates t, which the statements behind it"):
        Schedule.of(gf.kernel(SUMS)).extract_subproc("[0]", "g")


def test_a_definition_that_is_not_well_formed_is_not_called() -> None:
    part = parse(
        "@primfunc\ndef part(a: inout[i32[4, 4]]):\n    for i in vectorized(0, 4):\n"
        "        for j in vectorized(0, 4):\n            a[i, j] = i32(1)\n"
    )
    func = gf.kernel(
        "def f(y: out[i32[4, 4]]):\n    for i in serial(0, 4):\n        for j in serial(0, 4):\n"
        "            y[i, j] = i32(1)\n"
    )
    with pytest.raises(ScheduleError, match=r"part cannot be called: .* inside a vectorized one"):
        Schedule.of(func).replace("i", part)


# Stages and assumptions ---------------------------------------------------------------------------

SCALED = """
    def f(x: f32[14], y: out[f32[14]]):
        for i in serial(0, 14):
            y[i] = x[i] * f32(2.0)
"""
PACKED = Layout.of(IndexMap.split(1, 0, 4), (14,))


@pytest.mark.parametrize("names", [("c",), ("c", "d")])
@pytest.mark.parametrize("cut", [False, True])
def test_caches_of_an_input_that_is_assumed_to_be_finite(names: tuple[str, ...], cut: bool) -> None:
    """The assumption is about the copy then, and holds for it."""
    s = Schedule.of(gf.kernel(SCALED)).assume_finite("x", "the test makes it so")
    for name in names:
        s = s.cache_read("x", name)
    if cut:
        s = s.cut_loop("c_copy_0", 3, "_t")
    same(s.transform_layout("c", PACKED, 0.0), x=numbers(14, dtype="float32"))


def test_what_a_kernel_assumes_of_an_input_that_is_cached() -> None:
    """It is checked of the input, at the elements that the copies hold."""
    func = gf.kernel(
        """
        def f(x: i32[4, 4], y: out[i32[1]]):
            for a in serial(0, 4):
                for b in serial(0, 4):
                    assume(unless(4*a + b < 5), x[a, b] == i32(7))
            y[0] = i32(0)
            for i in serial(0, 4):
                for j in serial(0, 4):
                    y[0] += x[i, j]
        """
    )
    columns = Layout.of(IndexMap.permute((1, 0)), (4, 4))
    s = Schedule.of(func).cache_read("x", "c").apply(transform_layout, "c", columns, None)
    x = numbers(4, 4)
    x.reshape(-1)[5:] = 7
    exe = gf.build(s, threads=1, options=OPTIONS)
    assert exe.run({"x": x})["y"] == x.sum()
    x[1, 0] += 1
    assert exe.run({"x": x})["y"] == x.sum()
    x[2, 1] += 1
    with pytest.raises(InvalidModel, match=r"x\[2, 1\] is 8"):
        exe.run({"x": x})


def test_a_mark_is_no_assumption_about_other_buffers() -> None:
    """What a block is marked with is a claim: `t` is no copy of `x`."""
    func = gf.kernel(
        """
        def f(x: f32[4], y: out[f32[4]]):
            t = alloc(f32[4])
            for i in serial(0, 4):
                t[i] = x[i] / f32(0.0)
            with block("claim", states="x"):
                for k in serial(0, 4):
                    assume(unless(False), abs(t[k]) < f32(inf))
            for j in serial(0, 4):
                y[j] = t[j]
        """
    )
    s = Schedule.of(func).vectorize_loop("j")
    with pytest.raises(ScheduleError, match="claim assumes what nobody has proven"):
        gf.build(s, threads=1, assume={"x": "finite"})


def test_reciprocals_are_checked_at_each_run() -> None:
    s = Schedule.of(gf.kernel(SCALED)).assume_reciprocal("x", "the test makes it so")
    exe = gf.build(s.vectorize_loop("i"), threads=1, options=OPTIONS)
    x = numbers(14, dtype="float32")
    np.testing.assert_array_equal(exe.run({"x": x})["y"], 2 * x)
    for wrong in (-0.0, np.nan, -1e-40):
        x[5] = wrong
        with pytest.raises(InvalidModel, match=r"of reciprocals above -inf.*\n?.*x\[5\]"):
            exe.run({"x": x})
    x[5] = -np.inf
    exe.run({"x": x})


def test_padding_that_a_stage_writes_and_nobody_can_evaluate() -> None:
    """The variant promises nothing of it."""
    func = gf.kernel(
        """
        def f(x: i32[14], y: out[i32[14]]):
            for i in serial(0, 14):
                if data(x[0] < i32(3)):
                    y[i] = x[i]
                else:
                    y[i] = x[i] + i32(1)
        """
    )
    s = Schedule.of(func).cache_write("y", "c").transform_layout("c", PACKED, 1)
    same(s, x=numbers(14))


# Undefined values and state -----------------------------------------------------------------------


def test_a_name_for_an_undefined_value() -> None:
    """A let has one value for all its uses, whichever it is."""
    s = Schedule.of(gf.kernel(SCALED)).cache_read("x", "c").transform_layout("c", PACKED, "undef")
    same(s.bind_let("c_padding_0", Undef("float32"), "bound"), x=numbers(14, dtype="float32"))


def conditional_state(condition: str) -> PrimFunc:
    return parse(
        f"""
        mode = config(b=i64)

        @primfunc
        def f(x: i64[6], y: out[i64[6]]):
            for i in serial(0, 6):
                if {condition}:
                    for j in serial(0, 2):
                        mode.b = x[i] + index(j, i64)
                    y[i] = mode.b
                else:
                    y[i] = i64(0)
        """
    )


def test_state_that_is_written_and_read_under_one_condition_on_data() -> None:
    func = conditional_state("data(x[0] < i64(3))")
    same(Schedule.of(func), x=numbers(6, dtype="int64"))


def test_state_that_is_written_under_another_condition() -> None:
    text = """
    mode = config(b=i64)

    @primfunc
    def f(x: i64[6], y: out[i64[6]]):
        for i in serial(0, 6):
            if data(x[i] < i64(3)):
                mode.b = x[i]
            if data(x[i] < i64({limit})):
                y[i] = mode.b
            else:
                y[i] = i64(0)
    """
    with pytest.raises(GraphflowError, match=r"mode\.b at i=\d may see what it held before"):
        gf.build(Schedule.of(parse(text.format(limit=3))), threads=1)


def test_the_error_names_the_step_without_which_a_schedule_builds() -> None:
    func = gf.kernel(SCALED)
    s = Schedule.of(func).divide_loop("i", 2, ("io", "ii"), "perfect").cache_write("y", "c")
    s = s.transform_layout("c", PACKED, "undef").state_padding("y", 2.0).vectorize_loop("ii")
    with pytest.raises(ScheduleError, match="crops y stating") as raised:
        gf.build(s, threads=1, options=OPTIONS)
    step = "in step 4 of the schedule, without which it builds: state_padding('y', 2.0)"
    assert step in raised.value.__notes__
