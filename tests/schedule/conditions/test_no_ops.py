"""Row B2 of the RFC: statements without an effect go, and those that look like it stay."""

import numpy as np
import pytest

from graphflow.arith import Verdict
from graphflow.schedule import Schedule, remove_no_op
from graphflow.schedule.conditions.no_ops import no_effect
from graphflow.tir import calls_in, interpret, to_text
from support.schedule_checks import kernel, same

ONE = "y: out[i32[1]], x: i32[16]"


def left(text: str, params: str = "x: i32[16], y: out[i32[16]]", place: str | None = None) -> str:
    """The body that is left, after a check that it computes the same."""
    func = kernel(text, params)
    done = remove_no_op(func, place)
    return "\n".join(line[4:] for line in same(func, done).splitlines()[2:])


def test_b2_a_store_overwritten_unread() -> None:
    text = left("for i in serial(0, 16):\n    y[i] = x[i]\n    y[i] = x[i] + x[0]")
    assert text == "for i in serial(0, 16):\n    y[i] = x[i] + x[0]"
    kept = "for i in serial(0, 16):\n    y[i] = x[i]\n    y[i] = y[i] + x[0]"
    assert left(kept) == kept


def test_b2_a_block_overwritten_unread() -> None:
    first = 'with block("first"):\n    for i in serial(0, {n}):\n        y[i] = x[i]\n'
    second = (
        'with block("second"):\n    for j in serial(0, 2):\n        for k in serial(0, 8):\n'
        "            y[8*j + k] = x[-8*j - k + 15]"
    )
    assert left(first.format(n=16) + second) == second
    reading = second.replace("x[-8*j - k + 15]", "y[-8*j - k + 15]")
    assert left(first.format(n=16) + reading) == first.format(n=16) + reading


def test_b2_a_block_that_is_overwritten_in_part_stays() -> None:
    text = (
        'with block("first"):\n    for i in serial(0, 16):\n        y[i] = x[i]\n'
        'with block("second"):\n    for j in serial(0, 15):\n        y[j] = x[j + 1]'
    )
    assert left(text) == text
    proof = no_effect(kernel(text), ((0, False),))
    assert proof.verdict is Verdict.REFUTED
    assert proof.witness[-1] == ("y.0", 15)


def test_b2_storing_back_what_was_read() -> None:
    text = "for i in serial(0, 16):\n    y[i] = x[i]"
    assert left(text + "\n    y[i] = y[i]") == text
    other = text + "\nfor j in serial(0, 15):\n    y[j] = y[j + 1]"
    assert left(other) == other


def test_b2_storing_a_value_known_to_be_there() -> None:
    func = kernel(
        """
assume(unless(False), x[0] == i32(0))
y[0] = x[0]
y[0] = i32(0)
for i in serial(0, 16):
    y[0] += x[i]
""",
        ONE,
    )
    done = remove_no_op(func)
    assert "y[0] = i32(0)" not in to_text(done.func)
    x = np.arange(16, dtype="int32")
    assert interpret(done.func, {"x": x})["y"] == interpret(func, {"x": x})["y"] == x.sum()


def test_b2_an_assumption_of_zero_says_nothing_of_the_sign_of_a_float() -> None:
    text = "assume(unless(False), x[0] == f32(0.0))\ny[0] = x[0]\ny[0] = f32(0.0)"
    done = remove_no_op(kernel(text, "x: f32[1], y: out[f32[1]]"))
    assert "y[0] = f32(0.0)" in to_text(done.func)


def test_of_two_equal_stores_one_stays() -> None:
    assert left("y[0] = x[0]\ny[0] = x[0]", ONE) == "y[0] = x[0]"


def test_what_only_a_dead_buffer_needs_goes_with_it() -> None:
    text = """
t = alloc(i32[16])
u = alloc(i32[16])
for i in serial(0, 16):
    t[i] = x[i]
    u[i] = t[i]
    y[i] = x[i]
"""
    assert left(text) == "for i in serial(0, 16):\n    y[i] = x[i]"


def test_a_store_that_data_decide_overwrites_nothing() -> None:
    text = "y[0] = x[0]\nif data(x[1] < i32(0)):\n    y[0] = x[1]"
    assert left(text, ONE) == text


@pytest.mark.parametrize("place", ["first", "second"])
def test_only_in_one_place(place: str) -> None:
    text = "".join(
        f'with block("{name}"):\n    y[{n}] = x[{n}]\n    y[{n}] = x[3]\n'
        for n, name in enumerate(("first", "second"))
    )
    func = kernel(text, "x: i32[16], y: out[i32[2]]")
    got = to_text(remove_no_op(func, place).func)
    assert (got.count("y[0] ="), got.count("y[1] =")) == ((1, 2) if place == "first" else (2, 1))


def test_padding_stages_stay_and_nothing_is_no_step() -> None:
    func = kernel(
        """
for i in serial(0, 16):
    y[i] = x[i]
with block("y_padding", padding_of="y", padding="undef"):
    for a in serial(0, 16):
        if a >= 14:
            y[a] = undef(i32)
"""
    )
    s = Schedule.of(func)
    assert s.apply(remove_no_op).steps == ()


def test_a_store_that_comes_again_is_not_the_start_of_a_sum() -> None:
    """A trap: the store has the indices of the sum, and ends it in the next iteration of k."""
    func = kernel(
        "for k in serial(0, 2):\n    for i in serial(0, 16):\n        y[i] = i32(0)\n"
        "        y[i] += x[i]"
    )
    same(func, remove_no_op(func))
    assert "+=" in to_text(remove_no_op(func).func)


@pytest.mark.parametrize("place", ["j", "j[0]"])
def test_b2_of_elements_that_scalars_choose(place: str) -> None:
    """A kernel that was extracted inside of loops: its scalars say what it leaves in an output."""
    copy = "for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[i, j] = x[i, j]"
    func = kernel(copy, "x: i32[4, 4], y: out[i32[4, 4]]")
    (call,) = calls_in(Schedule.of(func).extract_subproc(place, "g").func.body)
    assert call.definition.scalars
    assert remove_no_op(call.definition).func is call.definition
