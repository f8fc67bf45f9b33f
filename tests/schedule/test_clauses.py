"""Clauses of the conditions of primitives that few kernels fail, with the refusal of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphflow.base.errors import ScheduleError
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
    reorder_loops,
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

CASES: dict[str, tuple[Callable[[], PrimFunc], Callable[[PrimFunc], Any], str]] = {
    "compute_at: a stage that assumes": (
        lambda: stages(claim="assume(unless(i < 20), x[i] == i32(0))"),
        lambda f: compute_at(f, "first", "j"),
        "first assumes something, and must stay",
    ),
    "compute_at: a stage with annotations": (
        lambda: stages(note=', postproc="copy"'),
        lambda f: compute_at(f, "first", "j"),
        "first has annotations, and must stay a stage",
    ),
    "compute_at: lanes": (
        lambda: stages(kind="vectorized"),
        lambda f: compute_at(f, "first", "j"),
        "i is vectorized; vectorize after the stage has moved",
    ),
    "compute_at: an assumption about the stage's buffer": (
        lambda: kernel(
            STAGES.format(note="", kind="serial", claim="").replace(
                'with block("second")',
                'assume(unless(False), t[0] == i32(0))\nwith block("second")',
            )
        ),
        lambda f: compute_at(f, "first", "j"),
        r"something is assumed of t\[0\]",
    ),
    "reverse_compute_at: no block": (
        lambda: followed(NO_BLOCK, LOOP),
        lambda f: reverse_compute_at(f, "second", "i"),
        "second and i must both be blocks",
    ),
    "reverse_compute_at: no loop": (
        lambda: followed(NO_LOOP, LOOP),
        lambda f: reverse_compute_at(f, "second", "first"),
        "second and first do not both begin with a loop",
    ),
    "reverse_compute_at: padding": (
        lambda: followed(ONE_BLOCK, LOOP, ', padding_of="y", padding="undef"'),
        lambda f: reverse_compute_at(f, "second", "first"),
        "one of second and first states where padding lies, and must stay",
    ),
    "rfactor: lanes": (
        lambda: kernel(
            "for i in vectorized(0, 4):\n    y[i] = i32(0)\n    for k in serial(0, 4):\n"
            "        y[i] += x[4*i + k]"
        ),
        lambda f: rfactor(f, "k", "k", "y", 2, "p"),
        "k is in lanes already, in which nothing is allocated",
    ),
    "assume_finite: integers": (
        triangle,
        lambda f: assume_finite(f, "x", "the test says so"),
        "x is not an input of floats",
    ),
    "infer_bounds: nothing writes the buffer": (
        triangle,
        lambda f: infer_bounds(f).of("x"),
        "nothing writes a buffer x",
    ),
    "infer_bounds: no loop": (
        triangle,
        lambda f: infer_bounds(f).range("k"),
        "no write is in a loop k",
    ),
    "partition_loop: bounds": (
        starting_late,
        lambda f: partition_loop(f, "j"),
        "the loop j starts at i; its bounds must be constant",
    ),
    "interior: bounds": (
        starting_late,
        lambda f: interior(f, "j"),
        "the loop j starts at i; its bounds must be constant",
    ),
    "extract_subproc: a dotted name": (
        triangle,
        lambda f: extract_subproc(f, "i", "a.b"),
        "'a.b' has a dot",
    ),
    "extract_subproc: two buffers of one name": (
        lambda: kernel(
            "t.a = alloc(i32[16])\nt_a = alloc(i32[16])\nfor i in serial(0, 16):\n"
            "    t.a[i] = x[i]\n    t_a[i] = t.a[i]\n    y[i] = t_a[i]"
        ),
        lambda f: extract_subproc(f, "i", "inner"),
        "two buffers in inner would get one name",
    ),
    "extract_subproc: two variables of one name": (
        lambda: kernel(
            "for i.a in serial(0, 4):\n    for i_a in serial(0, 4):\n"
            "        for k in serial(0, 1):\n            y[4*i.a + i_a] = x[4*i.a + i_a]"
        ),
        lambda f: extract_subproc(f, "k", "inner"),
        "two variables in inner would get one name",
    ),
    "transform_layout: a function of too few indices": (
        triangle,
        lambda f: transform_layout(f, "y", lambda: ()),
        r"the layout function fails on the 1 indices of \[16\]",
    ),
    "mult_loops: an empty loop": (
        lambda: kernel(
            "for i in serial(0, 4):\n    for j in serial(0, 0):\n        y[i] = x[i + j]"
        ),
        lambda f: mult_loops(f, "i", "j", "k"),
        "the loop j never runs, so i and it are no single loop",
    ),
    "reorder_loops: lanes": (
        lambda: triangle("vectorized"),
        lambda f: reorder_loops(f, ("j", "i")),
        "one of i and j runs as lanes; reorder before that",
    ),
    "stage_mem: not touched": (
        lambda: stages(),
        lambda f: stage_mem(f, "i", "y", "s", ()),
        "i does not touch y",
    ),
    "stage_mem: an assumption": (
        lambda: stages(claim="assume(unless(i < 20), x[i] == i32(0))"),
        lambda f: stage_mem(f, "i", "x", "s", ()),
        "i assumes something of x inside",
    ),
    "stage_mem: bent bounds": (
        lambda: kernel(
            "for k in serial(0, 1):\n    for i in serial(0, 4):\n"
            "        for j in serial(0, i + 1):\n            y[4*i + j] = x[4*i + j]"
        ),
        lambda f: stage_mem(f, "k", "y", "s", ("i", "j")),
        "the bounds of j change inside k",
    ),
    "stage_window: allocated inside": (
        lambda: kernel(
            "for i in serial(0, 16):\n    t = alloc(i32[1])\n    t[0] = x[i]\n    y[i] = t[0]"
        ),
        lambda f: stage_window(f, "i", "t", "s"),
        "t is allocated inside i already",
    ),
    "fission: no loop around": (
        lambda: kernel("for i in serial(0, 16):\n    y[i] = x[i]\n    y[i] = x[i]"),
        lambda f: fission(f, "i", 1, "_s", 2),
        "i has no loop around it to split as well",
    ),
    "split_condition: no condition": (
        triangle,
        lambda f: split_condition(f, "i"),
        "the body of i is not a single index condition without else",
    ),
    "sink_alloc: padding": (
        lambda: kernel(PADDED),
        lambda f: sink_alloc(f, "t", "j", "scratch"),
        "private: t has padding that t_padding states",
    ),
    "delete_buffer: padding": (
        lambda: kernel(PADDED),
        lambda f: delete_buffer(f, "t"),
        "t has padding that t_padding states",
    ),
    "unroll_buffer: padding": (
        lambda: kernel(PADDED),
        lambda f: unroll_buffer(f, "t", 0),
        "t has padding that t_padding states",
    ),
    "inline_assign: the element of some statements alone": (
        lambda: kernel(
            "t = alloc(i32[2])\nfor i in serial(0, 2):\n    t[i] = x[i]\n"
            "    for k in serial(i, i + 1):\n        y[k] = t[0]\n    if i < 1:\n"
            "        y[i + 2] = t[0]"
        ),
        lambda f: inline_assign(f, "i[0]"),
        "element: ",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_clause_that_fails_is_named(name: str) -> None:
    make, apply, message = CASES[name]
    with pytest.raises(ScheduleError, match=message):
        apply(make())
