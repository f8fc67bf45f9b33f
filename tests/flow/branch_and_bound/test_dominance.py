"""Tests of dominance: candidates that some cheapest plan does without, by exhaustive search."""

import numpy as np
import pytest

from graphflow.cost import CostModel
from graphflow.flow import Problem, enumerate_candidates
from graphflow.flow.branch_and_bound.dominance import undominated
from graphflow.flow.candidates.candidates import Candidates
from graphflow.flow.elimination.prices import NEVER
from graphflow.graph import OperatorGraph
from support.planning.exhaustive import Exhaustive
from support.planning.nets import SHORT
from support.planning.random_nets import PLANNED, random_graph, some
from support.seeds import seeds

COST = CostModel(SHORT, 1)


def drawn(seed: int) -> tuple[OperatorGraph, Candidates]:
    rng = np.random.default_rng(7000 + seed)
    graph = random_graph(rng, 5, PLANNED)
    return graph, some(enumerate_candidates(graph, COST, {}), rng, 6)


def problem_of(seed: int) -> Problem:
    return Problem(*drawn(seed), COST)


@pytest.mark.parametrize("seed", seeds(20, 40))
def test_a_cheapest_plan_is_left(seed: int) -> None:
    problem = problem_of(seed)
    own = dict(enumerate(problem.own))
    kept = undominated(own, problem.terms, problem.prices)
    prices = Exhaustive(*drawn(seed), COST).prices()
    assert prices[np.ix_(*(kept[node] for node in own))].min() == prices.min()


def test_most_candidates_are_dominated() -> None:
    dropped = total = 0
    for seed in range(40):
        problem = problem_of(seed)
        own = dict(enumerate(problem.own))
        kept = undominated(own, problem.terms, problem.prices)
        total += sum(map(len, own.values()))
        dropped += sum(len(own[node]) - len(kept[node]) for node in own)
    assert dropped > total / 2


def test_what_no_plan_can_take_is_not_left() -> None:
    problem = problem_of(0)
    own = {node: prices.copy() for node, prices in enumerate(problem.own)}
    node = max(own, key=lambda n: len(own[n]))
    own[node][0] = NEVER
    assert 0 not in undominated(own, problem.terms, problem.prices)[node]


def test_of_equal_candidates_the_first_is_left() -> None:
    """Prices without ranks, and no term that tells the candidates apart."""
    problem = problem_of(0)
    own = {0: np.array([5, 3, 3], np.int64)}
    assert undominated(own, (), problem.prices)[0].tolist() == [1]
