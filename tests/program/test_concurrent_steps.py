"""Tests of steps that run beside each other: which ones may, and that threads divide them."""

import numpy as np
import pytest

from graphflow.program import (
    BufferRef,
    InputSize,
    ProgramSpec,
    ProgramStep,
    SharingPrices,
    Signature,
    SizeWithin,
    StepJump,
    TensorSpec,
    concurrent_steps,
)
from graphflow.runtime import Program
from support.programs import kernel

SIZE = 128 * 1024
SIGNATURES = {"k": Signature(1, (SIZE, SIZE)), "small": Signature(1, (64, 64))}
X, Y, Z = BufferRef("input", 0), BufferRef("output", 0), BufferRef("output", 1)


def arena(number: int) -> BufferRef:
    return BufferRef("arena", number * SIZE)


def step(*buffers: BufferRef, symbol: str = "k", **changes: object) -> ProgramStep:
    return ProgramStep(symbol, buffers, 1, **changes)  # type: ignore[arg-type]


def found(*steps: ProgramStep) -> list[range]:
    return [*concurrent_steps(steps, SIGNATURES)]


def test_steps_that_touch_memory_of_their_own_run_concurrently() -> None:
    apart = [step(arena(2 * k), arena(2 * k + 1)) for k in range(3)]
    assert found(*apart) == [range(3)]
    assert found(step(X, arena(0)), step(X, arena(1))) == [range(2)]
    halves = [step(arena(k), BufferRef("output", 0, k * SIZE)) for k in range(2)]
    assert found(*halves) == [range(2)]
    weights = [step(BufferRef("constant", 0), arena(k)) for k in range(2)]
    assert found(*weights) == [range(2)]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(step(arena(1), arena(2)), id="it reads what the first one writes"),
        pytest.param(step(arena(2), arena(0)), id="it writes what the first one reads"),
        pytest.param(step(arena(2), BufferRef("arena", SIZE // 2)), id="a part of it"),
        pytest.param(step(arena(2), arena(3), symbol="small"), id="it is over at once"),
        pytest.param(step(arena(2), arena(3), threads=1), id="the caller has to run it"),
        pytest.param(step(arena(2), arena(3), jump=StepJump(X, True, 1)), id="it jumps"),
    ],
)
def test_other_steps_stay_apart(other: ProgramStep) -> None:
    first = step(arena(0), arena(1))
    assert found(first, other) == []
    assert found(first, other, step(arena(6), arena(7)), step(arena(8), arena(9))) in (
        [range(2, 4)],
        [range(1, 4)],
    )


def test_an_output_may_be_the_memory_of_an_input() -> None:
    assert found(step(X, arena(0)), step(arena(1), Y)) == []
    assert found(step(arena(0), Y), step(arena(1), Z)) == [range(2)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("patience_ns", [0, 100_000_000])
def test_each_step_of_a_group_runs_once(threads: int, patience_ns: int) -> None:
    """Twelve counters, each behind memory of its own, in two groups with a step between."""
    count = kernel("k", 2, "%n = load i64, ptr %p0\n  %m = add i64 %n, 1\n  store i64 %m, ptr %p1")
    refs = [(arena(2 * k), arena(2 * k + 1)) for k in range(6)]
    first = [step(X, a) for a, _ in refs]
    second = [step(a, b) for a, b in refs]
    spec = ProgramSpec(
        objects=(count,),
        prepare=(),
        run=(*first, *second, step(refs[5][1], Y)),
        constants=(),
        constant_bytes=0,
        arena_bytes=12 * SIZE,
        inputs=(TensorSpec("x", "int64", (SIZE // 8,)),),
        outputs=(TensorSpec("y", "int64", (SIZE // 8,)),),
        signatures={"k": Signature(1, (SIZE, SIZE))},
    )
    assert [*concurrent_steps(spec.run, spec.signatures)] == [range(6), range(6, 12)]
    program = Program(spec, threads, patience_ns=patience_ns)
    for start in range(50):
        y = program.run({"x": np.full(SIZE // 8, start)})["y"]
        assert y[0] == start + 3


SMALL = step(arena(6), arena(7), symbol="quick", saved=80, within=(SizeWithin(1, 8),))
"""A step that a run of a small size executes without the other threads."""

MIXED = {
    "the first alone": (
        step(X, arena(0), threads=1),
        SMALL,
        step(arena(0), arena(1), saved=1000),
        step(arena(1), Y, threads=1),
    ),
    "the last alone": (
        step(X, arena(0), saved=1000),
        step(X, arena(1), saved=1000),
        SMALL,
        step(arena(0), Y, symbol="quick", threads=1),
        step(arena(1), Z, symbol="quick", threads=1),
    ),
}
"""Groups of which a run shares some steps, between steps of the caller."""


@pytest.mark.parametrize("steps", MIXED.values(), ids=MIXED)
def test_threads_meet_around_a_group_that_a_run_shares_in_part(
    steps: tuple[ProgramStep, ...],
) -> None:
    """Each step takes its time, so that one which does not wait reads what was there before."""
    body = "%n = load i64, ptr %p0\n  {}\n  %m = add i64 %n, 1\n  store i64 %m, ptr %p1"
    late = body.format("%slept = call i32 @usleep(i32 3000)")
    kernels = (
        kernel("k", 2, late, "declare i32 @usleep(i32)"),
        kernel("quick", 2, body.format("")),
    )
    names = ["y", "z"][: sum(ref.space == "output" for one in steps for ref in one.buffers)]
    spec = ProgramSpec(
        objects=kernels,
        prepare=(),
        run=steps,
        constants=(),
        constant_bytes=0,
        arena_bytes=12 * SIZE,
        inputs=(TensorSpec("x", "int64", (8, SIZE // 64)), TensorSpec("n", "int64", ())),
        outputs=tuple(TensorSpec(name, "int64", (SIZE // 8,)) for name in names),
        signatures=dict.fromkeys(("k", "quick"), Signature(1, (SIZE, SIZE))),
        sizes=(InputSize("n", 1, 1, 8, ((0, 0),)),),
        sharing=SharingPrices(meeting=40),
    )
    program = Program(spec, 2)
    written = sum(one.buffers[1] in (arena(0), arena(1)) for one in steps) // len(names)
    for start, size in enumerate((8, 1, 3, 2) * 5):
        found = program.run({"x": np.full((size, SIZE // 64), start)})
        assert {y[0] for y in found.values()} == {start + written + 1}, size
