"""Tests of the schedule that users have: its methods are the primitives, and it shows changes."""

import io
from inspect import isfunction, signature

import pytest

import graphflow.schedule
from graphflow.base.errors import ScheduleError
from graphflow.schedule import Schedule, divide_loop
from support.primitives.rfc77 import PRIMITIVES
from support.schedule_checks import kernel

BODY = "for i in serial(0, 16):\n    y[i] = x[i]"


def primitives() -> list[str]:
    """The names of what the package exports that returns a rewrite."""
    exported = {name: getattr(graphflow.schedule, name) for name in graphflow.schedule.__all__}
    return [
        name
        for name, thing in exported.items()
        if isfunction(thing) and signature(thing).return_annotation == "Rewrite"
    ]


def test_every_primitive_is_a_method() -> None:
    assert len(primitives()) > 60
    for name in primitives():
        assert getattr(Schedule, name) is getattr(graphflow.schedule, name), name


def test_every_built_primitive_of_the_catalogue_is_a_method_of_its_name() -> None:
    built = [row.name for row in PRIMITIVES if row.functions]
    assert not [name for name in built if name not in primitives()]


def test_a_method_applies_its_primitive() -> None:
    s = Schedule.of(kernel(BODY))
    called = s.divide_loop("i", 4, ("io", "ii"), tail="perfect")
    applied = s.apply(divide_loop, "i", 4, ("io", "ii"), tail="perfect")
    assert (called.func, called.steps) == (applied.func, applied.steps)
    assert called[called.made["parts"][1]] == "ii"
    assert s.divide_loop.__doc__ == divide_loop.__doc__
    with pytest.raises(ScheduleError, match=r"divide_loop\('i', 3, \('io', 'ii'\), 'perfect'\)"):
        s.divide_loop("i", 3, ("io", "ii"), "perfect")


def test_show_marks_what_the_last_step_changed(capsys: pytest.CaptureFixture[str]) -> None:
    s = Schedule.of(kernel(BODY)).divide_loop("i", 4, ("io", "ii"), "perfect").vectorize_loop("ii")
    s.show()
    assert capsys.readouterr().out.splitlines() == [
        "  @primfunc",
        "  def k(x: i32[16], y: out[i32[16]]):",
        "      for io in serial(0, 4):",
        "-         for ii in serial(0, 4):",
        "+         for ii in vectorized(0, 4):",
        "              y[4*io + ii] = x[4*io + ii]",
    ]
    s.show(since=0)
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line[0] != " "] == [
        "-     for i in serial(0, 16):",
        "-         y[i] = x[i]",
        "+     for io in serial(0, 4):",
        "+         for ii in vectorized(0, 4):",
        "+             y[4*io + ii] = x[4*io + ii]",
    ]
    s.show(since=2)
    assert all(line[0] == " " for line in capsys.readouterr().out.splitlines())


def test_show_refuses_a_state_that_was_not() -> None:
    s = Schedule.of(kernel(BODY))
    for since in (-1, 1):
        with pytest.raises(ScheduleError, match=f"0 steps> has no state after {since} steps"):
            s.show(since)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_show_is_in_colour_on_a_terminal_alone() -> None:
    s = Schedule.of(kernel(BODY)).vectorize_loop("i")
    plain, terminal, asked = io.StringIO(), Terminal(), io.StringIO()
    s.show(file=plain)
    s.show(file=terminal)
    s.show(file=asked, colour=True)
    assert "\x1b" not in plain.getvalue()
    assert "\x1b[32m+     for i in vectorized(0, 16):\x1b[0m" in terminal.getvalue()
    assert "\x1b[31m-     for i in serial(0, 16):\x1b[0m" in terminal.getvalue()
    assert asked.getvalue() == terminal.getvalue()
