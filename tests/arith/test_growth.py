"""Tests of how far an index grows along one variable."""

import pytest

from graphflow.arith import (
    IndexExpr,
    Var,
    as_index,
    evaluate,
    floor_div,
    floor_mod,
    growth,
    maximum,
    minimum,
)

i, v = Var("i"), Var("v")

CASES: dict[str, tuple[IndexExpr, tuple[int, int]]] = {
    "a constant": (as_index(7), (0, 0)),
    "another variable": (3 * i, (0, 0)),
    "the variable": (5 * v - i, (15, 15)),
    "a quotient that begins anywhere": (floor_div(23 * i + 7 * v, 95), (0, 1)),
    "a quotient that falls": (floor_div(i - 7 * v, 10), (-3, -2)),
    "what stops at an end": (minimum(floor_div(v + i, 2) + 1, 9), (0, 2)),
    "what begins late": (maximum(i - 3 * v, 4), (-9, 0)),
    "a sum of quotients": (floor_div(v + i, 2) - 2 * floor_div(i + v, 3), (-1, 0)),
    "a remainder of others": (v + floor_mod(i, 3), (3, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds_hold_wherever_the_others_are(name: str) -> None:
    expr, expected = CASES[name]
    found = growth(expr, v, 3)
    assert found == expected
    ends = {
        evaluate(expr, {i: start, v: 3}) - evaluate(expr, {i: start, v: 0})
        for start in range(-40, 200)
    }
    assert found is not None and found[0] <= min(ends) and max(ends) <= found[1]


def test_a_remainder_may_fall_at_any_step() -> None:
    assert growth(floor_mod(v + i, 5), v, 1) is None
    assert growth(2 * i + floor_div(floor_mod(v, 5), 2), v, 1) is None
    assert growth(minimum(floor_mod(v, 5), i), v, 1) is None
