"""Primitives with arguments as anybody may write them, right and wrong."""

from collections.abc import Callable
from inspect import signature
from random import Random
from typing import Any

import numpy as np

from graphflow import tir
from graphflow.arith import Var, at_least_zero, floor_div
from graphflow.base.errors import GraphflowError
from graphflow.layout import blocked
from graphflow.schedule import PadFunction, Schedule
from graphflow.schedule.places.place_names import names_of_places
from graphflow.schedule.user.methods import Method

PRIMITIVES: dict[str, Callable[..., Any]] = {
    name: thing.primitive for name, thing in vars(Schedule).items() if isinstance(thing, Method)
}
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
    others_named = ("i[0]", "i[0][1]", "j[1].else[0]", "[0]", "[-1]", "k[9]", "[x]")
    places = (*names_of_places(func), *others_named)
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
