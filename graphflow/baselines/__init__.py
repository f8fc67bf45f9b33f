"""Baseline plans to compare the cheapest plan with, and end-to-end times of plans.

Baselines have one family of layouts everywhere (`uniform`), or move conversions greedily
(`greedy`).  `plan_groups` returns the plan with the least sum of prices, unless a baseline plan was
timed to run faster end to end.
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
