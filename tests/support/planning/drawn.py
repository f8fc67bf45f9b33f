"""Random planning problems that are small enough for exhaustive search."""

from functools import lru_cache

import numpy as np

from graphflow.cost import CostModel
from graphflow.flow import Problem, enumerate_candidates
from support.planning.exhaustive import Exhaustive
from support.planning.nets import SHORT
from support.planning.random_nets import PLANNED, random_graph, some

COST = CostModel(SHORT, 1)


@lru_cache(maxsize=64)
def drawn(seed: int, limit: int = 1 << 22) -> tuple[Problem, Exhaustive]:
    """A graph of six kernels with at most five candidates each; nobody may change either."""
    rng = np.random.default_rng(5000 + seed)
    graph = random_graph(rng, 6, PLANNED)
    candidates = some(enumerate_candidates(graph, COST, {}), rng, 5)
    return Problem(graph, candidates, COST, limit), Exhaustive(graph, candidates, COST)
