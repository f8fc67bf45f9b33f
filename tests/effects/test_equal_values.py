"""Equal values: stores that change nothing, and expressions at one place or at two."""

import pytest

from graphflow import tir
from graphflow.arith import Proof, Var, Verdict, at_most, less_than
from graphflow.effects import Path, domain_at, equal_in_any_state, equal_values, stores_known_value
from graphflow.tir import PrimFunc, parse, parse_expression, to_text


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


def proof_of(body: str, path: Path, one: str, other: str, later: "Path | None" = None) -> Proof:
    func = kernel(body)
    values = [parse_expression(text, tir.buffers_of(func)) for text in (one, other)]
    return equal_values(func, path, *values, later)


LOOP = "for k in serial(0, 8):\n    y[k] = x[k]"


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ("x[k] + y[k]", "y[k] + x[k]", "proven"),
        ("x[k] + i32(0)", "x[k]", "proven"),
        ("x[(k + 8) % 8]", "x[k]", "proven"),
        ("select(k < 8, x[k], y[k])", "x[k]", "proven"),
        ("x[k] + i32(1) + i32(2)", "i32(3) + x[k]", "proven"),
        ("x[k] - y[k]", "y[k] - x[k]", "refuted"),
        ("x[k]", "x[7 - k]", "refuted"),
        ("x[k] + i32(1)", "x[k] + i32(2)", "refuted"),
        ("x[k] / y[k]", "y[k] / x[k]", "unknown"),
    ],
)
def test_expressions_at_one_place(one: str, other: str, verdict: str) -> None:
    assert proof_of(LOOP, ((0, False), (0, False)), one, other).verdict is Verdict(verdict)


def test_expressions_at_two_places() -> None:
    body = "y[0] = x[0]\ny[1] = x[1]\n{}y[2] = x[2]"
    first, third = ((0, False),), ((2, False),)
    assert proof_of(body.format(""), first, "x[3]", "x[3]", third).proven
    assert proof_of(body.format(""), first, "x[0]", "y[0]", third).proven
    assert not proof_of(body.format(""), first, "y[0]", "y[0]", third).proven
    with pytest.raises(ValueError, match="does not follow"):
        proof_of(body.format(""), third, "x[0]", "x[0]", first)


def test_values_under_a_scalar() -> None:
    """A scalar of the kernel is a parameter of every set."""
    func = parse(
        "@primfunc\ndef kernel(x: i32[8], y: out[i32[8]], n: index):\n"
        "    for k in serial(0, 8):\n        y[k] = select(k < n, x[k], i32(0))\n"
    )
    path = ((0, False), (0, False))
    (store,) = (s for s in tir.walk(func.body) if isinstance(s, tir.Store))
    assert equal_values(func, path, store.value, store.value).proven
    zero = parse_expression("i32(0)", tir.buffers_of(func))
    assert not equal_values(func, path, store.value, zero).proven
    again = parse(
        f"{to_text(func)}\n    for i in serial(0, 8):\n        y[i] = select(i < n, x[i], i32(0))"
    )
    assert stores_known_value(again, ((1, False), (0, False))).proven


def test_equal_in_any_state_asks_nothing_about_the_memory() -> None:
    func = kernel("y[0] = i32(3)\nfor k in serial(0, 8):\n    y[k] = y[0]")
    domain = domain_at(func, ((1, False), (0, False)))
    buffers = tir.buffers_of(func)
    three, loaded = parse_expression("i32(3)", buffers), parse_expression("y[0]", buffers)
    assert equal_in_any_state(three, loaded, domain).verdict is Verdict.UNKNOWN
    k = Var("k")
    assert equal_in_any_state(less_than(k, 4), at_most(k, 3), domain).proven
    assert equal_in_any_state(less_than(k, 4), at_most(k, 4), domain).verdict is Verdict.REFUTED
    condition = parse_expression("x[k] < i32(1)", buffers)
    assert not equal_in_any_state(condition, less_than(k, 4), domain).proven
