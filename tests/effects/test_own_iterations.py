"""Tests of what one iteration stores and reads."""

import pytest

from graphflow.arith import Domain, Proof, Verdict
from graphflow.effects import (
    apart_in_iteration,
    statements_of,
    stored_before_read,
    touches_whenever_begun,
)
from graphflow.tir import Access, Buffer, PrimFunc, buffers_of
from support.schedule_checks import kernel


def of(func: PrimFunc, name: str) -> list[Access]:
    """The accesses to a buffer, in program order."""
    return [a.access for a in statements_of(func).of(buffer_of(func, name))]


def buffer_of(func: PrimFunc, name: str) -> Buffer:
    return next(buffer for buffer in buffers_of(func) if buffer.name == name)


def proofs(body: str) -> list[Proof]:
    """The answers for the reads of t in a loop i."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    func = kernel(f"t = alloc(i32[4])\nfor i in serial(0, 4):\n{lines}")
    return list(stored_before_read(of(func, "t")))


@pytest.mark.parametrize(
    ("body", "proven"),
    [
        ("t[i] = x[i]\ny[i] = t[i]", True),
        ("t[i] = x[i]\nt[i] += x[i]\ny[i] = t[i]", True),
        ("t[0] = x[i]\ny[i] = t[0]", True),
        ("t[0] = x[i]\ny[i] = t[1]", False),  # another element
        ("y[i] = t[i]\nt[i] = x[i]", False),  # later
        ("if data(x[i] < i32(3)):\n    t[i] = x[i]\ny[i] = t[i]", False),
        ("if i >= 1:\n    t[i] = x[i]\ny[i] = t[i]", False),
        ("if i >= 1:\n    t[i] = x[i]\n    y[i] = t[i]", True),
        ("for j in serial(0, 4):\n  t[j] = x[j]\nfor k in serial(0, 4):\n  y[k] = t[3 - k]", True),
        ("for j in serial(0, 3):\n  t[j] = x[j]\nfor k in serial(0, 4):\n  y[k] = t[k]", False),
    ],
)
def test_a_read_of_what_the_iteration_stored(body: str, proven: bool) -> None:
    assert all(proof.proven for proof in proofs(body)) is proven


def test_the_witness_is_a_read_that_sees_no_store() -> None:
    (proof,) = proofs("if i >= 1:\n    t[i] = x[i]\ny[i] = t[i]")
    assert proof.verdict is Verdict.REFUTED
    assert "0, 0" in proof.reason


def test_elements_apart_in_one_iteration() -> None:
    """Two iterations of i meet; in one of them the elements differ."""
    func = kernel("for i in serial(0, 8):\n    y[i + 1] = x[i]\n    y[i] = x[i]")
    one, other = of(func, "y")
    assert apart_in_iteration(one, other, "apart").proven
    assert apart_in_iteration(one, one, "apart").verdict is Verdict.REFUTED
    func = kernel(
        "for i in serial(0, 4):\n    y[2] = x[i]\nfor j in serial(0, 4):\n    y[j] = x[j]"
    )
    one, other = of(func, "y")
    assert apart_in_iteration(one, other, "apart").verdict is Verdict.REFUTED, "no loop around both"


@pytest.mark.parametrize(
    ("inner", "proven"),
    [
        ("for r in serial(0, 4):", True),
        ("for r in serial(0, i):", False),  # at i = 0 it never runs
        ("for r in serial(0, i + 1):", True),
    ],
)
def test_a_loop_that_touches_its_element(inner: str, proven: bool) -> None:
    func = kernel(f"for i in serial(0, 4):\n    {inner}\n        y[i] += x[r]")
    (access,) = of(func, "y")
    around = Domain(access.domain.axes[:1])
    assert touches_whenever_begun(access, around).proven is proven
