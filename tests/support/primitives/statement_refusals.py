"""Refusals of the primitives on statements, scopes and calls: one for each clause at least."""

from __future__ import annotations

from typing import Any

from graphflow.arith import Var, const, minimum
from graphflow.schedule import (
    Rewrite,
    Schedule,
    call_eqv,
    commute_expr,
    extract_subproc,
    fuse,
    lift_scope,
    prefetch,
    reorder_stmts,
    replace,
    specialize,
    transform_layout,
    vectorize_loop,
    write_config,
)
from graphflow.tir import Comparison, Config, Literal, Load, PrimFunc, parse
from support.primitives.loop_refusals import NOT_PERFECT, PAIR, PLAIN, ROW, TEMPORARY
from support.primitives.refusal import Refusal, on
from support.schedule_checks import kernel

i, j = Var("i"), Var("j")

STATEMENTS_AND_SCOPES = (
    on(reorder_stmts, "1", "y[0] = x[0]\ny[1] = x[1]\ny[2] = x[2]", "[0]", "[2]").says(
        r"\[2\] does not follow \[0\] directly"
    ),
    on(reorder_stmts, "2", ROW.format("y[i % 8] = x[0]\n    y[3] = x[i]"), "i[0]", "i[1]").says(
        r"i\[0\] and i\[1\] commute", r"i=\d+"
    ),
    on(reorder_stmts, "3", TEMPORARY + "y[0] = t[0]", "[0]", "z").says(
        r"\[0\] allocates t, which z uses"
    ),
    on(commute_expr, "1", ROW.format("y[i] = x[i] + x[0]"), "i[0]", "x[i] + x[1]").says(
        r"x\[i\] \+ x\[1\] does not stand in i\[0\]"
    ),
    on(commute_expr, "2", ROW.format("y[i] = x[i] - x[0]"), "i[0]", "x[i] - x[0]").says(
        r"the operands of x\[i\] - x\[0\] do not commute"
    ),
    on(specialize, "1", PLAIN, by=lambda f: specialize(f, "j", [reading(f, i + 13)])).says(
        r"what data\(x\[i \+ 13\] < i32\(1\)\) reads exists", r"i=\d+"
    ),
    on(specialize, "1", PLAIN, by=lambda f: specialize(f, "i", [reading(f, i)])).says(
        r"data\(x\[i\] < i32\(1\)\) uses i, and no loop around the place binds it"
    ),
    on(
        specialize,
        "2",
        TEMPORARY + "y[0] = t[0]",
        by=lambda f: specialize(f, "[0]", [reading(f, const(0))]),
    ).says(r"\[0\] is an allocation, which would end with the branch"),
    on(
        fuse,
        "1",
        "for i in serial(0, 4):\n    y[i] = x[i]\n"
        "y[15] = x[0]\nfor k in serial(0, 4):\n    y[k + 4] = x[k]",
        "i",
        "k",
    ).says("k does not follow as a loop or block of the same kind"),
    on(
        fuse,
        "2",
        "for i in serial(0, 4):\n    y[i] = x[i]\nfor k in serial(0, 5):\n    y[k + 4] = x[k]",
        "i",
        "k",
    ).says("i and k have equal bounds"),
    on(
        fuse,
        "2",
        ROW.format("if i < 3:\n        y[i] = x[i]\n    if i < 5:\n        y[i] = x[0]"),
        "i[0]",
        "i[1]",
    ).says("i < 3 and i < 5 are equivalent", r"i=\d+"),
    on(
        fuse, "3", "t = alloc(i32[16])\n" + PAIR.format("t[i] = x[i]", "y[j] = t[15 - j]"), "i", "j"
    ).says("no iteration of j needs a later one of i", r"i=\d+, i'=\d+"),
    on(
        fuse,
        "4",
        "t = alloc(i32[16])\nt[0] = x[0]\n"
        + PAIR.replace("serial(0", "parallel(1").format("t[i] = x[i]", "y[j] = t[j - 1]"),
        "i",
        "j",
    ).says("the iterations of i are independent", r"i=\d+, i'=\d+"),
    on(lift_scope, "1", NOT_PERFECT, "j").says("j is not the only statement in the body of i"),
    on(lift_scope, "2", ROW.format("if i < 3:\n        y[i] = x[i]"), "i[0]").says(
        "i < 3 depends on i"
    ),
    on(
        lift_scope,
        "2",
        TEMPORARY + ROW.format("if data(t[3] < i32(1)):\n        t[i] = i32(2)") + "\ny[0] = t[0]",
        "i[0]",
    ).says(r"no iteration of i writes what data\(t\[3\] < i32\(1\)\) reads", r"i'=\d+"),
    on(
        lift_scope,
        "3",
        ROW.format("if i < 12:\n        if data(x[i + 4] < i32(1)):\n            y[i] = x[i]"),
        "i[0][0]",
    ).says(r"what data\(x\[i \+ 4\] < i32\(1\)\) reads exists", r"i=\d+"),
)


