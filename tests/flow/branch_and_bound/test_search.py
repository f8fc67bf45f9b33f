"""Tests of the search: the cheapest plan and the next best, against exhaustive search."""

import numpy as np
import pytest

from graphflow.flow import enumerate_candidates
from graphflow.flow.branch_and_bound.search import OutOfWork, branch_and_bound
from graphflow.flow.elimination.prices import NEVER, Table
from graphflow.flow.solve import Problem
from support.planning.drawn import COST, drawn
from support.planning.random_nets import PLANNED, random_graph, some
from support.seeds import seeds

WORK = 1 << 40


def others(problem: Problem, chosen: list[int]) -> list[Table]:
    """Prices of all candidates but the chosen ones."""
    return [
        np.where(np.arange(len(own)) == option, NEVER, own)
        for own, option in zip(problem.own, chosen, strict=True)
    ]


@pytest.mark.parametrize("seed", seeds(6, 60))
@pytest.mark.parametrize("limit", [0, 30, 400])
def test_no_plan_is_cheaper(seed: int, limit: int) -> None:
    """Neither than the best nor, of the others, than the next best."""
    problem, every = drawn(seed)
    prices = every.prices()
    best = branch_and_bound(problem.own, problem.terms, problem.prices, limit, WORK)
    assert best is not None
    least = prices.min()
    assert problem.prices.seconds(best.price) == pytest.approx(least, rel=1e-9)
    assert problem.prices.seconds(best.bound) >= least * (1 - 0.011)
    assert best.bound <= best.price
    assert prices[tuple(best.options)] == pytest.approx(least, rel=1e-9)
    prices[tuple(best.options)] = np.inf
    differing = others(problem, best.options)
    second = branch_and_bound(problem.own, problem.terms, problem.prices, limit, WORK, differing)
    if second is None:
        assert np.isinf(prices.min())
        return
    beside = branch_and_bound(
        problem.own, problem.terms, problem.prices, limit, WORK, differing, best
    )
    assert beside is not None
    for found in (second, beside):
        assert prices[tuple(found.options)] == pytest.approx(
            problem.prices.seconds(found.price), rel=1e-9
        )
        assert problem.prices.seconds(found.bound) <= prices.min() * (1 + 1e-9)
        assert problem.prices.seconds(found.price) <= prices.min() * 1.011


def test_beside_the_best_plan_another_one_is_known_without_work() -> None:
    """Where elimination, which found the best plan, had other plans among its own."""
    found = 0
    for seed in range(30):
        problem, _ = drawn(seed)
        best = branch_and_bound(problem.own, problem.terms, problem.prices, 400, WORK)
        assert best is not None
        differing = others(problem, best.options)
        try:
            second = branch_and_bound(
                problem.own, problem.terms, problem.prices, 400, 0, differing, best
            )
        except OutOfWork:
            continue
        assert second is not None and second.price >= best.price
        assert any(a != b for a, b in zip(second.options, best.options, strict=True))
        found += 1
    assert found > 10


@pytest.mark.parametrize("work", [1, 1 << 16])
def test_with_little_work_bounds_hold(work: int) -> None:
    for seed in range(30):
        problem, every = drawn(seed)
        least = every.prices().min()
        found = branch_and_bound(problem.own, problem.terms, problem.prices, 8, work)
        assert found is not None
        assert problem.prices.seconds(found.bound) <= least * (1 + 1e-9)
        assert problem.prices.seconds(found.price) >= least * (1 - 1e-9)


def test_of_a_search_that_ends_early_the_gap_is_known() -> None:
    rng = np.random.default_rng(5)
    graph = random_graph(rng, 60, PLANNED)
    problem = Problem(graph, some(enumerate_candidates(graph, COST, {}), rng, 10), COST)
    assert problem.searched is None
    best = problem.reduced.price()
    found = branch_and_bound(problem.own, problem.terms, problem.prices, 20, 1)
    assert found is not None
    assert found.bound < best <= found.price


def test_what_no_plan_can_take_has_none() -> None:
    problem, _ = drawn(0)
    own = list(problem.own)
    own[1] = np.full_like(own[1], NEVER)
    assert branch_and_bound(own, problem.terms, problem.prices, 8, WORK) is None
    nothing = [np.full_like(prices, NEVER) for prices in problem.own]
    assert branch_and_bound(problem.own, problem.terms, problem.prices, 8, WORK, nothing) is None


def test_without_work_nothing_is_proven() -> None:
    problem, _ = drawn(0)
    with pytest.raises(OutOfWork):
        branch_and_bound(problem.own, problem.terms, problem.prices, 8, 0)
