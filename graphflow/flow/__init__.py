"""Flow: plans the variant of each node, the edge type of each value, and the copies to make.

In: an operator graph of fusion groups, a cost model, and the user's pins and assumptions.  Out: a
frozen `LayoutPlan`, the cheapest one that the search finds.  Facts about padding are propagated
forward and demands backward.  What always holds: flow decides and edits nothing; `convert` applies
the plan.
"""

from graphflow.flow.candidates import (
    Candidate,
    Candidates,
    OperandRequirement,
    OutputAliasing,
    enumerate_candidates,
    output_requirement,
)
from graphflow.flow.contents import contents
from graphflow.flow.copies import Copy, clashing, copies_for, copy_prices, directly
from graphflow.flow.edge_types import edge_type_of, padding_regions, serving
from graphflow.flow.plan import (
    Conversion,
    CopyKind,
    EdgeType,
    EndToEndTime,
    LayoutPlan,
    Other,
    Pinned,
)
from graphflow.flow.planner import Planning, find_plan, plan_layouts
from graphflow.flow.regroup import cheapest, regrouped
from graphflow.flow.solve import Problem, Solution
from graphflow.flow.variants import NodeVariants, finite_inputs, known_inputs, variants_of

__all__ = [
    "Candidate",
    "Candidates",
    "Conversion",
    "Copy",
    "CopyKind",
    "EdgeType",
    "EndToEndTime",
    "LayoutPlan",
    "NodeVariants",
    "OperandRequirement",
    "Other",
    "OutputAliasing",
    "Pinned",
    "Planning",
    "Problem",
    "Solution",
    "cheapest",
    "clashing",
    "contents",
    "copies_for",
    "copy_prices",
    "directly",
    "edge_type_of",
    "enumerate_candidates",
    "find_plan",
    "finite_inputs",
    "known_inputs",
    "output_requirement",
    "padding_regions",
    "plan_layouts",
    "regrouped",
    "serving",
    "variants_of",
]
