"""Find the cheapest plan: by elimination, or by a search where its tables would be too large.

In: the graph, its `Candidates`, and the cost model.  Out: a `Solution`: one candidate for each
node, and the copies to make; and the same solution with its expansions in the graph.  What always
holds: the same input gives the same plan.  Where elimination decides, of equally expensive plans
the one with fewer copies and earlier candidates is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum, inf

import numpy as np
from msgspec import Struct

from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.cost import CostModel
from graphflow.flow.branch_and_bound.conditioning import TablesTooLarge
from graphflow.flow.branch_and_bound.search import BoundedPlan, OutOfWork, branch_and_bound
from graphflow.flow.candidates.candidates import Candidate, Candidates, Unsatisfiable
from graphflow.flow.candidates.copies import Copy, copies_for
from graphflow.flow.elimination.elimination import detours, eliminate
from graphflow.flow.elimination.marginals import extras
from graphflow.flow.elimination.prices import NEVER, Prices, Table
from graphflow.flow.objective.factors import encode
from graphflow.flow.objective.terms import Term, copy_key, price_terms
from graphflow.graph import Expansions, OperatorGraph

TABLE_LIMIT = 1 << 22
"""The most entries of one table of elimination: 32 MiB of prices."""

SEARCH_WORK = 1 << 27
"""The most table entries that the search for the best plan may compute, some seconds of work.

