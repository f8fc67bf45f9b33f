"""Statements are found by patterns, and their handles follow them through later steps."""

from random import Random

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.effects import statement_at
from graphflow.schedule import Schedule
from graphflow.schedule.places.addresses import path_of
from graphflow.tir import Assume, If, PrimFunc, Reduce, Stmt, Store, parse, to_text
from support.primitives.all_cases import SEQUENCE_CASES
from support.primitives.primitive_cases import effect_kernel

FUNC = parse("""
mode = config(act=i32)

@instruction
def add4(to: inout[f32[4]], by: f32[4]):
    for l in serial(0, 4):
        to[l] = to[l] + by[l]

@primfunc
def k(x: f32[16, 8], y: out[f32[16]], z: out[f32[()]], n: index):
    assume(unless(n >= 0 and n <= 4), bool(False))
    t = alloc(f32[16], scratch)
    z[()] = f32(0.0)
    mode.act = i32(1)
    with block("body"):
        for i in serial(0, 16):
            y[i] = f32(0.0)
            for j in unrolled(0, 8):
                if i + j < 9:
                    y[i] += x[i, 7 - j]
                    t[i] = y[i] * f32(2.0)
                else:
                    t[i] = x[i, j] + f32(2.0)
            reduce_max(y[i], t[i])
    for m in serial(0, n):
        with let(x[m, 0] < f32(0.5)) as u:
            if data(u[()]):
                add4(y[4*m:4*m + 4], x[m, 0:4])
        with y[4*m:4*m + 4] as w:
            for i2 in vectorized(0, 4):
                w[i2] = w[i2] + f32(1.0)
""")


def line(s: Schedule, place: str) -> str:
    """The first line of the statement at a place."""
    return str(statement_at(s.func, path_of(s.func, place))).splitlines()[0]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("for i in _: _", "for i in serial(0, 16):"),
        ("for i in _:\n    _", "for i in serial(0, 16):"),
        ("for _ in _: _ #1", "for j in unrolled(0, 8):"),
        ("for _ in unrolled(_, _): _", "for j in unrolled(0, 8):"),
        ("for _ in vectorized(0, 4): _", "for i2 in vectorized(0, 4):"),
        ("for _ in serial(0, n): _", "for m in serial(0, n):"),
        ("for _ in serial(_): _ #1", "for m in serial(0, n):"),
        ("for i in _:\n    y[_] = _\n    _", "for i in serial(0, 16):"),
        ("j", "for j in unrolled(0, 8):"),
        ("body", 'with block("body"):'),
        ("with block(_): _", 'with block("body"):'),
        ("y[_] = _", "y[i] = f32(0.0)"),
        ("y[i] = _", "y[i] = f32(0.0)"),
        ("_[i] = _", "y[i] = f32(0.0)"),
        ("y[_] += _", "y[i] += x[i, -j + 7]"),
        ("_ += x[_]", "y[i] += x[i, -j + 7]"),
        ("_ += x[_, 7 - j]", "y[i] += x[i, -j + 7]"),
        ("reduce_max(y[_], _)", "reduce_max(y[i], t[i])"),
        ("t[_] = _ #1", "t[i] = x[i, j] + f32(2.0)"),
        ("t[_] = _ + _", "t[i] = x[i, j] + f32(2.0)"),
        ("_ = _ * f32(2.0)", "t[i] = y[i] * f32(2.0)"),
        ("z = _", "z[()] = f32(0.0)"),
        ("z[()] = _", "z[()] = f32(0.0)"),
        ("mode.act = _", "mode.act = i32(1)"),
        ("if _: _", "if i + j < 9:"),
        ("if j + i < 9: _", "if i + j < 9:"),
        ("if 10 > j + i + 1: _", "if i + j < 9:"),
        ("if data(_): _", "if data(u[()]):"),
        ("if _: add4(_)", "if data(u[()]):"),
        ("if _:\n    _\nelse:\n    t[_] = _", "if i + j < 9:"),
        ("add4(_)", "add4(y[4*m:4*m + 4], x[m, 0:4])"),
        ("add4(_, x[m, _])", "add4(y[4*m:4*m + 4], x[m, 0:4])"),
        ("add4", "add4(y[4*m:4*m + 4], x[m, 0:4])"),
        ("with let(_) as u: _", "with let(x[m, 0] < f32(0.5)) as u:"),
        ("with y[_] as w: _", "with y[4*m:4*m + 4] as w:"),
        ("w[_] = _", "y[i2 + 4*m] = y[i2 + 4*m] + f32(1.0)"),
        ("assume(_)", "assume(unless(n >= 0 and n < 5), bool(False))"),
        ("_ #2", "z[()] = f32(0.0)"),
    ],
)
def test_a_pattern_finds_its_statement(pattern: str, found: str) -> None:
    s = Schedule.of(FUNC)
    assert line(s, s[s.find(pattern)]).replace("4*m + i2", "i2 + 4*m") == found


