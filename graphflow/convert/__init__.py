"""Convert: builds the physical graph that a layout plan describes.

In: the operator graph and its `LayoutPlan`.  Out: a `PhysicalGraph`.  What always holds: the plan
is first verified by a fresh forward pass over the facts, and nothing is decided here.
"""

from graphflow.convert.apply import apply_plan
from graphflow.convert.poison import poison_padding
from graphflow.convert.verify_plan import verify_plan

__all__ = [
    "apply_plan",
    "poison_padding",
    "verify_plan",
]
