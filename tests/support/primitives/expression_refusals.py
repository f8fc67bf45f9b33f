"""Refusals of the primitives on expressions, annotations and state: one for each clause."""

from __future__ import annotations

from graphflow.arith import Var
from graphflow.schedule import (
    bind_config,
    bind_expr,
    delete_config,
    eliminate_dead_code,
    inline_assign,
    inline_window,
    merge_writes,
    rewrite_expr,
    set_memory,
    set_precision,
    set_window,
    write_config,
)
from graphflow.tir import Binary, Buffer, Literal, Load, PrimFunc, parse
from support.primitives.loop_refusals import ROW, SQUARE, TEMPORARY
from support.primitives.refusal import on
from support.primitives.statement_refusals import MODE

i, j = Var("i"), Var("j")

READ = TEMPORARY + "for i in serial(0, 16):\n    y[i] = t[i]"

EXPRESSIONS = (
    on(bind_expr, "found", ROW.format("y[i] = x[i]"), "i", "x[0]", "b").says(
        r"x\[0\] does not stand in i"
    ),
    on(
        bind_expr,
        "scope",
        'with block("b"):\n    for i in serial(0, 16):\n        y[i] = x[i]',
        "b",
        "x[i]",
        "c",
    ).says(r"x\[i\] changes with i inside b"),
    on(
        bind_expr,
        "unchanged",
        TEMPORARY + "for i in serial(0, 4):\n    t[0] = x[i]\n    y[i] = t[3 - i]",
        "i",
        "t[-i + 3]",
        "b",
    ).says(r"t\[-i \+ 3\] is the same at each use in i", r"i=\d+"),
    on(
        bind_expr, "memory", ROW.format("if i < 12:\n        y[i] = x[i + 4]"), "i", "x[i + 4]", "b"
    ).says(r"x\[i \+ 4\] is in bounds at each point of 0 <= i < 16", r"i=\d+"),
    on(
        bind_expr,
        "lanes",
        ROW.replace("serial", "vectorized").format("y[i] = x[i]"),
        "i[0]",
        "x[i]",
        "b",
    ).says("the iterations of i are lanes"),
    on(eliminate_dead_code, "runs", ROW.format("y[i] = x[i]"), "i").says("i never runs"),
    on(eliminate_dead_code, "decided", ROW.format("if i < 12:\n        y[i] = x[i]"), "i[0]").says(
        r"the condition of i\[0\] is not always the same",
        r"i=\d+, and its negation: i >= \d+ for \d+ <= i < \d+ \(a point: fails at i=\d+",
    ),
    on(rewrite_expr, "found", ROW.format("y[i] = x[i]"), "i[0]", "x[0]", Literal(1, "int32")).says(
        r"x\[0\] does not stand in i\[0\]"
    ),
    on(rewrite_expr, "type", ROW.format("y[i] = x[i]"), "i[0]", "x[i]", Literal(1, "int64")).says(
        r"x\[i\] is int32, the other int64"
    ),
    on(rewrite_expr, "scope", ROW.format("y[i] = x[i]"), "i[0]", i, i + j).says(
        "no loop around .* binds j"
    ),
    on(
        rewrite_expr,
        "equal",
        SQUARE.format("serial", "serial", "y[4*i + j] = x[j]"),
        "j[0]",
        4 * i + j,
        4 * j + i,
    ).says(r"4\*i \+ j and 4\*j \+ i", r"i=\d+, j=\d+"),
    on(
        rewrite_expr,
        "memory",
        ROW.format("y[i] = i32(0)"),
        by=lambda f: rewrite_expr(f, "i[0]", "i32(0)", times_zero(f)),
    ).says(r"what i32\(0\) \* x\[i \+ 4\] loads is in bounds", r"i=\d+"),
    on(merge_writes, "neighbours", "y[0] = x[0]\ny[1] = x[1]\ny[0] = x[2]", "[0]", "[2]").says(
        r"\[2\] does not follow \[0\] directly"
    ),
    on(
        merge_writes, "destination", ROW.format("y[i] = x[i]\n    y[15 - i] = x[0]"), "i[0]", "i[1]"
    ).says(r"y\[i\] and y\[-i \+ 15\] are one", r"i=\d+"),
    on(
        merge_writes,
        "operator",
        ROW.format("y[i] += x[i]\n    reduce_max(y[i], x[0])"),
        "i[0]",
        "i[1]",
    ).says("add and max are two"),
    on(
        merge_writes, "reads", ROW.format("y[i] = x[i]\n    y[i] = y[i] + x[0]"), "i[0]", "i[1]"
    ).says(r"the second value does not read y\[i\]"),
    on(inline_window, "window", ROW.format("y[i] = x[i]"), "i").says("i is no named window"),
    on(inline_assign, "store", ROW.format("y[i] = x[i]"), "i[0]").says(
        r"i\[0\] is no store to a buffer that is allocated here"
    ),
    on(
        inline_assign,
        "element",
        ROW.format("t = alloc(i32[16])\n    t[3] = x[i]\n    y[i] = t[i]"),
        "i[1]",
    ).says(r"t\[i\] is t\[3\]", r"i=\d+"),
    on(
        inline_assign,
        "written",
        ROW.format("t = alloc(i32[1])\n    t[0] = x[i]\n    t[0] = x[0]\n    y[i] = t[0]"),
        "i[1]",
    ).says(r"t\[0\] is not written before its use", r"i=\d+"),
    on(
        inline_assign,
        "unchanged",
        TEMPORARY
        + ROW.format("u = alloc(i32[1])\n    u[0] = t[3]\n    t[i] = x[0]\n    y[i] = u[0]"),
        "i[1]",
    ).says(r"the value of u\[0\] is the same at each use", r"i=\d+"),
    on(
        inline_assign,
        "unread",
        "t = alloc(i32[1])\n" + ROW.format("t[0] = x[i]\n    y[i] = t[0]") + "\ny[0] = t[0]",
        "i[0]",
    ).says(r"t\[0\]", r"t\[0\] at i=\d+ is read by t\[0\] at \(\)"),
)