@pytest.mark.parametrize("pattern", ["t: _", "t : _", "t", "t = alloc(_)", "_: _"])
def test_an_allocation_is_found(pattern: str) -> None:
    s = Schedule.of(FUNC)
    assert s[s.find(pattern)] == "t"


def test_all_matches_are_in_program_order_and_inside_a_place() -> None:
    s = Schedule.of(FUNC)
    assert [str(h) for h in s.find_all("t[_] = _")] == ["j[0][1]", "j[0].else[0]"]
    assert [str(h) for h in s.find_all("for _ in _: _", s.find("m"))] == ["i2"]
    assert [str(h) for h in s.find_all("_ = _", s.find("if _: _"))] == ["j[0][1]", "j[0].else[0]"]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("for q in _: _", r"nothing in k matches 'for q in _: _'; it has\n    assume"),
        ("x[_] = _", "nothing in k matches"),
        ("t = _", "nothing in k matches"),
        ("for i in _: t[_] = _", "nothing in k matches"),
        ("y[_] = _ #1", "'y\\[_\\] = _ #1' matches 1 statements of k, counted from 0"),
        ("x[", "is no pattern: .*was never closed"),
        ("y[_] = _; z = _", "is no pattern: it is one statement"),
        ("", "is no pattern"),
        ("\0", "is no pattern"),
        ("(" * 300, "is no pattern"),
        ("#3", "is no pattern"),
    ],
)
def test_a_pattern_without_a_match_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        Schedule.of(FUNC).find(pattern)


# Handles ------------------------------------------------------------------------------------------

NEST = parse("""
@primfunc
def k(x: i32[16, 8], y: out[i32[16]]):
    for i in serial(0, 16):
        y[i] = i32(0)
        for j in serial(0, 8):
            if j < 7:
                y[i] += x[i, 7 - j]
""")


def test_a_handle_is_an_argument_and_lives_through_later_steps() -> None:
    s = Schedule.of(NEST)
    outer, inner = s.find("for i in _: _"), s.find("for j in _: _")
    start, update, condition = s.find("y[_] = _"), s.find("y[_] += _"), s.find("if _: _")
    s = s.divide_loop(outer, 4, ("io", "ii"), "perfect").cut_loop(inner, 7, "_c").simplify()
    assert line(s, s[update]) == "y[4*io + ii] += x[4*io + ii, -j + 7]"
    assert s.forward(condition) == ()
    with pytest.raises(ScheduleError, match=r"j\[0\] is gone: simplify\(\) took it away"):
        s[condition]
    s = s.fission("ii", 1, "_u").name_statement(update, "sum")
    assert line(s, s[start]) == "y[4*io + ii] = i32(0)"
    assert s[update] == "sum[0]"
    s = s.unroll_loop(inner)
    assert len(s.forward(update)) == 7
    with pytest.raises(
        ScheduleError, match=r"is not one place any more: unroll_loop.* made sum\[0"
    ):
        s.commute_expr(update, "x[0, 0]")
    (first, *_) = s.forward(update)
    assert s.unroll_loop("ii").forward(first)
    s.trace()


def test_a_handle_of_another_schedule_is_refused() -> None:
    s = Schedule.of(NEST)
    update = s.divide_loop("i", 4, ("io", "ii")).find("y[_] += _")
    with pytest.raises(ScheduleError, match="belongs to another schedule"):
        s[update]


def test_statements_are_followed_through_random_steps() -> None:
    """What a handle leads to is a statement of the same class, which writes what it wrote or what
    that was renamed to; most statements survive most steps."""
    lost = followed = 0
    for seed in range(100):
        random = Random(seed)
        s = Schedule.of(effect_kernel(random.randint))
        held = [(h, at(s.func, str(h))) for h in s.find_all("_") if h.kernel is not None]
        for case in random.sample(SEQUENCE_CASES, 12):
            arguments = case.arguments(s.func, random.randint)
            if arguments is not None and len(s.steps) < 3:
                s = s.attempt(case.primitive, *arguments)
        for handle, before in held:
            now = s.forward(handle)
            followed, lost = followed + 1, lost + (not now)
            for place in now:
                after = at(s.func, str(place))
                assert type(after) is type(before), f"seed {seed}\n{s.trace()}\n{to_text(s.func)}"
    assert followed > 375 and lost < followed / 4, (followed, lost)


def at(func: PrimFunc, place: str) -> Stmt:
    return statement_at(func, path_of(func, place))


# Text ---------------------------------------------------------------------------------------------


def test_schedules_kernels_and_statements_print_as_text() -> None:
    s = Schedule.of(NEST).divide_loop("i", 4, ("io", "ii"), "perfect")
    assert str(s) == str(s.func) == to_text(s.func)
    assert str(s.loop(s.find("j"))).startswith("for j in serial(0, 8):\n    if j < 7:\n        y[")
    marked = (Store, Reduce, If, Assume)
    assert all("mark" not in repr(one) for one in s.func.body if isinstance(one, marked))
