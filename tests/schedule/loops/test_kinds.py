"""Kinds of loops: each change of a kind proves its own condition, whatever the kind was before."""

from collections.abc import Callable

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, require_sound
from graphflow.tir import LoopKind, PrimFunc, loops_of
from support.schedule_checks import kernel, same

REDUCED = kernel(
    "y[0] = i32(0)\nfor k in serial(0, 16):\n    if k < 9:\n        y[0] += x[k]",
    "x: i32[16], y: out[i32[1]]",
)
"""Lanes may reduce into one element, and threads may not."""

COPIED = kernel("for k in serial(0, 16):\n    y[k] = x[k]")

SEQUENTIAL = kernel("y[0] = x[0]\nfor k in serial(1, 16):\n    y[k] = y[k - 1] + x[k]")

Change = Callable[[Schedule], Schedule]
BEFORE: dict[str, Change] = {
    "serial": lambda s: s,
    "vectorized": lambda s: s.vectorize_loop("k"),
    "unrolled": lambda s: s.mark_unrolled("k"),
    "vectorized, cut": lambda s: s.vectorize_loop("k").cut_loop("k", 5, "_c"),
    "vectorized, parted": lambda s: s.vectorize_loop("k").partition_loop("k", "_c"),
    "vectorized, divided": lambda s: s.vectorize_loop("k").divide_loop("k", 4, ("o", "k"), "cut"),
    "cut, vectorized": lambda s: s.cut_loop("k", 5, "_c").vectorize_loop("k"),
    "unrolled, vectorized": lambda s: s.mark_unrolled("k").vectorize_loop("k"),
    "vectorized, unrolled": lambda s: s.vectorize_loop("k").mark_unrolled("k"),
    "vectorized, shifted": lambda s: s.vectorize_loop("k").shift_loop("k", 3),
}


@pytest.mark.parametrize("before", BEFORE)
def test_threads_do_not_reduce_into_one_element(before: str) -> None:
    s = BEFORE[before](Schedule.of(REDUCED))
    for loop in loops_of(s.func.body):
        with pytest.raises(ScheduleError, match=f"the iterations of {loop.var} are independent"):
            s.parallelize_loop(loop.var.name)


@pytest.mark.parametrize("before", BEFORE)
def test_independent_iterations_take_any_kind(before: str) -> None:
    if before == "vectorized, parted":
        return  # there is no condition to part the loop by
    s = BEFORE[before](Schedule.of(COPIED))
    for loop in loops_of(s.func.body):
        name = loop.var.name
        if loop.kind is LoopKind.SERIAL and any(loops_of(loop.body)):
            continue
        if any(loop in loops_of(outer.body) for outer in loops_of(s.func.body)):
            continue
        for done in (s.mark_unrolled(name), s.vectorize_loop(name), s.parallelize_loop(name)):
            require_sound(done.func)
            same(COPIED, done)


@pytest.mark.parametrize("before", ["serial", "unrolled", "cut"])
def test_dependent_iterations_take_no_kind_that_runs_them_at_once(before: str) -> None:
    changes = {**BEFORE, "cut": lambda s: s.cut_loop("k", 5, "_c")}
    s = changes[before](Schedule.of(SEQUENTIAL))
    for loop in loops_of(s.func.body):
        for change in (s.vectorize_loop, s.parallelize_loop):
            with pytest.raises(ScheduleError, match=r"iterations of .* are independent"):
                change(loop.var.name)


def triangle(kind: str) -> PrimFunc:
    return kernel(
        f"for o in serial(0, 3):\n    for k in {kind}(0, 8):\n        if 8*o + k < 18:\n"
        "            y[8*o + k] = x[8*o + k]",
        "x: i32[18], y: out[i32[18]]",
    )


@pytest.mark.parametrize("kind", ["vectorized", "unrolled"])
def test_loops_to_expand_keep_constant_extents(kind: str) -> None:
    """A step that would take the constant extent away is refused by its name."""
    s = Schedule.of(triangle(kind))
    reason = rf"restrict_loop\('k'\): kinds: the {kind} loop k would run over \(0, .*constant"
    with pytest.raises(ScheduleError, match=reason):
        s.restrict_loop("k")
    same(triangle("serial"), Schedule.of(triangle("serial")).restrict_loop("k"))