def times_zero(func: PrimFunc) -> Binary:
    """Zero times an element that is not always there."""
    return Binary("mul", Literal(0, "int32"), Load(func.inputs[0], (i + 4,)))


ANNOTATIONS = (
    on(set_memory, "memory", READ, "t", "tape").says("'tape' is none of global, scratch, register"),
    on(
        set_memory,
        "threads",
        "t = alloc(i32[16])\nfor i in parallel(0, 16):\n    t[i] = x[i]\n    y[i] = t[i]",
        "t",
        "register",
    ).says(r"the iterations of i share t at t\[i\], and registers belong to"),
    on(set_precision, "type", READ, "t", "int99").says(
        "int99 is none of float32, float64, int8, int16, int32, int64,"
    ),
    on(set_precision, "exact", READ, "t", "int8").says(
        "int8 does not hold every int32", "2147483647"
    ),
    on(
        set_precision,
        "reduction",
        TEMPORARY.replace("i32", "f32").replace("= x[z]", "= cast(f32, x[z])")
        + "t[0] += f32(1.0)\ny[0] = cast(i32, t[0])",
        "t",
        "float64",
    ).says(r"t\[0\] reduces by add in float32"),
    on(set_window, "parameter", READ, "z").says("k has no parameter z; it has x, y"),
)


def stateful(body: str) -> PrimFunc:
    lines = "\n".join("    " + line for line in body.splitlines())
    head = "mode = config(act=i32)\n\n@primfunc\n"
    return parse(f"{head}def k(x: i32[16], y: out[i32[16]]):\n{lines}\n")


ACT = MODE.field("act")
WIDE = Buffer("mode.act", (), "int64", "config")
READS = "mode.act = i32(3)\nfor i in serial(0, 16):\n    y[i] = x[i] * mode.act"
THREADS = ROW.replace("serial", "parallel").format("y[i] = x[i] * i32(3)")

CONFIGURATION = (
    on(bind_config, "1", ROW.format("y[i] = x[i]"), "i[0]", "x[i]", Buffer("t", (), "int32")).says(
        "field: t is no field of configuration state"
    ),
    on(bind_config, "2", ROW.format("y[i] = x[i]"), "i[0]", "x[0]", ACT).says(
        r"found: x\[0\] does not stand in i\[0\]"
    ),
    on(
        bind_config,
        "2",
        "for i in serial(0, 15):\n    y[i] = x[i]\n    y[i + 1] = x[i] + y[i]",
        "i",
        "y[i]",
        ACT,
    ).says(r"unchanged: y\[i\] is the same at each use in i", r"i=\d+"),
    on(bind_config, "3", lambda: stateful(READS), "i[0]", "x[i]", ACT).says(
        r"free: i\[0\] accesses mode\.act already"
    ),
    on(
        bind_config,
        "4",
        lambda: stateful(READS + "\ny[0] = x[3]\ny[1] = mode.act"),
        "[2]",
        "x[3]",
        ACT,
    ).says(
        r"unread: nothing behind \[2\] reads mode\.act",
        r"mode\.act at \(\) is read by mode\.act at \(\)",
    ),
    on(bind_config, "5", THREADS, "i[0]", "x[i]", ACT).says(
        "threads: the iterations of i are independent", r"i=\d+, i'=\d+"
    ),
    on(delete_config, "1", ROW.format("y[i] = x[i]"), "i[0]").says(
        r"write: `y\[i\] = x\[i\]` writes no configuration state"
    ),
    on(delete_config, "2", lambda: stateful(READS), "[0]").says(
        r"unread: nothing reads mode\.act afterwards: that",
        r"mode\.act at \(\) is read by mode\.act at i'=\d+; mode\.act may hold anything at \(\)",
    ),
    on(write_config, "1", ROW.format("y[i] = x[i]"), "i", Buffer("t", (), "int32"), 1).says(
        "field: t is no field of configuration state"
    ),
    on(
        write_config, "2", ROW.format("y[i] = x[i]"), "i", ACT, Load(Buffer("z", (), "int32"), ())
    ).says("scope: buffer z is not allocated here"),
    on(
        write_config,
        "3",
        ROW.format("y[i] = x[i]"),
        by=lambda f: write_config(f, "i[0]", ACT, Load(f.inputs[0], (i + 1,))),
    ).says(r"memory: x\[i \+ 1\] is in bounds", r"i=\d+"),
    on(write_config, "4", lambda: stateful(READS), "i", ACT, 4).says(
        r"unread: nothing reads mode\.act afterwards: that",
        r"mode\.act at \(\) is read by mode\.act at i'=\d+; \d+ is not \d+ at \(\)",
    ),
    on(write_config, "5", THREADS, "i[0]", ACT, 1).says(
        "threads: the iterations of i are independent", r"i=\d+, i'=\d+"
    ),
)

EXPRESSION_REFUSALS = (*EXPRESSIONS, *ANNOTATIONS, *CONFIGURATION)
