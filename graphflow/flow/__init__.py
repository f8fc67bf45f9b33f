"""Flow: facts forward, demands backward, the cheapest plan; decides, and edits nothing."""

from graphflow.flow.candidates import Forms, forms_of
from graphflow.flow.labels import accepts, label_of, padding_regions
from graphflow.flow.plan import (
    Cancelled,
    Choice,
    Conversion,
    EdgePlan,
    Label,
    LayoutPlan,
    Refused,
)
from graphflow.flow.planner import plan_layouts

__all__ = [
    "Cancelled",
    "Choice",
    "Conversion",
    "EdgePlan",
    "Forms",
    "Label",
    "LayoutPlan",
    "Refused",
    "accepts",
    "forms_of",
    "label_of",
    "padding_regions",
    "plan_layouts",
]
