"""Tests of the relaxation: true bounds of every plan and of every candidate."""

from math import prod

import numpy as np
import pytest

from graphflow.flow.branch_and_bound.conditioning import Conditioned
from graphflow.flow.branch_and_bound.relaxation import PriceBounds, Relaxation, mini_buckets
from graphflow.flow.elimination.prices import NEVER
from graphflow.flow.solve import Problem
from support.planning.drawn import drawn
from support.planning.factors import random_factors
from support.seeds import seeds


def relaxed(problem: Problem, limit: int) -> Relaxation:
    whole = Conditioned.whole(problem.own, problem.terms)
    return Relaxation(whole, problem.prices, {}, limit)


def check(problem: Problem, bounds: PriceBounds, prices: np.ndarray) -> None:
    """Every plan costs at least what each of its candidates has as a bound."""
    seconds = problem.prices.seconds
    assert seconds(bounds.price) <= prices.min() * (1 + 1e-9)
    for node, extra in enumerate(bounds.extra):
        least = np.moveaxis(prices, node, 0).reshape(len(extra), -1).min(1)
        for candidate, beyond in enumerate(extra):
            if beyond >= NEVER // 2:
                assert np.isinf(least[candidate])
            else:
                assert seconds(bounds.price + int(beyond)) <= least[candidate] * (1 + 1e-9)


@pytest.mark.parametrize("seed", seeds(15, 40))
@pytest.mark.parametrize("limit", [1, 100, 1 << 15])
def test_bounds_are_below_every_plan_however_prices_are_shifted(seed: int, limit: int) -> None:
    problem, search = drawn(seed)
    prices = search.prices()
    relaxation = relaxed(problem, limit)
    bounds = relaxation.bounds()
    check(problem, bounds, prices)
    for step in (1.0, 0.5, 0.25):
        assert relaxation.shift(bounds, bounds.price // 64, step)
        bounds = relaxation.bounds()
        check(problem, bounds, prices)


def test_without_copies_the_bound_is_the_least_price() -> None:
    for seed in range(20):
        problem, search = drawn(seed)
        relaxation = relaxed(problem, 1 << 22)
        assert not relaxation.copies
        bound = problem.prices.seconds(relaxation.bounds().price)
        assert bound == pytest.approx(search.prices().min(), rel=1e-9)


def test_shifting_raises_most_bounds() -> None:
    raised = loose = 0
    for seed in range(30):
        problem, search = drawn(seed)
        relaxation = relaxed(problem, 1)
        first = best = relaxation.bounds()
        if problem.prices.seconds(first.price) > search.prices().min() * (1 - 1e-6):
            continue
        loose += 1
        for _ in range(4):
            relaxation.shift(best, best.price // 8, 0.5)
            best = max(best, relaxation.bounds(), key=lambda bounds: bounds.price)
        raised += best.price > first.price
    assert loose > 5
    assert raised > loose // 2


def test_so_much_is_never_shifted_that_the_impossible_is_possible() -> None:
    problem, _ = drawn(0)
    relaxation = relaxed(problem, 1)
    bounds = relaxation.bounds()
    own = [table.copy() for table in bounds.own]
    shifted = 0
    while relaxation.shift(bounds, NEVER // 4, 1.0):
        bounds = relaxation.bounds()
        shifted += 1
        assert bounds.shifted <= NEVER // 4
        for before, now in zip(own, bounds.own, strict=True):
            assert (now[before >= NEVER] >= NEVER).all()
            assert (now[now < NEVER] < NEVER // 2).all()
        if shifted > 100:
            break


@pytest.mark.parametrize("limit", [1, 6, 20, 1 << 15])
def test_no_table_over_several_factors_exceeds_the_limit(limit: int) -> None:
    for seed in range(60):
        own, factors = random_factors(np.random.default_rng(seed))
        sizes = list(map(len, own))
        split = mini_buckets(sizes, [f.scope for f in factors], limit)
        assert sorted(split.order) == list(range(len(split.origin)))
        assert split.origin[: len(own)] == list(range(len(own)))
        sizes = [sizes[v] for v in split.origin]
        left = [set(scope) for scope in split.scopes]
        for factor, scope in zip(factors, split.scopes, strict=True):
            assert [split.origin[v] for v in scope] == list(factor.scope)
        for variable in split.order:
            parts = [scope for scope in left if variable in scope]
            full = set().union({variable}, *parts)
            assert len(parts) < 2 or prod(sizes[v] for v in full) <= limit
            left = [scope for scope in left if variable not in scope] + [full - {variable}]