Then the best plan found so far is taken and its gap reported.
"""

DETOUR_WORK = 1 << 26
"""The same for the next best plan; it is only reported."""


NO_PLAN = "no plan meets the constraints of the graph; drop a pin"


class Solution(Struct, frozen=True):
    """The chosen candidate of each node, and the copies to make.

    `seconds` is the price of the plan.  `gap` is by what share of it a better plan may exist that
    was not found; 0.0 if the plan is proven optimal.
    """

    candidates: dict[str, Candidate]
    copies: tuple[Copy, ...]
    seconds: float
    gap: float


class Problem:
    """The plans of one graph.

    `best` is the cheapest plan.  `searched` is None where elimination alone found it; with
    `eliminated_only`, raises TablesTooLarge where that cannot.  Otherwise raises Unsatisfiable if
    there is no plan at all, LayoutConflict if none was found within `SEARCH_WORK`.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        candidates: Candidates,
        cost: CostModel,
        table_limit: int = TABLE_LIMIT,
        eliminated_only: bool = False,
    ) -> None:
        self.graph = graph
        self.options = list(candidates.of_node.values())
        self.terms = price_terms(graph, candidates, cost)
        self.prices = self._prices()
        self.own = [self.prices.options([c.seconds for c in of_node]) for of_node in self.options]
        self.limit = table_limit
        encoding = encode(self.own, self.terms, self.prices, {}, table_limit)
        self.reduced = eliminate(encoding.own, encoding.factors, table_limit)
        self.searched: BoundedPlan | None = None
        if not self.reduced.left():
            self.chosen = self._eliminated()
        elif eliminated_only:
            raise TablesTooLarge
        else:
            self.searched = self._searched()
            self.chosen = self.searched.options
        self.best = self._solution(self.chosen, self.searched)

    def differing(self, excluded: Iterable[Candidate]) -> Solution | None:
        """The cheapest plan that does not take all of the `excluded` candidates.

        None if there is none, or none was found within `DETOUR_WORK`.  Where a search found the
        best plan, and that work is enough, none that differs is cheaper by more than a hundredth
        (`ENOUGH`).
        """
        left_out = {id(candidate) for candidate in excluded}
        own = [self._differing(node, left_out) for node in range(len(self.own))]
        if self.searched is not None:
            try:
                other = branch_and_bound(
                    self.own, self.terms, self.prices, self.limit, DETOUR_WORK, own, self.searched
                )
            except OutOfWork:
                return None
            return None if other is None else self._solution(other.options, other)
        detour = detours(self.reduced, own).cheapest()
        return None if detour is None else self._solution(detour.options, None)

    def extras(self) -> dict[str, tuple[float, ...]]:
        """For each candidate of a node, by how many seconds the best plan with it exceeds the best
        plan.

        Infinite where no plan takes the candidate.  Nodes are missing whose choice, or a choice
        that they depend on, was made by a search.
        """
        extra_prices = extras(self.reduced)
        return {
            options[0].node: tuple(
                self.prices.seconds(int(extra)) if extra < NEVER else inf
                for extra in extra_prices[number]
            )
            for number, options in enumerate(self.options)
            if number in extra_prices
        }

    def _differing(self, node: int, left_out: set[int]) -> Table:
        """The prices of the candidates that are not excluded, if some candidate of the node is;
        else `NEVER`.
        """
        out = np.array([id(candidate) in left_out for candidate in self.options[node]])
        return np.where(~out & out.any(), self.own[node], NEVER)

    def _prices(self) -> Prices:
        """Integer prices with a unit for which even the most expensive plan is summed exactly."""
        copies = [
            max(price.seconds for price in prices)
            for term in self.terms
            for prices in zip(*term.pattern.prices, strict=True)
        ]
        worst = fsum([*copies, *(max(c.seconds for c in of_node) for of_node in self.options)])
        rank = len(copies) + sum(len(of_node) for of_node in self.options)
        return Prices.upto(worst, rank)

    def _eliminated(self) -> list[int]:
        """The chosen candidate of each node as a number, and then values of hidden variables."""
        if self.reduced.price() >= NEVER:
            raise Unsatisfiable(NO_PLAN)
        chosen = [0] * len(self.reduced.own)
        self.reduced.complete(chosen)
        return chosen

    def _searched(self) -> BoundedPlan:
        try:
            bounded = branch_and_bound(self.own, self.terms, self.prices, self.limit, SEARCH_WORK)
        except OutOfWork:
            raise LayoutConflict(
                f"no plan was found in tables of {SEARCH_WORK} entries together, nor was it shown "
                "that there is none; pin layouts to make the search smaller"
            ) from None
        if bounded is None:
            raise Unsatisfiable(NO_PLAN)
        return bounded

    def _solution(self, chosen: list[int], searched: BoundedPlan | None) -> Solution:
        picked = [options[k] for options, k in zip(self.options, chosen, strict=False)]
        copies: list[tuple[tuple[int, ...], Copy]] = []
        for term in self.terms:
            copies += self._in_order(term, term.copies(chosen, self.prices))
        copies.sort(key=lambda item: item[0])
        seconds = fsum([*(c.seconds for c in picked), *(c.seconds for _, c in copies)])
        missing = 0 if searched is None else searched.price - searched.bound
        gap = self.prices.seconds(missing) / seconds if missing else 0.0
        return Solution({c.node: c for c in picked}, tuple(c for _, c in copies), seconds, gap)

    def _in_order(self, term: Term, copies: Iterable[Copy]) -> list[tuple[tuple[int, ...], Copy]]:
        """The copies of a value, each with a sort key: the first requirement that could have asked
        for it.

        The key is (node, candidate, input position), so that copies come in the order of the graph.
        """
        wanted = {copy_key(copy): replace(copy, value=term.value) for copy in copies}
        placed: list[tuple[tuple[int, ...], Copy]] = []
        tensor = self.graph.values[term.value]
        requirements = [
            ((node, k, position), requirement)
            for node in (sorted(term.readers) if wanted else ())
            for k, candidate in enumerate(self.options[node])
            for position, requirement in enumerate(candidate.requirements)
            if requirement.value == term.value
        ]
        for requirement in term.pattern.output if wanted else ():
            requirements.append(
                ((len(self.options), self.graph.outputs.index(term.value), 0), requirement)
            )
        for place, requirement in requirements:
            for copy in copies_for(tensor, requirement):
                first = wanted.pop(copy_key(copy), None)
                if first is not None:
                    placed.append((place, first))
        return placed


class PlannedGraph(Struct, frozen=True):
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
    """The solution of the graph in which the expansions of chosen candidates replace their nodes.

    Nodes that move elements in vain are gone, and every candidate has the requirements of its own
    kernel on its inputs.
    """
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
