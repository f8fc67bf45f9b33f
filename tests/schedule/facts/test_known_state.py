"""`replace` by instructions whose meaning depends on configuration state."""

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, delete_config, in_state, replace, write_config
from graphflow.tir import Config, Literal, PrimFunc, interpret, parse, stmt_text, to_text, verify

MODE = Config("mode", {"act": "int32"})
ACT = MODE.field("act")
HEAD = "mode = config(act=i32)\n\n@primfunc\n"

BY_SELECT = parse(
    HEAD
    + """
def leave(to: out[i32[4]], x: i32[4]):
    for i in serial(0, 4):
        to[i] = select(data(mode.act == i32(1)), max(x[i], i32(0)), x[i])
"""
)
BY_BRANCH = parse(
    HEAD
    + """
def leave(to: out[i32[4]], x: i32[4]):
    if data(mode.act == i32(1)):
        for i in serial(0, 4):
            to[i] = max(x[i], i32(0))
    else:
        for j in serial(0, 4):
            to[j] = x[j]
"""
)
BY_ASSUMPTION = parse(
    HEAD
    + """
def leave(to: out[i32[4]], x: i32[4]):
    assume(unless(False), mode.act == i32(1))
    for i in serial(0, 4):
        to[i] = max(x[i], i32(0))
"""
)
KERNEL = """
def k(x: i32[8], y: out[i32[8]]):
    for b in serial(0, 2):
        for i in serial(0, 4):
            y[4*b + i] = max(x[4*b + i], i32(0))
"""


def schedule(value: int | None = None, place: str = "i") -> Schedule:
    s = Schedule.of(parse(HEAD + KERNEL))
    return s if value is None else s.apply(write_config, place, ACT, value)


@pytest.mark.parametrize("definition", [BY_SELECT, BY_BRANCH, BY_ASSUMPTION])
def test_an_instruction_where_the_state_is_known(definition: PrimFunc) -> None:
    s = schedule(1, "b").apply(replace, "i", definition)
    assert "        leave(y[4*b:4*b + 4], x[4*b:4*b + 4])" in to_text(s.func)
    assert "mode.act is 1 at i" in s.trace(proofs=True)
    verify(s.func, "scheduled")
    x = {"x": np.arange(8, dtype="int32") - 4}
    expected = interpret(s.definition, x)["y"]
    np.testing.assert_array_equal(interpret(s.func, x)["y"], expected)
    with pytest.raises(ScheduleError, match="unread"):
        s.apply(delete_config, "[0]")
    with pytest.raises(ScheduleError, match="unread"):
        s.apply(write_config, "leave", ACT, 0)


@pytest.mark.parametrize("definition", [BY_SELECT, BY_BRANCH, BY_ASSUMPTION])
def test_a_refusal_names_the_field_and_both_values(definition: PrimFunc) -> None:
    wanted = r"state: leave does this where mode\.act is 1, and at i mode\.act "
    with pytest.raises(ScheduleError, match=wanted + "holds 0"):
        schedule(0).apply(replace, "i", definition)
    with pytest.raises(ScheduleError, match=wanted + r"is not known to hold it \(no store"):
        schedule().apply(replace, "i", definition)
    two = schedule(1).apply(write_config, "b", ACT, 0)
    assert "leave(" in to_text(two.apply(replace, "i", definition).func)


def test_state_that_only_some_iterations_have_is_not_known() -> None:
    sometimes = "        if b == 1:\n            mode.act = i32(1)\n        for i in"
    func = parse(HEAD + KERNEL.replace("        for i in", sometimes))
    s = Schedule.of(func).apply(write_config, "b", ACT, 0)
    with pytest.raises(ScheduleError, match=r"is not known to hold it \(mode\.act may hold"):
        s.apply(replace, "i", BY_SELECT)


def test_the_first_difference_is_shown_where_no_state_matches() -> None:
    other = parse(to_text(BY_SELECT).replace("i32(0)", "i32(6)"))
    with pytest.raises(ScheduleError, match="does not unify with leave: "):
        schedule(1).apply(replace, "i", other)


def test_a_field_that_the_statements_read_themselves_is_no_condition() -> None:
    scaled = HEAD + "def {}(to: out[i32[8]], x: i32[8]):\n    {}\n"
    body = "for i in serial(0, 8):\n        to[i] = x[i] * mode.act"
    definition = parse(scaled.format("scale", body))
    func = parse(scaled.format("k", "mode.act = i32(3)\n    " + body))
    assert "scale(to[0:8], x[0:8])" in to_text(replace(func, "i", definition).func)


def test_a_definition_in_a_state() -> None:
    func = parse(
        HEAD
        + """
def f(x: i32[4], y: out[i32[4]]):
    y[0] = x[0] * (mode.act + i32(2)) + (i32(1) + i32(1))
    if data(mode.act < i32(0)):
        y[1] = x[1]
    y[2] = cast(i32, -mode.act) + select(data(x[0] == mode.act), x[2], mode.act)
    assume(unless(False), mode.act > i32(4))
"""
    )
    body = in_state(func.body, {ACT: Literal(5, "int32")})
    assert [stmt_text(stmt) for stmt in body] == [
        "y[0] = x[0] * i32(7) + (i32(1) + i32(1))",
        "y[2] = i32(-5) + select(data(x[0] == i32(5)), x[2], i32(5))",
    ]
    (_, _, kept) = in_state(func.body, {ACT: Literal(4, "int32")})
    assert stmt_text(kept) == "assume(unless(False), bool(False))"
