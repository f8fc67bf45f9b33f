"""Put the expansions that a solution takes in the place of their nodes.

In: a solution of the search.  Out: the same solution of the graph in which they are taken: what is
moved in vain is gone, and every candidate requires what the inputs of its own kernel have to be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphflow.flow.candidates.candidates import Candidate, Candidates
from graphflow.flow.solve import Solution
from graphflow.graph import Expansions, OperatorGraph


@dataclass(frozen=True)
class PlannedGraph:
    """A graph, a solution of it, and the candidates among which the solution was chosen.

    The candidates of a node may be of several definitions: of the graph's, and of others that could
    have taken its place.
    """

    graph: OperatorGraph
    candidates: Candidates
    solution: Solution


def with_taken_expansions(
    graph: OperatorGraph, expansions: Expansions, candidates: Candidates, solution: Solution
) -> PlannedGraph:
    """The solution of `graph` with the expansions of its candidates taken."""
    if not expansions.of_node:
        return PlannedGraph(graph, candidates, solution)
    chosen = solution.candidates
    taken = [c.expansion for c in chosen.values() if c.expansion is not None]
    unmoved = {value for c in chosen.values() if c.unmoved for value, _ in c.gives}
    executed = {name: c for name, c in chosen.items() if not c.unmoved}
    return PlannedGraph(
        expansions.take(taken, unmoved) if taken or unmoved else graph,
        replace(
            candidates,
            of_node={name: tuple(map(_own, candidates.of_node[name])) for name in executed},
        ),
        replace(solution, candidates={name: _own(c) for name, c in executed.items()}),
    )


def _own(candidate: Candidate) -> Candidate:
    """The candidate with its requirements on the inputs of the kernel that it is a variant of."""
    if candidate.expansion is None:
        return candidate
    return replace(candidate, requirements=candidate.kernel_requirements)
