"""Flow: plans the variant of each node, the edge type of each value, and the copies to make.

In: an operator graph of fusion groups, a cost model, and the user's pins and assumptions.  Out: a
frozen `LayoutPlan`, the cheapest one that the search finds.  Facts about padding are propagated
forward and demands backward.  What always holds: flow decides and edits nothing; `convert` applies
the plan.
"""

from graphflow.flow.candidates.candidates import Candidate, Candidates, enumerate_candidates
from graphflow.flow.candidates.copies import Copy, clashing, copies_for, copy_prices, directly
from graphflow.flow.candidates.expansion_variants import expansions_of
from graphflow.flow.candidates.foreseen_kernels import Foresee
from graphflow.flow.candidates.requirements import (
    OperandRequirement,
    Production,
    output_requirement,
)
from graphflow.flow.candidates.variants import NodeVariants, variants_of
from graphflow.flow.pins import PinPrices, PinTrials
from graphflow.flow.planner import Planning, find_plan, plan_layouts
from graphflow.flow.solve import Problem, Solution

__all__ = [
    "Candidate",
    "Candidates",
    "Copy",
    "Foresee",
    "NodeVariants",
    "OperandRequirement",
    "PinPrices",
    "PinTrials",
    "Planning",
    "Problem",
    "Production",
    "Solution",
    "clashing",
    "copies_for",
    "copy_prices",
    "directly",
    "enumerate_candidates",
    "expansions_of",
    "find_plan",
    "output_requirement",
    "plan_layouts",
    "variants_of",
]
