"""What a pin would cost and what it would change: the graph is planned again with it.

In: the graph of a plan, the cost model, pins and assumptions that the plan was made with, and one
pin more.  Out: the cheapest plan with that pin, or why there is none.  What always holds: the plan
is the one that a compilation with this pin would find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from graphflow.base.assumed import Assumed, Assumption
from graphflow.cost import CostModel
from graphflow.flow.branch_and_bound.conditioning import TablesTooLarge
from graphflow.flow.candidates.candidates import Unsatisfiable, enumerate_candidates
from graphflow.flow.candidates.expansion_variants import expansions_of
from graphflow.flow.pins import read_pins
from graphflow.flow.solve import Problem
from graphflow.flow.taken_expansions import with_taken_expansions
from graphflow.flow.writer import write_plan
from graphflow.graph import Expansions, OperatorGraph, assumptions_about, contents
from graphflow.layout import Fact, Layout
from graphflow.plan import LayoutPlan

SEARCHED = "the best plan with it would take a search"
IMPOSSIBLE = "no plan has it"
NO_TENSOR = "the tensor is made by an expansion, which another plan need not take"


@dataclass(frozen=True)
class PinTrials:
    """Plans of one graph of fusion groups with one pin more than `pins`."""

    graph: OperatorGraph
    cost: CostModel
    pins: Mapping[str, Layout | str] = field(default_factory=dict)
    assume: Mapping[str, Assumption] = field(default_factory=dict)
    winograd: bool = True

    def plan(self, value: str, layout: Layout) -> LayoutPlan | str:
        """The best plan with `value` pinned to `layout`, without prices of what it does not take;
        the reason where there is none, or where it would take a search."""
        if value not in self.graph.values:
            return NO_TENSOR
        pinned = {**self._pinned, value: layout}
        try:
            candidates = enumerate_candidates(
                self.graph, self.cost, pinned, facts=self._facts, expansions=self._expansions
            )
            best = Problem(self.graph, candidates, self.cost, eliminated_only=True).best
        except TablesTooLarge:
            return SEARCHED
        except Unsatisfiable:
            return IMPOSSIBLE
        made = with_taken_expansions(self.graph, self._expansions, candidates, best)
        return write_plan(made.graph, made.candidates, made.solution, None, {})

    @cached_property
    def _pinned(self) -> Mapping[str, Layout]:
        return read_pins(self.graph, self.pins, self.cost.target)

    @cached_property
    def _expansions(self) -> Expansions:
        return expansions_of(self.graph, self.cost.target, self._assumed, self.winograd)

    @cached_property
    def _assumed(self) -> tuple[Assumed, ...]:
        return assumptions_about(self.graph, self.assume)

    @cached_property
    def _facts(self) -> Mapping[str, Fact]:
        return contents(self._expansions.graph, self._assumed)
