"""Baseline plans to compare the cheapest plan with, and end-to-end times of plans.

Baselines have one family of layouts everywhere (`uniform`), or move conversions greedily
(`greedy`).  `plan_groups` returns the plan with the least sum of prices, unless a baseline plan was
timed to run faster end to end.
"""

from graphflow.baselines.end_to_end import (
    PlannedGroups,
    baseline_plans,
    compared_families,
    end_to_end_keys,
    plan_groups,
)
from graphflow.baselines.greedy import PLANNERS, greedy_pins, plan_seconds
from graphflow.baselines.uniform import inner_values, uniform_pins

__all__ = [
    "PLANNERS",
    "PlannedGroups",
    "baseline_plans",
    "compared_families",
    "end_to_end_keys",
    "greedy_pins",
    "inner_values",
    "plan_groups",
    "plan_seconds",
    "uniform_pins",
]
