"""Tests of sizes as users state them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from graphflow.base.errors import InvalidModel
from graphflow.base.sizes import Size, SizeRelation, sizes_of


def test_bounds_become_sizes_in_their_order() -> None:
    assert sizes_of({"n": (1, 8), "m": [2, 2]}) == (Size("n", 1, 8), Size("m", 2, 2))
    assert sizes_of({}) == ()
    assert str(Size("n", 1, 8)) == "n from 1 to 8"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([("n", (1, 8))], "sizes is list, must map names to pairs (lo, hi)"),
        ({1: (1, 8)}, "1 is no name of a dimension"),
        ({"n": 8}, "sizes['n'] is 8, must be a pair of integers"),
        ({"n": (1,)}, "must be a pair of integers"),
        ({"n": (1, 2, 3)}, "must be a pair of integers"),
        ({"n": (1, 8.0)}, "must be a pair of integers"),
        ({"n": (True, 8)}, "must be a pair of integers"),
        ({"n": {1, 8}}, "must be a pair of integers"),
        ({"n": "18"}, "must be a pair of integers"),
    ],
)
def test_what_is_no_pair_of_bounds_is_a_wrong_type(given: Any, text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        sizes_of(given)


@pytest.mark.parametrize("bounds", [(-1, 8), (5, 4), (0, 0)])
def test_bounds_that_no_run_satisfies_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(InvalidModel, match="the least extent must be 0 or more"):
        sizes_of({"n": bounds})


def test_a_relation_says_what_holds() -> None:
    total = SizeRelation("total", (("past", 1), ("new", 2)), -1)
    assert str(total) == "total = past + 2·new - 1"
    assert total.value({"past": 3, "new": 2}) == 6
    assert total.may_hold({"total": 6, "past": 3, "new": 2})
    assert not total.may_hold({"total": 7, "past": 3, "new": 2})
    assert total.may_hold({"total": 7, "past": 3})  # the rest is not known


def test_a_relation_may_be_an_inequality() -> None:
    least = SizeRelation("n", (), 2, is_exact=False)
    assert str(least) == "n >= 2"
    assert [least.may_hold({"n": n}) for n in (1, 2, 3)] == [False, True, True]
