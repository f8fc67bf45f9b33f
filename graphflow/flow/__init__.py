"""Flow: facts forward, demands backward, the cheapest plan; decides, and edits nothing."""

from graphflow.flow.contenders import Contenders, CopyToTime, FormToTime, ToTime, contenders
from graphflow.flow.forms import Forms, forms_of
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
)
from graphflow.flow.planner import plan_layouts
from graphflow.flow.regroup import plan_groups

__all__ = [
    "Cancelled",
    "Choice",
    "Contenders",
    "Conversion",
    "CopyToTime",
    "Difference",
    "EdgePlan",
    "FormToTime",
    "Forms",
    "Label",
    "LayoutPlan",
    "Other",
    "Pinned",
    "Refused",
    "ToTime",
    "accepts",
    "contenders",
    "forms_of",
    "label_of",
    "padding_regions",
    "plan_groups",
    "plan_layouts",
    "serving",
]
