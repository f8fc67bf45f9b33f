"""What a pin would cost and what it would change: the graph is planned again with it.

In: what a plan was found with, and one pin more.  Out: the cheapest plan with that pin, or why
there is none.  What always holds: the plan is the one that a compilation with this pin would find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphflow.base.assumed import Assumed
from graphflow.cost import CostModel
from graphflow.flow.branch_and_bound.conditioning import TablesTooLarge
from graphflow.flow.candidates.candidates import Candidates, Unsatisfiable, enumerate_candidates
from graphflow.flow.solve import Problem
from graphflow.flow.taken_expansions import with_taken_expansions
from graphflow.flow.writer import write_plan
from graphflow.graph import Expansions, OperatorGraph
from graphflow.layout import Fact, Layout
from graphflow.plan import LayoutPlan

SEARCHED = "the best plan with it would take a search"
IMPOSSIBLE = "no plan has it"
NO_TENSOR = "the tensor is made by an expansion, which another plan need not take"


@dataclass(frozen=True, slots=True)
class PinTrials:
    """Plans of one graph of fusion groups with one pin more than those in `pinned`; the other
    fields are as in `Planning`."""

    graph: OperatorGraph
    expansions: Expansions
    cost: CostModel
    pinned: Mapping[str, Layout]
    assumed: tuple[Assumed, ...]
    facts: Mapping[str, Fact]

    def plan(self, value: str, layout: Layout) -> LayoutPlan | str:
        """The best plan with `value` pinned to `layout`, without prices of what it does not take;
        the reason where there is none, or where it would take a search."""
        if value not in self.graph.values:
            return NO_TENSOR
        try:
            candidates, problem = self.problem({**self.pinned, value: layout})
        except TablesTooLarge:
            return SEARCHED
        except Unsatisfiable:
            return IMPOSSIBLE
        made = with_taken_expansions(self.graph, self.expansions, candidates, problem.best)
        return write_plan(made.graph, made.candidates, made.solution, None, {})

    def problem(self, pinned: Mapping[str, Layout]) -> tuple[Candidates, Problem]:
        """The candidates with these pins alone, and the best of their plans.

        Raises TablesTooLarge where that takes a search, and Unsatisfiable where no plan has them.
        """
        candidates = enumerate_candidates(
            self.graph, self.cost, pinned, facts=self.facts, expansions=self.expansions
        )
        return candidates, Problem(self.graph, candidates, self.cost, eliminated_only=True)
