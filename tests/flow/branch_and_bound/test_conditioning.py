"""Tests of problems with fewer candidates: the cheapest plan, against exhaustive search."""

from collections.abc import Mapping

import numpy as np
import pytest

from graphflow.flow.branch_and_bound.conditioning import Conditioned, TablesTooLarge
from graphflow.flow.elimination.prices import NEVER
from graphflow.flow.objective.patterns import Classes
from support.planning.drawn import drawn
from support.seeds import seeds


def kept_of(problem: Conditioned, rng: np.random.Generator) -> Mapping[int, Classes]:
    """At least one candidate of each node."""
    found = {}
    for node, prices in enumerate(problem.own):
        taken = rng.random(len(prices)) < 0.6
        taken[rng.integers(len(prices))] = True
        found[node] = np.flatnonzero(taken)
    return found


@pytest.mark.parametrize("seed", seeds(12, 40))
@pytest.mark.parametrize("limit", [1 << 15, 200])
def test_the_cheapest_of_the_kept_candidates_is_found(seed: int, limit: int) -> None:
    """Also where candidates are dropped in two steps."""
    problem, search = drawn(seed)
    whole = Conditioned.whole(problem.own, problem.terms)
    rng = np.random.default_rng(seed)
    once = whole.restricted(kept_of(whole, rng))
    twice = once.restricted(kept_of(once, rng))
    assert once.choices >= twice.choices
    every = [search.candidates.of_node[node] for node in search.nodes]
    for conditioned in (once, twice):
        least = search.prices()[np.ix_(*conditioned.kept)].min()
        try:
            reduced = conditioned.eliminated(problem.prices, {}, limit)
        except TablesTooLarge:
            assert limit == 200
            continue
        if np.isinf(least):
            assert reduced.price() == NEVER
            continue
        assert problem.prices.seconds(reduced.price()) == pytest.approx(least, rel=1e-9)
        options = [0] * len(reduced.own)
        reduced.complete(options)
        chosen = [
            of[kept[option]]
            for of, kept, option in zip(every, conditioned.kept, options, strict=False)
        ]
        assert search.price(chosen) == pytest.approx(least, rel=1e-9)


def test_a_node_without_candidates_makes_a_problem_impossible() -> None:
    problem, _ = drawn(0)
    whole = Conditioned.whole(problem.own, problem.terms)
    assert whole.possible
    assert not whole.restricted({2: np.arange(0)}).possible


def test_tables_beyond_the_limit_are_not_made() -> None:
    problem, _ = drawn(1)
    with pytest.raises(TablesTooLarge):
        Conditioned.whole(problem.own, problem.terms).eliminated(problem.prices, {}, 3)


def test_terms_of_other_nodes_stay_the_same() -> None:
    problem, _ = drawn(2)
    whole = Conditioned.whole(problem.own, problem.terms)
    node = max(range(len(whole.own)), key=lambda n: len(whole.own[n]))
    smaller = whole.restricted({node: np.arange(1)})
    same = [a is b for a, b in zip(whole.terms, smaller.terms, strict=True)]
    assert same == [node not in term.nodes for term in whole.terms]
    assert any(same) and not all(same)
