"""Tests of what a program requires of the integers that a run gives it."""

import json
from typing import Any

import numpy as np
import pytest

from graphflow.base.errors import InvalidModel
from graphflow.base.scalar_limits import ScalarLimits

LIMITS = ScalarLimits(
    "f",
    (("n", "count"), ("m", "m")),
    (
        "n >= 0 and n < 9",
        "n + 2*m - 1 <= 16 or m == -n",
        "max(n, m) % 3 != 1",
        "min(n, m) // 2 < 4",
    ),
)


def test_values_that_fit_are_given_as_int64() -> None:
    given = LIMITS.given({"count": np.uint8(8), "m": -8, "x": np.zeros(3)})
    assert {name: (a.dtype, a.shape, int(a)) for name, a in given.items()} == {
        "count": (np.dtype("int64"), (), 8),
        "m": (np.dtype("int64"), (), -8),
    }
    assert LIMITS.given({"m": 3}).keys() == {"m"}, "the program refuses what is missing"


@pytest.mark.parametrize(
    ("n", "m", "message"),
    [
        (9, 0, r"f assumes n >= 0 and n < 9, and n is 9 \(input 'count'\); "),
        (5, 9, r"f assumes n \+ 2\*m - 1 <= 16 or .*, and n is 5 \(input 'count'\), m is 9; "),
        (4, 0, "f assumes max"),
        (8, 4.0, "input 'm' is float64"),
        (8, [4], r"input 'm' is int64\[1\], the program expects an integer"),
        (2**63, 4, "input 'count' is 9223372036854775808, the program expects an int64"),
        (True, 4, "input 'count' is bool"),
    ],
)
def test_other_values_are_refused(n: Any, m: Any, message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        LIMITS.given({"count": n, "m": m})


def test_plain_values_survive_json() -> None:
    assert ScalarLimits.from_plain(json.loads(json.dumps(LIMITS.plain()))) == LIMITS


@pytest.mark.parametrize(
    "condition",
    ["k > 0", "n.real > 0", "n > 0 and print()", "n in m", "n / 2 > 1", "n % 0 == 0", "n >", "'a'"],
)
def test_other_texts_are_no_conditions(condition: str) -> None:
    with pytest.raises(ValueError, match=r"condition|integer|compared"):
        ScalarLimits("f", (("n", "n"), ("m", "m")), (condition,))


def test_plain_values_of_other_structure_are_refused() -> None:
    for plain in (None, ["f", {}], ["f", {"n": 1}, []], [1, {}, []], ["f", {}, ["n > 0"]]):
        with pytest.raises((TypeError, ValueError)):
            ScalarLimits.from_plain(plain)
