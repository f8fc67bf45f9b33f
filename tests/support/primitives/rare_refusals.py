"""Refusals of primitives that no clause of their docstrings numbers or names."""

from __future__ import annotations

from graphflow.schedule import (
    assume_finite,
    compute_at,
    delete_buffer,
    extract_subproc,
    fission,
    infer_bounds,
    inline_assign,
    interior,
    mult_loops,
    partition_loop,
    reverse_compute_at,
    rfactor,
    sink_alloc,
    split_condition,
    stage_mem,
    stage_window,
    transform_layout,
    unroll_buffer,
)
from graphflow.tir import PrimFunc
from support.primitives.refusal import on
from support.schedule_checks import kernel

STAGES = """
t = alloc(i32[16])
with block("first"{note}):
    for i in {kind}(0, 16):
{claim}        t[i] = x[i]
with block("second"):
    for j in serial(0, 16):
        y[j] = t[j]
"""

PADDED = """
t = alloc(i32[16])
with block("t_padding", padding_of="t", padding="value"):
    for p in serial(12, 16):
        t[p] = i32(0)
for i in serial(0, 12):
    t[i] = x[i]
for j in serial(0, 12):
    y[j] = t[j]
"""

FOLLOWED = """
t = alloc(i32[16])
{first}
with block("second"{note}):
    {second}
"""


def stages(note: str = "", kind: str = "serial", claim: str = "") -> PrimFunc:
    return kernel(STAGES.format(note=note, kind=kind, claim=claim and f"        {claim}\n"))


def followed(first: str, second: str, note: str = "") -> PrimFunc:
    return kernel(FOLLOWED.format(first=first, second=second, note=note))


def triangle(inner: str = "serial") -> PrimFunc:
    return kernel(
        f"for i in serial(0, 4):\n    for j in {inner}(0, 4):\n        y[4*i + j] = x[4*i + j]"
    )


def starting_late() -> PrimFunc:
    body = (
        "for i in serial(0, 4):\n    for j in serial(i, i + 4):\n        if j < 3:\n            {}"
    )
    return kernel(body.format("y[j] = x[j]"))


ONE_BLOCK = 'with block("first"):\n    for i in serial(0, 16):\n        t[i] = x[i]'
NO_BLOCK = "for i in serial(0, 16):\n    t[i] = x[i]"
NO_LOOP = 'with block("first"):\n    t[0] = x[0]'
LOOP = "for j in serial(0, 16):\n        y[j] = t[j]"

