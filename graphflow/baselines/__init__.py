"""Baseline plans: one family of layouts everywhere, greedy motion; and end-to-end times of plans.

`plan_groups` takes the plan that is the cheapest by the prices of its parts, unless a baseline was
timed to run faster.
"""

from graphflow.baselines.end_to_end import compared_families, plan_groups, rivals, whole_keys
from graphflow.baselines.greedy import PLANNERS, greedy_pins, plan_seconds
from graphflow.baselines.uniform import inner_values, uniform_pins

__all__ = [
    "PLANNERS",
    "compared_families",
    "greedy_pins",
    "inner_values",
    "plan_groups",
    "plan_seconds",
    "rivals",
    "uniform_pins",
    "whole_keys",
]
