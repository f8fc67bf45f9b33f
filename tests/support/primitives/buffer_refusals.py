"""Refusals of the primitives on buffers: one for each clause at least."""

from __future__ import annotations

from graphflow.arith import Var
from graphflow.schedule import (
    Schedule,
    delete_buffer,
    divide_dim,
    expand_dim,
    lift_alloc,
    mult_dim,
    rearrange_dim,
    replace,
    resize_dim,
    reuse_buffer,
    sink_alloc,
    stage_mem,
    stage_window,
    unroll_buffer,
)
from graphflow.tir import PrimFunc, parse
from support.primitives.loop_refusals import ROW, SQUARE, TEMPORARY
from support.primitives.refusal import on
from support.schedule_checks import kernel

i, j = Var("i"), Var("j")

CARRIED = ROW.format(
    "t = alloc(i32[1])\n    if data(x[0] < t[0]):\n        t[0] = x[i]\n    y[i] = x[i]"
)
OWN = "for i in {}(0, 16):\n    t = alloc(i32[1])\n    t[0] = x[i]\n    y[i] = t[0]"
READ = TEMPORARY + "for i in serial(0, 16):\n    y[i] = t[i]"
TWO = (
    "t = alloc(i32[16])\nu = alloc({}[16])\nfor z in serial(0, 16):\n    t[z] = x[z]\n"
    "    u[z] = {}\nfor i in serial(0, 16):\n    y[i] = t[i]"
)
BOX = (
    "t = alloc(i32[4, 4])\nfor i in serial(0, 4):\n    for j in serial(0, 4):\n"
    "        t[i, j] = x[4*i + j]\n        y[4*i + j] = t[i, j]"
)
SECOND = parse(
    "@primfunc\ndef block(c: out[i32[4, 4]], a: i32[16]):\n    for p in serial(0, 4):\n"
    "        for q in serial(0, 4):\n            c[p, q] = a[4*p + q]\n"
)


def given_to_call() -> PrimFunc:
    """A buffer of two axes that a call writes by both."""
    body = BOX.replace("        y[4*i + j] = t[i, j]", "y[0] = t[1, 1]")
    return replace(kernel(body), "i", SECOND).func


