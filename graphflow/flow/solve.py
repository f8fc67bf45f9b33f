"""Find the cheapest plan: exact elimination first, branch and bound for what that leaves.

In: the graph, its `Candidates`, and the cost model.  Out: a `Solution`: one candidate for each
node, and the copies to make.  What always holds: the same input gives the same plan.  Where
elimination decides, of equally expensive plans the one with fewer copies and earlier candidates is
taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from math import fsum, inf

import networkx as nx
import numpy as np

from graphflow.base.errors import LayoutConflict
from graphflow.cost import CostModel
from graphflow.flow.candidates import Candidate, Candidates, Unsatisfiable
from graphflow.flow.copies import Copy, copies_for
from graphflow.flow.elimination import Detours, Factor, Reduced, detours, eliminate
from graphflow.flow.factors import encode
from graphflow.flow.highs import OutOfTime
from graphflow.flow.incumbent import greedy
from graphflow.flow.marginals import extras
from graphflow.flow.patterns import Pattern
from graphflow.flow.prices import NEVER, Prices, Table
from graphflow.flow.residual_ilp import IlpSolution, ResidualIlp
from graphflow.flow.terms import Term, copy_key, terms_of
from graphflow.graph import OperatorGraph

TIME_LIMIT = 5.0
"""Seconds that the search in all parts that elimination leaves may take together.