RARE_REFUSALS = (
    on(
        compute_at, "", lambda: stages(claim="assume(unless(i < 20), x[i] == i32(0))"), "first", "j"
    ).says("first assumes something, and must stay"),
    on(compute_at, "", lambda: stages(note=', postproc="copy"'), "first", "j").says(
        "first has annotations, and must stay a stage"
    ),
    on(compute_at, "", lambda: stages(kind="vectorized"), "first", "j").says(
        "i is vectorized; vectorize after the stage has moved"
    ),
    on(
        compute_at,
        "",
        STAGES.format(note="", kind="serial", claim="").replace(
            'with block("second")',
            'assume(unless(False), t[0] == i32(0))\nwith block("second")',
        ),
        "first",
        "j",
    ).says(r"something is assumed of t\[0\]"),
    on(reverse_compute_at, "", lambda: followed(NO_BLOCK, LOOP), "second", "i").says(
        "second and i must both be blocks"
    ),
    on(reverse_compute_at, "", lambda: followed(NO_LOOP, LOOP), "second", "first").says(
        "second and first do not both begin with a loop"
    ),
    on(
        reverse_compute_at,
        "",
        lambda: followed(ONE_BLOCK, LOOP, ', padding_of="y", padding="undef"'),
        "second",
        "first",
    ).says("one of second and first states where padding lies, and must stay"),
    on(
        rfactor,
        "",
        "for i in vectorized(0, 4):\n    y[i] = i32(0)\n    for k in serial(0, 4):\n"
        "        y[i] += x[4*i + k]",
        "k",
        "k",
        "y",
        2,
        "p",
    ).says("k is in lanes already, in which nothing is allocated"),
    on(assume_finite, "", triangle, "x", "the test says so").says("x is not an input of floats"),
    on(infer_bounds, "", triangle, by=lambda f: infer_bounds(f).of("x")).says(
        "nothing writes a buffer x"
    ),
    on(infer_bounds, "", triangle, by=lambda f: infer_bounds(f).range("k")).says(
        "no write is in a loop k"
    ),
    on(partition_loop, "", starting_late, "j").says(
        "the loop j starts at i; its bounds must be constant"
    ),
    on(interior, "", starting_late, "j").says(
        "the loop j starts at i; its bounds must be constant"
    ),
    on(extract_subproc, "", triangle, "i", "a.b").says("'a.b' has a dot"),
    on(
        extract_subproc,
        "",
        "t.a = alloc(i32[16])\nt_a = alloc(i32[16])\nfor i in serial(0, 16):\n"
        "    t.a[i] = x[i]\n    t_a[i] = t.a[i]\n    y[i] = t_a[i]",
        "i",
        "inner",
    ).says("two buffers in inner would get one name"),
    on(
        extract_subproc,
        "",
        "for i.a in serial(0, 4):\n    for i_a in serial(0, 4):\n"
        "        for k in serial(0, 1):\n            y[4*i.a + i_a] = x[4*i.a + i_a]",
        "k",
        "inner",
    ).says("two variables in inner would get one name"),
    on(transform_layout, "", triangle, "y", lambda: ()).says(
        r"the layout function fails on the 1 indices of \[16\]"
    ),
    on(
        mult_loops,
        "",
        "for i in serial(0, 4):\n    for j in serial(0, 0):\n        y[i] = x[i + j]",
        "i",
        "j",
        "k",
    ).says("the loop j never runs, so i and it are no single loop"),
    on(stage_mem, "", stages, "i", "y", "s", ()).says("i does not touch y"),
    on(
        stage_mem,
        "",
        lambda: stages(claim="assume(unless(i < 20), x[i] == i32(0))"),
        "i",
        "x",
        "s",
        (),
    ).says("i assumes something of x inside"),
    on(
        stage_mem,
        "",
        "for k in serial(0, 1):\n    for i in serial(0, 4):\n"
        "        for j in serial(0, i + 1):\n            y[4*i + j] = x[4*i + j]",
        "k",
        "y",
        "s",
        ("i", "j"),
    ).says("the bounds of j change inside k"),
    on(
        stage_window,
        "",
        "for i in serial(0, 16):\n    t = alloc(i32[1])\n    t[0] = x[i]\n    y[i] = t[0]",
        "i",
        "t",
        "s",
    ).says("t is allocated inside i already"),
    on(
        fission, "", "for i in serial(0, 16):\n    y[i] = x[i]\n    y[i] = x[i]", "i", 1, "_s", 2
    ).says("i has no loop around it to split as well"),
    on(split_condition, "", triangle, "i").says(
        "the body of i is not a single index condition without else"
    ),
    on(sink_alloc, "", PADDED, "t", "j", "scratch").says(
        "private: t has padding that t_padding states"
    ),
    on(delete_buffer, "", PADDED, "t").says("t has padding that t_padding states"),
    on(unroll_buffer, "", PADDED, "t", 0).says("t has padding that t_padding states"),
    on(
        inline_assign,
        "",
        "t = alloc(i32[2])\nfor i in serial(0, 2):\n    t[i] = x[i]\n"
        "    for k in serial(i, i + 1):\n        y[k] = t[0]\n    if i < 1:\n"
        "        y[i + 2] = t[0]",
        "i[0]",
    ).says("element: "),
)
