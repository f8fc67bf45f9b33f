"""Flow: facts forward, demands backward, the cheapest plan; decides, and edits nothing."""

from graphflow.flow.labels import accepts, label_of, memory_key, padding_regions
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
    "Label",
    "LayoutPlan",
    "Refused",
    "accepts",
    "label_of",
    "memory_key",
    "padding_regions",
    "plan_layouts",
]
