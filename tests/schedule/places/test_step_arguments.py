"""Arguments as people write them: text is read as kernel text is, and nothing but GraphflowError
leaves a primitive, whatever it is given."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from random import Random
from typing import Any

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import Var, at_least_zero, floor_div
from graphflow.base.errors import GraphflowError, ScheduleError
from graphflow.layout import blocked
from graphflow.schedule import PadFunction, Schedule
from graphflow.schedule.loops.pieces import MOST_STATEMENTS
from graphflow.schedule.places.place_names import names_of_places
from graphflow.schedule.user.methods import Method
from support.schedule_checks import kernel, same

PRIMITIVES: dict[str, Callable[..., Any]] = {
    name: thing.primitive for name, thing in vars(Schedule).items() if isinstance(thing, Method)
}
REVERSED = """
t = alloc(i32[16])
for i in serial(0, 16):
    t[i] = x[15 - i] * i32(3)
for j in serial(0, 16):
    y[j] = t[j]
"""


# Text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x[15 - i]", "x[-i + 15]", " x[ 15-i ]", "x[15 - 1*i]", "x"])
def test_an_expression_is_found_however_its_text_is_written(text: str) -> None:
    func = kernel(REVERSED)
    assert "e = alloc(i32[()], register)" in same(func, Schedule.of(func).bind_expr("i", text, "e"))


@pytest.mark.parametrize(
    ("step", "result"),
    [
        (lambda s: s.commute_expr("i[0]", "x[15 - i] * i32(3)"), "t[i] = i32(3) * x[-i + 15]"),
        (lambda s: s.specialize("i[0]", ["i < 5"]), "if i < 5:"),
        (lambda s: s.specialize("i[0]", ["data(x[i] < i32(2))"]), "if data(x[i] < i32(2)):"),
        (lambda s: s.cut_loop("i", "10 - 2", "_c"), "for i_c in serial(8, 16):"),
        (lambda s: s.shift_loop("i", "2*3"), "for i in serial(6, 22):"),
        (lambda s: s.add_loop("i[0]", "q", "i + 1"), "for q in serial(0, i + 1):"),
        (lambda s: s.rewrite_expr("i[0]", "15 - i", "min(15 - i, 15)"), "x[min(-i + 15, 15)]"),
        (lambda s: s.rewrite_expr("i[0]", "x[15 - i] * i32(3)", "i32(3) * x[-i + 15]"), "i32(3) *"),
        (lambda s: s.stage_window("i", "x", "w", window=["15 - i"]), "w = alloc"),
    ],
)
def test_text_stands_for_an_expression(step: Callable[[Schedule], Schedule], result: str) -> None:
    func = kernel(REVERSED)
    s = step(Schedule.of(func))
    assert result in same(func, s), tir.to_text(s.func)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda s: s.cut_loop("i", "n", "_c"), "n uses n, and no loop around the place binds it"),
        (lambda s: s.shift_loop("i", "3 +"), "'3 \\+' cannot be read: .*no index expression"),
        (lambda s: s.resize_dim("t", 0, 16, "i*j"), "quasi-affine"),
        (lambda s: s.specialize("i[0]", ["x[i] < i32(2)"]), "not an index expression"),
        (lambda s: s.specialize("i[0]", ["data(x[i])"]), "is int32, and a condition is bool"),
        (lambda s: s.bind_expr("i", "x[i, i]", "e"), r"x has the axes \[16\]"),
        (lambda s: s.bind_expr("i", "z[i]", "e"), "no buffer is called z"),
        (lambda s: s.bind_expr("i", "x[i] + f32(1.0)", "e"), "add of int32 and float32"),
        (lambda s: s.rewrite_expr("i[0]", "15 -", "i"), "no index .* and no condition on indices"),
        (lambda s: s.divide_loop("i", "4", ("a", "b")), "factor is '4', and divide_loop takes int"),
        (lambda s: s.divide_loop("i", 4, "ab"), r"names is 'ab', and divide_loop takes tuple"),
        (lambda s: s.divide_loop("i", True, ("a", "b")), "factor is True"),
        (lambda s: s.divide_loop("i", 4), r"divide_loop\(loop, factor, names, tail\): missing"),
        (lambda s: s.divide_loop("i", 4, ("a", "b"), tial="cut"), "unexpected keyword"),
        (lambda s: s.fuse("i", 3), "second is 3, and fuse takes str"),
    ],
)
def test_what_cannot_be_read_is_refused(step: Callable[[Schedule], Schedule], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        step(Schedule.of(kernel(REVERSED)))


def test_numbers_of_numpy_and_lists_are_arguments() -> None:
    s = Schedule.of(kernel(REVERSED))
    plain = s.divide_loop("i", 4, ("a", "b"), "perfect")
    other = s.divide_loop("i", np.int64(4), ["a", "b"], np.str_("perfect"))
    assert other.func == plain.func
    assert other.trace() == plain.trace()


# Size ---------------------------------------------------------------------------------------------


def long_loop(extent: int, body: str = "y[i] = x[i]") -> Schedule:
    rows = f"x: f32[{extent}], y: out[f32[{extent}]]"
    return Schedule.of(kernel(f"for i in serial(0, {extent}):\n    {body}", rows))


@pytest.mark.parametrize("step", ["unroll_loop", "mark_unrolled"])
def test_a_loop_that_is_too_long_to_be_written_out_is_refused(step: str) -> None:
    with pytest.raises(ScheduleError, match="size: i written out has 1,000,000 statements"):
        getattr(long_loop(10**6), step)("i")


def test_the_statements_of_nested_loops_count() -> None:
    s = long_loop(MOST_STATEMENTS).divide_loop("i", 100, ("o", "q"), "perfect").mark_unrolled("q")
    s.mark_unrolled("o")
    with pytest.raises(ScheduleError, match="size: o written out has 20,000 statements"):
        s.attempt(PRIMITIVES["add_loop"], "q[0]", "r", 1).unroll_loop("o")


def test_a_buffer_and_a_loop_that_are_too_long_to_be_taken_apart_are_refused() -> None:
    func = kernel("t = alloc(f32[1000000])\nt[0] = x[0]\ny[0] = t[0]", "x: f32[1], y: out[f32[1]]")
    with pytest.raises(ScheduleError, match="size: 1,000,000 buffers"):
        Schedule.of(func).unroll_buffer("t", 0)
    with pytest.raises(ScheduleError, match="size: i has 1,000,000 iterations"):
        long_loop(10**6).partition_loop("i")


# Anything -----------------------------------------------------------------------------------------

MODE = tir.Config("mode", {"act": "int32"})
KERNELS = tuple(
    tir.parse(text)
    for text in (
        """
