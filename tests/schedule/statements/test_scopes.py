"""Tests of the primitives that put conditions around statements and move scopes outwards."""

import pytest

from graphflow.arith import Var, const, less_than
from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, lift_scope, simplify, specialize
from graphflow.tir import Comparison, Literal, Load, to_text
from support.schedule_checks import kernel, same

I = Var("i")


def body_of(text: str) -> str:
    return to_text(kernel(text))


# -- specialize


def test_specialize() -> None:
    func = kernel('for i in serial(0, 16):\n    with block("b"):\n        y[i] = x[i]')
    conditions = (less_than(I, const(4)), less_than(I, const(8)))
    s = Schedule.of(func)
    place = s.handle("b")
    s = s.apply(specialize, "b", conditions)
    assert same(func, s) == body_of(
        "for i in serial(0, 16):\n    if i < 4:\n"
        '        with block("b"):\n            y[i] = x[i]\n    else:\n        if i < 8:\n'
        '            with block("b_1"):\n                y[i] = x[i]\n        else:\n'
        '            with block("b_2"):\n                y[i] = x[i]'
    )
    assert s.names(s.forward(place)) == ("b", "b_1", "b_2")


def test_specialize_for_data() -> None:
    func = kernel("for i in serial(0, 16):\n    y[i] = x[i]")
    (x,) = func.inputs
    condition = Comparison("lt", Load(x, (I,)), Literal(3, "int32"))
    assert "if data(x[i] < i32(3)):" in same(func, specialize(func, "i[0]", [condition]))


def test_specialize_refuses_conditions_that_are_not_valid() -> None:
    func = kernel("for i in serial(0, 16):\n    y[i] = x[i]")
    (x,) = func.inputs
    with pytest.raises(ScheduleError, match="j < 3 uses j, and no loop around the place binds it"):
        specialize(func, "i[0]", [less_than(Var("j"), const(3))])
    outside = Comparison("lt", Load(x, (I + 1,)), Literal(3, "int32"))
    with pytest.raises(ScheduleError) as refused:
        specialize(func, "i[0]", [outside])
    assert "what data(x[i + 1] < i32(3)) reads exists does not hold" in str(refused.value)
    assert "fails at i=15" in str(refused.value)
    with pytest.raises(ScheduleError, match="is int32, and a condition is bool"):
        specialize(func, "i[0]", [Load(x, (I,))])
    with pytest.raises(ScheduleError, match="no condition is given"):
        specialize(func, "i[0]", [])


def test_specialize_refuses_what_nothing_may_read() -> None:
    """Trap: the element is in bounds, and an assumption forbids to access it."""
    func = kernel(
        "for j in serial(8, 16):\n    assume(unless(j < 8), x[j] != undef(i32))\n"
        "for i in serial(0, 16):\n    y[i] = i32(0)"
    )
    (x,) = func.inputs
    condition = Comparison("lt", Load(x, (I,)), Literal(3, "int32"))
    with pytest.raises(ScheduleError, match="reads x, parts of which nothing may read"):
        specialize(func, "i[0]", [condition])


# -- lift_scope


def test_lift_scope_takes_a_condition_out_of_a_loop() -> None:
    func = kernel(
        "for j in serial(0, 4):\n    for i in serial(0, 4):\n        if j < 3:\n"
        "            y[4*j + i] = x[i]\n        else:\n            y[i] = x[j]"
    )
    s = Schedule.of(func)
    loop = s.handle("i")
    s = s.apply(lift_scope, "i[0]")
    assert same(func, s) == body_of(
        "for j in serial(0, 4):\n    if j < 3:\n        for i in serial(0, 4):\n"
        "            y[4*j + i] = x[i]\n    else:\n        for i_else in serial(0, 4):\n"
        "            y[i_else] = x[j]"
    )
    assert s.names(s.forward(loop)) == ("i", "i_else")


def test_lift_scope_takes_a_loop_out_of_a_condition() -> None:
    func = kernel(
        "for j in serial(0, 4):\n    if j < 3:\n        for i in serial(0, 4):\n"
        "            y[4*j + i] = x[i]"
    )
    lifted = lift_scope(func, "i")
    assert "for i in serial(0, 4):\n            if j < 3:" in same(func, lifted)
    back = lift_scope(lifted.func, "i[0]")
    assert to_text(back.func) == to_text(func)


@pytest.mark.parametrize("branch", ["then", "else"])
def test_lift_scope_exchanges_conditions(branch: str) -> None:
    inner = "if i % 2 == 0:\n            y[i] = x[i]\n        else:\n            y[i] = x[0]\n"
    other = 'with block("b"):\n            y[i] = x[1]\n'
    one, two = (inner, other) if branch == "then" else (other, inner)
    func = kernel(f"for i in serial(0, 16):\n    if i < 5:\n        {one}    else:\n        {two}")
    s = Schedule.of(func)
    place = s.handle("b")
    s = s.apply(lift_scope, "i[0][0]" if branch == "then" else "i[0].else[0]")
    text = same(func, s)
    assert text.count("if i < 5:") == 2 and "\n        if i % 2 == 0:" in text
    assert s.names(s.forward(place)) == ("b", "b_else")


def test_lift_scope_of_conditions_without_else_branches() -> None:
    func = kernel(
        "for i in serial(0, 16):\n    y[i] = x[1]\n    if i < 5:\n        if i % 2 == 0:\n"
        "            y[i] = x[i]\n"
    )
    assert same(func, lift_scope(func, "i[1][0]")) == body_of(
        "for i in serial(0, 16):\n    y[i] = x[1]\n    if i % 2 == 0:\n        if i < 5:\n"
        "            y[i] = x[i]\n"
    )


def test_lift_scope_exchanges_loops_as_reorder_loops_does() -> None:
    func = kernel("for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[4*i + j] = x[j]")
    text = same(func, lift_scope(func, "j"))
    assert text.index("for j") < text.index("for i")


@pytest.mark.parametrize("place", ["i[0]", "i"])
def test_lift_scope_refuses_a_condition_that_the_loop_changes(place: str) -> None:
    """Trap: the condition does not name the loop's variable, but reads what the loop stores."""
    before = "y[0] = x[0]\n"
    inner = "for i in serial(0, 4):\n    if data(y[0] < i32(3)):\n        y[3 - i] = x[i]"
    outer = "if data(y[0] < i32(3)):\n    for i in serial(0, 4):\n        y[3 - i] = x[i]"
    func = kernel(before + (inner if place == "i[0]" else outer))
    with pytest.raises(ScheduleError) as refused:
        lift_scope(func, place)
    message = str(refused.value)
    assert "no iteration of i writes what data(y[0] < i32(3)) reads does not hold" in message
    assert "i'=3" in message


def test_lift_scope_refuses_a_condition_on_what_may_not_exist() -> None:
    func = kernel(
        "for j in serial(0, 20):\n    if j < 16:\n        if data(x[j] < i32(3)):\n"
        "            y[j] = x[j]"
    )
    with pytest.raises(ScheduleError) as refused:
        lift_scope(func, "j[0][0]")
    assert "what data(x[j] < i32(3)) reads exists does not hold" in str(refused.value)
    assert "fails at j=19" in str(refused.value)


def test_lifted_conditions_bound_what_is_left() -> None:
    func = kernel("for i in serial(0, 16):\n    if 0 < 1:\n        y[i] = x[i]")
    s = Schedule.of(func).apply(lift_scope, "i[0]").apply(simplify)
    assert "if" not in same(func, s)
