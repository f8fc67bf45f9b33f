"""Plans that were timed as whole programs, for their parts do not say everything.

In: the plan that takes least by the prices of its parts.  Out: the plan to take.  Parts are timed
one by one, and many plans take about as long by them: the one that seems cheapest is one whose
parts were lucky.  So whoever fills the timing table also times that plan as a program, beside those
with one family of layouts wherever it can be had, and the fastest is taken.  What always holds:
such times count only for the comparison that they were made in, that is, as long as the same plan
is the cheapest by its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from graphflow.base.assumed import Assumption
from graphflow.base.errors import LayoutConflict
from graphflow.base.target import Target
from graphflow.baselines.uniform import uniform_pins
from graphflow.cost import NO_TIMINGS, CostModel, Timings, clearly_less
from graphflow.flow import (
    EndToEndTime,
    LayoutPlan,
    Planning,
    cheapest,
    collection_deferred,
    find_plan,
)
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import definition_key, variant_key
from graphflow.layout import Family, Layout, families
from graphflow.processes.digest import text_digest

IMAGE_RANK = 4
"""The rank of the tensors whose families of layouts are compared."""


def compared_families(target: Target) -> tuple[Family, ...]:
    """The families of layouts that whole plans are compared in, with the lanes of float32.

    A tensor of another type has the same construction with its own lanes; see `uniform_pins`.
    """
    return families(IMAGE_RANK, target.computed_lanes("float32"))


def plan_key(decisions: Iterable[str], family: str | None) -> str:
    """A plan as a whole, by all that it decides (None), or one with a family of layouts beside it.

    What is timed together is filed together: the latter counts for this comparison only.
    """
    return text_digest("\n".join(("plan", family or "", *decisions)))


def whole_keys(found: Planning) -> tuple[str, Mapping[Family, str]]:
    """The keys under which a plan is timed as a whole, and its rivals in the same comparison."""
    decided = tuple(_decisions(found))
    compared = compared_families(found.cost.target)
    return plan_key(decided, None), {f: plan_key(decided, f.name) for f in compared}


def rival(found: Planning, graph: OperatorGraph, family: Family) -> Planning | None:
    """The plan of `graph` with a family wherever it can be had; None where that leaves no plan.

    It is a plan like others: nobody asked for these layouts.
    """
    pins = uniform_pins(graph, found.cost.target, family)
    try:
        planned = find_plan(graph, found.cost, pins, found.assumptions)
    except LayoutConflict:
        return None
    return replace(planned, pinned={})


def rivals(found: Planning, graph: OperatorGraph) -> Iterator[tuple[Family, Planning]]:
    """The plans to time beside `found`: of each family, if it decides otherwise than all before."""
    known = {tuple(_decisions(found))}
    for family in compared_families(found.cost.target):
        planned = rival(found, graph, family)
        if planned is not None and (decided := tuple(_decisions(planned))) not in known:
            known.add(decided)
            yield family, planned


def fastest(found: Planning, graph: OperatorGraph) -> Planning:
    """`found`, or its rival that was timed to be faster."""
    known = found.cost.timings.known
    if not known:
        return found
    own, others = whole_keys(found)
    timed = known.get(own)
    if timed is None:
        return found
    family = min(others, key=lambda f: known.get(others[f], timed))
    seconds = known.get(others[family], timed)
    taken = rival(found, graph, family) if clearly_less(seconds, timed) else None
    if taken is None:
        return found
    return replace(taken, end_to_end=EndToEndTime(family.name, seconds, timed, found.seconds))


def plan_groups(
    graph: OperatorGraph,
    target: Target,
    threads: int,
    pins: Mapping[str, Layout | str] | None = None,
    timings: Timings = NO_TIMINGS,
    assume: Mapping[str, Assumption] | None = None,
) -> tuple[OperatorGraph, LayoutPlan]:
    """The cheapest plan found, and the graph it is a plan of; errors as of `plan_layouts`.

    A graph of which tensors are pinned stays as it is: a pin says that the tensor is wanted.
    """
    with collection_deferred():
        cost = CostModel(target, threads, timings)
        if pins:
            found = find_plan(graph, cost, pins, assume)
        else:
            found = fastest(cheapest(graph, cost, assume), graph)
        return found.graph, found.plan()


def _decisions(found: Planning) -> Iterator[str]:
    """All that tells a program from another one of the same model."""
    number = {value: k for k, value in enumerate(found.graph.values)}
    best = found.problem.best
    for node in found.graph.nodes:
        read = " ".join(str(number[value]) for value in node.inputs)
        chosen = best.candidates.get(node.name)
        if chosen is not None:
            variant = variant_key(definition_key(node.func), chosen.variant, chosen.pad_value)
            yield f"{variant} of {read}"
    for copy in best.copies:
        yield f"{copy.kind} {number[copy.value]} to {copy.target.describe()}"