@instruction
def add4(to: inout[f32[4]], by: f32[4]):
    for l in serial(0, 4):
        to[l] = to[l] + by[l]

@primfunc
def calls(x: f32[8, 8], y: inout[f32[8, 8]], n: index):
    assume(unless(n >= 0 and n <= 8), bool(False))
    t = alloc(f32[8, 8], scratch)
    with block("b"):
        for i in serial(0, n):
            for j in serial(0, 8):
                t[i, j] = x[i, 7 - j]
                if j < 4 and i >= 2:
                    t[i, j] += f32(1.0)
                else:
                    t[i, j] = t[i, j] * x[j, i]
    for k in serial(0, n):
        with let(x[k, 0] < f32(0.5)) as u:
            for l in serial(0, 2):
                add4(y[k, 4*l:4*l + 4], x[k, 4*l:4*l + 4])
            with y[k, 0:8] as w:
                for m in vectorized(0, 8):
                    if data(u[()]):
                        w[m] = select(k + m < 9, w[m], f32(2.0))
""",
        """
mode = config(act=i32)

@primfunc
def state(x: i32[12], y: out[i32[12]]):
    t = alloc(i32[4, 3])
    mode.act = i32(1)
    for i in serial(0, 4):
        for j in unrolled(0, 3):
            t[i, j] = max(x[3*i + j], mode.act)
    for p in parallel(0, 12):
        y[p] = t[p // 3, p % 3]
        y[p] += i32(0)
""",
    )
)


def odd_arguments(func: tir.PrimFunc, random: Random) -> Any:
    """Anything that somebody may write for any argument of a primitive."""
    places = (
        *names_of_places(func),
        "i[0]",
        "i[0][1]",
        "j[1].else[0]",
        "[0]",
        "[-1]",
        "k[9]",
        "[x]",
    )
    texts = (
        "x[i, 7 - j]",
        "t[i, j]",
        "i < 4",
        "data(x[0, 0] < f32(1.0))",
        "7 - j",
        "i*j",
        "x[",
        "",
    )
    words = ("perfect", "scratch", "undef", "float32", "int4", "a b", "new", "é", "1", "n\0", "#1")
    i, j = Var("i"), Var("j")
    numbers = (-1, 0, 1, 2, 3, 4, 8, 10**4, 10**30, -(2**63), 0.5, float("nan"), True, None)
    buffers = (func.inputs[0], MODE.field("act"), tir.Buffer("x", (3,), "int32"))
    others = (
        *(i, i + j, floor_div(i, 2), at_least_zero(i - 3), at_least_zero(Var("zz"))),
        *(tir.Literal(1.0, "float32"), tir.Load(func.inputs[0], (i,)), tir.IndexValue(i, "int32")),
        *(
            blocked((8,), 0, 3),
            blocked((4, 3), 1, 2),
            PadFunction((i,), i),
            func,
            Schedule.of(func),
        ),
        *(
            lambda *a: a,
            lambda a: (a // 4, a % 4),
            lambda a, b: (b, a),
            lambda a, b: 1 / 0,
            lambda: 0,
        ),
        *(object(), b"i", {}, {"i"}, np.float32(2), np.int64(3), np.zeros(2), int, MODE, Ellipsis),
    )
    match random.randrange(8):
        case 0 | 1 | 2:
            return random.choice(places)
        case 3:
            return random.choice(texts)
        case 4:
            return random.choice(words)
        case 5:
            return random.choice(numbers)
        case 6:
            return random.choice((*buffers, *others))
        case _:
            inner = [odd_arguments(func, random) for _ in range(random.randrange(4))]
            return random.choice((tuple, list))(inner)


def likely_argument(name: str, hint: str, func: tir.PrimFunc, random: Random) -> Any:
    """An argument of the type that a parameter has."""
    if name in ("buffer", "other", "param"):
        return random.choice(("x", "y", "t", "u", "w"))
    if hint == "str" and random.randrange(3):
        return random.choice(("new", *names_of_places(func), "i[0]", "k[0]", "[0]"))
    if hint == "int":
        return random.choice((-1, 0, 1, 2, 3, 4, 8, 10**30))
    if hint == "bool":
        return random.choice((False, True))
    if hint == "tuple[str, str]":
        return (random.choice(("io", "i", "x")), random.choice(("ii", "i", "k")))
    return odd_arguments(func, random)


def apply_anything(name: str, seed: int) -> bool:
    """Whether a primitive takes arguments that are drawn without regard to what it needs.

    AssertionError for an exception that is no GraphflowError, or a kernel that is not well formed.
    """
    random = Random(f"{name} {seed}")
    func = random.choice(KERNELS)
    parameters = list(signature(PRIMITIVES[name]).parameters.values())[1:]
    wrong = random.choice((0.0, 0.2, 1.0))
    arguments = [
        odd_arguments(func, random)
        if random.random() < wrong
        else likely_argument(p.name, str(p.annotation), func, random)
        for p in parameters
        if p.default is p.empty or random.randrange(2)
    ]
    if random.randrange(20) == 0:
        arguments = arguments[:-1]
    try:
        done = Schedule.of(func).apply(PRIMITIVES[name], *arguments)
        tir.verify(done.func, "scheduled")
    except GraphflowError as error:
        assert str(error)
        return False
    except Exception as error:
        raise AssertionError(f"{name}{tuple(arguments)} on {func.name}, seed {seed}") from error
    return True


@pytest.mark.parametrize("name", PRIMITIVES)
def test_only_our_own_errors_leave_a_primitive(name: str) -> None:
    for seed in range(25):
        apply_anything(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIMITIVES)
def test_only_our_own_errors_leave_a_primitive_in_many_draws(name: str) -> None:
    for seed in range(25, 2000):
        apply_anything(name, seed)
