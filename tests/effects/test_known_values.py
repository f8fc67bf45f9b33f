"""Stores that change nothing: what was read, what is there, and what an assumption says."""

from __future__ import annotations

import pytest

from graphflow.arith import Verdict
from graphflow.effects import stores_known_value
from graphflow.tir import PrimFunc, parse


def kernel(body: str) -> PrimFunc:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return parse(f"@primfunc\ndef kernel(x: i32[8], y: out[i32[8]]):\n{lines}\n")


MAYBE_ELSE = "y[i] = i32(3)\n    if data(x[i] < i32(0)):\n        y[i] = x[i]"

LAST = "for k in serial(0, 8):\n    {}"


@pytest.mark.parametrize(
    ("before", "store", "verdict"),
    [
        ("", "y[k] = y[k]", "proven"),
        ("y[i] = i32(3)", "y[k] = i32(3)", "proven"),
        ("y[i] = i32(3)", "y[k] = i32(4)", "refuted"),
        ("y[i] = x[i]", "y[k] = x[k]", "proven"),
        ("y[i] = x[i]", "y[k] = x[7 - k]", "refuted"),
        ("y[i] = x[i] + i32(1)", "y[k] = x[k] + i32(1)", "proven"),
        ("y[i] = i32(3)\n    y[7 - i] = i32(3)", "y[k] = i32(3)", "proven"),
        ("y[i] = i32(3)\n    y[0] = i32(4)", "y[k] = i32(3)", "refuted"),
        ("y[i] = select(i < 4, i32(3), i32(4))", "y[k] = select(k >= 4, i32(4), i32(3))", "proven"),
        (MAYBE_ELSE, "y[k] = i32(3)", "unknown"),
        ("assume(unless(i < 4), y[i] == i32(0))", "if k >= 4:\n        y[k] = i32(0)", "proven"),
        ("assume(unless(i < 4), y[i] == i32(0))", "if k >= 3:\n        y[k] = i32(0)", "unknown"),
    ],
)  # fmt: skip
def test_what_is_there_already(before: str, store: str, verdict: str) -> None:
    first = f"for i in serial(0, 8):\n    {before}\n" if before else ""
    func = kernel(first + LAST.format(store))
    conditional = store.startswith("if")
    path = ((int(bool(before)), False), (0, False), *(((0, False),) if conditional else ()))
    assert stores_known_value(func, path).verdict is Verdict(verdict)


def test_a_copy_that_is_copied_back() -> None:
    body = """t = alloc(i32[8])
for i in serial(0, 8):
    t[i] = y[i]
{}for k in serial(0, 8):
    y[k] = t[k]"""
    path = ((2, False), (0, False))
    assert stores_known_value(kernel(body.format("")), path).proven
    between = kernel(body.format("y[3] = i32(1)\n"))
    assert not stores_known_value(between, ((3, False), (0, False))).proven


def test_a_write_ends_an_assumption() -> None:
    body = "assume(unless(False), y[0] == i32(5))\n{}y[0] = i32(5)"
    assert stores_known_value(kernel(body.format("")), ((1, False),)).proven
    ended = kernel(body.format("for i in serial(0, 8):\n    y[i] = x[i]\n"))
    assert not stores_known_value(ended, ((2, False),)).proven


def test_a_float_zero_may_be_either_zero() -> None:
    claim = "    assume(unless(False), y[0] == f32(0.0))\n"
    func = parse(f"@primfunc\ndef kernel(y: out[f32[1]]):\n{claim}    y[0] = f32(0.0)\n")
    assert not stores_known_value(func, ((1, False),)).proven
