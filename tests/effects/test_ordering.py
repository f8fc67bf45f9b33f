"""Dependences that loops carry, and their distances."""

from __future__ import annotations

import pytest

from graphflow.arith import Verdict
from graphflow.effects import no_carried_dependence, no_dependence
from graphflow.tir import PrimFunc, parse

FIRST, SECOND = ((0, False),), ((1, False),)


def kernel(body: str) -> PrimFunc:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return parse(f"@primfunc\ndef kernel(x: f32[16], y: out[f32[16]]):\n{lines}\n")


def test_a_running_sum_has_distance_one() -> None:
    proof = no_carried_dependence(
        kernel("for i in serial(1, 16):\n    y[i] = y[i - 1] + x[i]"), FIRST
    )
    assert proof.verdict is Verdict.REFUTED and "(distance 1)" in proof.reason
    assert proof.witness == (("i", 1), ("i'", 2))


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("y[i] = x[i]", "proven"),
        ("y[0] += x[i]", "proven"),
        ("y[0] = x[i]", "refuted"),
        ("if data(x[i] < f32(0.0)):\n        y[0] = x[i]", "unknown"),
        ("t = alloc(f32[1])\n    t[0] = x[i]\n    y[i] = t[0]", "proven"),
    ],
)
def test_what_a_loop_carries(body: str, verdict: str) -> None:
    func = kernel(f"for i in serial(0, 16):\n    {body}")
    assert no_carried_dependence(func, FIRST).verdict is Verdict(verdict)


def test_statements_that_touch_other_elements_are_independent() -> None:
    text = (
        "for i in serial(0, 8):\n    y[2*i] = x[i]\nfor j in serial(0, 8):\n    y[2*j + {}] = x[j]"
    )
    assert no_dependence(kernel(text.format(1)), FIRST, SECOND).proven
    assert no_dependence(kernel(text.format(0)), FIRST, SECOND).verdict is Verdict.REFUTED


def test_a_block_is_no_loop() -> None:
    with pytest.raises(ValueError, match="is no loop"):
        no_carried_dependence(kernel("y[0] = x[0]"), FIRST)