BUFFER_REFUSALS = (
    on(lift_alloc, "kind", OWN.format("parallel"), "t").says(
        "the iterations of i run at once, and would share t"
    ),
    on(lift_alloc, "carried", CARRIED, "t").says(
        "each iteration of i stores t before it loads it",
        r"where data decide, t\[0\] at i'=\d+ would see what t\[0\] at i=\d+ stores",
    ),
    on(sink_alloc, "private", READ, "x", "i").says("x is a parameter, which others see"),
    on(sink_alloc, "inside", READ, "t", "i").says("t is not touched in i alone"),
    on(
        sink_alloc,
        "carried",
        "t = alloc(i32[1])\n" + ROW.format("if i == 0:\n        t[0] = x[i]\n    y[i] = t[0]"),
        "t",
        "i",
    ).says(
        "each iteration of i stores the elements of t before it reads",
        r"t\[0\] at i'=\d+ would not see what t\[0\] at i=\d+ stores",
    ),
    on(delete_buffer, "dead", READ, "t").says("nothing reads t", r"at i=\d+"),
    on(reuse_buffer, "type", TWO.format("i8", "i8(1)"), "t", "u").says(
        r"t: int32\[16\] in global memory is not u: int8\[16\] in global"
    ),
    on(
        reuse_buffer,
        "scope",
        "for i in serial(0, 4):\n    t = alloc(i32[16])\n    t[0] = x[i]\n"
        "    y[i] = t[0]\nu = alloc(i32[16])\nu[0] = x[0]\ny[5] = u[0]",
        "t",
        "u",
    ).says("t is not allocated around u and before it"),
    on(reuse_buffer, "dead", TWO.format("i32", "x[z]"), "t", "u").says(
        "t is not needed where u is", r"t\[i\] at i'=\d+ would see what u\[z\] at z=\d+ stores"
    ),
    on(resize_dim, "size", READ, "t", 0, 0).says("an axis of 0 elements holds nothing"),
    on(resize_dim, "scope", READ, "t", 0, 16, i).says("i is no loop around the allocation of t"),
    on(resize_dim, "range", READ, "t", 0, 12).says(
        r"accesses to axis 0 of t lie in \[0, 12\)", r"z=\d+"
    ),
    on(
        resize_dim,
        "window",
        TEMPORARY + "for i in serial(0, 16):\n    y[i] = t[i]",
        "t",
        0,
        4,
        0,
        True,
    ).says(
        "4 elements along axis 0 of t are enough",
        r"t\[i\] at i'=\d+ would see what t\[z\] at z=\d+ stores",
    ),
    on(expand_dim, "size", READ, "t", 0, 0).says("an axis of 0 elements holds nothing"),
    on(expand_dim, "scope", READ, "t", 16, i).says(r"i is no loop around the access t\[z\]"),
    on(expand_dim, "range", BOX, "t", 3, i).says(r"i lies in \[0, 3\)", r"i=\d+, j=\d+"),
    on(
        expand_dim,
        "values",
        "t = alloc(i32[16])\nfor i in serial(0, 15):\n"
        "    t[i] = x[i]\n    if i > 0:\n        y[i] = t[i - 1]",
        "t",
        16,
        i,
    ).says(
        "equal elements of t are accessed at equal i",
        r"t\[i - \d+\] at i'=\d+ would not see what t\[i\] at i=\d+ stores",
    ),
    on(rearrange_dim, "order", BOX, "t", (0, 0)).says(
        r"\[0, 0\] is no order of the axes of \[4, 4\]"
    ),
    on(
        rearrange_dim,
        "calls",
        given_to_call,
        by=lambda f: Schedule.of(f).rearrange_dim("t", (1, 0)),
    ).says(r"block would be no call of block any more: block has `c\[p, q\]`"),
    on(divide_dim, "divisible", READ, "t", 0, 3).says(
        "3 does not divide axis 0 of t with extent 16"
    ),
    on(mult_dim, "axes", BOX, "t", 1, 1).says("1 is one axis of t, and two are multiplied"),
    on(
        mult_dim,
        "range",
        BOX.replace("t[i, j]\n", "t[i, j]\n        y[0] = t[i, j + 1]\n").replace(
            "y[4*i + j] = t[i, j]", "y[4*i + j] = t[0, j + 1]"
        ),
        "t",
        0,
        1,
    ).says(r"accesses to axis 1 of t lie in \[0, 4\)", r"i=\d+, j=\d+"),
    on(mult_dim, "calls", given_to_call, by=lambda f: Schedule.of(f).mult_dim("t", 1, 0)).says(
        r"block would be no call of block any more: block has `c\[p, q\]`"
    ),
    on(unroll_buffer, "size", "t = alloc(i32[20000])\nt[0] = x[0]\ny[0] = t[0]", "t", 0).says(
        "20,000 buffers, and 10,000 is most"
    ),
    on(unroll_buffer, "constant", READ, "t", 0).says(r"t\[z\] uses axis 0 of t at z"),
    on(
        unroll_buffer, "range", "t = alloc(i32[2])\nt[0] = x[0]\nt[1] = x[1]\ny[0] = t[2]", "t", 0
    ).says(".* is outside the extent 2 of axis 0", r"t\[2\]"),
    on(stage_mem, "1", ROW.format("y[i] = x[i] + x[0]"), "i", "x", "s", ()).says(
        "x is touched at", r"\[i\] and at \[0\]"
    ),
    on(
        stage_mem, "2", SQUARE.format("serial", "serial", "y[i] = x[i]"), "i", "y", "s", ("j",)
    ).says("each iteration of j has its own element of y"),
    on(
        stage_mem,
        "3",
        ROW.format("if data(x[i] < i32(1)):\n        y[i + 1] = x[i]"),
        "i",
        "y",
        "s",
        (),
    ).says("what is staged of y lies inside it", r"i=\d+"),
    on(
        stage_window,
        "scope",
        ROW.format("y[i] = x[i]"),
        "[0]",
        "x",
        "s",
        "scratch",
        ((Var("q"), 1),),
    ).says(r"q is no loop around \[0\]"),
    on(
        stage_window, "window", ROW.format("y[i] = x[i]"), "[0]", "x", "s", "scratch", ((0, 12),)
    ).says(r"what \[0\] touches of x fits \[12\]", r"i=\d+"),
    on(
        stage_window,
        "copied",
        ROW.format("if data(x[i] < i32(1)):\n        y[i + 1] = x[i]"),
        "i",
        "y",
        "s",
    ).says("what is copied of y lies inside it", r"i=\d+"),
)
