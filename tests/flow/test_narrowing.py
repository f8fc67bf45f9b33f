"""Tests of parts with fewer candidates: the cheapest choice, against exhaustive search."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from graphflow.cost import CostModel
from graphflow.flow.candidates import Candidates, enumerate_candidates
from graphflow.flow.highs import OutOfTime
from graphflow.flow.narrowing import narrowed
from graphflow.flow.prices import NEVER
from graphflow.flow.solve import Problem
from support.exhaustive import Exhaustive
from support.nets import SHORT
from support.random_nets import PLANNED, random_graph, some

COST = CostModel(SHORT, 1)


def problem_of(seed: int) -> tuple[Problem, Candidates, Exhaustive]:
    rng = np.random.default_rng(5000 + seed)
    graph = random_graph(rng, 6, PLANNED)
    candidates = some(enumerate_candidates(graph, COST, {}), rng, 5)
    return Problem(graph, candidates, COST), candidates, Exhaustive(graph, candidates, COST)


def kept_of(problem: Problem, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """At least one candidate of each node."""
    found = {}
    for node, prices in enumerate(problem.own):
        taken = rng.random(len(prices)) < 0.6
        taken[rng.integers(len(prices))] = True
        found[node] = np.flatnonzero(taken)
    return found


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("limit", [1 << 15, 200])
def test_the_cheapest_of_the_kept_candidates_is_found(seed: int, limit: int) -> None:
    problem, candidates, search = problem_of(seed)
    kept = kept_of(problem, np.random.default_rng(seed))
    own = dict(enumerate(problem.own))
    prices = search.prices()
    least = prices[np.ix_(*(kept[node] for node in own))].min()
    try:
        found = narrowed(own, problem.terms, kept, problem.prices, limit)
    except OutOfTime:
        assert limit == 200
        return
    if found is None:
        assert np.isinf(least)
        return
    options, copies = found
    assert all(option in kept[node] for node, option in options.items())
    every = [candidates.of_node[node] for node in search.nodes]
    chosen = [every[node][options[node]] for node in own]
    assert search.price(chosen) == pytest.approx(least, rel=1e-9)
    spent = sum(c.seconds for c in chosen)
    spent += sum(c.seconds for made in copies.values() for c in made)
    assert spent == pytest.approx(least, rel=1e-9)


def test_a_node_without_candidates_has_no_choice() -> None:
    problem, _, _ = problem_of(0)
    own: Mapping[int, np.ndarray] = dict(enumerate(problem.own))
    kept = {node: np.arange(len(prices)) for node, prices in own.items()}
    kept[2] = np.arange(0)
    assert narrowed(own, problem.terms, kept, problem.prices, 1 << 15) is None
    own = {node: np.full_like(prices, NEVER) for node, prices in own.items()}
    kept[2] = np.arange(1)
    assert narrowed(own, problem.terms, kept, problem.prices, 1 << 15) is None


def test_tables_beyond_the_limit_are_not_made() -> None:
    problem, _, _ = problem_of(1)
    own = dict(enumerate(problem.own))
    kept = {node: np.arange(len(prices)) for node, prices in own.items()}
    with pytest.raises(OutOfTime):
        narrowed(own, problem.terms, kept, problem.prices, 3)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("limit", [100, 400])
def test_parts_beyond_elimination_have_the_cheapest_plan(
    seed: int, limit: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """By narrowing where fewer candidates are enough, else by branch and bound; silently."""
    problem, candidates, search = problem_of(seed)
    found = Problem(problem.graph, candidates, COST, limit)
    assert found.best.seconds == pytest.approx(search.prices().min(), rel=2e-6)
    assert found.best.gap <= 2e-6
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""
