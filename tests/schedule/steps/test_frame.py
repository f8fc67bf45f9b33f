"""Tests of schedules: replay, refusals that show the kernel, and proofs as permission."""

from collections.abc import Callable

import pytest

from graphflow.arith import Proof, Verdict
from graphflow.base.errors import ScheduleError
from graphflow.layout import blocked
from graphflow.schedule import (
    Rewrite,
    Schedule,
    cut_loop,
    divide_loop,
    fuse,
    mult_loops,
    replay,
    sequential_buffer_access,
    simplify,
    stage_mem,
    transform_layout,
    vectorize_loop,
)
from graphflow.schedule.places.obligations import require
from graphflow.tir import to_text
from support.schedule_checks import kernel, same

Golden = Callable[[str, str], None]

TWO = """
with block("first"):
    for i in serial(0, 14):
        y[i] = x[i] + x[i]
with block("second"):
    for j in serial(14, 16):
        y[j] = x[j]
"""


def scheduled() -> Schedule:
    s = Schedule.of(kernel(TWO))
    s = s.apply(divide_loop, "i", 4, ("io", "ii"), tail="cut")
    s = s.apply(cut_loop, "io", 1, "_rest")
    s = s.apply(mult_loops, "io_rest", "ii_rest", "all")
    return s.apply(vectorize_loop, "all")


def test_places_that_simplification_takes_away_are_gone() -> None:
    body = "for i in serial(3, 4):\n    for j in serial(0, 16):\n        y[j] = x[i]"
    s = Schedule.of(kernel(body))
    i, j = s.handle("i"), s.handle("j")
    s = s.apply(simplify)
    assert s.forward(i) == ()
    assert s[j] == "j"
    with pytest.raises(ScheduleError, match=r"i is gone: simplify\(\) took it away"):
        s.loop(i)
    row = kernel(
        'with block("b"):\n    for n in serial(0, 1):\n        for c in serial(0, 4):\n'
        "            y[n, c] = x[n, c]",
        "x: i32[1, 4], y: out[i32[1, 4]]",
    )
    s = Schedule.of(row)
    n, c = s.handle("n"), s.handle("c")
    s = s.apply(transform_layout, "y", blocked((1, 4), 1, 4), None)
    s = s.apply(sequential_buffer_access, "b", "y", ("p0", "p1", "p2"))
    first, second, third = s.made["axes"]
    assert s[c] == s[third] == "p2"
    assert s.present((n, first, second)) == ()
    with pytest.raises(ScheduleError, match=r"p0 is gone: sequential_buffer_access.* made it and"):
        s.loop(first)


def test_replay_makes_the_same_kernel() -> None:
    s = scheduled()
    assert replay(s.definition, s.steps) == s.func
    same(s.definition, s)
    other = kernel(TWO.replace("14", "15"))
    assert to_text(replay(other, s.steps)) != to_text(s.func)


def test_a_refusal_names_the_step_and_shows_the_kernel(golden: Golden) -> None:
    s = scheduled()
    with pytest.raises(ScheduleError) as refused:
        s.apply(stage_mem, "io", "y", "t", dims=(), scope="scratch")
    golden("refusal", str(refused.value) + "\n")
    with pytest.raises(ScheduleError, match="k has no loop or block q; it has first, io, ii"):
        s.apply(divide_loop, "q", 2, ("a", "b"))
    with pytest.raises(ScheduleError, match="first is a block, and a loop is needed"):
        s.apply(divide_loop, "first", 2, ("a", "b"))
    with pytest.raises(ScheduleError, match="uses the name io already"):
        s.apply(divide_loop, "j", 2, ("io", "b"))


def test_a_step_that_changes_nothing_leaves_no_trace() -> None:
    s = scheduled()
    once = s.apply(simplify)
    assert once.apply(simplify) is once


def test_a_step_depends_on_the_kernel_alone() -> None:
    def refuse(func: object) -> Rewrite:
        raise ScheduleError("no")

    with pytest.raises(ScheduleError, match=r"refuse\(\): no"):
        Schedule.of(kernel(TWO)).apply(refuse)
    with pytest.raises(ScheduleError, match="second does not follow as a loop or block"):
        Schedule.of(kernel(TWO)).apply(fuse, "i", "second")


@pytest.mark.parametrize(
    ("verdict", "word"), [(Verdict.REFUTED, "does not hold"), (Verdict.UNKNOWN, "is not proven")]
)
def test_only_a_proof_permits(verdict: Verdict, word: str) -> None:
    proof = Proof(verdict, "i < 4", "sets", "fails at i=4")
    with pytest.raises(ScheduleError, match=rf"it is small {word}: i < 4 \(sets: fails at i=4\)"):
        require(proof, "it is small")
    good = Proof(Verdict.PROVEN, "i < 4", "sets")
    assert require(good, "it is small") is good
