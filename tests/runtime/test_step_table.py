"""Tests of steps that jump: all threads take one way, and what is inconsistent is refused."""

import numpy as np
import pytest

from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.program import BufferRef, ProgramSpec, ProgramStep, StepJump, TensorSpec
from graphflow.runtime import Program
from support.programs import inc, kernel

N = 1000
COUNTER, FLAG, ROW = (BufferRef("arena", position) for position in (0, 64, 128))
X, TRIPS, Y = BufferRef("input", 0), BufferRef("input", 1), BufferRef("output", 0)


def start() -> tuple[str, bytes]:
    """The counter becomes the trip count, and the flag whether that is above 0."""
    return kernel(
        "start",
        3,
        """%n = load i64, ptr %p0
  store i64 %n, ptr %p1
  %f = icmp sgt i64 %n, 0
  %b = zext i1 %f to i8
  store i8 %b, ptr %p2""",
    )


def again() -> tuple[str, bytes]:
    """The counter is one less, and the flag whether it is above 0."""
    return kernel(
        "again",
        2,
        """%n = load i64, ptr %p0
  %m = sub i64 %n, 1
  store i64 %m, ptr %p0
  %f = icmp sgt i64 %m, 0
  %b = zext i1 %f to i8
  store i8 %b, ptr %p1""",
    )


def loop(**changes: object) -> ProgramSpec:
    """y = x + 2 + trips, each addition by a step that all threads share."""
    spec = ProgramSpec(
        objects=(inc(), start(), again()),
        prepare=(),
        run=(
            ProgramStep("inc", (X, ROW), N),
            ProgramStep("start", (TRIPS, COUNTER, FLAG), 1, 1, jump=StepJump(FLAG, False, 3)),
            ProgramStep("inc", (ROW, ROW), N),
            ProgramStep("again", (COUNTER, FLAG), 1, 1, jump=StepJump(FLAG, True, -1)),
            ProgramStep("inc", (ROW, Y), N),
        ),
        constants=(),
        constant_bytes=0,
        arena_bytes=128 + 4 * N,
        inputs=(TensorSpec("x", "float32", (N,)), TensorSpec("trips", "int64", ())),
        outputs=(TensorSpec("y", "float32", (N,)),),
    )
    return replace(spec, **changes)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("patience_ns", [0, 100_000_000])
def test_threads_execute_a_loop_as_often_as_its_flag_says(threads: int, patience_ns: int) -> None:
    program = Program(loop(), threads, patience_ns=patience_ns)
    x = np.arange(N, dtype=np.float32)
    for trips in (0, 1, 2, 60):
        y = program.run({"x": x, "trips": np.array(trips)})["y"]
        np.testing.assert_array_equal(y, x + 2 + trips)


def test_steps_that_are_empty_do_not_count_for_distances() -> None:
    first, begin, body, end, last = loop().run
    empty = replace(body, extent=0)
    begin = replace(begin, jump=StepJump(FLAG, False, 5))
    end = replace(end, jump=StepJump(FLAG, True, -3))
    program = Program(loop(run=(first, begin, empty, body, empty, end, last)), 2)
    x = np.arange(N, dtype=np.float32)
    for trips in (0, 1, 5):
        y = program.run({"x": x, "trips": np.array(trips)})["y"]
        np.testing.assert_array_equal(y, x + 2 + trips)


@pytest.mark.parametrize(
    ("jump", "error"),
    [
        (StepJump(FLAG, True, -3), "jumps to step 0 of 5"),
        (StepJump(FLAG, True, 3), "jumps to step 6 of 5"),
        (StepJump(BufferRef("arena", 128 + 4 * N + 60), True, -1), "misaligned or outside"),
    ],
)
def test_jumps_that_leave_the_steps_or_the_memory_are_refused(jump: StepJump, error: str) -> None:
    *steps, last = loop().run
    steps[3] = replace(steps[3], jump=jump)
    with pytest.raises(VerifyError, match=error):
        loop(run=(*steps, last))
    with pytest.raises(VerifyError, match="a step jumps in prepare"):
        loop(prepare=(ProgramStep("inc", (ROW, ROW), 1, 1, jump=StepJump(FLAG, True, 0)),))
