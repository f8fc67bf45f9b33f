"""Tests of trials: the caller runs alone what threads do not make shorter, and nothing else.

Kernels sleep, so that the ways differ by far more than a loaded machine disturbs.
"""

import threading
from typing import Any

import numpy as np

from graphflow.base.fields import replace
from graphflow.program import (
    BufferRef,
    InputSize,
    Portion,
    PortionDigit,
    ProgramStep,
    SharingPrices,
    TensorSpec,
)
from graphflow.runtime import Program
from support.programs import kernel, spec, vector

ME, Y = BufferRef("input", 0), BufferRef("output", 0)


def sleeper(by_workers: int | str, by_caller: int) -> Any:
    """p1[i] = the thread that did iteration i; each takes so many microseconds of a thread, of
    which p0 names the caller; with "%us" those of a worker are behind that."""
    return kernel(
        "sleeper",
        2,
        f"""%r = call i64 @pthread_self()
  %y = getelementptr i64, ptr %p1, i64 %i
  store i64 %r, ptr %y
  %c = load i64, ptr %p0
  %at = getelementptr i64, ptr %p0, i64 1
  %u = load i64, ptr %at
  %us = trunc i64 %u to i32
  %mine = icmp eq i64 %r, %c
  %t = select i1 %mine, i32 {by_caller}, i32 {by_workers}
  %slept = call i32 @usleep(i32 %t)""",
        "declare i64 @pthread_self()\ndeclare i32 @usleep(i32)",
    )


def program(kernel_of: Any, step: ProgramStep) -> Program:
    """Two threads share the one step."""
    inputs = [TensorSpec("me", "int64", (2,))]
    return Program(spec([kernel_of], [step], inputs, [vector("y", step.extent, "int64")]), 2)


def runs_alone(
    own: Program, count: int, length: int = 2, executed: int = 2, by_workers: int = 0
) -> int:
    """Of so many runs, those in which the caller executed all iterations."""
    me = threading.get_ident()
    feeds = {"me": np.array([me, by_workers, me, me][:length])}
    return sum(set(own.run(feeds)["y"][:executed].tolist()) == {me} for _ in range(count))


def test_the_caller_runs_alone_what_workers_make_longer() -> None:
    late = program(sleeper(1000, 150), ProgramStep("sleeper", (ME, Y), 2))
    assert runs_alone(late, 50) <= 25, "as planned, before anything was tried"
    assert any(runs_alone(late, 20) >= 15 for _ in range(250))


def test_threads_share_what_they_make_shorter() -> None:
    """But for the runs of trials, and for those in which a worker wakes late."""
    apart = program(sleeper(1000, 1000), ProgramStep("sleeper", (ME, Y), 2))
    assert runs_alone(apart, 600) <= 300


def test_long_runs_try_the_caller_alone_where_threads_are_disturbed() -> None:
    own = program(sleeper("%us", 4200), ProgramStep("sleeper", (ME, Y), 2))
    assert runs_alone(own, 30, by_workers=4200) <= 15
    assert any(runs_alone(own, 20, by_workers=12000) >= 15 for _ in range(100))


def test_runs_of_other_sizes_are_as_planned() -> None:
    """What was found of runs of one size says nothing of those of which threads save less."""
    portion = Portion((PortionDigit(4, 1, 4),))
    step = ProgramStep("sleeper", (ME, Y), 4, 0, portion, saved=4000)
    inputs = [TensorSpec("me", "int64", (4,)), TensorSpec("n", "int64", ())]
    made = spec([sleeper(1000, 150)], [], inputs, [vector("y", 4, "int64")])
    sizes = (InputSize("n", 1, 1, 4, ((0, 0),)),)
    sharing = SharingPrices(10, 10)
    late = Program(replace(made, run=(step,), sizes=sizes, sharing=sharing), 2)
    assert any(runs_alone(late, 20, 4, 4) >= 15 for _ in range(250))
    assert runs_alone(late, 8, 2, 2) <= 4


def test_runs_that_execute_more_of_a_late_step_are_as_planned() -> None:
    """How much is executed is known behind the step that writes it: the run before says it of the
    next one, so what was found of small runs decides about one large run alone."""
    place = BufferRef("arena", 0)
    write = kernel("write", 2, "%n = load i64, ptr %p0\nstore i64 %n, ptr %p1")
    portion = Portion((PortionDigit(16, None, 16, place),))
    steps = (
        ProgramStep("write", (BufferRef("input", 1), place), 1, 1),
        ProgramStep("sleeper", (ME, Y), 16, 0, portion, saved=16000),
    )
    inputs = [TensorSpec("me", "int64", (2,)), TensorSpec("n", "int64", (1,))]
    made = spec([sleeper("%us", 150), write], [], inputs, [vector("y", 16, "int64")])
    own = Program(replace(made, run=steps, sharing=SharingPrices(10, 10)), 2)
    me = threading.get_ident()

    def alone(count: int, rows: int, by_workers: int) -> int:
        feeds = {"me": np.array([me, by_workers]), "n": np.array([rows])}
        return sum(set(own.run(feeds)["y"][:rows].tolist()) == {me} for _ in range(count))

    assert any(alone(20, 4, 2000) >= 15 for _ in range(250))
    assert alone(8, 16, 150) <= 4
    assert alone(8, 4, 2000) >= 4
