"""Convert: edits the graph as the plan says, and checks the plan by a fresh forward pass."""

from graphflow.convert.apply import apply_plan
from graphflow.convert.physical import Call, PhysicalGraph, Placement, StorageSpec
from graphflow.convert.poison import poison_input, poison_padding
from graphflow.convert.verify import verify_plan

__all__ = [
    "Call",
    "PhysicalGraph",
    "Placement",
    "StorageSpec",
    "apply_plan",
    "poison_input",
    "poison_padding",
    "verify_plan",
]
