"""Bounds of scores that masks decide about."""

import pytest

from graphflow import tir
from graphflow.arith import Var
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.masked_scores import (
    SUM,
    needs_bound,
    require_masked,
    upper_bound,
)

KEY, ROW = Var("key"), Var("row")
MASK = tir.Load(tir.Buffer("mask", (4, 8)), (ROW, KEY))
OTHER = tir.Load(tir.Buffer("other", (4, 8)), (ROW, KEY))
SEEN = tir.Load(tir.Buffer("seen", (4, 8), "bool"), (ROW, KEY))
SCALE = tir.Load(tir.Buffer("scale", ()), ())
LOWEST, INFINITE = tir.Literal(-1e9, "float32"), tir.Literal(float("inf"), "float32")
BOUND = tir.Load(tir.Buffer("bound", (4,)), (ROW,))
SCALED = tir.Binary("div", SUM, SCALE)


def test_a_mask_that_is_added_needs_a_bound_of_the_sum() -> None:
    score = tir.Binary("add", SCALED, MASK)
    require_masked(score, SUM, KEY)
    assert needs_bound(score, SUM)
    ends = [
        tir.Binary("add", tir.Binary("div", end, SCALE), MASK)
        for end in (BOUND, tir.Unary("neg", BOUND))
    ]
    assert upper_bound(score, SUM, BOUND) == tir.Binary("max", *ends)


@pytest.mark.parametrize("shown_first", [True, False])
def test_a_mask_that_selects_needs_none(shown_first: bool) -> None:
    sides = (SCALED, LOWEST) if shown_first else (LOWEST, SCALED)
    score = tir.Select(SEEN, *sides)
    require_masked(score, SUM, KEY)
    assert not needs_bound(score, SUM)
    bounds = (INFINITE, LOWEST) if shown_first else (LOWEST, INFINITE)
    assert upper_bound(score, SUM, INFINITE) == tir.Select(SEEN, *bounds)


def test_a_selection_before_something_is_added_needs_a_bound() -> None:
    score = tir.Binary("add", tir.Select(SEEN, SCALED, LOWEST), MASK)
    require_masked(score, SUM, KEY)
    assert needs_bound(score, SUM)


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (SCALED, "no mask excludes keys"),
        (tir.Binary("add", SUM, SCALE), "no mask excludes keys"),
        (tir.Binary("add", tir.Binary("mul", SUM, SUM), MASK), "not known to be monotone"),
        (tir.Binary("add", tir.Unary("abs", SUM), MASK), "not known to be monotone"),
        (tir.Binary("div", MASK, SUM), "not known to be monotone"),
        (tir.Select(tir.Comparison("lt", SUM, MASK), SUM, LOWEST), "not known to be monotone"),
    ],
)
def test_other_scores_are_refused(score: tir.Expr, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        require_masked(score, SUM, KEY)
