"""Flow: facts forward, demands backward, the cheapest plan; decides, and edits nothing."""

from graphflow.flow.candidates import (
    Candidate,
    Candidates,
    Lies,
    Need,
    enumerate_candidates,
    output_need,
)
from graphflow.flow.collecting import collection_deferred
from graphflow.flow.contents import contents
from graphflow.flow.copies import Copy, clashing, copies_for, copy_prices, directly
from graphflow.flow.forms import Forms, finite_inputs, forms_of, known_inputs
from graphflow.flow.labels import label_of, padding_regions, serving
from graphflow.flow.plan import Conversion, CopyKind, Label, LayoutPlan, Other, Pinned, Whole
from graphflow.flow.planner import Planning, find_plan, plan_layouts
from graphflow.flow.regroup import cheapest, regrouped
from graphflow.flow.solve import Problem, Solution

__all__ = [
    "Candidate",
    "Candidates",
    "Conversion",
    "Copy",
    "CopyKind",
    "Forms",
    "Label",
    "LayoutPlan",
    "Lies",
    "Need",
    "Other",
    "Pinned",
    "Planning",
    "Problem",
    "Solution",
    "Whole",
    "cheapest",
    "clashing",
    "collection_deferred",
    "contents",
    "copies_for",
    "copy_prices",
    "directly",
    "enumerate_candidates",
    "find_plan",
    "finite_inputs",
    "forms_of",
    "known_inputs",
    "label_of",
    "output_need",
    "padding_regions",
    "plan_layouts",
    "regrouped",
    "serving",
]
