"""Convert: edits the graph as the plan says, and checks the plan by a fresh forward pass."""

from graphflow.convert.apply import apply_plan
from graphflow.convert.poison import poison_padding
from graphflow.convert.verify_plan import verify_plan

__all__ = [
    "apply_plan",
    "poison_padding",
    "verify_plan",
]
