"""Choose between whole plans by measured end-to-end times.

In: the plan with the least sum of prices.  Out: that plan, or a baseline plan with one family of
layouts that was timed to be faster.  Prices are measured kernel by kernel, and many plans have
about the same sum; the one with the least sum is likely one whose measurements erred low.  So the
tuner also times the whole program of that plan and of the baseline plans, and files the times under
keys made here.  What always holds: an end-to-end time counts only for the comparison that it was
measured in, that is, as long as the same plan has the least sum of prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from graphflow.base.assumed import Assumption
from graphflow.base.collecting import collection_deferred
from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.baselines.uniform import uniform_pins
from graphflow.cost import NO_TIMINGS, CostModel, Timings, clearly_less
from graphflow.flow import Foresee, PinTrials, Planning, find_plan
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import definition_key, variant_key
from graphflow.layout import Family, Layout, families
from graphflow.plan import EndToEndTime, LayoutPlan
from graphflow.processes.digest import text_digest

IMAGE_RANK = 4
"""The rank of the tensors whose families of layouts are compared."""


def compared_families(target: Target) -> tuple[Family, ...]:
    """The families of layouts of the baseline plans, with the number of lanes of float32.

    Tensors of other element types get the same construction with their own lanes; see
    `uniform_pins`.
    """
    return families(IMAGE_RANK, target.computed_lanes("float32"), target)


def plan_key(decisions: Iterable[str], family: str | None) -> str:
    """The timing-table key of a plan with these decisions, or of the baseline of `family` beside
    it.

    The key of a baseline contains the decisions of the plan that it is compared with, so that its
    time counts in this comparison only.
    """
    return text_digest("\n".join(("plan", family or "", *decisions)))


def end_to_end_keys(cheapest: Planning) -> tuple[str, Mapping[Family, str]]:
    """The timing-table keys of a plan's end-to-end time, and of the baseline of each family beside
    it.
    """
    decided = tuple(_decisions(cheapest))
    compared = compared_families(cheapest.cost.target)
    return plan_key(decided, None), {f: plan_key(decided, f.name) for f in compared}


def baseline_plan(cheapest: Planning, graph: OperatorGraph, family: Family) -> Planning | None:
    """The cheapest plan of `graph` with `family` wherever possible; None where there is no such
    plan.

    It reports no pins, since the user asked for none.
    """
    pins = uniform_pins(graph, cheapest.cost.target, family)
    try:
        planned = find_plan(graph, cheapest.cost, pins, cheapest.assumptions, expand=False)
    except LayoutConflict:
        return None
    return replace(planned, pinned={})


def baseline_plans(cheapest: Planning, graph: OperatorGraph) -> Iterator[tuple[Family, Planning]]:
    """The baseline plans to time beside `cheapest`: of each family, if it decides unlike all before
    it.
    """
    known = {tuple(_decisions(cheapest))}
    for family in compared_families(cheapest.cost.target):
        planned = baseline_plan(cheapest, graph, family)
        if planned is not None and (decided := tuple(_decisions(planned))) not in known:
            known.add(decided)
            yield family, planned


def fastest(cheapest: Planning, graph: OperatorGraph) -> Planning:
    """`cheapest`, or the baseline plan that was timed to be clearly faster end to end.

    `cheapest` where the timings have no comparison of it.
    """
    known = cheapest.cost.timings.known
    if not known:
        return cheapest
    own, others = end_to_end_keys(cheapest)
    timed = known.get(own)
    if timed is None:
        return cheapest
    family = min(others, key=lambda f: known.get(others[f], timed))
    seconds = known.get(others[family], timed)
    taken = baseline_plan(cheapest, graph, family) if clearly_less(seconds, timed) else None
    if taken is None:
        return cheapest
    return replace(taken, end_to_end=EndToEndTime(family.name, seconds, timed, cheapest.seconds))


class PlannedGroups(NamedTuple):
    """A plan, the graph that it is a plan of, and plans of the fusion groups with a pin more."""

    graph: OperatorGraph
    plan: LayoutPlan
    pin_trials: PinTrials


def plan_groups(
    graph: OperatorGraph,
    target: Target,
    threads: int,
    pins: Mapping[str, Layout | str] | None = None,
    timings: Timings = NO_TIMINGS,
    assume: Mapping[str, Assumption] | None = None,
    winograd: bool = True,
    foresee: Foresee | None = None,
) -> PlannedGroups:
    """The best plan known; arguments and errors as of `plan_layouts`, `winograd` and `foresee` as
    of `find_plan`.

    With pins, end-to-end times are ignored: a pin says that its tensor is wanted as it is.
    """
    with collection_deferred():
        cost = CostModel(target, threads, timings)
        planned = find_plan(graph, cost, pins, assume, winograd=winograd, foresee=foresee)
        if not pins:
            planned = fastest(planned, graph)
        return PlannedGroups(planned.graph, planned.plan(), planned.pin_trials)


def _decisions(planned: Planning) -> Iterator[str]:
    """All decisions that distinguish one program of a model from another, in a stable order."""
    number = {value: k for k, value in enumerate(planned.graph.values)}
    best = planned.problem.best
    for node in planned.graph.nodes:
        read = " ".join(str(number[value]) for value in node.inputs)
        chosen = best.candidates.get(node.name)
        if chosen is not None:
            variant = variant_key(definition_key(node.func), chosen.variant, chosen.pad_value)
            yield f"{variant} of {read}"
    for copy in best.copies:
        yield f"{copy.kind} {number[copy.value]} to {copy.target.describe()}"
