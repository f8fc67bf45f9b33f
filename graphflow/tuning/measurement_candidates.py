"""What the choice of a plan hangs on: prices worth measuring, the most important first.

In: a graph, the target, timings.  Out: the variants and copies, not measured yet, of the plan that
is the cheapest by these timings; then those of the next best plan, and variants with which the best
plan would take hardly longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphflow.cost import CostModel
from graphflow.flow import (
    Candidate,
    Candidates,
    Copy,
    CopyKind,
    EdgeType,
    Problem,
    Solution,
    enumerate_candidates,
)
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import Foreign, KernelVariant, View
from graphflow.layout import Layout

NEAR = 0.1
"""By what share of the seconds of a node a plan with another variant of it may take longer for that
variant to be worth measuring."""

MOST_NEAR = 3
"""How many such variants of one node are measured before the next plan."""


@dataclass(frozen=True)
class VariantToTime:
    """A variant of a node; `pad` is the constant that it writes to padding, None for anything.

    `seconds` is what it is thought to take.
    """

    node: str
    variant: KernelVariant
    pad: float | None
    seconds: float


@dataclass(frozen=True)
class CopyToTime:
    """A copy of a value from the edge type that it has: a conversion, or a fill of its padding."""

    value: str
    source: EdgeType
    target: EdgeType
    kind: CopyKind
    seconds: float


ToTime = VariantToTime | CopyToTime


@dataclass(frozen=True)
class MeasurementCandidates:
    """`decisive` is what the cheapest plan, which takes `seconds`, rests on without being measured;
    if there is nothing, what is `near` cannot be cheaper."""

    seconds: float
    decisive: tuple[ToTime, ...]
    near: tuple[ToTime, ...]


def measurement_candidates(
    graph: OperatorGraph,
    cost: CostModel,
    pins: Mapping[str, Layout] | None = None,
) -> MeasurementCandidates:
    """See the module's text; LayoutConflict where pins leave no plan."""
    candidates = enumerate_candidates(graph, cost, pins or {})
    problem = Problem(graph, candidates, cost)
    best = problem.best
    decisive = tuple(_of_plan(graph, candidates, best))
    near: list[ToTime] = []
    if decisive:
        other = problem.differing(best.candidates.values())
        if other is not None:
            near += _of_plan(graph, candidates, other)
        near += _near_variants(candidates, best, problem.extras())
    return MeasurementCandidates(best.seconds, decisive, tuple(near))


def _of_plan(graph: OperatorGraph, candidates: Candidates, plan: Solution) -> Iterator[ToTime]:
    """What a plan executes and nobody has measured."""
    edge_types = {name: candidates.edge_types[name][0] for name in graph.inputs}
    for candidate in plan.candidates.values():
        edge_types |= dict(candidate.gives)
        if _is_open(candidate):
            yield _variant(candidate)
    for copy in plan.copies:
        if not copy.measured:
            yield _copy(copy, edge_types[copy.value])


def _near_variants(
    candidates: Candidates, best: Solution, extras: Mapping[str, Sequence[float]]
) -> Iterator[ToTime]:
    """Variants that nobody has measured, with which the best plan would take hardly longer.

    `extras` say how much longer; where they do not, the variants are compared by themselves.
    """
    for name, chosen in best.candidates.items():
        options = candidates.of_node[name]
        alone = [option.seconds - chosen.seconds for option in options]
        ranked = sorted(
            (extra, number)
            for number, extra in enumerate(extras.get(name, alone))
            if _is_open(options[number]) and extra <= NEAR * chosen.seconds
        )
        for _, number in ranked[:MOST_NEAR]:
            yield _variant(options[number])


def _is_open(candidate: Candidate) -> bool:
    return not candidate.measured and not isinstance(candidate.variant.recipe, View | Foreign)


def _variant(candidate: Candidate) -> VariantToTime:
    return VariantToTime(candidate.node, candidate.variant, candidate.pad_value, candidate.seconds)


def _copy(copy: Copy, source: EdgeType) -> CopyToTime:
    return CopyToTime(copy.value, source, copy.target, copy.kind, copy.seconds)
