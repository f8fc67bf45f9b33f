"""Values that iterations of a loop hand on to later ones."""

import pytest

from graphflow.arith import Verdict
from graphflow.effects import no_carried_flow
from graphflow.tir import PrimFunc, parse

FIRST = ((0, False),)


def kernel(body: str) -> PrimFunc:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return parse(f"@primfunc\ndef kernel(x: f32[16], y: out[f32[16]]):\n{lines}\n")


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("y[0] = x[i]", "proven"),  # overwritten, but read by none
        ("y[0] = x[i]\n    y[1] = y[0]", "proven"),  # stored by the same iteration
        ("y[0] += x[i]", "refuted"),
        ("y[0] = x[i]\n    y[0] += x[0]", "proven"),
        ("y[i] = y[max(0, i - 1)]", "refuted"),
        ("if data(x[i] < f32(0.0)):\n        y[0] = x[i]\n    y[1] = y[0]", "unknown"),
        ("t = alloc(f32[1])\n    t[0] += x[i]\n    y[i] = t[0]", "proven"),  # one t each
    ],
)
def test_what_a_loop_hands_on(body: str, verdict: str) -> None:
    func = kernel(f"for i in serial(0, 16):\n    {body}")
    assert no_carried_flow(func, FIRST).verdict is Verdict(verdict)


def test_the_witness_is_a_pair_of_iterations() -> None:
    proof = no_carried_flow(kernel("for i in serial(0, 16):\n    y[0] += x[i]"), FIRST)
    assert proof.witness == (("i", 0), ("i'", 1))
    assert proof.reason == "what y[0] at i=0 holds is read by y[0] at i'=1"


def test_outer_iterations_do_not_count() -> None:
    func = kernel(
        "for o in serial(0, 4):\n    y[1] = y[0]\n    for i in serial(0, 4):\n        y[0] = x[i]"
    )
    assert no_carried_flow(func, ((0, False), (1, False))).verdict is Verdict.PROVEN
    assert no_carried_flow(func, FIRST).verdict is Verdict.REFUTED


def test_only_loops_have_iterations() -> None:
    with pytest.raises(ValueError, match="is no loop"):
        no_carried_flow(kernel("y[0] = x[0]"), FIRST)


def test_the_last_write_is_found_among_remainders() -> None:
    """isl's lexmax found no write before a read here, though y[1] of i1=1 is updated at i1=2."""
    func = parse("""
    @primfunc
    def kernel(x: i64[4, 5], y: out[i64[5]]):
        for i1 in serial(0, 3):
            for i2 in serial(1, i1 + 1):
                if min(8, i2 - 5) != i1:
                    y[i2 % 5] += x[(i1 + 1) % 4, (i1 + 1) % 5] + y[i1 % 5]
    """)
    assert no_carried_flow(func, FIRST).verdict is Verdict.REFUTED
