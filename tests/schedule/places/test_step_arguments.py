"""Arguments as people write them: text is read as kernel text is, and nothing but GraphflowError
leaves a primitive, whatever it is given."""

from collections.abc import Callable

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule
from graphflow.schedule.loops.pieces import MOST_STATEMENTS
from support.primitives.odd_arguments import PRIMITIVES, apply_anything
from support.schedule_checks import kernel, same

REVERSED = """
t = alloc(i32[16])
for i in serial(0, 16):
    t[i] = x[15 - i] * i32(3)
for j in serial(0, 16):
    y[j] = t[j]
"""


# Text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x[15 - i]", "x[-i + 15]", " x[ 15-i ]", "x[15 - 1*i]", "x"])
def test_an_expression_is_found_however_its_text_is_written(text: str) -> None:
    func = kernel(REVERSED)
    assert "e = alloc(i32[()], register)" in same(func, Schedule.of(func).bind_expr("i", text, "e"))


@pytest.mark.parametrize(
    ("step", "result"),
    [
        (lambda s: s.commute_expr("i[0]", "x[15 - i] * i32(3)"), "t[i] = i32(3) * x[-i + 15]"),
        (lambda s: s.specialize("i[0]", ["i < 5"]), "if i < 5:"),
        (lambda s: s.specialize("i[0]", ["data(x[i] < i32(2))"]), "if data(x[i] < i32(2)):"),
        (lambda s: s.cut_loop("i", "10 - 2", "_c"), "for i_c in serial(8, 16):"),
        (lambda s: s.shift_loop("i", "2*3"), "for i in serial(6, 22):"),
        (lambda s: s.add_loop("i[0]", "q", "i + 1"), "for q in serial(0, i + 1):"),
        (lambda s: s.rewrite_expr("i[0]", "15 - i", "min(15 - i, 15)"), "x[min(-i + 15, 15)]"),
        (lambda s: s.rewrite_expr("i[0]", "x[15 - i] * i32(3)", "i32(3) * x[-i + 15]"), "i32(3) *"),
        (lambda s: s.stage_window("i", "x", "w", window=["15 - i"]), "w = alloc"),
    ],
)
def test_text_stands_for_an_expression(step: Callable[[Schedule], Schedule], result: str) -> None:
    func = kernel(REVERSED)
    s = step(Schedule.of(func))
    assert result in same(func, s), tir.to_text(s.func)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda s: s.cut_loop("i", "n", "_c"), "n uses n, and no loop around the place binds it"),
        (lambda s: s.shift_loop("i", "3 +"), "'3 \\+' cannot be read: .*no index expression"),
        (lambda s: s.resize_dim("t", 0, 16, "i*j"), "quasi-affine"),
        (lambda s: s.specialize("i[0]", ["x[i] < i32(2)"]), "not an index expression"),
        (lambda s: s.specialize("i[0]", ["data(x[i])"]), "is int32, and a condition is bool"),
        (lambda s: s.bind_expr("i", "x[i, i]", "e"), r"x has the axes \[16\]"),
        (lambda s: s.bind_expr("i", "z[i]", "e"), "no buffer is called z"),
        (lambda s: s.bind_expr("i", "x[i] + f32(1.0)", "e"), "add of int32 and float32"),
        (lambda s: s.rewrite_expr("i[0]", "15 -", "i"), "no index .* and no condition on indices"),
        (lambda s: s.divide_loop("i", "4", ("a", "b")), "factor is '4', and divide_loop takes int"),
        (lambda s: s.divide_loop("i", 4, "ab"), r"names is 'ab', and divide_loop takes tuple"),
        (lambda s: s.divide_loop("i", True, ("a", "b")), "factor is True"),
        (lambda s: s.divide_loop("i", 4), r"divide_loop\(loop, factor, names, tail\): missing"),
        (lambda s: s.divide_loop("i", 4, ("a", "b"), tial="cut"), "unexpected keyword"),
        (
            lambda s: s.divide_loop("i", 4, ("a", "b"), "cat"),
            "takes one of 'perfect', 'guard', 'cut'",
        ),
        (lambda s: s.fuse("i", 3), "second is 3, and fuse takes str"),
    ],
)
def test_what_cannot_be_read_is_refused(step: Callable[[Schedule], Schedule], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        step(Schedule.of(kernel(REVERSED)))


def test_numbers_of_numpy_and_lists_are_arguments() -> None:
    s = Schedule.of(kernel(REVERSED))
    plain = s.divide_loop("i", 4, ("a", "b"), "perfect")
    other = s.divide_loop("i", np.int64(4), ["a", "b"], np.str_("perfect"))
    assert other.func == plain.func
    assert other.trace() == plain.trace()


# Size ---------------------------------------------------------------------------------------------


def long_loop(extent: int, body: str = "y[i] = x[i]") -> Schedule:
    rows = f"x: f32[{extent}], y: out[f32[{extent}]]"
    return Schedule.of(kernel(f"for i in serial(0, {extent}):\n    {body}", rows))


@pytest.mark.parametrize("step", ["unroll_loop", "mark_unrolled"])
def test_a_loop_that_is_too_long_to_be_written_out_is_refused(step: str) -> None:
    with pytest.raises(ScheduleError, match="size: i written out has 1,000,000 statements"):
        getattr(long_loop(10**6), step)("i")


def test_the_statements_of_nested_loops_count() -> None:
    s = long_loop(MOST_STATEMENTS).divide_loop("i", 100, ("o", "q"), "perfect").mark_unrolled("q")
    s.mark_unrolled("o")
    with pytest.raises(ScheduleError, match="size: o written out has 20,000 statements"):
        s.attempt(PRIMITIVES["add_loop"], "q[0]", "r", 1).unroll_loop("o")


def test_a_buffer_and_a_loop_that_are_too_long_to_be_taken_apart_are_refused() -> None:
    func = kernel("t = alloc(f32[1000000])\nt[0] = x[0]\ny[0] = t[0]", "x: f32[1], y: out[f32[1]]")
    with pytest.raises(ScheduleError, match="size: 1,000,000 buffers"):
        Schedule.of(func).unroll_buffer("t", 0)
    with pytest.raises(ScheduleError, match="size: i has 1,000,000 iterations"):
        long_loop(10**6).partition_loop("i")


# Anything -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRIMITIVES)
def test_only_our_own_errors_leave_a_primitive(name: str) -> None:
    for seed in range(25):
        apply_anything(name, seed)