def reading(func: PrimFunc, index: Any) -> Comparison:
    """The condition that an element of x is below one."""
    return Comparison("lt", Load(func.inputs[0], (index,)), Literal(1, "int32"))


FOUR = "for i in serial(0, 4):\n    y[i] = x[i]"
COPY = parse(
    "@primfunc\ndef copy(c: out[i32[4]], a: i32[4]):\n"
    "    for l in vectorized(0, 4):\n        c[l] = a[l]\n"
)
SERIAL = parse(
    "@primfunc\ndef copy(c: out[i32[4]], a: i32[4]):\n"
    "    for l in serial(0, 4):\n        c[l] = a[l]\n"
)
LESS = parse(
    "@primfunc\ndef copy(c: out[i32[4]], a: i32[4]):\n"
    "    for l in serial(0, 3):\n        c[l] = a[l]\n"
)
MODE = Config("mode", {"act": "int32"})
LEAVE = parse(
    "mode = config(act=i32)\n\n@primfunc\ndef leave(to: out[i32[4]], a: i32[4]):\n"
    "    for l in serial(0, 4):\n"
    "        to[l] = select(data(mode.act == i32(1)), max(a[l], i32(0)), a[l])\n"
)


def exchanged(func: PrimFunc, definition: PrimFunc, schedule: Schedule) -> Rewrite:
    """The call of a definition in place of the loop i exchanged by a schedule."""
    return call_eqv(replace(func, "i", definition).func, "copy", schedule)


def with_state() -> PrimFunc:
    """A call of a kernel, and a reader of a field behind it."""
    return parse(
        "mode = config(act=i32)\n\n@primfunc\ndef k(x: i32[16], y: out[i32[16]]):\n"
        "    mode.act = i32(4)\n    for i in serial(0, 4):\n"
        "        y[i] = x[i]\n    y[5] = mode.act\n"
    )