Then the best plan found so far is taken and its gap reported.
"""

DETOUR_LIMIT = 1.0
"""Seconds that the search for the next best plan may take; it is only reported."""

LEAST_TIME = 0.1
"""Seconds that each part of the graph may take even if others used up all."""

TABLE_LIMIT = 1 << 22
"""The most entries of one table of elimination: 32 MiB of prices."""


@dataclass(frozen=True)
class Solution:
    """The chosen candidate of each node, and the copies to make.

    `seconds` is the price of the plan.  `gap` is by what share of it a better plan may exist that
    was not found; 0.0 if the plan is proven optimal.
    """

    candidates: dict[str, Candidate]
    copies: tuple[Copy, ...]
    seconds: float
    gap: float


def solve(
    graph: OperatorGraph,
    candidates: Candidates,
    cost: CostModel,
    excluded: Iterable[Candidate] = (),
    table_limit: int = TABLE_LIMIT,
) -> Solution | None:
    """The cheapest plan, or the cheapest that does not take all of the `excluded` candidates.

    None if there is no other plan, or none was found in time.  Raises Unsatisfiable if there is no
    plan at all, LayoutConflict if none was found in time.
    """
    problem = Problem(graph, candidates, cost, table_limit)
    left_out = tuple(excluded)
    return problem.differing(left_out) if left_out else problem.best


class Problem:
    """The plans of one graph; results of elimination and of the integer programs are kept for
    reuse.

    `best` is the cheapest plan.  With `eliminated_only`, raises OutOfTime where an integer program
    would be needed; otherwise errors as of `solve`.
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
        self.terms = terms_of(graph, candidates, cost)
        self.prices = self._prices()
        self.own = [self.prices.options([c.seconds for c in found]) for found in self.options]
        self.term_of: dict[Factor, Term] = {}
        self.shared: dict[Pattern, Table] = {}
        self.limit = table_limit
        self.reduced = self._reduced(table_limit)
        self.residuals = self._residuals()
        if self.residuals and eliminated_only:
            raise OutOfTime
        self.chosen, self.outcomes = self._solved()
        self.best = self._solution(self.chosen, self.outcomes)

    def differing(self, excluded: Iterable[Candidate]) -> Solution | None:
        """The cheapest plan that does not take all of the `excluded` candidates.

        None if there is none, or none was found in time.
        """
        left_out = {id(candidate) for candidate in excluded}
        own = [self._differing(node, left_out) for node in range(len(self.own))]
        own += [np.full_like(prices, NEVER) for prices in self.reduced.own[len(own) :]]
        found = detours(self.reduced, own)
        ways: list[tuple[int, int | None, int | None, IlpSolution | None]] = []
        for root in self.reduced.roots():
            around = found.price(root)
            if around is not None and around < NEVER:
                ways.append((int(around) - int(root.load()), root.bucket, None, None))
        ends = time.perf_counter() + DETOUR_LIMIT
        for number, (residual, best) in enumerate(zip(self.residuals, self.outcomes, strict=True)):
            if any(self.prices.seconds(extra) == 0 for extra, *_ in ways):
                break  # nothing takes less time than the best plan
            outcome = _detour(residual, found, ends)
            if outcome is not None:
                ways.append((outcome.price - best.price, outcome.inside, number, outcome))
        if not ways:
            return None
        _, inside, place, outcome = min(ways, key=lambda way: way[0])
        chosen, outcomes = list(self.chosen), list(self.outcomes)
        if place is not None and outcome is not None:
            outcomes[place] = outcome
            for node, option in outcome.options.items():
                chosen[node] = option
        found.complete(chosen, inside)
        return self._solution(chosen, outcomes)

    def extras(self) -> dict[str, tuple[float, ...]]:
        """For each candidate of a node, by how many seconds the best plan with it exceeds the best
        plan.

        Infinite where no plan takes the candidate.  Nodes are missing whose choice, or a choice
        that they depend on, was made by the integer program.
        """
        found = extras(self.reduced)
        return {
            options[0].node: tuple(
                self.prices.seconds(int(extra)) if extra < NEVER else inf for extra in found[number]
            )
            for number, options in enumerate(self.options)
            if number in found
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
        worst = fsum([*copies, *(max(c.seconds for c in found) for found in self.options)])
        rank = len(copies) + sum(len(found) for found in self.options)
        return Prices.upto(worst, rank)

    def _reduced(self, limit: int) -> Reduced:
        """Elimination of all that elimination can solve alone; of other parts only their
        branches.
        """
        reduced = self._eliminated(limit, set())
        left = reduced.left()
        if not left:
            return reduced
        # The integer program is faster with a term's own rows than with messages over several
        # nodes, or states: where it is needed, only branches are eliminated.
        links = nx.Graph()
        links.add_nodes_from(left)
        for scope in (
            *(b.full_scope for b in reduced.buckets),
            *(f.scope for f in reduced.remaining),
        ):
            nx.add_path(links, scope)
        parts = [part for part in nx.connected_components(links) if not left.isdisjoint(part)]
        return self._eliminated(limit, {v for part in parts for v in part if v < len(self.own)})

    def _eliminated(self, limit: int, hard: Set[int]) -> Reduced:
        """Elimination; terms too large for a table are split into states, except at `hard`
        nodes.
        """
        found = encode(self.own, self.terms, self.prices, self.shared, limit, hard)
        self.term_of = found.term_of
        return eliminate(found.own, found.factors, limit, hard)

    def _residuals(self) -> list[ResidualIlp]:
        """One integer program for each connected part that elimination left."""
        links = nx.Graph()
        links.add_nodes_from((0, variable) for variable in self.reduced.left())
        for number, factor in enumerate(self.reduced.remaining):
            if factor.scope or not factor.tabled:
                links.add_node((1, number))
                links.add_edges_from(((0, variable), (1, number)) for variable in factor.scope)
        found = []
        for part in sorted(sorted(part) for part in nx.connected_components(links)):
            factors = [self.reduced.remaining[number] for kind, number in part if kind]
            found.append(
                ResidualIlp(
                    self.own,
                    [variable for kind, variable in part if not kind],
                    [self.term_of[factor] for factor in factors if factor in self.term_of],
                    [factor for factor in factors if factor not in self.term_of],
                    self.prices,
                    self.limit,
                )
            )
        return found

    def _solved(self) -> tuple[list[int], list[IlpSolution]]:
        """The number of the chosen candidate of each node, and the solution of each integer
        program.
        """
        ends = time.perf_counter() + TIME_LIMIT
        done = [f for f in self.reduced.remaining if not f.scope and f.tabled]
        outcomes = [_best(residual, ends) for residual in self.residuals]
        if any(int(factor.load()) >= NEVER for factor in done):
            raise Unsatisfiable("no plan meets the constraints of the graph; drop a pin")
        chosen = [0] * len(self.reduced.own)
        for outcome in outcomes:
            for node, option in outcome.options.items():
                chosen[node] = option
        self.reduced.complete(chosen)
        return chosen, outcomes

    # Solutions -----------------------------------------------------------------------------------

    def _solution(self, chosen: list[int], outcomes: list[IlpSolution]) -> Solution:
        picked = [options[k] for options, k in zip(self.options, chosen, strict=False)]
        made = {value: copies for outcome in outcomes for value, copies in outcome.copies.items()}
        copies: list[tuple[tuple[int, ...], Copy]] = []
        for term in self.terms:
            found = made.get(term.value)
            if found is None:
                found = term.copies(chosen, self.prices)
            copies += self._in_order(term, found)
        copies.sort(key=lambda item: item[0])
        seconds = fsum([*(c.seconds for c in picked), *(c.seconds for _, c in copies)])
        missing = fsum(self.prices.seconds(o.price - o.bound) for o in outcomes)
        gap = missing / seconds if missing else 0.0
        return Solution({c.node: c for c in picked}, tuple(c for _, c in copies), seconds, gap)

    def _in_order(self, term: Term, copies: Iterable[Copy]) -> list[tuple[tuple[int, ...], Copy]]:
        """The copies of a value, each with a sort key: the first requirement that could have asked
        for it.

        The key is (node, candidate, input position), so that copies come in the order of the graph.
        """
        wanted = {copy_key(copy): replace(copy, value=term.value) for copy in copies}
        found: list[tuple[tuple[int, ...], Copy]] = []
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
                    found.append((place, first))
        return found


def _best(residual: ResidualIlp, ends: float) -> IlpSolution:
    """The cheapest assignment of a part; where time runs out, the best that was found.

    Raises Unsatisfiable or LayoutConflict.
    """
    try:
        left = max(ends - time.perf_counter(), LEAST_TIME)
        found = residual.solve(left, lambda: greedy(residual))
    except OutOfTime:
        found = greedy(residual)
        if found is None:
            raise LayoutConflict(
                f"no plan was found within {TIME_LIMIT:g} s, nor was it shown that there is none; "
                "pin layouts to make the search smaller"
            ) from None
    if found is None:
        raise Unsatisfiable("no plan meets the constraints of the graph; drop a pin")
    return found


def _detour(residual: ResidualIlp, found: Detours, ends: float) -> IlpSolution | None:
    """The cheapest detour in a part; None if there is none, or none was found in time."""
    try:
        return residual.detour(found, max(ends - time.perf_counter(), LEAST_TIME))
    except OutOfTime:
        return None
