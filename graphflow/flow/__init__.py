"""Flow: facts forward, demands backward, the cheapest plan; decides, and edits nothing."""

from graphflow.flow.candidates import (
    Candidate,
    Candidates,
    Lies,
    Need,
    enumerate_candidates,
    output_need,
)
from graphflow.flow.contenders import Contenders, CopyToTime, FormToTime, ToTime, contenders
from graphflow.flow.contents import contents
from graphflow.flow.copies import Copy, clashing, copies_for, copy_prices, directly
from graphflow.flow.forms import Forms, finite_inputs, forms_of, known_inputs
from graphflow.flow.labels import accepts, label_of, padding_regions, serving
from graphflow.flow.plan import (
    Cancelled,
    Choice,
    Conversion,
    Difference,
    EdgePlan,
    Label,
    LayoutPlan,
    Other,
    Pinned,
    Refused,
    Relied,
    Whole,
)
from graphflow.flow.planner import Planning, plan_layouts
from graphflow.flow.regroup import cheapest, plan_groups, regrouped
from graphflow.flow.solve import Problem
from graphflow.flow.uniform import inner_values, uniform_pins
from graphflow.flow.whole import compared_families, rivals, whole_keys

__all__ = [
    "Cancelled",
    "Candidate",
    "Candidates",
    "Choice",
    "Contenders",
    "Conversion",
    "Copy",
    "CopyToTime",
    "Difference",
    "EdgePlan",
    "FormToTime",
    "Forms",
    "Label",
    "LayoutPlan",
    "Lies",
    "Need",
    "Other",
    "Pinned",
    "Planning",
    "Problem",
    "Refused",
    "Relied",
    "ToTime",
    "Whole",
    "accepts",
    "cheapest",
    "clashing",
    "compared_families",
    "contenders",
    "contents",
    "copies_for",
    "copy_prices",
    "directly",
    "enumerate_candidates",
    "finite_inputs",
    "forms_of",
    "inner_values",
    "known_inputs",
    "label_of",
    "output_need",
    "padding_regions",
    "plan_groups",
    "plan_layouts",
    "regrouped",
    "rivals",
    "serving",
    "uniform_pins",
    "whole_keys",
]
