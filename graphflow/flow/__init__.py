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
)
from graphflow.flow.planner import plan_layouts
from graphflow.flow.regroup import plan_groups, regrouped
from graphflow.flow.solve import Problem

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
    "Problem",
    "Refused",
    "Relied",
    "ToTime",
    "accepts",
    "clashing",
    "contenders",
    "contents",
    "copies_for",
    "copy_prices",
    "directly",
    "enumerate_candidates",
    "finite_inputs",
    "forms_of",
    "known_inputs",
    "label_of",
    "output_need",
    "padding_regions",
    "plan_groups",
    "plan_layouts",
    "regrouped",
    "serving",
]
