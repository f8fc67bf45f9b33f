"""Tests of traces: the source of a schedule makes the same kernel again, and reads well."""

from collections.abc import Callable
from functools import cache

import pytest

from graphflow.arith import Var
from graphflow.base.errors import ScheduleError
from graphflow.base.options import Options
from graphflow.codegen import instruction
from graphflow.layout import IndexMap, Layout, blocked
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.schedule import Rewrite, Schedule, divide_loop, vectorize_loop
from graphflow.tir import PrimFunc, expr_text, loads_in, parse_predicate, to_text
from support.kernels import schedule_families, schedule_rows
from support.kernels.schedule_kernels import Dice, random_kernel
from support.schedule_checks import kernel
from support.schedules.schedule_trial import Trial
from support.schedules.schedule_ways import random_schedule

assert schedule_families and schedule_rows  # their modules register random kernels

Golden = Callable[[str, str], None]

BODY = "for i in serial(0, 14):\n    y[i] = x[i]"
PARAMS = "x: i32[14], y: out[i32[14]]"


def replayed(s: Schedule, proofs: bool = False) -> PrimFunc:
    names: dict[str, object] = {}
    source = s.trace(proofs)
    exec(source, names)
    made = names["schedule"]
    assert callable(made)
    again = made(s.definition)
    assert to_text(again.func) == to_text(s.func), source
    assert again.func == s.func
    assert [step.primitive for step in again.steps] == [step.primitive for step in s.steps]
    return again.func


def test_a_trace_is_a_function_that_makes_the_kernel(golden: Golden) -> None:
    s = Schedule.of(kernel(BODY, PARAMS))
    s = s.transform_layout("y", blocked((14,), 0, 4), "undef")
    s = s.divide_loop("i", 4, ("io", "ii"), tail="guard")
    s = s.attempt(vectorize_loop, "io")
    s = s.mark_unrolled("ii")
    golden("trace", s.trace())
    golden("trace_with_proofs", s.trace(proofs=True))
    replayed(s)
    replayed(s, proofs=True)


def test_an_empty_schedule_has_a_trace() -> None:
    replayed(Schedule.of(kernel(BODY, PARAMS)))


def test_a_place_that_a_step_made_is_a_variable_until_it_is_several() -> None:
    s = Schedule.of(kernel(BODY, PARAMS)).divide_loop("i", 4, ("all", "s"), "cut")
    s = s.cut_loop("all", 1, "_rest").vectorize_loop("s").vectorize_loop("s_rest")
    source = s.trace()
    assert 'all_2, _ = s.made["parts"]' in source, "all is a function of Python"
    assert 'cut_loop(s[all_2], 1, "_rest")' in source
    assert 's.vectorize_loop("s")' in source, "the cut made two of it"
    replayed(s)


def test_a_name_that_is_used_again_is_not_the_place_that_is_gone() -> None:
    body = 'with block("b"):\n    for n in serial(0, 1):\n        for c in serial(0, 4):\n' \
        "            y[n, c] = x[n, c]"  # fmt: skip
    s = Schedule.of(kernel(body, "x: i32[1, 4], y: out[i32[1, 4]]"))
    s = s.transform_layout("y", blocked((1, 4), 1, 4), None)
    s = s.sequential_buffer_access("b", "y", ("p0", "p1", "p2"))
    s = s.divide_loop("p2", 2, ("p0", "p1"), "perfect").vectorize_loop("p1")
    assert "_, _, p2 = s.made" in s.trace()
    replayed(s)


