"""The layout plan as data: what flow decides, and what convert and the reports read.

What always holds: a plan is frozen, and whoever holds one needs nothing of the search that found
it.
"""

from graphflow.plan.edge_types import (
    EdgeType,
    accepts,
    edge_type_key,
    edge_type_of,
    padding_regions,
    serving,
)
from graphflow.plan.layout_plan import (
    Cancelled,
    Choice,
    Conversion,
    CopyKind,
    Difference,
    EdgePlan,
    EndToEndTime,
    LayoutPlan,
    Other,
    Pinned,
    Refused,
    Relied,
    SharingUnit,
    ThreadSharing,
    copied_constant,
)

__all__ = [
    "Cancelled",
    "Choice",
    "Conversion",
    "CopyKind",
    "Difference",
    "EdgePlan",
    "EdgeType",
    "EndToEndTime",
    "LayoutPlan",
    "Other",
    "Pinned",
    "Refused",
    "Relied",
    "SharingUnit",
    "ThreadSharing",
    "accepts",
    "copied_constant",
    "edge_type_key",
    "edge_type_of",
    "padding_regions",
    "serving",
]