CALLS = (
    on(replace, "1", FOUR.replace("x[i]", "x[0]"), "i", COPY).says(
        r"i does not unify with copy: copy has `a\[l\]` where the statement has"
    ),
    on(replace, "2", "for i in serial(0, 4):\n    y[i + 1] = y[i]", "i", COPY).says(
        r"the iterations of copy\.l are independent", r"copy\.l=\d+, copy\.l'=\d+"
    ),
    on(
        replace,
        "2",
        "for o in vectorized(0, 4):\n    for i in serial(0, 4):\n        y[4*o + i] = x[i]",
        "i",
        COPY,
    ).says("i stands inside o, whose iterations are lanes"),
    on(replace, "3", "for i in serial(0, 4):\n    y[i] = max(x[i], i32(0))", "i", LEAVE).says(
        r"state: leave does this where mode\.act is 1, and at i mode\.act is not"
    ),
    on(call_eqv, "1", FOUR, by=lambda f: exchanged(f, SERIAL, Schedule.of(LESS))).says(
        "copy calls copy, which is neither the definition nor the result of"
    ),
    on(
        call_eqv,
        "2",
        FOUR,
        by=lambda f: exchanged(
            f, SERIAL, Schedule.of(SERIAL).apply(transform_layout, "a", lambda k: (k // 2, k % 2))
        ),
    ).says("copy and copy do not have the same parameters"),
    on(
        call_eqv,
        "3",
        "y[0] = x[0]\nfor i in serial(0, 4):\n    y[i + 1] = y[i]",
        by=lambda f: exchanged(f, SERIAL, Schedule.of(SERIAL).apply(vectorize_loop, "l")),
    ).says("copy gets y twice and writes it; the schedule was proven for"),
    on(
        call_eqv,
        "4",
        FOUR.replace("4", "3"),
        by=lambda f: exchanged(f, LESS, Schedule.of(LESS).apply(lambda _: Rewrite(SERIAL))),
    ).says("copy writes an element of c that copy does not write for sure", r"\{ B\[3\] \}"),
    on(
        call_eqv,
        "5",
        "for o in vectorized(0, 4):\n    for i in serial(0, 4):\n        y[4*o + i] = x[i]",
        by=lambda f: exchanged(f, SERIAL, Schedule.of(SERIAL).apply(vectorize_loop, "l")),
    ).says("copy stands inside o, whose iterations are lanes"),
    on(
        call_eqv,
        "6",
        with_state,
        by=lambda f: exchanged(
            f, SERIAL, Schedule.of(SERIAL).apply(write_config, "l", MODE.field("act"), 1)
        ),
    ).says(
        r"state: nothing behind copy reads mode\.act",
        r"mode\.act at \(\) is read by mode\.act at \(\)",
    ),
    on(extract_subproc, "1", "for i in parallel(0, 4):\n    y[i] = x[i]", "i", "part").says(
        "i holds a parallel loop; make it serial first"
    ),
)

FETCHED = """
for panel in serial(0, 4):
    for k in serial(0, 5):
        for c in serial(0, 32):
            y[panel, c] += w[panel, k, c]
for lane in vectorized(0, 6):
    y[0, lane] = f32(1.0)
u = alloc(f32[16], register)
for j in serial(0, 1):
    t = alloc(f32[16])
    t[j] = f32(1.0)
"""
panel, k = Var("panel"), Var("k")


def unfetched(clause: str, arguments: tuple[Any, ...], message: str, witness: str = "") -> Refusal:
    """The refusal of `prefetch` in a kernel that sums the panels of w."""
    params = "z: f32[16, 5], b: i32[16], w: f32[4, 5, 32], y: inout[f32[4, 32]]"
    return Refusal(
        prefetch,
        clause,
        lambda: kernel(FETCHED, params),
        lambda f: prefetch(f, *arguments),
        message,
        witness,
    )


LINES = (
    unfetched("window", ("q", "w", (0, k, (0, 16))), "k has no loop or block q"),
    unfetched("window", ("k", "v", (0, k, (0, 16))), "k has no buffer v; it has z, b, w, y"),
    unfetched("window", ("k", "w", (0, (0, 16))), "window: w has 3 axes, the window 2"),
    unfetched("window", ("k", "w", (0, 0, (0, 8))), r"window: .* and gets \[8\] of w"),
    unfetched("window", ("k", "z", ((0, 16), 0)), r"window: .* that follow one another"),
    unfetched("window", ("k", "b", ((0, 16),)), r"takes 16 .* of float32 .* b, int32\[16\]"),
    unfetched("scope", ("panel", "w", (0, k, (0, 16))), "scope: k is no loop around panel"),
    unfetched("scope", ("k", "t", ((0, 16),)), "scope: t is not allocated at the end of k"),
    unfetched("memory", ("j", "u", ((0, 16),)), "memory: u is in registers"),
    unfetched(
        "inside",
        ("k", "w", (panel + 1, k, (0, 16))),
        "inside: what k fetches of w lies inside it does not hold",
        r"panel=3",
    ),
    unfetched(
        "inside",
        ("k", "w", (minimum(panel + 1, 3), k, (17, 16))),
        "inside: what k fetches of w lies inside it does not hold",
    ),
    unfetched("lanes", ("lane", "w", (0, 0, (0, 16))), "lanes: lane is vectorized"),
)

STATEMENT_REFUSALS = (*STATEMENTS_AND_SCOPES, *CALLS, *LINES)
