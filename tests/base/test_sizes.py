"""Tests of sizes as users state them."""

import itertools
import re
from typing import Any

import pytest

from graphflow.base.errors import InvalidModel
from graphflow.base.sizes import Size, SizeFormula, SizeRelation, SizeStep, sizes_of


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


def test_the_most_of_a_size_is_given_by_the_least_of_what_is_taken_away() -> None:
    rest = SizeRelation("new", (("past", -1), ("more", 2)), 8)
    assert rest.most_given({"past": (1, 16), "more": (0, 3)}) == 13
    assert SizeRelation("n", (), 2, is_exact=False).most_given({}) is None


def test_a_relation_may_be_an_inequality() -> None:
    least = SizeRelation("n", (), 2, is_exact=False)
    assert str(least) == "n >= 2"
    assert [least.may_hold({"n": n}) for n in (1, 2, 3)] == [False, True, True]


def test_a_size_may_have_to_be_a_multiple_of_a_step() -> None:
    step = SizeStep("n", 4)
    assert str(step) == "n % 4 = 0" and step.is_exact and not step.factors
    assert [n for n in range(9) if step.may_hold({"n": n})] == [0, 4, 8]
    assert step.may_hold({"m": 3})
    assert step.wanted({"n": 5}) == "n has to be a multiple of 4, such as 8"


def test_formulas_of_sizes() -> None:
    assert SizeFormula("quotient", (2, -1, 5, 3)).value((4, 1)) == 4  # (2·4 - 1 + 5) // 3
    assert SizeFormula("quotient", (1, -4, 3)).value((2,)) == -1  # rounded down
    assert SizeFormula("product").value((3, 4, 5)) == 60
    assert SizeFormula("lesser", (7,)).value((9,)) == 7
    assert SizeFormula("lesser").value((9, 3)) == 3


@pytest.mark.parametrize(
    ("formula", "count"),
    [
        (SizeFormula("quotient", (1, 0)), 1),
        (SizeFormula("quotient", (1, 0, 0)), 1),
        (SizeFormula("quotient", (0, 1)), 0),
        (SizeFormula("quotient", (1, 0, 1)), 2),
        (SizeFormula("product", (2,)), 2),
        (SizeFormula("product"), 0),
        (SizeFormula("lesser", (3,)), 0),
    ],
)
def test_numbers_that_do_not_fit_the_operands_of_a_formula(
    formula: SizeFormula, count: int
) -> None:
    assert not formula.takes(count)


@pytest.mark.parametrize(
    "formula",
    [
        SizeFormula("quotient", (2, -3, 1, 4)),
        SizeFormula("quotient", (-1, -1, 0, 1)),
        SizeFormula("product"),
        SizeFormula("lesser", (3,)),
    ],
)
def test_bounds_of_a_formula_are_its_least_and_greatest_value(formula: SizeFormula) -> None:
    assert formula.takes(2)
    for first, second in [((0, 4), (2, 6)), ((-3, 2), (-1, 5)), ((1, 1), (3, 3))]:
        pairs = itertools.product(*(range(lo, hi + 1) for lo, hi in (first, second)))
        values = [formula.value(pair) for pair in pairs]
        assert formula.bounds((first, second)) == (min(values), max(values))