def test_layouts_are_written_by_name_or_as_functions() -> None:
    shape = (1, 5, 3, 3)
    odd = IndexMap((Var("a"),), (Var("a") + 1,), ((Var("p"),), (Var("p") - 1,)))
    for text, layout in {
        "blocked((1, 5, 3, 3), 1, 4)": blocked(shape, 1, 4),
        "lambda i0, i1, i2, i3: (i0, i2, i3, i1 // 4, i1 % 4)": Layout.of(
            IndexMap.from_function(4, lambda n, c, h, w: (n, h, w, c // 4, c % 4), shape), shape
        ),
        "(1, 5, 3, 3), (1, 5, 4, 4), (1,))": Layout.of(
            IndexMap.identity(4), shape, (1, 5, 4, 4), (1,)
        ),
    }.items():
        params = "x: i32[1, 5, 3, 3], y: out[i32[1, 5, 3, 3]]"
        loops = "for c in serial(0, 5):\n    y[0, c, 0, 0] = x[0, c, 0, 0]"
        s = Schedule.of(kernel(loops, params)).transform_layout("x", layout, 0)
        assert text in s.trace()
        replayed(s)
    s = Schedule.of(kernel(BODY, PARAMS)).transform_layout("x", Layout.of(odd, (14,)), "undef")
    replayed(s)


def test_functions_among_the_arguments_are_written_as_what_they_returned() -> None:
    s = Schedule.of(kernel(BODY, PARAMS))
    s = s.transform_layout("x", lambda i: (i // 4, i % 4), lambda at, io, ii: at(0, ii))
    assert "PadFunction(" in s.trace()
    replayed(s)
    infinite = kernel(BODY, "x: f32[14], y: out[f32[14]]")
    s = Schedule.of(infinite).transform_layout("y", blocked((14,), 0, 4), float("-inf"))
    assert 'float("-inf")' in s.trace()
    replayed(s)


def test_expressions_conditions_and_indices() -> None:
    func = kernel("for i in serial(0, 14):\n    y[i] = x[(i + 15) % 14] + i32(1)", PARAMS)
    s = Schedule.of(func)
    index = (Var("i") + 1) % 14
    s = s.rewrite_expr("i[0]", index, Var("i") + 1 - (Var("i") + 1) // 14 * 14)
    assert 'rewrite_expr("i[0]", (Var("i") + 1) % 14,' in s.trace()
    (load,) = loads_in(s.func.body)
    s = s.bind_expr("i", load, "t")
    assert f's.bind_expr("i", "{expr_text(load)}", "t")' in s.trace()
    s = s.specialize("i[2]", (parse_predicate("i < 4"),))
    assert 'parse_predicate("i < 4")' in s.trace()
    replayed(s.cut_loop("i", 3, "_rest"))


def test_instructions_and_other_kernels_are_called_by_name() -> None:
    body = """
for z in serial(0, 8):
    y[z] = f32(0.0)
for r in serial(0, 5):
    for i in serial(0, 8):
        y[i] += x[r] * w[r, i]
"""
    s = Schedule.of(kernel(body, "x: f32[5], w: f32[5, 8], y: out[f32[8]]"))
    s = s.replace("i", instruction("fma8"))
    assert 's.replace("i", fma8)' in s.trace()
    replayed(s)


def test_a_schedule_among_the_arguments_is_a_function_of_the_trace() -> None:
    s = Schedule.of(kernel(BODY, PARAMS)).extract_subproc("i", "copy")
    (call,) = s.made["call"]
    (stmt,) = s.func.body
    other = Schedule.of(stmt.definition).divide_loop("i", 7, ("io", "ii"), "perfect")  # type: ignore[union-attr]
    s = s.call_eqv(s[call], other)
    assert "schedule_copy(copy_2)" in s.trace()
    replayed(s)


def local() -> Callable[[PrimFunc], Rewrite]:
    def unnamed(func: PrimFunc) -> Rewrite:
        return divide_loop(func, "i", 7, ("io", "ii"))

    return unnamed


def test_a_primitive_inside_a_function_has_no_source() -> None:
    s = Schedule.of(kernel(BODY, PARAMS)).apply(local())
    with pytest.raises(ScheduleError, match=r"unnamed .* has no name that can be imported"):
        s.trace()


# Schedules of all kinds ---------------------------------------------------------------------------


@cache
def recipes() -> dict[str, Schedule]:
    build = ModelBuilder(seed=1, name="kinds")
    x = build.input("x", (1, 6, 9, 9))
    x = build.relu(build.conv(x, 16, 3, pads=[1, 1, 1, 1]))
    x = build.relu(build.conv(x, 16, 3, pads=[1, 1, 1, 1], group=16))
    x = build.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = build.node("Softmax", [x], axis=-1)
    x = build.node("Transpose", [x], perm=[0, 2, 3, 1])
    x = build.node("LayerNormalization", [x, build.weight(16)], axis=-1)
    x = build.node("MatMul", [x, build.weight(16, 20)])
    build.output(build.node("ReduceMean", [x], keepdims=0))
    made = compile_graph(CompileRequest(build.model(), options=Options(workers=0, cache="off")))
    return {symbol: kernel.schedule for symbol, kernel in made.lowered.kernels.items()}


def test_the_schedules_of_recipes_are_made_again() -> None:
    found = recipes()
    assert len(found) >= 7
    for schedule in found.values():
        replayed(schedule, proofs=True)
    applied = {step.primitive.__name__ for s in found.values() for step in s.steps}
    assert {"divide_loop", "reorder_loops", "vectorize_loop", "fission"} <= applied


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_schedules_are_made_again(first: int) -> None:
    steps = 0
    for seed in range(first, first + 20):
        trial = Trial(random_kernel(seed).func, Dice(seed, 2))
        random_schedule(trial)
        replayed(trial.schedule)
        steps += len(trial.schedule.steps)
    assert steps > 60
